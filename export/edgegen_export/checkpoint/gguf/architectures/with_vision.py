"""Language models of files whose tower for pictures is in a file beside them (mmproj), as the text models they are."""

from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architectures.experts import QWEN3MOE
from edgegen_export.checkpoint.gguf.architectures.llama_like import LLAMA, QWEN2, QWEN3

QWEN2VL = replace(QWEN2, rules=(*QWEN2.rules, rule.text_only))
QWEN3VL = replace(QWEN3, rules=(*QWEN3.rules, rule.text_only))
QWEN3VLMOE = replace(QWEN3MOE, rules=(*QWEN3MOE.rules, rule.text_only))
PADDLEOCR = replace(LLAMA, modules=QWEN2.modules, rules=(*LLAMA.rules, rule.text_only))
"""An Ernie 4.5 that rotates halves of heads, and not adjacent pairs: a Llama."""
