"""Mutated ``tokenizer.json`` files: each is refused in a sentence, or gives the ids of the tokenizers library.

    python -m tests.long.fuzz_tokenizers 10000 0

How many, and the first seed. Nothing may panic, end the process or take more than 4 GB; at the end stand the counts,
the longest CPU time of one file and the most memory.
"""

import random
import resource
import sys
import time
from collections import Counter
from typing import Any

import tokenizers

from edgegen.tokenizer import LibraryBackend
from tests.runtime.test_tokenizer import KINDS, TEXTS
from tests.runtime.tokenizer_mutations import mutated

MOST_MEMORY = 4 << 30
LIBRARY: Any = tokenizers


def outcome(seed: int) -> str:
    """The outcome of the file of ``seed``; a panic ends the run."""
    chosen = random.Random(seed)
    data = mutated(KINDS[chosen.choice(sorted(KINDS))](), chosen)
    try:
        ours = LibraryBackend.of(data)
    except ValueError:
        return "refused"
    theirs = LIBRARY.Tokenizer.from_buffer(data)
    theirs.no_padding()
    theirs.no_truncation()
    if hasattr(theirs.model, "dropout"):
        theirs.model.dropout = None
    for text in (*TEXTS, "aaaa bbb  <s> <zz>" * 5):
        try:
            expected = theirs.encode(text).ids
        except Exception:  # a vocabulary without these letters
            continue
        if ours.encode(text, add_special_tokens=True).ids != expected:
            return "other ids"
        ours.decode(expected, skip_special_tokens=False)
    return "equal"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    count, first = (*map(int, sys.argv[1:]), *(10_000, 0)[len(sys.argv) - 1 :])
    found, longest = Counter[str](), 0.0
    for seed in range(first, first + count):
        began = time.process_time()
        found[result := outcome(seed)] += 1
        longest = max(longest, time.process_time() - began)
        if result == "other ids":
            print("other ids of the seed", seed)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(dict(found), f"longest {longest:.2f} s, {memory} MB")
    sys.exit(1 if found["other ids"] else 0)


if __name__ == "__main__":
    main()
