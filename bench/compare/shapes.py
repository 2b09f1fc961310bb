"""The model shapes of the comparison, and reading a shape back from a checkpoint."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.compare.checkpoints import Shape, Sizes
from bench.compare.routed_shapes import Experts, GlmLiteShape, LingShape


@dataclass(frozen=True)
class GroupedShape:
    """The sizes that models with grouped-query attention and a gated MLP share."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int

    @staticmethod
    def sizes_in(config: Mapping[str, Any]) -> tuple[int, int, int, int, int]:
        """The fields, from what `config.json` says."""
        return (
            config["num_hidden_layers"],
            config["hidden_size"],
            config["num_attention_heads"],
            config["num_key_value_heads"],
            config["intermediate_size"],
        )

    def said_sizes(self) -> dict[str, int]:
        """The fields, as `config.json` says them."""
        return {
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "intermediate_size": self.inner,
        }

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def rotated(self) -> int:
        """How much of a head turns with its position."""
        return self.head_dim

    @property
    def attention_weights(self) -> int:
        """Matrix weights of the attention of one layer."""
        return 2 * self.width * (self.heads + self.kv_heads) * self.head_dim

    @property
    def mlp_weights(self) -> int:
        """Matrix weights of the MLP of one layer."""
        return 3 * self.width * self.inner


@dataclass(frozen=True)
class LlamaShape(GroupedShape):
    """The sizes of a Llama or a Qwen2 (with QKV biases), both with a tied head."""

    vocab: int
    context: int
    model_type: Literal["llama", "qwen2"] = "llama"
    rope_theta: float = 10000.0
    eps: float = 1e-5

    @classmethod
    def read(cls, folder: Path) -> "LlamaShape":
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return cls(
            *cls.sizes_in(config),
            config["vocab_size"],
            config["max_position_embeddings"],
            config["model_type"],
            config["rope_theta"],
            config["rms_norm_eps"],
        )

    @property
    def weights_per_token(self) -> int:
        """Matrix weights that one decode step has to read, the tied head included."""
        return self.layers * (self.attention_weights + self.mlp_weights) + self.vocab * self.width

    @property
    def tokenizer_class(self) -> str:
        return "Qwen2Tokenizer" if self.model_type == "qwen2" else "GPT2Tokenizer"

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes; matrices are [out, in]."""
        yield "model.embed_tokens.weight", (self.vocab, self.width)
        keys = self.kv_heads * self.head_dim
        for i in range(self.layers):
            layer = f"model.layers.{i}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                yield f"{layer}.{norm}.weight", (self.width,)
            for name, rows in (("q", self.width), ("k", keys), ("v", keys)):
                yield f"{layer}.self_attn.{name}_proj.weight", (rows, self.width)
                if self.model_type == "qwen2":
                    yield f"{layer}.self_attn.{name}_proj.bias", (rows,)
            yield f"{layer}.self_attn.o_proj.weight", (self.width, self.width)
            for name in ("gate", "up"):
                yield f"{layer}.mlp.{name}_proj.weight", (self.inner, self.width)
            yield f"{layer}.mlp.down_proj.weight", (self.width, self.inner)
        yield "model.norm.weight", (self.width,)

    def config(self) -> dict[str, Any]:
        return {
            "architectures": ["Qwen2ForCausalLM" if self.model_type == "qwen2" else "LlamaForCausalLM"],
            "model_type": self.model_type,
            "hidden_act": "silu",
            "rms_norm_eps": self.eps,
            "rope_theta": self.rope_theta,
            **self.said_sizes(),
            "max_position_embeddings": self.context,
            "tie_word_embeddings": True,
        }


@dataclass(frozen=True)
class Lfm2Shape(GroupedShape):
    """The sizes of an LFM2 with a tied head: short convolutions in all layers but those of `attending`."""

    attending: tuple[int, ...] = (2, 5, 8, 10, 12, 14)
    vocab: int = 65536
    context: int = 128000
    kernel: int = 3
    rope_theta: float = 1000000.0
    eps: float = 1e-5
    tokenizer_class: str = "PreTrainedTokenizerFast"

    @classmethod
    def read(cls, folder: Path) -> "Lfm2Shape":
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return cls(
            *cls.sizes_in(config),
            tuple(i for i, kind in enumerate(config["layer_types"]) if kind == "full_attention"),
            config["vocab_size"],
            config["max_position_embeddings"],
            config["conv_L_cache"],
            config["rope_theta"],
            config["norm_eps"],
        )

    @property
    def weights_per_token(self) -> int:
        """Matrix weights that one decode step has to read, the tied head included."""
        convolutions = 4 * self.width**2 * (self.layers - len(self.attending))
        rest = self.layers * self.mlp_weights + self.vocab * self.width
        return len(self.attending) * self.attention_weights + convolutions + rest

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes; matrices are [out, in]."""
        w, keys = self.width, self.kv_heads * self.head_dim
        yield "model.embed_tokens.weight", (self.vocab, w)
        for i in range(self.layers):
            layer = f"model.layers.{i}"
            for norm in ("operator_norm", "ffn_norm"):
                yield f"{layer}.{norm}.weight", (w,)
            if i in self.attending:
                for name, rows in (("q", w), ("k", keys), ("v", keys), ("out", w)):
                    yield f"{layer}.self_attn.{name}_proj.weight", (rows, w)
                for name in "qk":
                    yield f"{layer}.self_attn.{name}_layernorm.weight", (self.head_dim,)
            else:
                yield f"{layer}.conv.conv.weight", (w, 1, self.kernel)
                yield f"{layer}.conv.in_proj.weight", (3 * w, w)
                yield f"{layer}.conv.out_proj.weight", (w, w)
            for name, dims in (("w1", (self.inner, w)), ("w2", (w, self.inner)), ("w3", (self.inner, w))):
                yield f"{layer}.feed_forward.{name}.weight", dims
        yield "model.embedding_norm.weight", (w,)

    def config(self) -> dict[str, Any]:
        kinds = ["full_attention" if i in self.attending else "conv" for i in range(self.layers)]
        return {
            "architectures": ["Lfm2ForCausalLM"],
            "model_type": "lfm2",
            "norm_eps": self.eps,
            "rope_theta": self.rope_theta,
            **self.said_sizes(),
            "block_auto_adjust_ff_dim": False,
            "layer_types": kinds,
            "conv_L_cache": self.kernel,
            "conv_bias": False,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": True,
        }


