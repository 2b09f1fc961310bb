"""Memory that `LLM.close` leaves behind: load, read a prompt of 1,000 tokens, close, and the same again.

    python -m bench.compare.checkpoints ./gpt2 && edgegen export ./gpt2 -o gpt2-int8 --int8 --fast
    python -m bench.studies.closing gpt2-int8

Prints the process's proportional memory (PSS) right before each load, at its most, and after closing. Ends with 1 if
closing leaves more than 15 MB of it in any round, the first one included.
"""

import argparse
from pathlib import Path

import numpy as np

from edgegen import LLM
from edgegen.system import proportional_memory

MOST = 15e6
ROUNDS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description="Memory that LLM.close leaves behind.")
    parser.add_argument("bundle", type=Path)
    bundle: Path = parser.parse_args().bundle
    left = list[float]()
    print("round   before   loaded     used   closed     left  (MB)")
    for n in range(1, ROUNDS + 1):
        before = _used()
        with LLM.load(bundle) as llm:
            loaded = _used()
            vocabulary = llm.bundle.manifest.model.vocab_size
            prompt = np.random.default_rng(0).integers(0, vocabulary, 1000).tolist()
            llm.generate(prompt, max_new_tokens=8, eos_token_id=())
            used = _used()
        closed = _used()
        left.append(closed - before)
        print(f"{n:5}" + "".join(f"{size / 1e6:9.1f}" for size in (before, loaded, used, closed, closed - before)))
    return int(max(left) > MOST)


def _used() -> int:
    used = proportional_memory()
    if used is None:
        raise SystemExit("this system does not tell how much memory a process uses.")
    return used


if __name__ == "__main__":
    raise SystemExit(main())
