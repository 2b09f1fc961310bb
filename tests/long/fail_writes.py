"""Long test: what writes files is killed, or told of a full or a broken disk, at every write; nothing is lost.

    python -m tests.long.fail_writes [--points N] [--kills N] [--only NAME]

An export over an existing bundle, an answer that is appended to a session, a batch over an existing output, a bundle
of the store that is removed, a verification that is remembered, the only file that a server writes too, a pull from a
hub, and a GGUF file that is run, run under ``strace``. It kills them (SIGKILL) right before each call that writes,
syncs, renames, makes or removes, and so right after each of them; and has such calls fail with ENOSPC and with EIO, N
of each kind, spread evenly. Then they are killed at random times. Afterwards the old file or folder is there, or the
new one, whole; an error is one sentence with exit code 1; and where other files are left than before, the same
command run again succeeds. The exit code of this test is 1 if a check fails.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.errors import EdgegenError
from edgegen.generation.session import Session
from tests.export.checkpoint.gguf_bytes import LETTERS, write_whole_llama
from tests.export.checkpoint.layouts import write_gpt2
from tests.root import ROOT
from tests.standin_hub import StandInHub

KINDS = (
    *("mkdir", "write", "writev", "pwrite64", "ftruncate", "fallocate", "fsync", "fdatasync", "sendfile"),
    *("copy_file_range", "link", "rename", "unlink", "unlinkat", "rmdir"),
)
TOKENIZER = ROOT / "models" / "stories" / "tokenizer.json"
DISKS = {"a full disk": "error=ENOSPC", "a broken disk": "error=EIO"}
KILL = "a kill"
EDGEGEN = [sys.executable, "-m", "edgegen"]
SETTLED_S = 2.1
"""A verification of files that are younger is not remembered."""


LINES = 4


class LostError(Exception):
    """The files that a failed command has left are not as they should be."""


@dataclass(frozen=True)
class Subject:
    """A command, what is there before it, and which of the two is there now; it raises an error where it is neither."""

    name: str
    command: list[str]
    prepare: Callable[[], None]
    found: Callable[[], str]
    may_stay_old: bool = False
    """Whether the command may succeed without what it writes."""
    once: bool = False
    """Whether there is nothing left to do once it has succeeded."""


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


def removal(root: Path) -> Subject:
    store = root / "home" / "bundles"
    kept = BundleStore().resolve(DEFAULT_MODEL)

    def prepare() -> None:
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(kept, store / "mine")

    def found() -> str:
        if "mine" not in [entry.name for entry in BundleStore(store)]:
            return "new"
        Bundle.open(store / "mine").verify()
        return "old"

    return Subject("removal", [*EDGEGEN, "rm", "mine"], prepare, found, once=True)


def remembered(root: Path) -> Subject:
    """It is remembered in a file by each of two commands: the second one finds what the first has left."""
    memory = root / "home" / "verified"
    shutil.copytree(BundleStore().resolve(DEFAULT_MODEL), root / "bundle")
    time.sleep(SETTLED_S)

    def prepare() -> None:
        shutil.rmtree(memory, ignore_errors=True)

    def found() -> str:
        files = [*memory.glob("*.json")]
        for file in files:
            json.loads(file.read_text())
        return "new" if files else "old"

    command = [*EDGEGEN, "generate", "-m", str(root / "bundle"), "--max-new-tokens", "1", "--threads", "1", "Once"]
    return Subject("verification", command, prepare, found, may_stay_old=True)


def whole_bundles(store: Path) -> list[str]:
    """The names of the bundles that were added to a store, each of which is whole."""
    names = [entry.name for entry in BundleStore(store) if entry.name != DEFAULT_MODEL]
    for name in names:
        Bundle.open(store / name).verify()
    return names


def pull(root: Path) -> Subject:
    """From a hub in this process; whatever of the hub's cache is not half a file must be what the hub has."""
    name, cache, store = "someone/tiny", root / "hf", root / "home" / "bundles"
    model = write_gpt2(root / "tiny", layout="original", vocab_size=2048, tokenizer=TOKENIZER)
    hub = StandInHub({name: model}).__enter__()  # until the process ends
    os.environ |= hub.environment(cache)
    there = {path.read_bytes() for path in model.rglob("*") if path.is_file()}

    def prepare() -> None:
        shutil.rmtree(store, ignore_errors=True)
        shutil.rmtree(cache, ignore_errors=True)

    def found() -> str:
        for blob in cache.rglob("blobs/*"):
            if blob.suffix != ".incomplete" and blob.read_bytes() not in there:
                raise LostError(f"{blob.name} is not what the hub has")
        return "new" if whole_bundles(store) else "old"

    return Subject("pull", [*EDGEGEN, "pull", name, "--fast"], prepare, found)


def from_file(root: Path) -> Subject:
    """It becomes a bundle of the store, and a record says of which file."""
    file, home = root / "model.gguf", root / "home"
    write_whole_llama(file, LETTERS)

    def prepare() -> None:
        shutil.rmtree(home, ignore_errors=True)

    def found() -> str:
        store, records = home / "bundles", [*(home / "exported").glob("*.json")]
        for record in records:
            json.loads(record.read_text())
        return "new" if whole_bundles(store) else "old"

    command = [*EDGEGEN, "generate", "-m", str(file), "--fast", "--yes", "-n", "1", "--threads", "1", "abc"]
    return Subject("from_file", command, prepare, found)


def traced(command: list[str], *options: str) -> list[str]:
    return ["strace", "-f", "-qq", *options, *command]


