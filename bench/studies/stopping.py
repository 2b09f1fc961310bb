"""Cost of stop conditions in microseconds per token: each alone, and several together.

    python -m bench.studies.stopping [--json] [--tokenizer FILE] [--text FILE] [--repeats N]

The text is prose, checked token by token like an answer; no stop condition matches. Every figure includes detokenizing,
so "ids to text" is the baseline. The tokenizer is the embedded model's, whose tokens are short; larger vocabularies
have longer ones.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.stopping.text_watcher import TextWatcher
from edgegen.tokenizer import StreamingDetokenizer, Tokenizer


def _never(ids: Any) -> bool:
    return ids[-1] < 0


CASES: dict[str, dict[str, Any]] = {
    "ids to text": {},
    "3 stop token ids": {"stop_token_ids": (2**30, 2**30 + 1, 2**30 + 2)},
    "a stop string": {"stop_strings": ["\nUser:"]},
    "8 stop strings": {
        "stop_strings": ["\nUser:", "\nHuman:", "</s>", "###", "<|end|>", "[INST]", "the end?!", "a.;b"]
    },
    "8 stop strings, shown": {
        "stop_strings": ["\nUser:", "\nHuman:", "</s>", "###", "<|end|>", "[INST]", "the end?!", "a.;b"],
        "include_stop_str_in_output": True,
    },
    "expression: two newlines and a name": {"stop_regex": r"\n\n(User|Human|Assistant):"},
    "expression: a date": {"stop_regex": r"\b\d{4}-\d\d-\d\d\b"},
    "expression: a line of its own": {"stop_regex": r"(?m)^END$"},
    "expression: a word and a sign": {"stop_regex": r"\w+;;"},
    "expression: a long quotation": {"stop_regex": r'"[^"]{300}~~~'},
    "expression: anything, then a word": {"stop_regex": r"(?s)a.*qqq"},
    "a function": {"stopping_criteria": (_never,)},
    "a string, an expression and a function": {
        "stop_strings": ["\nUser:"],
        "stop_regex": r"\n\n(User|Human|Assistant):",
        "stopping_criteria": (_never,),
    },
}


@dataclass(frozen=True)
class Measurement:
    """The cost of a case per token: the median over the repeats of the whole text, and the slowest token at best."""

    case: str
    microseconds: float
    slowest_token: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description="Cost of stop conditions in microseconds per token.")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json (the embedded model's)")
    parser.add_argument("--text", type=Path, default=Path(__file__).with_name("README.md"), help="%(default)s")
    parser.add_argument("--repeats", type=int, default=5, help="times the text is read (%(default)s)")
    options = parser.parse_args(arguments)
    tokenizer = Tokenizer.from_file(options.tokenizer or embedded_tokenizer())
    ids = tokenizer.encode(options.text.read_text("utf-8")[:20_000], add_special_tokens=False)
    measurements = [measure(name, case, tokenizer, ids, options.repeats) for name, case in CASES.items()]
    if options.json:
        print(json.dumps([asdict(m) for m in measurements], indent=2))
    else:
        print(table(measurements, len(ids)))


def embedded_tokenizer() -> Path:
    """The file of the embedded model's tokenizer."""
    bundle = Bundle.open(BundleStore().resolve(DEFAULT_MODEL))
    assert bundle.manifest.tokenizer is not None
    return bundle.file(bundle.manifest.tokenizer)


def measure(name: str, case: dict[str, Any], tokenizer: Tokenizer, ids: Sequence[int], repeats: int) -> Measurement:
    """Time one case."""
    strings, others = case.get("stop_strings", ()), {key: case[key] for key in case if key != "stop_strings"}
    times = [[0.0] * len(ids) for _ in range(repeats)]
    for seconds in times:
        watcher = TextWatcher(StreamingDetokenizer(tokenizer), strings, (2**31 - 1,), **others)
        for n, token_id in enumerate(ids):
            begin = time.perf_counter()
            ended = watcher.watch((token_id,))
            watcher.take_text()
            seconds[n] = time.perf_counter() - begin
            assert ended is None, f"{name}: the text has {ended}"
    mean = statistics.median(sum(seconds) / len(ids) for seconds in times)
    slowest = max(map(min, zip(*times, strict=True)))
    return Measurement(name, round(mean * 1e6, 1), round(slowest * 1e6, 1))


def table(measurements: Sequence[Measurement], tokens: int) -> str:
    """The measurements as a Markdown table."""
    lines = [f"| a text of {tokens:,} tokens | µs per token | slowest token |", "|---|---:|---:|"]
    lines += [f"| {m.case} | {m.microseconds:.1f} | {m.slowest_token:.0f} |" for m in measurements]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
