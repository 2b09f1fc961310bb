"""The model shapes of the comparison with routed experts: GLM-4.7-Flash's and Ling-mini's layers."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Experts:
    """Experts routed as in DeepSeek-V3, with a shared one, after a first layer that has none.

    ``groups`` and ``best_groups``: those that a token's experts are chosen from.
    """

    count: int
    per_token: int
    inner: int
    scale: float
    groups: int
    best_groups: int

    @staticmethod
    def read(config: Mapping[str, Any], count: str) -> "Experts":
        """Read the experts of `config.json`, whose number is under the key ``count``."""
        return Experts(
            config[count],
            config["num_experts_per_tok"],
            config["moe_intermediate_size"],
            config["routed_scaling_factor"],
            config["n_group"],
            config["topk_group"],
        )

    def said(self, count: str, shared: str) -> dict[str, Any]:
        """The fields, as `config.json` says them."""
        return {
            count: self.count,
            shared: 1,
            "num_experts_per_tok": self.per_token,
            "moe_intermediate_size": self.inner,
            "routed_scaling_factor": self.scale,
            "n_group": self.groups,
            "topk_group": self.best_groups,
            "norm_topk_prob": True,
            "first_k_dense_replace": 1,
        }

    def weights_per_token(self, width: int) -> int:
        """Matrix weights of one layer that one decode step has to read: the router, those chosen and the shared one."""
        return width * (self.count + 3 * self.inner * (self.per_token + 1))

    def tensors(self, mlp: str, width: int, bias: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes in the layer of ``mlp``, the bias of each one's choice under the name ``bias``."""
        yield f"{mlp}.gate.weight", (self.count, width)
        yield f"{mlp}.gate.{bias}", (self.count,)
        for module in (*(f"experts.{n}" for n in range(self.count)), "shared_experts"):
            yield from mlp_tensors(f"{mlp}.{module}", width, self.inner)


