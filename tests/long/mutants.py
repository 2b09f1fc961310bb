"""Mutants by number, tried in child processes of many: a crash costs one of them, and memory is measured for each.

A mutant is made from its number alone, so ``--first N --count 1`` makes one again. Each has a time of the processor's,
not of the clock: what is paused goes on later.
"""

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from edgegen.errors import EdgegenError
from tests.root import ROOT

ADDRESS_SPACE, SECONDS, TOGETHER = 6 << 30, 60, 1000
MOST_MEMORY = 2.0
"""Times what the process of unchanged material takes at its peak."""

LONGEST = 20_000
"""Characters of an error: all problems are listed, and long values are cut."""

_UNCHANGED, _TELLING, _READY = 3, 60, "ready\n"
Try = Callable[[random.Random | None], str]
"""Makes a mutant (by no chance: unchanged material), tries it, and says how it ended, or raises edgegen's error."""


def main(module: str, what: str, prepare: Callable[[Path, str], Try], *, bundle: str = "") -> None:
    """Run the mutants that the command line asks for; the exit code is 1 if one failed.

    ``prepare`` makes the material in a folder, of the bundle that the command line names, ``bundle`` by default.
    """
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=0)
    if bundle:
        parser.add_argument("--bundle", default=bundle, help="a folder, or a name in the store")
    else:
        parser.set_defaults(bundle="")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        _try_all(prepare(args.child, args.bundle), args.seed, args.first, args.count)
        return
    ends, failures, peak, told = Counter[str](), 0, 0.0, time.monotonic()
    of = [f"--bundle={args.bundle}"] if args.bundle else []
    next_, last = args.first, args.first + args.count
    while next_ < last:
        with tempfile.TemporaryDirectory() as root:
            command = [sys.executable, "-W", "ignore", "-m", module, f"--child={root}", f"--seed={args.seed}", *of]
            command += [f"--first={next_}", f"--count={min(TOGETHER, last - next_)}"]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, stderr=subprocess.DEVNULL)
            assert child.stdout
            if child.stdout.readline() != _READY:
                raise RuntimeError(f"a child has not begun: exit code {child.wait()}: {' '.join(command)}")
            for line in child.stdout:
                number, end, times = json.loads(line)
                next_, peak = number + 1, max(peak, times)
                if times > MOST_MEMORY:
                    end = f"failed: {times:.1f} times the memory"
                ends[end.partition(":")[0]] += 1
                if end.startswith("failed"):
                    failures += 1
                    print(f"{number}: {end[:2000]}", file=sys.stderr, flush=True)
            if child.wait():
                ends["crash"] += 1
                failures += 1
                print(f"{next_}: a crash: exit code {child.returncode}", file=sys.stderr, flush=True)
                next_ += 1
        if time.monotonic() - told > _TELLING:
            told = time.monotonic()
            print(f"{next_}: {dict(ends)}, peak {peak:.2f} times", file=sys.stderr, flush=True)
    print(json.dumps({**ends, "peak memory, times that of unchanged material": round(peak, 2)}, indent=1))
    sys.exit(bool(failures))


def _try_all(try_: Try, seed: int, first: int, count: int) -> None:
    """A child's work: a line for each, with its number, its end and its peak of memory, as times the usual one."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGPROF, _too_long)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries print there too
    usual = max(_peak_of(try_, None)[1] for _ in range(_UNCHANGED))
    print(_READY, end="", flush=True, file=answers)
    for number in range(first, first + count):
        end, peak = _peak_of(try_, random.Random(f"{seed} {number}"))
        print(json.dumps([number, end, peak / usual]), flush=True, file=answers)


def _peak_of(try_: Try, chance: random.Random | None) -> tuple[str, int]:
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        end = try_(chance)
    except EdgegenError as error:
        end = "refused" if 0 < len(str(error)) < LONGEST else f"failed: {len(str(error))} characters: {error!r}"
    except BaseException:
        end = f"failed: {traceback.format_exc()}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if chance is None and end.startswith(("failed", "refused")):
        raise RuntimeError(f"the unchanged material: {end}")
    status = Path("/proc/self/status").read_text()
    return end, int(status.partition("VmHWM:")[2].split()[0])


def _too_long(*_: object) -> None:
    raise TimeoutError
