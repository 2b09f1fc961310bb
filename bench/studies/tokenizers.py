"""Cost of a tokenizer by its compiled form, and by the tokenizers library: to open, in memory, and for a text.

    python -m bench.studies.tokenizers TOKENIZER_JSON ... [--text FILE] [--rounds 5]

In each round each file is opened by both, in turns, each time in a fresh process that has imported what it needs of
edgegen before: seconds to open it, seconds to its first ids (a short text, by which the tokenizers library is imported
and the pages of a mapped file that are needed are read), private memory after that, and the speed of encoding
``--text`` once and once more. Medians are shown, with the megabytes of both files. Ends with 1 if ids differ. Linux
only.
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from edgegen.model.kernels import kernel_library
from edgegen.tokenizer import COMPILED, Tokenizer
from edgegen_export.tokenizer.compiled import UncompiledError, compiled
from edgegen_export.tokenizer.tokenizer_json import quick_to_read

_T = TypeVar("_T")
Way = Literal["compiled", "library"]
Numbers = dict[str, float]

PROMPT = "Once upon a time, there was a lighthouse.\n"
_TEXT = Path(__file__).resolve().parents[2] / "docs/performance.md"


def main() -> int:
    parser = argparse.ArgumentParser(description="What tokenizers take by their compiled form and by the library.")
    parser.add_argument("files", nargs="+", type=Path, metavar="TOKENIZER_JSON")
    parser.add_argument("--text", type=Path, default=_TEXT, help="to encode (docs/performance.md)")
    parser.add_argument("--rounds", type=int, default=5, help="of which medians are taken (5)")
    parser.add_argument("--one", choices=["compiled", "library"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if sys.platform != "linux":
        raise SystemExit("this system does not tell private memory apart: only Linux does.")
    if arguments.one:
        print(json.dumps(measured(arguments.one, arguments.files[0], arguments.text)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        folders = [prepared(file, Path(folder) / str(number)) for number, file in enumerate(arguments.files)]
        differ = [compared(one, arguments.text, arguments.rounds) for one in folders if one is not None]
    return int(any(differ))


def prepared(file: Path, folder: Path) -> Path | None:
    """The file as an export writes it, beside its compiled form; None where it has none."""
    folder.mkdir()
    data = quick_to_read(file.read_bytes())
    try:
        begin = time.perf_counter()
        made = compiled(data)
        seconds = time.perf_counter() - begin
    except UncompiledError as error:
        print(f"{file}: no compiled form, for {error}")
        return None
    (folder / "tokenizer.json").write_bytes(data)
    (folder / COMPILED).write_bytes(made)
    print(f"{file}: {len(data) / 1e6:.1f} MB, compiled {len(made) / 1e6:.1f} MB in {seconds:.1f} s")
    return folder


def compared(folder: Path, text: Path, rounds: int) -> bool:
    """Print what both take; whether their ids differ."""
    found: dict[Way, list[Numbers]] = {"compiled": [], "library": []}
    for number in range(rounds):
        for way in ("compiled", "library") if number % 2 else ("library", "compiled"):
            words = ["--one", way, "--text", str(text), str(folder)]
            done = subprocess.run(
                [sys.executable, "-m", "bench.studies.tokenizers", *words], capture_output=True, text=True, check=True
            )
            found[way].append(json.loads(done.stdout))
    print("            open, ms   first ids, ms   private, MB   MB/s   again, MB/s")
    for way, numbers in found.items():
        of = {key: statistics.median(each[key] for each in numbers) for key in numbers[0]}
        print(
            f"  {way:8} {of['open'] * 1e3:10.1f} {of['first'] * 1e3:15.1f} {of['private'] / 1e6:13.1f} "
            f"{of['speed'] / 1e6:6.1f} {of['again'] / 1e6:14.1f}"
        )
    return len({each["ids"] for numbers in found.values() for each in numbers}) > 1


def measured(way: Way, folder: Path, text: Path) -> Numbers:
    """Of one opening in this process."""
    source, content = folder / "tokenizer.json", text.read_text("utf-8")
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()  # which a bundle's manifest has
    private = private_memory()
    tokenizer, opened = timed(lambda: opened_by(way, source, sha256))
    _, first = timed(lambda: tokenizer.encode(PROMPT))
    private = private_memory() - private
    ids, once = timed(lambda: tokenizer.encode(content))
    _, again = timed(lambda: tokenizer.encode(content))
    size = len(content.encode())
    return {
        "open": opened,
        "first": opened + first,
        "private": private,
        "speed": size / once,
        "again": size / again,
        "ids": hash(tuple(ids)),
    }


def opened_by(way: Way, source: Path, sha256: str) -> Tokenizer:
    if way == "library":
        return Tokenizer.from_file(source)
    library = kernel_library()
    if library is None:
        raise SystemExit("there is no compiled code here: `python kernels/build.py` builds it.")
    tokenizer = Tokenizer.from_compiled(source.with_name(COMPILED), source, sha256, library)
    if tokenizer is None:
        raise SystemExit(f"the compiled form of {source} cannot be used.")
    return tokenizer


def timed(call: Callable[[], _T]) -> tuple[_T, float]:
    begin = time.perf_counter()
    made = call()
    return made, time.perf_counter() - begin


def private_memory() -> int:
    """Bytes of this process that are not pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


if __name__ == "__main__":
    sys.exit(main())
