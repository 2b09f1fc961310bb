"""StarCoder2: Llama's attention with LayerNorm, biases and an MLP without gate."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, NORM_BIASES, read_llama
from edgegen_export.reading.layer_types import read_window, sliding
from edgegen_export.reading.parts import layer_norm, without_gate
from edgegen_export.reading.tensor_names import named


def read_starcoder2(read: ConfigReader) -> DecoderConfig:
    """``Starcoder2Config``."""
    config = without_gate(read_llama(read, norm=layer_norm(read.number("norm_epsilon", least=0))))
    read.ignore("use_bias", "embedding_dropout")
    # The trainer's keys; the model's code reads none of them.
    read.ignore("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "layer_norm_epsilon")
    read.refuse("scale_attn_weights", (True,), "scores are always scaled")
    read.refuse("norm_type", ("layer_norm",), "only layer_norm is known")
    read.refuse("mlp_type", ("default",), "only default is known")
    return sliding(config, read_window(read), [True] * config.num_layers)


STARCODER2 = Architecture(
    model_types=("starcoder2",),
    classes=("Starcoder2ForCausalLM",),
    read=read_starcoder2,
    tensors={
        **LLAMA_TENSORS,
        **NORM_BIASES,
        **named("layers.{i}.mlp.up", "layers.{i}.mlp.c_fc"),
        **named("layers.{i}.mlp.down", "layers.{i}.mlp.c_proj"),
    },
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 49152,
        "hidden_size": 3072,
        "intermediate_size": 12288,
        "num_hidden_layers": 30,
        "num_attention_heads": 24,
        "num_key_value_heads": 2,
        "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 4096,
        "norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    },
)
