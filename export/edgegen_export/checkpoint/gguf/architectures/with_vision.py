"""Language models of files whose tower for pictures is in a file beside them (mmproj), as the text models they are."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import GgufArchitecture
from edgegen_export.checkpoint.gguf.architectures.experts import QWEN3MOE
from edgegen_export.checkpoint.gguf.architectures.llama_like import LLAMA, QWEN2, QWEN3
from edgegen_export.checkpoint.gguf.architectures.llama_variants import HUNYUAN_DENSE
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader


def _stretched(read: MetadataReader) -> Entries:
    """The base of the rotation times alpha^(d / (d - 2)), which the file says apart."""
    alpha, size = read.real("rope.scaling.alpha", 0.0), read.heads.size
    return {"rope_theta": read.real("rope.freq_base", 10000.0) * alpha ** (size / (size - 2))} if alpha > 0 else {}


BY_NAME: Mapping[str, GgufArchitecture] = {
    "hunyuan_vl": replace(HUNYUAN_DENSE, rules=(*HUNYUAN_DENSE.rules, rule.text_only, _stretched)),
    # An Ernie 4.5 that rotates halves of heads, and not adjacent pairs: a Llama.
    "paddleocr": replace(LLAMA, layer=QWEN2.layer, rules=(*LLAMA.rules, rule.text_only)),
    "qwen2vl": replace(QWEN2, rules=(*QWEN2.rules, rule.text_only)),
    "qwen3vl": replace(QWEN3, rules=(*QWEN3.rules, rule.text_only)),
    "qwen3vlmoe": replace(QWEN3MOE, rules=(*QWEN3MOE.rules, rule.text_only)),
}