def mlp_tensors(mlp: str, width: int, inner: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a gated MLP."""
    for name, dims in (("gate", (inner, width)), ("up", (inner, width)), ("down", (width, inner))):
        yield f"{mlp}.{name}_proj.weight", dims


@dataclass(frozen=True)
class GlmLiteShape:
    """The sizes of a GLM-4.7-Flash: latent attention and routed experts, with a head of its own.

    ``latent`` and ``query_rank``: what keys and values, and queries, are made of. Of a head's queries and keys
    ``plain`` numbers stay and ``rotated`` ones turn with the position; its values are ``value`` numbers.
    """

    layers: int
    width: int
    heads: int
    inner: int
    experts: Experts
    query_rank: int
    latent: int
    plain: int
    rotated: int
    value: int
    vocab: int
    context: int = 202752
    rope_theta: float = 1000000.0
    eps: float = 1e-5
    tokenizer_class: str = "PreTrainedTokenizerFast"

    @classmethod
    def read(cls, folder: Path) -> "GlmLiteShape":
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return cls(
            config["num_hidden_layers"],
            config["hidden_size"],
            config["num_attention_heads"],
            config["intermediate_size"],
            Experts.read(config, "n_routed_experts"),
            config["q_lora_rank"],
            config["kv_lora_rank"],
            config["qk_nope_head_dim"],
            config["qk_rope_head_dim"],
            config["v_head_dim"],
            config["vocab_size"],
            config["max_position_embeddings"],
            config["rope_theta"],
            config["rms_norm_eps"],
        )

    @property
    def kv_heads(self) -> int:
        """As many, once they are made of the latents."""
        return self.heads

    @property
    def head_dim(self) -> int:
        """Of queries and keys."""
        return self.plain + self.rotated

    @property
    def weights_per_token(self) -> int:
        """Matrix weights that one decode step has to read, the head included."""
        attention = sum(rows * columns for rows, columns in self._attention().values())
        dense = 3 * self.width * self.inner
        sparse = (self.layers - 1) * self.experts.weights_per_token(self.width)
        return self.layers * attention + dense + sparse + self.vocab * self.width

    def _attention(self) -> dict[str, tuple[int, int]]:
        return {
            "q_a_proj": (self.query_rank, self.width),
            "q_b_proj": (self.heads * self.head_dim, self.query_rank),
            "kv_a_proj_with_mqa": (self.latent + self.rotated, self.width),
            "kv_b_proj": (self.heads * (self.plain + self.value), self.latent),
            "o_proj": (self.width, self.heads * self.value),
        }

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes; matrices are [out, in]."""
        yield "model.embed_tokens.weight", (self.vocab, self.width)
        for i in range(self.layers):
            layer = f"model.layers.{i}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                yield f"{layer}.{norm}.weight", (self.width,)
            for name, dims in self._attention().items():
                yield f"{layer}.self_attn.{name}.weight", dims
            yield f"{layer}.self_attn.q_a_layernorm.weight", (self.query_rank,)
            yield f"{layer}.self_attn.kv_a_layernorm.weight", (self.latent,)
            if i == 0:
                yield from mlp_tensors(f"{layer}.mlp", self.width, self.inner)
            else:
                yield from self.experts.tensors(f"{layer}.mlp", self.width, "e_score_correction_bias")
        yield "model.norm.weight", (self.width,)
        yield "lm_head.weight", (self.vocab, self.width)

    def config(self) -> dict[str, Any]:
        return {
            "architectures": ["Glm4MoeLiteForCausalLM"],
            "model_type": "glm4_moe_lite",
            "hidden_act": "silu",
            "rms_norm_eps": self.eps,
            "rope_theta": self.rope_theta,
            "rope_interleave": True,
            "attention_bias": False,
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "intermediate_size": self.inner,
            **self.experts.said("n_routed_experts", "n_shared_experts"),
            "q_lora_rank": self.query_rank,
            "kv_lora_rank": self.latent,
            "qk_nope_head_dim": self.plain,
            "qk_rope_head_dim": self.rotated,
            "v_head_dim": self.value,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": False,
        }


@dataclass(frozen=True)
class LingShape:
    """The sizes of a Ling 2.0: grouped attention with norms on heads that rotate in part, and routed experts."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    experts: Experts
    vocab: int
    context: int = 32768
    rotating: float = 0.5
    rope_theta: float = 600000.0
    eps: float = 1e-6
    tokenizer_class: str = "PreTrainedTokenizerFast"

    @classmethod
    def read(cls, folder: Path) -> "LingShape":
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return cls(
            config["num_hidden_layers"],
            config["hidden_size"],
            config["num_attention_heads"],
            config["num_key_value_heads"],
            config["head_dim"],
            config["intermediate_size"],
            Experts.read(config, "num_experts"),
            config["vocab_size"],
            config["max_position_embeddings"],
            config["partial_rotary_factor"],
            config["rope_theta"],
            config["rms_norm_eps"],
        )

    @property
    def rotated(self) -> int:
        """How much of a head turns with its position."""
        return int(self.head_dim * self.rotating)

    @property
    def weights_per_token(self) -> int:
        """Matrix weights that one decode step has to read, the head included."""
        attention = 2 * self.width * (self.heads + self.kv_heads) * self.head_dim
        dense = 3 * self.width * self.inner
        sparse = (self.layers - 1) * self.experts.weights_per_token(self.width)
        return self.layers * attention + dense + sparse + self.vocab * self.width

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes; matrices are [out, in]."""
        w, queries = self.width, self.heads * self.head_dim
        yield "model.word_embeddings.weight", (self.vocab, w)
        for i in range(self.layers):
            layer = f"model.layers.{i}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                yield f"{layer}.{norm}.weight", (w,)
            yield f"{layer}.attention.query_key_value.weight", (queries + 2 * self.kv_heads * self.head_dim, w)
            yield f"{layer}.attention.dense.weight", (w, queries)
            for norm in ("query", "key"):
                yield f"{layer}.attention.{norm}_layernorm.weight", (self.head_dim,)
            if i == 0:
                yield from mlp_tensors(f"{layer}.mlp", w, self.inner)
            else:
                yield from self.experts.tensors(f"{layer}.mlp", w, "expert_bias")
        yield "model.norm.weight", (w,)
        yield "lm_head.weight", (self.vocab, w)

    def config(self) -> dict[str, Any]:
        return {
            "architectures": ["BailingMoeV2ForCausalLM"],
            "model_type": "bailing_moe",
            "hidden_act": "silu",
            "rms_norm_eps": self.eps,
            "rope_theta": self.rope_theta,
            "partial_rotary_factor": self.rotating,
            "use_qk_norm": True,
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.inner,
            **self.experts.said("num_experts", "num_shared_experts"),
            "moe_shared_expert_intermediate_size": self.experts.inner,
            "moe_router_enable_expert_bias": True,
            "score_function": "sigmoid",
            "max_position_embeddings": self.context,
            "tie_word_embeddings": False,
        }
