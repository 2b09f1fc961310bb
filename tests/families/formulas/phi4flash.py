"""A random Phi-4-mini-flash, and its formulas in NumPy, as its papers and its published code have them.

Ren et al. 2025, "Decoder-Hybrid-Decoder Architecture for Efficient Reasoning with Long Generation", arXiv:2507.06607;
Ye et al. 2024, "Differential Transformer", arXiv:2410.05258; Gu and Dao 2023, "Mamba", arXiv:2312.00752.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.families.cases.kept import SCAN, Kept, fixed
from tests.families.formulas.formulas import Formulas
from tests.families.random_tensors import Floats, Numbers, RandomTensors

BASE: dict[str, Any] = {
    "model_type": "phi4flash",
    "architectures": ["Phi4FlashForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "layer_norm_eps": 1e-5,
    "mb_per_layer": 2,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_dt_rank": 32,
    "mamba_conv_bias": True,
    "mamba_proj_bias": False,
    "mlp_bias": False,
    "lm_head_bias": False,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "attention_dropout": 0.0,
    "sliding_window": 12,
    "tie_word_embeddings": True,
    "vocab_size": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "twelve layers, windows by layer": {
        "num_hidden_layers": 12,
        "sliding_window": [None, 9, None, 9, None, 9, *[None] * 6],
    },
    "as few layers as can be": {"num_hidden_layers": 4},
    "biases, a head of its own": {
        "mamba_proj_bias": True,
        "mlp_bias": True,
        "lm_head_bias": True,
        "tie_word_embeddings": False,
    },
    "one pair of keys": {"num_key_value_heads": 2, "num_attention_heads": 4},
    "as many keys as queries": {"num_key_value_heads": 8},
    "no convolution bias, the rank by its rule": {"mamba_conv_bias": False, "mamba_dt_rank": "auto"},
    "no windows": {"sliding_window": None},
    "other sizes of the state": {"mamba_d_state": 24, "mamba_d_conv": 3, "mamba_expand": 3},
    "epsilon": {"layer_norm_eps": 1e-2},
}
SEED = 2
"""Chosen so that greedy decoding meets no near ties."""


def written(variant: str, folder: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, Floats]]:
    """A random checkpoint; ``changes``: of its config."""
    config = {**BASE, **VARIANTS[variant], **changes}
    hidden, heads, kv_heads = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    wide, layers, size, inner = (
        config["intermediate_size"],
        config["num_hidden_layers"],
        hidden // heads,
        _inner(config),
    )
    state, rank = config["mamba_d_state"], _rank(config)
    made = RandomTensors(np.random.default_rng(SEED))
    tensors, noise = made.tensors, made.noise

    def recurrent(attn: str) -> None:
        made.linear(f"{attn}.in_proj", 2 * inner, hidden, bias=config["mamba_proj_bias"], gain=1.5)
        made.linear(f"{attn}.out_proj", hidden, inner, bias=config["mamba_proj_bias"], gain=2.0)
        made.linear(f"{attn}.x_proj", rank + 2 * state, inner, bias=False)
        made.linear(f"{attn}.dt_proj", inner, rank, bias=True)
        tensors[f"{attn}.conv1d.weight"] = noise(inner, 1, config["mamba_d_conv"])
        if config["mamba_conv_bias"]:
            tensors[f"{attn}.conv1d.bias"] = 0.3 * noise(inner)
        made.uniform(f"{attn}.A_log", -2.0, 1.0, inner, state)
        tensors[f"{attn}.D"] = 1 + 0.3 * noise(inner)

    def differential(attn: str, rows: int) -> None:
        made.linear(f"{attn}.Wqkv", rows * size, hidden, bias=True, gain=2.0)
        made.linear(f"{attn}.out_proj", hidden, hidden, bias=True, gain=1.5)
        for name in ("q1", "k1", "q2", "k2"):
            tensors[f"{attn}.inner_cross_attn.lambda_{name}"] = 0.3 * noise(size)
        tensors[f"{attn}.inner_cross_attn.subln.weight"] = 1 + 0.3 * noise(2 * size)

    tensors["model.embed_tokens.weight"] = 0.3 * noise(config["vocab_size"], hidden)
    for i in range(layers):
        layer, attn = f"model.layers.{i}", f"model.layers.{i}.attn"
        made.norm(f"{layer}.input_layernorm", hidden, bias=True)
        made.norm(f"{layer}.post_attention_layernorm", hidden, bias=True)
        if i % 2:
            differential(attn, heads + (0 if i > layers // 2 + 1 else 2 * kv_heads))
        elif i > layers // 2:
            made.linear(f"{attn}.in_proj", inner, hidden, bias=config["mamba_proj_bias"], gain=1.5)
            made.linear(f"{attn}.out_proj", hidden, inner, bias=config["mamba_proj_bias"])
        else:
            recurrent(attn)
        made.linear(f"{layer}.mlp.fc1", 2 * wide, hidden, bias=config["mlp_bias"])
        made.linear(f"{layer}.mlp.fc2", hidden, wide, bias=config["mlp_bias"])
    made.norm("model.final_layernorm", hidden, bias=True)
    if not config["tie_word_embeddings"]:
        made.linear("lm_head", config["vocab_size"], hidden, bias=config["lm_head_bias"], gain=5.0)
    made.write(folder, config)
    return config, tensors


def _inner(config: Mapping[str, Any]) -> int:
    return config["mamba_expand"] * config["hidden_size"]


def _rank(config: Mapping[str, Any]) -> int:
    rank = config["mamba_dt_rank"]
    return -(-config["hidden_size"] // 16) if rank == "auto" else rank


def computed(config: Mapping[str, Any], tensors: Mapping[str, Floats], ids: list[int]) -> Floats:
    """The logits of every position, [t, vocab], in 64 bits."""
    stored: dict[str, Numbers] = {
        name.removeprefix("model."): each.astype(np.float64) for name, each in tensors.items()
    }
    count, layers, hidden = len(ids), int(config["num_hidden_layers"]), int(config["hidden_size"])
    size, state, rank = hidden // int(config["num_attention_heads"]), int(config["mamba_d_state"]), _rank(config)
    distance = np.subtract.outer(np.arange(count), np.arange(count))

    def normed(x: Numbers, name: str) -> Numbers:
        even = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + config["layer_norm_eps"])
        return even * stored[f"{name}.weight"] + stored[f"{name}.bias"]

    def linear(x: Numbers, name: str) -> Numbers:
        return x @ stored[f"{name}.weight"].T + stored.get(f"{name}.bias", 0)

    def silu(x: Numbers) -> Numbers:
        return x / (1 + np.exp(-x))

    def scanned(x: Numbers, attn: str) -> Numbers:
        """Return the output of the state space for x [t, inner], before its gate."""
        kernel = stored[f"{attn}.conv1d.weight"][:, 0]
        padded = np.concatenate([np.zeros((kernel.shape[1] - 1, x.shape[1])), x])
        taps = np.array([padded[k : k + count] * weight for k, weight in enumerate(kernel.T)])
        x = silu(taps.sum(0) + stored.get(f"{attn}.conv1d.bias", 0))
        dt, b, c = np.split(linear(x, f"{attn}.x_proj"), [rank, rank + state], axis=-1)
        dt = np.log1p(np.exp(linear(dt, f"{attn}.dt_proj")))
        rate, h, read = -np.exp(stored[f"{attn}.A_log"]), np.zeros((x.shape[1], state)), list[Numbers]()
        for t in range(count):
            h = np.exp(dt[t][:, None] * rate) * h + (dt[t] * x[t])[:, None] * b[t]
            read.append(h @ c[t])
        return np.array(read) + stored[f"{attn}.D"] * x

    def pairs(x: Numbers) -> tuple[Numbers, Numbers]:
        """The first and second of each pair of heads, [heads / 2, t, size]."""
        by_head = np.array(np.split(x, x.shape[1] // size, axis=1))
        return by_head[0::2], by_head[1::2]

    def attend(q: Numbers, k: Numbers, v: Numbers, window: int | None) -> Numbers:
        group = len(q) // len(k)
        seen = (distance >= 0) & (distance < (window or count))
        scores = np.where(seen, q @ np.repeat(k, group, 0).transpose(0, 2, 1) * size**-0.5, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True) @ np.repeat(v, group, 0)

    def differential(q: Numbers, k: Numbers, v: Numbers, attn: str, i: int, window: int | None) -> Numbers:
        (q1, q2), (k1, k2), (v1, v2) = pairs(q), pairs(k), pairs(v)
        own, initial = f"{attn}.inner_cross_attn", 0.8 - 0.6 * np.exp(-0.3 * i)
        first, second = (
            np.concatenate([attend(*both, v1, window), attend(*both, v2, window)], axis=-1)
            for both in ((q1, k1), (q2, k2))
        )
        of = {name: stored[f"{own}.lambda_{name}"] for name in ("q1", "k1", "q2", "k2")}
        rate = np.exp(of["q1"] @ of["k1"]) - np.exp(of["q2"] @ of["k2"]) + initial
        less = first - rate * second
        even = less / np.sqrt(np.mean(less * less, -1, keepdims=True) + 1e-5) * stored[f"{own}.subln.weight"]
        return linear(np.concatenate(list((1 - initial) * even), axis=-1), f"{attn}.out_proj")

    sizes: Any = config["sliding_window"]
    if not isinstance(sizes, list):
        sizes = [sizes if i < layers // 2 else None for i in range(layers)]
    windows: list[int | None] = [*sizes]
    x, width = stored["embed_tokens.weight"][ids], hidden + 2 * size * int(config["num_key_value_heads"])
    memory, kept = x, (x, x)
    for i in range(layers):
        attn, mlp = f"layers.{i}.attn", f"layers.{i}.mlp"
        y = normed(x, f"layers.{i}.input_layernorm")
        if i % 2:
            projected = linear(y, f"{attn}.Wqkv")
            if i <= layers // 2 + 1:
                kept = projected[:, hidden : (hidden + width) // 2], projected[:, (hidden + width) // 2 :]
            x = x + differential(projected[:, :hidden], kept[0], kept[1], attn, i, windows[i])
        elif i > layers // 2:
            x = x + linear(silu(linear(y, f"{attn}.in_proj")) * memory, f"{attn}.out_proj")
        else:
            taken, gate = np.split(linear(y, f"{attn}.in_proj"), 2, axis=-1)
            memory = scanned(taken, attn)
            x = x + linear(silu(gate) * memory, f"{attn}.out_proj")
        gate, up = np.split(linear(normed(x, f"layers.{i}.post_attention_layernorm"), f"{mlp}.fc1"), 2, axis=-1)
        x = x + linear(silu(gate) * up, f"{mlp}.fc2")
    return linear(normed(x, "final_layernorm"), "embed_tokens" if config["tie_word_embeddings"] else "lm_head").astype(
        np.float32
    )


FORMULAS = Formulas(
    BASE,
    VARIANTS,
    written,
    computed,
    # The second half reads what the first has kept; pairs of keys are one.
    Kept(
        (
            *(*fixed(0), (1, "windowed"), *fixed(2), (3, "windowed")),
            *(*fixed(4), (5, "growing"), (7, "shared")),
        ),
        3 * (3 + 16) * 128 * 4,
        SCAN,
        rolled_back=True,
    ),
    caches=((2, 16),) * 3,
    window=12,
    sources={7: 5},
)
