"""BioGPT: OPT's layers with GELU, learned positions with an offset of two, a scaled embedding, tied head."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.learned_positions import LearnedPositions
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.opt import OPT_LAYERS
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.parts import ACTIVATIONS, layer_norm
from edgegen_export.reading.tensor_names import named


def read_biogpt(read: ConfigReader) -> DecoderConfig:
    """``BioGptConfig``."""
    read.ignore("activation_dropout", "layerdrop")
    read.ignore("layer_norm_eps")  # no norm of the family takes it
    mlp = MLP(read.positive("intermediate_size"), read.choice("hidden_act", ACTIVATIONS, "gelu"))
    layers = [Layer(read_heads(read), mlp)] * read.count("num_hidden_layers")
    config = read_decoder(read, layers, layer_norm(1e-5))
    scale = config.hidden_size**0.5 if read.flag("scale_embedding") else 1.0
    return replace(config, extras=(LearnedPositions(config.max_positions),), embedding_multiplier=scale)


BIOGPT = Architecture(
    model_types=("biogpt",),
    classes=("BioGptForCausalLM",),
    read=read_biogpt,
    tensors={
        **OPT_LAYERS,
        **named("final_norm", "layer_norm"),
        "head.weight": "output_projection.weight",
    },
    defaults={
        "vocab_size": 42384,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "max_position_embeddings": 1024,
        "scale_embedding": True,
        "tie_word_embeddings": True,
    },
    prefixes=("", "biogpt."),
)