@dataclass(frozen=True)
class Qwen35Shape(GroupedShape):
    """The sizes of a Qwen3.5 with a tied head: gated delta nets, and gated attention in every fourth layer.

    ``head_size``: of the attention. ``net_heads`` and ``net_size``: of queries, keys and values of a net alike.
    ``with_head``: with a multi-token prediction head, which no figure counts.
    """

    head_size: int
    net_heads: int
    net_size: int
    vocab: int = 248320
    context: int = 32768
    kernel: int = 4
    rotating: float = 0.25
    rope_theta: float = 10000000.0
    eps: float = 1e-6
    tokenizer_class: str = "Qwen2Tokenizer"
    with_head: bool = False

    @classmethod
    def read(cls, folder: Path) -> "Qwen35Shape":
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return cls(
            *cls.sizes_in(config),
            config["head_dim"],
            config["linear_num_key_heads"],
            config["linear_key_head_dim"],
            config["vocab_size"],
            config["max_position_embeddings"],
            config["linear_conv_kernel_dim"],
            config["rope_parameters"]["partial_rotary_factor"],
            config["rope_parameters"]["rope_theta"],
            config["rms_norm_eps"],
        )

    @property
    def head_dim(self) -> int:
        return self.head_size

    @property
    def rotated(self) -> int:
        return int(self.head_size * self.rotating)

    def attends(self, layer: int) -> bool:
        return (layer + 1) % 4 == 0

    @property
    def weights_per_token(self) -> int:
        """Matrix weights that one decode step has to read, the tied head included."""
        inner = self.net_heads * self.net_size
        net = self.width * (5 * inner + 2 * self.net_heads)
        attention = self.attention_weights + self.width * self.heads * self.head_dim
        layers = sum(attention if self.attends(i) else net for i in range(self.layers))
        return layers + self.layers * self.mlp_weights + self.vocab * self.width

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes; matrices are [out, in]."""
        w, inner = self.width, self.net_heads * self.net_size
        yield "model.embed_tokens.weight", (self.vocab, w)
        for i in range(self.layers):
            layer = f"model.layers.{i}"
            yield from self._norms(layer)
            if self.attends(i):
                yield from self._attention(layer)
            else:
                net = f"{layer}.linear_attn"
                for name, rows in (("qkv", 3 * inner), ("z", inner), ("a", self.net_heads), ("b", self.net_heads)):
                    yield f"{net}.in_proj_{name}.weight", (rows, w)
                yield f"{net}.conv1d.weight", (3 * inner, 1, self.kernel)
                yield f"{net}.A_log", (self.net_heads,)
                yield f"{net}.dt_bias", (self.net_heads,)
                yield f"{net}.norm.weight", (self.net_size,)
                yield f"{net}.out_proj.weight", (w, inner)
            yield from self._mlp(layer)
        yield "model.norm.weight", (w,)
        if self.with_head:
            yield "mtp.fc.weight", (w, 2 * w)
            for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
                yield f"mtp.{name}.weight", (w,)
            yield from self._norms("mtp.layers.0")
            yield from self._attention("mtp.layers.0")
            yield from self._mlp("mtp.layers.0")

    def _attention(self, layer: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        w, queries, keys = self.width, self.heads * self.head_dim, self.kv_heads * self.head_dim
        for name, dims in (("q", (2 * queries, w)), ("k", (keys, w)), ("v", (keys, w)), ("o", (w, queries))):
            yield f"{layer}.self_attn.{name}_proj.weight", dims
        for name in "qk":
            yield f"{layer}.self_attn.{name}_norm.weight", (self.head_dim,)

    def _norms(self, layer: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}.{norm}.weight", (self.width,)

    def _mlp(self, layer: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        w = self.width
        for name, dims in (("gate", (self.inner, w)), ("up", (self.inner, w)), ("down", (w, self.inner))):
            yield f"{layer}.mlp.{name}_proj.weight", dims

    def config(self) -> dict[str, Any]:
        rope = {"rope_type": "default", "rope_theta": self.rope_theta, "partial_rotary_factor": self.rotating}
        kinds = ["full_attention" if self.attends(i) else "linear_attention" for i in range(self.layers)]
        return {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "hidden_act": "silu",
            "rms_norm_eps": self.eps,
            "rope_parameters": rope,
            **self.said_sizes(),
            "head_dim": self.head_size,
            "layer_types": kinds,
            "linear_num_key_heads": self.net_heads,
            "linear_num_value_heads": self.net_heads,
            "linear_key_head_dim": self.net_size,
            "linear_value_head_dim": self.net_size,
            "linear_conv_kernel_dim": self.kernel,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": True,
        }


@dataclass(frozen=True)
class MambaShape:
    """The sizes of a Mamba with a tied head: layers that are a selective state space and nothing else.

    ``state``: the numbers that each of the ``inner`` channels remembers. ``rank``: what its time steps are made of.
    """

    layers: int
    width: int
    inner: int
    state: int
    rank: int
    vocab: int
    context: int = 1048576
    kernel: int = 4
    eps: float = 1e-5
    tokenizer_class: str = "PreTrainedTokenizerFast"

    @classmethod
    def read(cls, folder: Path) -> "MambaShape":
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return cls(
            config["num_hidden_layers"],
            config["hidden_size"],
            config["intermediate_size"],
            config["state_size"],
            config["time_step_rank"],
            config["vocab_size"],
            config["max_position_embeddings"],
            config["conv_kernel"],
            config["layer_norm_epsilon"],
        )

    @property
    def weights_per_token(self) -> int:
        """Matrix weights that one decode step has to read, the tied head included."""
        mixer = self.inner * (3 * self.width + 2 * self.rank + 3 * self.state)
        return self.layers * mixer + self.vocab * self.width

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes; matrices are [out, in]."""
        yield "backbone.embeddings.weight", (self.vocab, self.width)
        for i in range(self.layers):
            layer = f"backbone.layers.{i}"
            mixer = f"{layer}.mixer"
            yield f"{layer}.norm.weight", (self.width,)
            yield f"{mixer}.in_proj.weight", (2 * self.inner, self.width)
            yield f"{mixer}.conv1d.weight", (self.inner, 1, self.kernel)
            yield f"{mixer}.conv1d.bias", (self.inner,)
            yield f"{mixer}.x_proj.weight", (self.rank + 2 * self.state, self.inner)
            yield f"{mixer}.dt_proj.weight", (self.inner, self.rank)
            yield f"{mixer}.dt_proj.bias", (self.inner,)
            yield f"{mixer}.A_log", (self.inner, self.state)
            yield f"{mixer}.D", (self.inner,)
            yield f"{mixer}.out_proj.weight", (self.width, self.inner)
        yield "backbone.norm_f.weight", (self.width,)

    def config(self) -> dict[str, Any]:
        return {
            "architectures": ["MambaForCausalLM"],
            "model_type": "mamba",
            "hidden_act": "silu",
            "layer_norm_epsilon": self.eps,
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "intermediate_size": self.inner,
            "expand": self.inner // self.width,
            "state_size": self.state,
            "time_step_rank": self.rank,
            "conv_kernel": self.kernel,
            "use_bias": False,
            "use_conv_bias": True,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": True,
        }


