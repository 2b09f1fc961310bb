"""Facts that each process of an export would find out: the characters of GPT-2's pre-tokenizer, which the tokenizers
library is asked of, and how fast the machine is.

`tests.forked_command` imports it, and all its forks know them, which is a third of a small export.
"""

from edgegen_export.preflight.estimate import measure_gflops
from edgegen_export.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from edgegen_export.tokenizer.split_pattern import SplitPattern


def know_characters(pre_tokenizer: str) -> None:
    """Find out the characters of the classes in a pre-tokenizer's patterns."""
    for regex in PRE_TOKENIZERS[pre_tokenizer].splits:
        SplitPattern.parse(regex)


know_characters("gpt-2")
measure_gflops()
