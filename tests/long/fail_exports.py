"""Long test: an export is killed, or told that the disk is full, at every kind of write; the bundle stays whole.

    python -m tests.long.fail_exports [--points N]

An export over an existing bundle runs under ``strace``, which makes one system call fail: the n-th that opens, writes,
syncs, renames, makes a folder or removes one, for N numbers of each kind, spread evenly. Either the call fails with
ENOSPC, or the process is killed there with SIGKILL. Afterwards the bundle must be the old one or the new one, whole; an
error must be one sentence with exit code 1; and the same export run again must succeed and leave nothing behind. The
exit code is 1 if a check fails.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from edgegen.bundle.bundle import Bundle
from edgegen.errors import EdgegenError
from tests.export.checkpoint.layouts import write_gpt2

KINDS = ("mkdir", "write", "pwrite64", "ftruncate", "fallocate", "fsync", "rename", "unlink", "rmdir")
FAULTS = {"a full disk": "error=ENOSPC", "a kill": "signal=KILL"}


class BrokenBundleError(Exception):
    """What a failed export left is not what it should be."""


def export_command(checkpoint: Path, target: Path) -> list[str]:
    return [sys.executable, "-m", "edgegen", "export", str(checkpoint), "--int8", "--force", "-o", str(target)]


def counts(command: list[str], root: Path) -> Counter[str]:
    """How many system calls of each kind the thread that makes most of them makes."""
    trace = root / "trace"
    subprocess.run(["strace", "-ff", "-qq", "-e", f"trace={','.join(KINDS)}", "-o", str(trace), *command], check=True)
    most = Counter[str]()
    for file in root.glob("trace.*"):
        of_thread = Counter(re.findall(r"^(\w+)\(", file.read_text(errors="replace"), re.MULTILINE))
        most |= of_thread
        file.unlink()
    return most


def points(found: Counter[str], most: int) -> Iterator[tuple[str, int]]:
    for kind in KINDS:
        count = found[kind]
        yield from (
            (kind, n) for n in sorted({1 + i * (count - 1) // max(1, most - 1) for i in range(most)}) if n <= count
        )


def check(target: Path, old: str, done: subprocess.CompletedProcess[str]) -> str:
    """How the export ended, in words.

    Raises:
        BrokenBundleError: not as it should.
    """
    if "Traceback" in done.stderr:
        raise BrokenBundleError(f"a traceback: {done.stderr}")
    if done.returncode not in (0, 1, -9, 137):
        raise BrokenBundleError(f"exit code {done.returncode}: {done.stderr}")
    try:
        bundle = Bundle.open(target)
        bundle.verify()
    except EdgegenError as error:
        raise BrokenBundleError(f"after exit code {done.returncode}: {error}") from error
    left = "the old bundle" if bundle.sha256 == old else "the new bundle"
    if done.returncode == 0 and left == "the old bundle":
        raise BrokenBundleError("it says that it has succeeded, and the old bundle is there")
    if done.returncode == 1 and not done.stderr.rstrip().splitlines()[-1].startswith("edgegen: error: "):
        raise BrokenBundleError(f"no error is told: {done.stderr}")
    return f"exit {done.returncode}, {left}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Fail exports at every kind of write.")
    parser.add_argument("--points", type=int, default=8, help="numbers of each kind of system call")
    args = parser.parse_args()
    ends, failures = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_gpt2(root / "first", layout="original", seed=0)
        write_gpt2(root / "second", layout="original", seed=1)
        subprocess.run(export_command(root / "first", root / "kept"), check=True, capture_output=True)
        old = Bundle.open(root / "kept").sha256
        target = root / "target"
        shutil.copytree(root / "kept", target)
        found = counts(export_command(root / "second", target), root)
        print(f"an export makes {sum(found.values())} such calls: {dict(found)}")
        for kind, n in points(found, args.points):
            for fault, injected in FAULTS.items():
                shutil.rmtree(target)
                shutil.copytree(root / "kept", target)
                command = export_command(root / "second", target)
                traced = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={kind}"]
                traced += ["-e", f"inject={kind}:{injected}:when={n}", *command]
                done = subprocess.run(traced, capture_output=True, text=True)
                try:
                    ends[f"{fault}: {check(target, old, done)}"] += 1
                    subprocess.run(command, check=True, capture_output=True)
                    left = sorted(path.name for path in target.iterdir())
                    if left != ["edgegen.json", Bundle.open(target).manifest.folder]:
                        raise BrokenBundleError(f"the next export leaves {left}")
                    Bundle.open(target).verify()
                except (BrokenBundleError, EdgegenError, subprocess.CalledProcessError) as error:
                    failures.append(f"{fault} at {kind} {n}: {error}")
                    print(failures[-1], file=sys.stderr, flush=True)
    for end, count in sorted(ends.items()):
        print(f"{count:4}  {end}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
