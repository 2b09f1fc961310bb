"""Long test: what writes files is killed, or told that the disk is full, at every kind of write; nothing is lost.

    python -m tests.long.fail_writes [--points N]

An export over an existing bundle, an answer that is appended to a session, and a batch over an existing output run
under ``strace``, which makes one system call fail: the n-th that opens, writes, syncs, renames, makes a folder or
removes one, for N numbers of each kind, spread evenly. Either the call fails with ENOSPC, or the process is killed
there with SIGKILL. Afterwards the old file or folder is there, or the new one, whole; an error is one sentence with
exit code 1; and the same command run again succeeds. The exit code of this test is 1 if a check fails.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgegen.bundle.bundle import Bundle
from edgegen.errors import EdgegenError
from edgegen.generation.session import Session
from tests.export.checkpoint.layouts import write_gpt2

KINDS = ("mkdir", "write", "pwrite64", "ftruncate", "fallocate", "fsync", "rename", "unlink", "rmdir")
FAULTS = {"a full disk": "error=ENOSPC", "a kill": "signal=KILL"}
EDGEGEN = [sys.executable, "-m", "edgegen"]
LINES = 4


class LostError(Exception):
    """What a command that failed has left is not what it should be."""


@dataclass(frozen=True)
class Subject:
    """A command, what is there before it, and which of the two is there now; it raises an error where it is neither."""

    name: str
    command: list[str]
    prepare: Callable[[], None]
    found: Callable[[], str]


def export(root: Path) -> Subject:
    target = root / "target"
    for seed, name in enumerate(("first", "second")):
        write_gpt2(root / name, layout="original", seed=seed)

    def command(checkpoint: str, to: Path) -> list[str]:
        return [*EDGEGEN, "export", str(root / checkpoint), "--int8", "--force", "-o", str(to)]

    subprocess.run(command("first", root / "kept"), check=True, capture_output=True)
    old = Bundle.open(root / "kept").sha256

    def prepare() -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(root / "kept", target)

    def found() -> str:
        bundle = Bundle.open(target)
        bundle.verify()
        return "old" if bundle.sha256 == old else "new"

    return Subject("export", command("second", target), prepare, found)


def session(root: Path) -> Subject:
    path, kept = root / "text.session", root / "kept.session"

    def command(prompt: str, to: Path) -> list[str]:
        return [*EDGEGEN, "generate", "--max-new-tokens", "2", "--session", str(to), "--threads", "1", prompt]

    subprocess.run(command("Once", kept), check=True, capture_output=True)
    old = Session.load(kept).ids

    def prepare() -> None:
        shutil.copy(kept, path)

    def found() -> str:
        ids = Session.load(path).ids
        if ids == old:
            return "old"
        if ids[: len(old)] != old:
            raise LostError("the text is another one")
        return "new"

    return Subject("session", command(" upon", path), prepare, found)


def batch(root: Path) -> Subject:
    lines, path = root / "lines.jsonl", root / "answers.jsonl"
    lines.write_text("".join(json.dumps({"prompt": f"The {n}", "max_new_tokens": 2}) + "\n" for n in range(LINES)))

    def prepare() -> None:
        path.write_text("old\n")
        for left in root.glob("answers.jsonl.*"):
            left.unlink()

    def found() -> str:
        text = path.read_text()
        if text == "old\n":
            return "old"
        if len([json.loads(line) for line in text.splitlines()]) != LINES:
            raise LostError("the output is not whole")
        return "new"

    command = [*EDGEGEN, "batch", str(lines), "-o", str(path), "--force", "--threads", "1"]
    return Subject("batch", command, prepare, found)


def counts(command: list[str], root: Path) -> Counter[str]:
    """How many system calls of each kind the thread that makes most of them makes."""
    trace, most = root / "trace", Counter[str]()
    subprocess.run(
        ["strace", "-ff", "-qq", "-e", f"trace={','.join(KINDS)}", "-o", str(trace), *command],
        check=True,
        capture_output=True,
    )
    for file in root.glob("trace.*"):
        most |= Counter(re.findall(r"^(\w+)\(", file.read_text(errors="replace"), re.MULTILINE))
        file.unlink()
    return most


def points(found: Counter[str], most: int) -> Iterator[tuple[str, int]]:
    """The calls to fail: at most so many of each kind, the first and the last among them."""
    for kind in KINDS:
        if last := found[kind]:
            yield from ((kind, n) for n in sorted({1 + i * (last - 1) // max(1, most - 1) for i in range(most)}))


def check(subject: Subject, done: subprocess.CompletedProcess[str]) -> str:
    """How a command ended, in words.

    Raises:
        LostError: not as it should.
    """
    if "Traceback" in done.stderr:
        raise LostError(f"a traceback: {done.stderr}")
    if done.returncode not in (0, 1, -9, 137):
        raise LostError(f"exit code {done.returncode}: {done.stderr}")
    try:
        left = subject.found()
    except (EdgegenError, OSError, ValueError) as error:
        raise LostError(f"after exit code {done.returncode}: {error}") from error
    if done.returncode == 0 and left == "old":
        raise LostError("it says that it has succeeded, and what is there is old")
    if done.returncode == 1 and not done.stderr.rstrip().splitlines()[-1].startswith("edgegen: error: "):
        raise LostError(f"no error is told: {done.stderr}")
    return f"exit {done.returncode}, what is there is {left}"


def attack(subject: Subject, root: Path, most: int) -> tuple[Counter[str], list[str]]:
    """How often which fault ended how, and what went wrong."""
    ends, failures = Counter[str](), list[str]()
    subject.prepare()
    found = counts(subject.command, root)
    print(f"{subject.name}: {dict(found)}", flush=True)
    for kind, n in points(found, most):
        for fault, injected in FAULTS.items():
            subject.prepare()
            traced = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={kind}"]
            traced += ["-e", f"inject={kind}:{injected}:when={n}", *subject.command]
            try:
                ends[f"{fault}: {check(subject, subprocess.run(traced, capture_output=True, text=True))}"] += 1
                subprocess.run(subject.command, check=True, capture_output=True)
                if subject.found() != "new":
                    raise LostError("the same command run again does not succeed")
            except (LostError, EdgegenError, subprocess.CalledProcessError) as error:
                failures.append(f"{subject.name}, {fault} at {kind} {n}: {error}")
                print(failures[-1], file=sys.stderr, flush=True)
    return ends, failures


def main() -> None:
    parser = argparse.ArgumentParser(description="Fail at every kind of write.")
    parser.add_argument("--points", type=int, default=8, help="numbers of each kind of system call")
    args = parser.parse_args()
    failures = list[str]()
    for make in (export, session, batch):
        with tempfile.TemporaryDirectory() as folder:
            subject = make(Path(folder))
            ends, lost = attack(subject, Path(folder), args.points)
        failures += lost
        for end, count in sorted(ends.items()):
            print(f"{count:4}  {subject.name}: {end}", flush=True)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
