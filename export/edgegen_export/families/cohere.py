"""Command R: parallel blocks with one LayerNorm without bias, RoPE on adjacent pairs, scaled logits. In Command R7B,
only layers with a sliding window have RoPE."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.attention import QKNorm
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.layer_types import read_window, read_window_pattern, rotating, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM

COHERE_DEFAULTS = {
    **LLAMA_DEFAULTS,
    "vocab_size": 256000,
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "logit_scale": 0.0625,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


def read_cohere(read: ConfigReader) -> DecoderConfig:
    """``CohereConfig``."""
    norm = Norm("layer", read.number("layer_norm_eps", least=0))
    config = read_llama(read, norm=norm, interleaved=True)
    config = with_qk_norm(config, QKNorm(norm, over="each_head") if read.flag("use_qk_norm") else None)
    return replace(config, block="parallel", logit_multiplier=read.number("logit_scale"))


def read_cohere2(read: ConfigReader) -> DecoderConfig:
    """``Cohere2Config``."""
    config = read_cohere(read)
    windowed = read_window_pattern(read, config.num_layers, period=4)
    return sliding(rotating(config, None, [not slides for slides in windowed]), read_window(read), windowed)


COHERE = Architecture(
    model_types=("cohere",),
    classes=("CohereForCausalLM",),
    read=read_cohere,
    tensors=LLAMA_TENSORS | QK_NORM,
    defaults=COHERE_DEFAULTS,
)

COHERE2 = Architecture(
    model_types=("cohere2",),
    classes=("Cohere2ForCausalLM",),
    read=read_cohere2,
    tensors=LLAMA_TENSORS,
    defaults={**COHERE_DEFAULTS, "sliding_window": 4096, "head_dim": 128},
)
