"""Facts that each process of an export would find out: classes of characters, which pre-tokenizers tell apart and the
tokenizers library is asked of, and how fast the machine is.

``tests.forked_command`` imports it, and all its forks know them.
"""

from edgegen_export.preflight.estimate import measure_gflops
from edgegen_export.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from edgegen_export.tokenizer.split_pattern import SplitPattern

for _name in ("deepseek-v3", "gpt-2", "gpt-4o", "llama-bpe", "qwen2", "qwen35", "tekken"):
    for _regex in PRE_TOKENIZERS[_name].splits:
        SplitPattern.parse(_regex)
measure_gflops()
