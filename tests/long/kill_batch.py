"""Long test: ``edgegen batch`` is killed at random moments and resumed; no output is ever incomplete.

    python -m tests.long.kill_batch [--kills N] [--lines N] [--seed N]

After every kill the output must be the old file or the complete new one. The journal must hold the first records of the
new file, never fewer than before. Every third kill comes while the last answers are written and the file is renamed.
The new file must equal that of an uninterrupted run. The exit code is 1 if a check fails.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class BrokenOutputError(Exception):
    """The files after a kill are not as they should be."""


OLD = b"what was there before\n"
PROMPTS = ("Once upon a time", "The dog", "One day, Lily", "A cat and")


@dataclass
class Tally:
    """Counts of the processes and outputs.

    Attributes:
        before: processes killed before they answered another line.
        amid: processes killed after they answered another line.
        behind: processes that ended before they could be killed.
        batches: finished outputs, all of them complete.
    """

    before: int = 0
    amid: int = 0
    behind: int = 0
    batches: int = 0

    @property
    def kills(self) -> int:
        return self.before + self.amid


class Trial:
    """One input with its expected output, and a batch that is killed again and again."""

    def __init__(self, folder: Path, lines: int, seed: int) -> None:
        self._chance = random.Random(seed)
        self._input, self._output = folder / "input.jsonl", folder / "output.jsonl"
        self._part = folder / "output.jsonl.part"
        self._lines = lines
        self._input.write_text("".join(json.dumps(self._line(n)) + "\n" for n in range(lines)))
        self._whole = self._uninterrupted(folder / "whole.jsonl")
        self._output.write_bytes(OLD)
        self._answered = 0
        self.tally = Tally()

    def kill(self) -> None:
        """Start or resume the batch, kill it, and check the files."""
        process = self._start(self._output)
        if self._chance.random() < 1 / 3:
            while process.poll() is None and self._journal()[0] < self._lines - 1:
                time.sleep(0.001)
            time.sleep(self._chance.uniform(0, 0.02))
        else:
            time.sleep(self._chance.uniform(0, 2.5))
        ended = process.poll() is not None
        process.kill()
        process.wait()
        self._look(ended)

    def finish(self) -> None:
        """Run the batch to its end without a kill."""
        if self._output.read_bytes() == OLD:
            self._start(self._output).wait()
            self._look(ended=True)

    def _look(self, ended: bool) -> None:
        found = self._output.read_bytes()
        answered, records = self._journal()
        _require(found in (OLD, self._whole), "the output is incomplete")
        _require(self._whole.startswith(records), "the journal does not match the first lines of the new output")
        if found == self._whole:
            self.tally.batches += 1
            self._part.unlink(missing_ok=True)  # killed after the rename
            self._output.write_bytes(OLD)
            answered = 0
        else:
            _require(not ended, "a process ended without an output")
            _require(answered >= self._answered, "answers are lost")
        if ended:
            self.tally.behind += 1
        elif answered == self._answered:
            self.tally.before += 1
        else:
            self.tally.amid += 1
        self._answered = answered

    def _journal(self) -> tuple[int, bytes]:
        """The number of answered lines, and their records."""
        try:
            pieces = self._part.read_bytes().split(b"\n")[1:-1]
        except FileNotFoundError:
            return 0, b""
        return len(pieces), b"".join(piece.partition(b" ")[2] + b"\n" for piece in pieces)

    def _line(self, n: int) -> dict[str, object]:
        """An input line; every tenth is invalid."""
        line: dict[str, object] = {"prompt": PROMPTS[n % 4], "max_new_tokens": 1 + self._chance.randrange(16), "id": n}
        return line | ({"temprature": 1} if n % 10 == 0 else {})

    def _uninterrupted(self, output: Path) -> bytes:
        self._start(output).wait()
        return output.read_bytes()

    def _start(self, output: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "edgegen", "batch", str(self._input), "-o", str(output), "--seed", "5"]
        return subprocess.Popen([*command, "--force"], stderr=subprocess.DEVNULL)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenOutputError(otherwise)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="number of kills [50]")
    parser.add_argument("--lines", type=int, default=150, help="lines of the batch [150]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random moments [0]")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), options.lines, options.seed)
        try:
            while trial.tally.kills < options.kills:
                trial.kill()
            trial.finish()
        except BrokenOutputError as error:
            sys.stdout.write(f"after {trial.tally.kills} kills: {error}\n")
            return 1
    tally = trial.tally
    sys.stdout.write(
        f"{tally.kills} kills: {tally.before} before a new answer, {tally.amid} after one or more; {tally.behind} "
        f"processes ended before; {tally.batches} batches finished, all complete\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
