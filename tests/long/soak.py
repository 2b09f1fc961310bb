"""Long test of continuous batching: ten minutes of random requests and cancellations; memory must stay flat.

    python -m tests.long.soak [BUNDLE] [--minutes N] [--threads N]

Several threads send random requests whose prompts share prefixes, and cancel some of them. Each answer must equal that
of the same request run alone. Every half minute the process's own memory (anonymous pages) is printed; it may grow by
less than 1% after the first fifth of the time.
"""

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from bench.compare.memory import status_bytes
from edgegen.bundle.store import DEFAULT_MODEL
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions

READERS = 6
PROMPTS = 40
PAUSE = 30.0


def own_memory() -> int:
    """Bytes of anonymous pages, which do not depend on what other processes share."""
    return status_bytes(Path("/proc/self/smaps_rollup"), "Anonymous:")


class Soak:
    """Sends requests until it is told to stop."""

    def __init__(self, model: str, threads: int | None) -> None:
        self.asked = self.cancelled = self.wrong = 0
        self.stop = threading.Event()
        self._llm = LLM.load(model, options=EngineOptions(threads=threads, kv="int8", prefix_cache=1 << 24))
        self._lock = threading.Lock()
        self._requests = [self._request(Random(n)) for n in range(PROMPTS)]
        alone = LLM.load(model, options=EngineOptions(threads=threads, kv="int8", prefix_cache=0))
        self._answers = [alone.generate(prompt, **how).token_ids for prompt, how in self._requests]

    def _request(self, random: Random) -> tuple[list[int], dict[str, Any]]:
        vocabulary = self._llm.bundle.manifest.model.vocab_size
        stem = [Random(random.randrange(4)).randrange(vocabulary) for _ in range(random.randint(1, 120))]
        prompt = stem + [random.randrange(vocabulary) for _ in range(random.randint(1, 60))]
        how: dict[str, Any] = {"max_new_tokens": random.randint(1, 80)}
        how |= {"seed": 1} if random.random() < 0.5 else {"do_sample": False}
        return prompt, how | ({"prompt_lookup_num_tokens": 6} if random.random() < 0.3 else {})

    def read(self, seed: int) -> None:
        """Send requests one after the other, checking each answer."""
        random = Random(seed)
        while not self.stop.is_set():
            n = random.randrange(PROMPTS)
            prompt, how = self._requests[n]
            got = list[int]()
            give_up = random.randint(0, 60) if random.random() < 0.2 else None
            with self._llm.stream(prompt, **how) as stream:
                for chunk in stream:
                    got += chunk.token_ids
                    if give_up is not None and len(got) > give_up:
                        break
            right = self._answers[n]
            with self._lock:
                self.asked += 1
                self.cancelled += len(got) < len(right)
                self.wrong += tuple(got) != right[: len(got)]


def soak(work: Soak, seconds: float, told: Callable[[float, int], None]) -> list[tuple[float, int]]:
    """Run the readers; return time and memory every ``PAUSE`` seconds."""
    readers = [threading.Thread(target=work.read, args=(n,)) for n in range(READERS)]
    begin, samples = time.monotonic(), list[tuple[float, int]]()
    for reader in readers:
        reader.start()
    while (passed := time.monotonic() - begin) < seconds:
        time.sleep(min(PAUSE, seconds - passed))
        samples.append((time.monotonic() - begin, own_memory()))
        told(*samples[-1])
    work.stop.set()
    for reader in readers:
        reader.join()
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    model = str(Path(options.bundle)) if Path(options.bundle).exists() else options.bundle
    work = Soak(model, options.threads)
    samples = soak(
        work,
        options.minutes * 60,
        lambda passed, memory: print(f"{passed:5.0f} s  {work.asked:6} requests  {memory / 1e6:.1f} MB", flush=True),
    )
    settled = [memory for passed, memory in samples if passed >= options.minutes * 60 / 5]
    growth = max(settled) / settled[0] - 1
    print(f"{work.asked} requests, {work.cancelled} cancelled, {work.wrong} wrong; memory grew by {growth:.2%}")
    assert not work.wrong
    assert growth < 0.01


if __name__ == "__main__":
    main()
