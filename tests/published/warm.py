"""Classes of characters that pre-tokenizers tell apart: the tokenizers library is asked of them when this is imported.

``tests.forked_command`` imports it, and all its forks know them.
"""

from edgegen_export.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from edgegen_export.tokenizer.split_pattern import SplitPattern

for _name in ("deepseek-v3", "gpt-2", "gpt-4o", "llama-bpe", "qwen2", "qwen35", "tekken"):
    for _regex in PRE_TOKENIZERS[_name].splits:
        SplitPattern.parse(_regex)
