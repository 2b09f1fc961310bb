"""The architectures of GGUF files that can be read, each as data. Names and defaults are llama.cpp's."""

from edgegen_export.checkpoint.gguf.architecture import GgufArchitecture
from edgegen_export.checkpoint.gguf.architectures.experts import (
    GPT_OSS,
    GRANITEMOE,
    LLAMA_OR_MIXTRAL,
    OLMOE,
    QWEN2MOE,
    QWEN3MOE,
)
from edgegen_export.checkpoint.gguf.architectures.experts_behind_dense import GLM4MOE
from edgegen_export.checkpoint.gguf.architectures.gemma import GEMMA, GEMMA2, GEMMA3, GEMMA3N, GEMMA4
from edgegen_export.checkpoint.gguf.architectures.gpt_like import BLOOM, FALCON, GPT2, GPTJ, GPTNEOX, STARCODER
from edgegen_export.checkpoint.gguf.architectures.hybrids import (
    FALCON_H1,
    GRANITEHYBRID,
    NEMOTRON_H,
    NEMOTRON_H_MOE,
    QWEN3NEXT,
    QWEN35,
    QWEN35MOE,
)
from edgegen_export.checkpoint.gguf.architectures.lfm2 import LFM2, LFM2MOE
from edgegen_export.checkpoint.gguf.architectures.llama_like import (
    COHERE2,
    COMMAND_R,
    EXAONE,
    GRANITE,
    INTERNLM2,
    MINICPM,
    OLMO,
    OLMO2,
    QWEN2,
    QWEN3,
    SMOLLM3,
    STABLELM,
    STARCODER2,
)
from edgegen_export.checkpoint.gguf.architectures.llama_with_norms import (
    APERTUS,
    CHATGLM,
    ERNIE4_5,
    EXAONE4,
    GLM4,
    HUNYUAN_DENSE,
    MISTRAL3,
    SEED_OSS,
)
from edgegen_export.checkpoint.gguf.architectures.phi import PHI2, PHI3
from edgegen_export.checkpoint.gguf.architectures.squared_relu import ARCEE, JAIS2, NEMOTRON
from edgegen_export.checkpoint.gguf.architectures.with_vision import PADDLEOCR, QWEN2VL, QWEN3VL, QWEN3VLMOE

ARCHITECTURES: dict[str, GgufArchitecture] = {
    "apertus": APERTUS,
    "arcee": ARCEE,
    "bloom": BLOOM,
    "chatglm": CHATGLM,
    "cohere2": COHERE2,
    "command-r": COMMAND_R,
    "ernie4_5": ERNIE4_5,
    "exaone": EXAONE,
    "exaone4": EXAONE4,
    "falcon": FALCON,
    "falcon-h1": FALCON_H1,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "gemma3n": GEMMA3N,
    "gemma4": GEMMA4,
    "glm4": GLM4,
    "glm4moe": GLM4MOE,
    "gpt-oss": GPT_OSS,
    "gpt2": GPT2,
    "gptj": GPTJ,
    "gptneox": GPTNEOX,
    "granite": GRANITE,
    "granitehybrid": GRANITEHYBRID,
    "granitemoe": GRANITEMOE,
    "hunyuan-dense": HUNYUAN_DENSE,
    "internlm2": INTERNLM2,
    "jais2": JAIS2,
    "lfm2": LFM2,
    "lfm2moe": LFM2MOE,
    "llama": LLAMA_OR_MIXTRAL,
    "minicpm": MINICPM,
    "mistral3": MISTRAL3,
    "nemotron": NEMOTRON,
    "nemotron_h": NEMOTRON_H,
    "nemotron_h_moe": NEMOTRON_H_MOE,
    "olmo": OLMO,
    "olmo2": OLMO2,
    "olmoe": OLMOE,
    "paddleocr": PADDLEOCR,
    "phi2": PHI2,
    "phi3": PHI3,
    "qwen2": QWEN2,
    "qwen2moe": QWEN2MOE,
    "qwen2vl": QWEN2VL,
    "qwen3": QWEN3,
    "qwen3moe": QWEN3MOE,
    "qwen3next": QWEN3NEXT,
    "qwen35": QWEN35,
    "qwen35moe": QWEN35MOE,
    "qwen3vl": QWEN3VL,
    "qwen3vlmoe": QWEN3VLMOE,
    "seed_oss": SEED_OSS,
    "smollm3": SMOLLM3,
    "stablelm": STABLELM,
    "starcoder": STARCODER,
    "starcoder2": STARCODER2,
}
"""``general.architecture`` → how the original's ``config.json`` and tensors are read off the file."""
