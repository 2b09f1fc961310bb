"""Kills ``edgegen batch`` at random moments, resumes it each time, and looks at what is there.

    python -m tests.long.kill_batch [--kills N] [--lines N] [--seed N]

After every kill the output must be the old file or the whole new one, and what is unfinished the beginning of the new
one, never shorter than before. Each third kill comes when the last answers are being written and the file is renamed.
The new file is what an uninterrupted run wrote. The exit code is 1 if anything is otherwise.
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
    """What is there after a kill is not what should be."""


OLD = b"what was there before\n"
PROMPTS = ("Once upon a time", "The dog", "One day, Lily", "A cat and")


@dataclass
class Tally:
    """What became of the processes that were killed.

    Attributes:
        before: those that had not come to answer a line.
        amid: those that had.
        behind: those that came to their end before they could be killed.
        batches: outputs that were finished, all of them whole.
    """

    before: int = 0
    amid: int = 0
    behind: int = 0
    batches: int = 0

    @property
    def kills(self) -> int:
        return self.before + self.amid


class Trial:
    """One input, the output that it must give, and a batch that is killed again and again."""

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
        """Start or resume the batch, kill it, and look at what is there."""
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
        """Without a kill."""
        if self._output.read_bytes() == OLD:
            self._start(self._output).wait()
            self._look(ended=True)

    def _look(self, ended: bool) -> None:
        found = self._output.read_bytes()
        answered, records = self._journal()
        _require(found in (OLD, self._whole), "the output is half")
        _require(self._whole.startswith(records), "unfinished answers are not the beginning of the new output")
        if found == self._whole:
            self.tally.batches += 1
            self._part.unlink(missing_ok=True)  # killed behind the rename
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
        """How many lines are answered, and their records."""
        try:
            pieces = self._part.read_bytes().split(b"\n")[1:-1]
        except FileNotFoundError:
            return 0, b""
        return len(pieces), b"".join(piece.partition(b" ")[2] + b"\n" for piece in pieces)

    def _line(self, n: int) -> dict[str, object]:
        """Each tenth is an error."""
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
    parser.add_argument("--kills", type=int, default=50, help="how many times to kill [50]")
    parser.add_argument("--lines", type=int, default=150, help="lines of the batch [150]")
    parser.add_argument("--seed", type=int, default=0, help="of the moments [0]")
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
        f"{tally.kills} kills: {tally.before} before a new answer, {tally.amid} behind one or more; {tally.behind} "
        f"processes were through before; {tally.batches} batches finished, all whole\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
