"""A random RWKV-7, and its formulas in NumPy, token by token, as its paper has them.

Peng et al. 2025, "RWKV-7 Goose with Expressive Dynamic State Evolution", arXiv:2503.14456.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.families.cases.kept import Kept
from tests.families.formulas.formulas import Formulas
from tests.families.random_tensors import Floats, Numbers, RandomTensors

BASE: dict[str, Any] = {
    "model_type": "rwkv7",
    "architectures": ["RWKV7ForCausalLM"],
    "attn": None,
    "attn_mode": "chunk",
    "hidden_size": 64,
    "hidden_ratio": 4.0,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "head_dim": 16,
    "decay_low_rank_dim": 32,
    "gate_low_rank_dim": 48,
    "a_low_rank_dim": 40,
    "v_low_rank_dim": 16,
    "hidden_act": "sqrelu",
    "max_position_embeddings": 256,
    "norm_first": True,
    "norm_bias": True,
    "norm_eps": 1e-5,
    "fuse_norm": False,
    "tie_word_embeddings": False,
    "value_dim": [64, 64, 64],
    "vocab_size": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "one layer": {"num_hidden_layers": 1, "value_dim": None},
    "number of heads": {"head_dim": None, "num_heads": 2},
    "no norm of the embedding": {"norm_first": False},
    "norms without a bias": {"norm_bias": False},
    "epsilon": {"norm_eps": 1e-2},
    "tied": {"tie_word_embeddings": True},
    "a width by its ratio": {"intermediate_size": None, "hidden_ratio": 1.3},
    "silu": {"hidden_act": "silu"},
    "unused mix of the first layer": {},
}
SEED = 1
"""Chosen so that greedy decoding meets no near ties."""


def written(variant: str, folder: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, Floats]]:
    """A random checkpoint; ``changes``: of its config."""
    config = {**BASE, **VARIANTS[variant], **changes}
    hidden, size = config["hidden_size"], config["head_dim"] or BASE["hidden_size"] // config["num_heads"]
    width = config["intermediate_size"] or 96
    made = RandomTensors(np.random.default_rng(SEED))

    made.matrix("model.embeddings.weight", config["vocab_size"], hidden, gain=8.0)
    for i in range(config["num_hidden_layers"]):
        layer, attn = f"model.layers.{i}", f"model.layers.{i}.attn"
        if i == 0 and config["norm_first"]:
            made.norm(f"{layer}.pre_norm", hidden, bias=config["norm_bias"])
        made.norm(f"{layer}.attn_norm", hidden, bias=config["norm_bias"])
        made.norm(f"{layer}.ffn_norm", hidden, bias=config["norm_bias"])
        for name in "rwkvag":
            made.uniform(f"{attn}.x_{name}", 0.0, 1.0, 1, 1, hidden)
        made.uniform(f"{attn}.k_k", 0.5, 1.0, hidden)
        made.uniform(f"{attn}.k_a", 0.8, 1.2, hidden)
        made.uniform(f"{attn}.r_k", -0.5, 0.5, hidden // size, size)
        for name in "rkvo":
            made.matrix(f"{attn}.{name}_proj.weight", hidden, hidden, gain=1.5)
        for name, key in (("w", "decay"), ("v", "v"), ("a", "a"), ("g", "gate")):
            if name == "v" and i == 0 and variant != "unused mix of the first layer":
                continue
            rank = config[f"{key}_low_rank_dim"]
            made.matrix(f"{attn}.{name}_lora.lora.0.weight", rank, hidden)
            made.matrix(f"{attn}.{name}_lora.lora.2.weight", hidden, rank, gain=2.0)
            if name != "g":
                made.uniform(f"{attn}.{name}_lora.lora.2.bias", -3.0, 1.0, hidden)
        made.norm(f"{attn}.g_norm", hidden, bias=True)
        made.uniform(f"{layer}.ffn.x_k", 0.0, 1.0, hidden)
        made.matrix(f"{layer}.ffn.key.weight", width, hidden)
        made.matrix(f"{layer}.ffn.value.weight", hidden, width)
    made.norm("model.norm", hidden, bias=config["norm_bias"])
    if not config["tie_word_embeddings"]:
        made.matrix("lm_head.weight", config["vocab_size"], hidden, gain=2.5)
    made.write(folder, config)
    return config, made.tensors


def computed(config: Mapping[str, Any], tensors: Mapping[str, Floats], ids: list[int]) -> Floats:
    """The logits of every position, [t, vocab], in 64 bits."""
    stored: dict[str, Numbers] = {name: array.astype(np.float64) for name, array in tensors.items()}
    hidden: int = config["hidden_size"]
    size = config["head_dim"] or hidden // config["num_heads"]

    def sigmoid(x: Numbers) -> Numbers:
        return 1 / (1 + np.exp(-x))

    def normed(x: Numbers, name: str, eps: float) -> Numbers:
        even = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
        even = even.reshape(-1)
        return even * stored[f"{name}.weight"] + stored.get(f"{name}.bias", 0)

    def low_rank(x: Numbers, name: str, between: Callable[[Numbers], Numbers]) -> Numbers:
        made = stored[f"{name}_lora.lora.2.weight"] @ between(stored[f"{name}_lora.lora.0.weight"] @ x)
        return made + stored.get(f"{name}_lora.lora.2.bias", 0)

    def as_it_is(x: Numbers) -> Numbers:
        return x

    shifts = dict[str, Numbers]()
    states = dict[int, Numbers]()

    def change(x: Numbers, name: str) -> Numbers:
        before, shifts[name] = shifts.get(name, np.zeros(hidden)), x
        return before - x

    def attend(i: int, x: Numbers, first: Numbers | None) -> tuple[Numbers, Numbers]:
        attn = f"model.layers.{i}.attn"
        changed = change(x, attn)
        xr, xw, xk, xv, xa, xg = (x + changed * stored[f"{attn}.x_{name}"].reshape(-1) for name in "rwkvag")
        r, k, v = (stored[f"{attn}.{n}_proj.weight"] @ each for n, each in (("r", xr), ("k", xk), ("v", xv)))
        decay = np.exp(-np.exp(-0.5) * sigmoid(low_rank(xw, f"{attn}.w", np.tanh)))
        v = v if first is None else v + (first - v) * sigmoid(low_rank(xv, f"{attn}.v", as_it_is))
        a = sigmoid(low_rank(xa, f"{attn}.a", as_it_is))
        gate = low_rank(xg, f"{attn}.g", sigmoid)
        unit = (k * stored[f"{attn}.k_k"]).reshape(-1, size)
        unit = unit / np.linalg.norm(unit, axis=-1, keepdims=True)
        k = k * (1 + (a - 1) * stored[f"{attn}.k_a"])
        by_head = [each.reshape(-1, size) for each in (r, k, v, a, decay)]
        read = list[Numbers]()
        state = states.setdefault(i, np.zeros((hidden // size,) + (size,) * 2))  # [values, keys] of each head
        for h, (rh, kh, vh, ah, dh) in enumerate(zip(*by_head, strict=True)):
            moved = np.diag(dh) - np.outer(unit[h], ah * unit[h])
            state[h] = state[h] @ moved + np.outer(vh, kh)
            read.append(state[h] @ rh)
        y = normed(np.array(read), f"{attn}.g_norm", size * config["norm_eps"])
        bonus = (by_head[0] * by_head[1] * stored[f"{attn}.r_k"]).sum(-1, keepdims=True) * by_head[2]
        out = stored[f"{attn}.o_proj.weight"] @ ((y + bonus.reshape(-1)) * gate)
        return out, v if first is None else first

    def think(i: int, x: Numbers) -> Numbers:
        ffn = f"model.layers.{i}.ffn"
        wide = stored[f"{ffn}.key.weight"] @ (x + change(x, ffn) * stored[f"{ffn}.x_k"])
        wide = np.maximum(wide, 0) ** 2 if config["hidden_act"] == "sqrelu" else wide * sigmoid(wide)
        return stored[f"{ffn}.value.weight"] @ wide

    embedding, eps, logits = stored["model.embeddings.weight"], config["norm_eps"], list[Numbers]()
    for token in ids:
        x, first = embedding[token], None
        x = normed(x, "model.layers.0.pre_norm", eps) if config["norm_first"] else x
        for i in range(config["num_hidden_layers"]):
            made, first = attend(i, normed(x, f"model.layers.{i}.attn_norm", eps), first)
            x = x + made
            x = x + think(i, normed(x, f"model.layers.{i}.ffn_norm", eps))
        head = embedding if config["tie_word_embeddings"] else stored["lm_head.weight"]
        logits.append(head @ normed(x, "model.norm", eps))
    return np.array(logits, np.float32)


FORMULAS = Formulas(
    BASE,
    VARIANTS,
    written,
    computed,
    Kept(
        tuple((i // 3, "fixed") for i in range(9)),
        3 * (64 + 4 * 16 * 16 + 64) * 4,
        frozenset({b"Scan", b"Neg", b"Exp", b"Tanh"}),
    ),
)