AnyShape = Shape | LlamaShape | Lfm2Shape | Qwen35Shape | GlmLiteShape | LingShape | MambaShape


def read_shape(folder: Path) -> AnyShape:
    """The shape of the checkpoint in `folder`."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    match config["model_type"]:
        case "gpt2":
            return Shape.read(folder)
        case "lfm2":
            return Lfm2Shape.read(folder)
        case "qwen3_5_text":
            return Qwen35Shape.read(folder)
        case "glm4_moe_lite":
            return GlmLiteShape.read(folder)
        case "bailing_moe":
            return LingShape.read(folder)
        case "mamba":
            return MambaShape.read(folder)
        case _:
            return LlamaShape.read(folder)


@dataclass(frozen=True)
class Named:
    """A shape with the name of its model."""

    title: str
    sizes: Sizes


SHAPES = {
    "G": Named("GPT-2 small, 124M parameters", Shape()),
    "S": Named("SmolLM2-135M", LlamaShape(30, 576, 9, 3, 1536, 49152, 8192, rope_theta=100000.0)),
    "Q": Named("Qwen2.5-0.5B", LlamaShape(24, 896, 14, 2, 4864, 151936, 32768, "qwen2", 1000000.0, 1e-6)),
    "L": Named("LFM2-350M", Lfm2Shape(16, 1024, 16, 8, 4608)),
    "L12": Named("LFM2.5-1.2B", Lfm2Shape(16, 2048, 32, 8, 8192)),
    "Q35": Named("Qwen3.5-0.8B", Qwen35Shape(24, 1024, 8, 2, 3584, 256, 16, 128)),
    # Of the next two the first layers, and a vocabulary cut as much, so that the head has its share of a token.
    "GLM": Named(
        "GLM-4.7-Flash, 3 of its 47 layers",
        GlmLiteShape(3, 2048, 20, 10240, Experts(64, 4, 1536, 1.8, 1, 1), 768, 512, 192, 64, 256, vocab=10240),
    ),
    "LING": Named(
        "Ling-mini-2.0, 3 of its 20 layers",
        LingShape(3, 2048, 16, 4, 128, 5120, Experts(256, 8, 512, 2.5, 8, 4), vocab=24576),
    ),
    "M": Named("Mamba-130M", MambaShape(24, 768, 1536, 16, 48, 50280)),
}

DENSE = ("G", "S", "Q")
"""Shapes that are compared unless others are named: every runtime of the comparison knows them."""
