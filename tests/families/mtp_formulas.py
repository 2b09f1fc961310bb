"""Heads that no layer of transformers 4 is like, in float64 NumPy, by the names of their checkpoints.

What is around the layers follows the published code (vLLM: ``nemotron_h_mtp``; SGLang: ``bailing_moe_nextn``).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint.safetensors_file import open_safetensors
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.cases.sarvam_moe import LING
from tests.families.harness import checkpoint_of

Array = NDArray[np.float64]


class Weights:
    """The tensors of a checkpoint whose names begin alike, and the config."""

    def __init__(self, tensors: Mapping[str, Array], config: Mapping[str, Any], prefix: str = "") -> None:
        self._tensors, self.config, self._prefix = tensors, config, prefix

    def inside(self, prefix: str) -> "Weights":
        return Weights(self._tensors, self.config, f"{self._prefix}{prefix}")

    def __getitem__(self, name: str) -> Array:
        return self._tensors[f"{self._prefix}{name}"]

    def linear(self, module: str, x: Array) -> Array:
        return x @ self[f"{module}.weight"].T + self._tensors.get(f"{self._prefix}{module}.bias", 0.0)

    def norm(self, module: str, x: Array) -> Array:
        eps = self.config.get("rms_norm_eps") or self.config["layer_norm_epsilon"]
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self[f"{module}.weight"]


def attended(q: Array, k: Array, v: Array) -> Array:
    """q [t, heads, size], k and v [t, key heads, size] → [t, heads · size]."""
    k, v = (np.repeat(one, q.shape[1] // one.shape[1], axis=1) for one in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", shares / shares.sum(-1, keepdims=True), v).reshape(len(q), -1)


def rotated(x: Array, theta: float) -> Array:
    """x [t, heads, size], whose halves rotate."""
    half: int = x.shape[-1] // 2
    frequencies = theta ** -(np.arange(half, dtype=np.float64) / half)
    angles = np.arange(len(x))[:, None, None] * frequencies
    first, second = x[..., :half], x[..., half:]
    return np.concatenate(
        [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)], axis=-1
    )


def mixed(
    scores: Array, bias: Array, config: Mapping[str, Any], x: Array, expert: Callable[[int, Array], Array]
) -> Array:
    """Return the sum of the chosen experts for each of ``x`` [t, d]; ``scores`` [t, experts] of the router."""
    made: list[Array] = []
    for token, own in zip(x, 1 / (1 + np.exp(-scores)), strict=True):
        groups = np.split(own + bias, config["n_group"])
        sums = [np.sort(group)[-2:].sum() for group in groups]
        kept = np.argsort(sums)[-config["topk_group"] :]
        choice = np.concatenate(
            [group if i in kept else np.full_like(group, -np.inf) for i, group in enumerate(groups)]
        )
        chosen = np.argsort(choice)[-config["num_experts_per_tok"] :]
        shares = config["routed_scaling_factor"] * own[chosen] / (own[chosen].sum() + 1e-20)
        made.append(sum((share * expert(i, token) for share, i in zip(shares, chosen, strict=True)), np.zeros(1)))
    return np.array(made)


def nemotron_layers(weights: Weights, x: Array) -> Array:
    """Attention without positions, and experts of a latent size with squared ReLU."""
    config, first, second = weights.config, weights.inside("mtp.layers.0."), weights.inside("mtp.layers.1.")
    normed, mixer = first.norm("norm", x), first.inside("mixer.")
    q, k, v = (mixer.linear(f"{name}_proj", normed).reshape(len(x), -1, config["head_dim"]) for name in "qkv")
    x = x + mixer.linear("o_proj", attended(q, k, v))
    normed, mixer = second.norm("norm", x), second.inside("mixer.")

    def mlp(module: str, one: Array) -> Array:
        return mixer.linear(f"{module}.down_proj", np.maximum(mixer.linear(f"{module}.up_proj", one), 0) ** 2)

    scores, bias = mixer.linear("gate", normed), mixer["gate.e_score_correction_bias"]
    latent = mixer.linear("fc1_latent_proj", normed)
    routed = mixed(scores, bias, config, latent, lambda i, one: mlp(f"experts.{i}", one))
    return x + mixer.linear("fc2_latent_proj", routed) + mlp("shared_experts", normed)


def ling_layer(weights: Weights, x: Array) -> Array:
    """Attention whose queries and keys are normalized head by head and rotate, and gated experts."""
    config, layer = weights.config, weights.inside("model.layers.3.")
    size, heads, keys = (config[key] for key in ("head_dim", "num_attention_heads", "num_key_value_heads"))
    qkv = layer.linear("attention.query_key_value", layer.norm("input_layernorm", x)).reshape(len(x), -1, size)
    q, k, v = np.split(qkv, [heads, heads + keys], axis=1)
    theta = config["rope_parameters"]["rope_theta"]
    q = rotated(layer.norm("attention.query_layernorm", q), theta)
    k = rotated(layer.norm("attention.key_layernorm", k), theta)
    x = x + layer.linear("attention.dense", attended(q, k, v))
    normed, mlp = layer.norm("post_attention_layernorm", x), layer.inside("mlp.")

    def gated(module: str, one: Array) -> Array:
        gate = mlp.linear(f"{module}.gate_proj", one)
        return mlp.linear(f"{module}.down_proj", gate / (1 + np.exp(-gate)) * mlp.linear(f"{module}.up_proj", one))

    routed = mixed(
        mlp.linear("gate", normed), mlp["gate.expert_bias"], config, normed, lambda i, one: gated(f"experts.{i}", one)
    )
    return x + routed + gated("shared_experts", normed)


@dataclass(frozen=True, slots=True)
class Formula:
    """``case``: the model's; ``copied``: its layers that the head's are like, with their prefixes in the head.

    ``before``, ``after``: the modules that the projection and its norms are in, and that the final norm is.
    """

    case: str
    copied: Mapping[str, str]
    before: str
    after: str
    embedding: str
    layers: Callable[[Weights, Array], Array]
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        return self.case

    def write(self, folder: Path) -> Path:
        """A random checkpoint with a head."""
        case = next(one for one in CASES if str(one) == self.case)
        plain = checkpoint_of(case, folder.with_name(f"{folder.name}-plain"))
        tensors = {name: one.read() for name, one in open_safetensors(plain / "model.safetensors").items()}
        size = tensors[self.embedding].shape[1]
        found: dict[str, NDArray[Any]] = {
            name.replace(theirs, ours): one
            for theirs, ours in self.copied.items()
            for name, one in tensors.items()
            if name.startswith(theirs)
        }
        found |= {f"{self.before}{name}.weight": np.ones(size) for name in ("enorm", "hnorm")}
        found |= {f"{self.before}eh_proj.weight": np.ones((size, 2 * size)), f"{self.after}.weight": np.ones(size)}
        random = np.random.default_rng(5)
        drawn = {
            name: random.normal(name.endswith("norm.weight"), 0.2, one.shape).astype(np.float32)
            for name, one in found.items()
        }
        folder.mkdir()
        write_safetensors(folder / "model.safetensors", {**tensors, **drawn})
        config = json.loads((plain / "config.json").read_text("utf-8"))
        (folder / "config.json").write_text(json.dumps({**config, **self.config}), "utf-8")
        return folder

    def run(self, folder: Path, ids: list[int], hidden: NDArray[np.float32]) -> tuple[Array, Array]:
        """ids [t] of next tokens and hidden states [t, d] → logits [t, vocab], and hidden states [t, d]."""
        tensors = open_safetensors(folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text("utf-8"))
        weights = Weights({name: one.read().astype(np.float64) for name, one in tensors.items()}, config)
        before = weights.inside(self.before)
        token, previous = before.norm("enorm", weights[self.embedding][ids]), before.norm("hnorm", hidden.astype(float))
        x = before.linear("eh_proj", np.concatenate([token, previous], axis=-1))
        final = weights.norm(self.after, self.layers(weights, x))
        return weights.linear("lm_head", final), final


FORMULAS = (
    Formula(
        "nemotron_h: experts of a latent size",
        {"backbone.layers.2.": "mtp.layers.0.", "backbone.layers.5.": "mtp.layers.1."},
        "mtp.layers.0.",
        "mtp.layers.1.final_layernorm",
        "backbone.embeddings.weight",
        nemotron_layers,
        {"num_nextn_predict_layers": 1, "mtp_layers_block_type": ["attention", "moe"]},
    ),
    Formula(
        "sarvam_moe: base",
        {"model.layers.2.": "model.layers.3."},
        "model.layers.3.",
        "model.layers.3.final_layernorm",
        "model.word_embeddings.weight",
        ling_layer,
        {"model_type": "bailing_moe", "architectures": ["BailingMoeV2ForCausalLM"], **LING},
    ),
)
