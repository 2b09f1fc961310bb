"""GPT-Neo: GPT-2 without attention scaling, sliding window attention on every other layer, separate projections."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.learned_positions import LearnedPositions
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.gpt2 import GPT2_BESIDE
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.layer_types import read_window, sliding
from edgegen_export.reading.parts import ACTIVATIONS, layer_norm
from edgegen_export.reading.tensor_names import named, named_parts


def read_gpt_neo(read: ConfigReader) -> DecoderConfig:
    """``GPTNeoConfig``."""
    layers = read.count("num_layers")
    read.ignore("resid_dropout", "embed_dropout")
    read.ignore(*(f"summary_{k}" for k in ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")))
    attention = replace(read_heads(read, heads_key="num_heads"), scale=1.0)
    activation = read.choice("activation_function", ACTIVATIONS, "gelu_new")
    mlp = MLP(read.positive("intermediate_size", 4 * read.positive("hidden_size")), activation)
    norm = layer_norm(read.number("layer_norm_epsilon", least=0))
    config = read_decoder(read, [Layer(attention, mlp)] * layers, norm)
    config = replace(config, extras=(LearnedPositions(config.max_positions),))
    return sliding(config, read_window(read, "window_size"), _local_layers(read, layers))


def _local_layers(read: ConfigReader, layers: int) -> Sequence[bool]:
    """``attention_layers``, a kind per layer, or ``attention_types``, patterns with repeat counts."""
    kinds = {"global": False, "local": True}
    listed = read.per_layer("attention_layers", kinds, layers)
    expanded: list[Any] = []
    try:
        for pattern, times in cast(list[tuple[list[str], int]], read.optional("attention_types", list) or []):
            expanded += list(pattern) * min(times, layers + 1)
        found = [kinds[kind] for kind in expanded]
    except (TypeError, ValueError, KeyError):
        read.problem("attention_types: a list of [[kinds], times] with kinds global and local expected")
        return [False] * layers
    if listed is not None:
        return listed
    if len(found) != layers:
        read.problem(f"attention_types: describes {len(found)} layers, and there are {layers}")
        return [False] * layers
    return found


GPT_NEO = Architecture(
    model_types=("gpt_neo",),
    classes=("GPTNeoForCausalLM",),
    read=read_gpt_neo,
    tensors={
        **GPT2_BESIDE,
        **named_parts("layers.{i}.attn", "h.{i}.attn.attention", {x: f"{x}_proj" for x in "qkv"}),
        **named("layers.{i}.attn.o", "h.{i}.attn.attention.out_proj"),
        **named("layers.{i}.mlp.up", "h.{i}.mlp.c_fc"),
        **named("layers.{i}.mlp.down", "h.{i}.mlp.c_proj"),
    },
    defaults={
        "vocab_size": 50257,
        "max_position_embeddings": 2048,
        "hidden_size": 2048,
        "num_layers": 24,
        "num_heads": 16,
        "window_size": 256,
        "layer_norm_epsilon": 1e-5,
        "attention_types": [[["global", "local"], 12]],
        "tie_word_embeddings": True,
    },
    prefixes=("", "transformer."),
    ignored=(r"h\.\d+\.attn\.attention\.(bias|masked_bias)",),
    aliases={"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
)