def counts(command: list[str], root: Path) -> Counter[str]:
    """How many system calls of each kind the thread that makes most of them makes."""
    trace, most = root / "trace", Counter[str]()
    kinds = f"trace={','.join(KINDS)}"
    subprocess.run(traced(command, "-ff", "-e", kinds, "-o", str(trace)), check=True, capture_output=True)
    for file in root.glob("trace.*"):
        most |= Counter(re.findall(r"^(\w+)\(", file.read_text(errors="replace"), re.MULTILINE))
        file.unlink()
    return most


def points(found: Counter[str], most: int | None) -> Iterator[tuple[str, int]]:
    """The calls to fail: of each kind all, or at most ``most``, the first and the last among them."""
    for kind in KINDS:
        last = found[kind]
        numbers = {*range(1, last + 1)}
        if most is not None and last > most:
            numbers = {1 + i * (last - 1) // max(1, most - 1) for i in range(most)}
        yield from ((kind, n) for n in sorted(numbers))


def check(subject: Subject, done: subprocess.CompletedProcess[str]) -> str:
    """How a command ended, in words.

    Raises:
        LostError: not as it should.
    """
    if "Traceback" in done.stderr:
        raise LostError(f"a traceback: {done.stderr}")
    if done.returncode not in (0, 1, -signal.SIGKILL, 128 + signal.SIGKILL):
        raise LostError(f"exit code {done.returncode}: {done.stderr}")
    try:
        left = subject.found()
    except (EdgegenError, OSError, ValueError) as error:
        raise LostError(f"after exit code {done.returncode}: {error}") from error
    if done.returncode == 0 and left == "old" and not subject.may_stay_old:
        raise LostError("it says that it has succeeded, and what is there is old")
    if done.returncode == 1 and not (done.stderr.splitlines() or [""])[-1].startswith("edgegen: error: "):
        raise LostError(f"no error is told: {done.stderr}")
    return f"exit {done.returncode}, what is there is {left}"


class Attack:
    """Failures of one subject: how often which ended how, and what went wrong."""

    def __init__(self, subject: Subject, root: Path) -> None:
        self.ends, self.failures = Counter[str](), list[str]()
        self._subject, self._root, self._seen = subject, root, set[str]()

    def at_every_call(self, most: int) -> None:
        self._subject.prepare()
        found = counts(self._subject.command, self._root)
        print(f"{self._subject.name}: {dict(found)}", flush=True)
        for kind, n in points(found, None):
            self._at(KILL, "signal=KILL", kind, n)
        for fault, injected in DISKS.items():
            for kind, n in points(found, most):
                self._at(fault, injected, kind, n)

    def at_random_times(self, kills: int) -> None:
        chance = random.Random(self._subject.name)
        self._subject.prepare()
        begin = time.monotonic()
        subprocess.run(self._subject.command, check=True, capture_output=True)
        usual = time.monotonic() - begin
        for n in range(kills):
            self._subject.prepare()
            with subprocess.Popen(self._subject.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
                time.sleep(chance.uniform(0, usual))
                process.kill()
                said = process.communicate()[1].decode()
            done = subprocess.CompletedProcess(self._subject.command, process.returncode, "", said)
            self._judge("a kill at a random time", f"kill {n}", done)

    def _at(self, fault: str, injected: str, kind: str, n: int) -> None:
        self._subject.prepare()
        injection = ("-o", "/dev/null", "-e", f"trace={kind}", "-e", f"inject={kind}:{injected}:when={n}")
        done = subprocess.run(traced(self._subject.command, *injection), capture_output=True, text=True)
        self._judge(fault, f"{kind} {n}", done)

    def _judge(self, fault: str, where: str, done: subprocess.CompletedProcess[str]) -> None:
        try:
            self.ends[f"{fault}: {check(self._subject, done)}"] += 1
            done_with = self._subject.once and self._subject.found() == "new"
            if (left := self._files_left()) not in self._seen and not done_with:
                subprocess.run(self._subject.command, check=True, capture_output=True)
                if self._subject.found() != "new":
                    raise LostError("the same command run again does not succeed")
                self._seen.add(left)
        except subprocess.CalledProcessError as error:
            self._fail(f"{fault} at {where}: run again: {error.stderr}")
        except (LostError, EdgegenError) as error:
            self._fail(f"{fault} at {where}: {error}")

    def _fail(self, what: str) -> None:
        self.failures.append(f"{self._subject.name}, {what}")
        print(self.failures[-1], file=sys.stderr, flush=True)

    def _files_left(self) -> str:
        """The names of all files and folders, without what is different in every process."""
        names = sorted(str(path.relative_to(self._root)) for path in self._root.rglob("*"))
        return re.sub(r"\.partial-\w+-\w+|\.(tmp)?\w{8}\.tmp|\b\d+$", "*", "\n".join(names), flags=re.MULTILINE)


SUBJECTS = (export, session, batch, removal, remembered, pull, from_file)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fail at every write.")
    parser.add_argument("--points", type=int, default=8, help="calls of each kind that the disk fails")
    parser.add_argument("--kills", type=int, default=200, help="kills at random times, of all commands together")
    parser.add_argument("--only", help="one of the commands")
    args = parser.parse_args()
    failures = list[str]()
    for make in SUBJECTS:
        if args.only not in (None, make.__name__):
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.environ["EDGEGEN_HOME"] = str(Path(folder, "home"))
            attack = Attack(make(Path(folder)), Path(folder))
            attack.at_every_call(args.points)
            attack.at_random_times(args.kills // len(SUBJECTS))
        failures += attack.failures
        for end, count in sorted(attack.ends.items()):
            print(f"{count:4}  {make.__name__}: {end}", flush=True)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
