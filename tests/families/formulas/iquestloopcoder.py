"""A random IQuest-Coder Loop, and its formulas in NumPy, as mlx-lm has them.

mlx-lm 0.32.2, ``mlx_lm/models/iquestloopcoder.py``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.families.cases.kept import Kept
from tests.families.formulas.formulas import Formulas
from tests.families.random_tensors import Floats, Numbers, RandomTensors

BASE: dict[str, Any] = {
    "model_type": "iquestloopcoder",
    "architectures": ["IQuestLoopCoderForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "loop_num": 2,
    "loop_window_size": 12,
    "vocab_size": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "heads that the graph rotates": {"head_dim": 24, "num_attention_heads": 4, "num_key_value_heads": 4},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "tied": {"tie_word_embeddings": True},
    "a window of one": {"loop_window_size": 1},
    "a window as wide as the context": {"loop_window_size": 256},
    "positions divided": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "one layer": {"num_hidden_layers": 1},
}
SEED = 5
"""Chosen so that greedy decoding meets no near ties."""


def written(variant: str, folder: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, Floats]]:
    """A random checkpoint; ``changes``: of its config."""
    config = {**BASE, **VARIANTS[variant], **changes}
    hidden, inner, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    made = RandomTensors(np.random.default_rng(SEED))
    tensors, noise = made.tensors, made.noise

    tensors["model.embed_tokens.weight"] = noise(config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        layer, biased = f"model.layers.{i}", config["attention_bias"]
        made.norm(f"{layer}.input_layernorm", hidden)
        made.norm(f"{layer}.post_attention_layernorm", hidden)
        for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            made.linear(f"{layer}.self_attn.{name}_proj", rows * size, hidden, bias=biased, gain=1.5)
        made.linear(f"{layer}.self_attn.o_proj", hidden, heads * size, bias=biased, gain=1.5)
        for name in ("gate", "up"):
            made.linear(f"{layer}.mlp.{name}_proj", inner, hidden, bias=config["mlp_bias"])
        made.linear(f"{layer}.mlp.down_proj", hidden, inner, bias=config["mlp_bias"])
        tensors[f"model.gate_projections.{i}.weight"] = 0.4 * noise(heads, size)
        tensors[f"model.gate_projections.{i}.bias"] = 0.5 * noise(heads)
    made.norm("model.norm", hidden)
    if not config["tie_word_embeddings"]:
        made.linear("lm_head", config["vocab_size"], hidden, bias=False, gain=2.5)
    made.write(folder, config)
    return config, tensors


def computed(config: Mapping[str, Any], tensors: Mapping[str, Floats], ids: list[int]) -> Floats:
    """The logits of every position, [t, vocab], in 64 bits."""
    stored: dict[str, Numbers] = {
        name.removeprefix("model."): each.astype(np.float64) for name, each in tensors.items()
    }
    count, size, layers = len(ids), int(config["head_dim"]), int(config["num_hidden_layers"])
    steps = 1 / config.get("rope_scaling", {}).get("factor", 1.0)
    frequencies: Numbers = float(config["rope_theta"]) ** (-np.arange(0, size, 2) / size)
    angles = np.outer(steps * np.arange(count), frequencies)
    distance = np.subtract.outer(np.arange(count), np.arange(count))
    everything, window = distance >= 0, (distance >= 0) & (distance < config["loop_window_size"])

    def normed(x: Numbers, name: str) -> Numbers:
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + config["rms_norm_eps"]) * stored[f"{name}.weight"]

    def linear(x: Numbers, name: str) -> Numbers:
        return x @ stored[f"{name}.weight"].T + stored.get(f"{name}.bias", 0)

    def heads_of(x: Numbers, name: str, *, rotated: bool) -> Numbers:
        """[heads, t, size]."""
        split = linear(x, name).reshape(count, -1, size).transpose(1, 0, 2)
        if not rotated:
            return split
        first, second = np.split(split, 2, axis=-1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def attend(q: Numbers, k: Numbers, v: Numbers, seen: NDArray[np.bool_]) -> Numbers:
        group = len(q) // len(k)
        scores = np.where(seen, q @ np.repeat(k, group, 0).transpose(0, 2, 1) * size**-0.5, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True) @ np.repeat(v, group, 0)

    x, kept = stored["embed_tokens.weight"][ids], list[tuple[Numbers, Numbers]]()
    for number in range(2 * layers):
        i = number % layers
        attn, mlp = f"layers.{i}.self_attn", f"layers.{i}.mlp"
        y = normed(x, f"layers.{i}.input_layernorm")
        q, k = (heads_of(y, f"{attn}.{name}_proj", rotated=True) for name in "qk")
        v = heads_of(y, f"{attn}.v_proj", rotated=False)
        if number < layers:
            kept.append((k, v))
            read = attend(q, k, v, everything)
        else:
            weight, bias = (stored[f"gate_projections.{i}.{name}"] for name in ("weight", "bias"))
            gate = 1 / (1 + np.exp(-((q * weight[:, None]).sum(-1) + bias[:, None])))[..., None]
            first = attend(q, kept[i][0], kept[i][1], everything)
            read = gate * first + (1 - gate) * attend(q, k, v, window)
        x = x + linear(np.concatenate(list(read), axis=-1), f"{attn}.o_proj")
        y = normed(x, f"layers.{i}.post_attention_layernorm")
        wide = linear(y, f"{mlp}.gate_proj")
        x = x + linear(wide / (1 + np.exp(-wide)) * linear(y, f"{mlp}.up_proj"), f"{mlp}.down_proj")
    head = stored["embed_tokens.weight"] if config["tie_word_embeddings"] else stored["lm_head.weight"]
    return (normed(x, "norm") @ head.T).astype(np.float32)


FORMULAS = Formulas(
    BASE,
    VARIANTS,
    written,
    computed,
    # The second pass keeps a window, and reads the first one.
    Kept(
        (
            *((i, "growing") for i in range(3)),
            *((3, "shared"), (3, "windowed"), (4, "shared"), (4, "windowed"), (5, "shared"), (5, "windowed")),
        ),
        operators=frozenset({b"RotaryEmbedding"}),
    ),
    caches=((2, 16),) * 6,
    window=12,
    sources={3: 0, 4: 1, 5: 2},
)
