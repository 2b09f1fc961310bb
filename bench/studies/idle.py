"""Use of the processor by an idle model and an idle server: CPU time, and how often they wake it up.

    python -m bench.studies.idle [--model stories] [--seconds 30]

A model that has just generated, and an `edgegen serve` that has just answered, are watched for a second, in which the
threads of ONNX Runtime come to rest, and then for ``--seconds``. Ends with 1 if one then takes more than 0.1% of a
core. Linux only.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

from edgegen import LLM

MOST = 0.001
_CPU_TIME = 2
"""Beside a process's number, Linux's clock of all that its threads have run, those that have ended included."""

PROMPT, TOKENS = "Once upon a time", 32


class Used(NamedTuple):
    """By a process since its start: CPU time in nanoseconds, and how often each of its threads has gone to sleep."""

    cpu_ns: int
    rests: dict[str, int]

    @classmethod
    def by(cls, process: int) -> "Used":
        rests = dict[str, int]()
        for thread in Path(f"/proc/{process}/task").iterdir():
            lines = (thread / "status").read_text().splitlines()
            rests[thread.name] = sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
        return cls(time.clock_gettime_ns(~process << 3 | _CPU_TIME), rests)

    def wakes_since(self, before: "Used") -> int:
        """Of the threads that are there now."""
        return sum(count - before.rests.get(thread, 0) for thread, count in self.rests.items())


def main() -> int:
    parser = argparse.ArgumentParser(description="What an idle model and an idle server take of the processor.")
    parser.add_argument("--model", default="stories", help="name or path of a bundle (stories)")
    parser.add_argument("--seconds", type=float, default=30, help="to watch each (30)")
    arguments = parser.parse_args()
    if sys.platform != "linux":
        raise SystemExit("this system does not tell what another process takes: only Linux does.")
    print("               first second         then, for each second")
    print("                     CPU, ms     CPU, ms    of a core    wake-ups")
    shares = [watch(arguments.model, arguments.seconds) for watch in (model, server)]
    return int(max(shares) > MOST)


def model(bundle: str, seconds: float) -> float:
    """Of a core, what an idle :class:`LLM` takes."""
    with LLM.load(bundle) as llm:
        llm.generate(PROMPT, max_new_tokens=TOKENS)
        return _watched("LLM", os.getpid(), seconds)


def server(bundle: str, seconds: float) -> float:
    """Of a core, what an idle ``edgegen serve`` takes."""
    command = [sys.executable, "-m", "edgegen", "serve", "-m", bundle, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            address = process.stderr.readline().partition(" at ")[2].split()[0]
            body = json.dumps({"prompt": PROMPT, "max_tokens": TOKENS}).encode()
            asked = urllib.request.Request(f"{address}/v1/completions", body, {"Content-Type": "application/json"})
            urllib.request.urlopen(asked).close()
            return _watched("edgegen serve", process.pid, seconds)
        finally:
            process.terminate()


def _watched(name: str, process: int, seconds: float) -> float:
    begin = Used.by(process)
    time.sleep(1)
    rested = Used.by(process)
    time.sleep(seconds)
    end = Used.by(process)
    share = (end.cpu_ns - rested.cpu_ns) / 1e9 / seconds
    wakes = end.wakes_since(rested) / seconds
    settling = (rested.cpu_ns - begin.cpu_ns) / 1e6
    print(f"{name:14}{settling:14.1f}{share * 1e3:12.3f}{share:13.3%}{wakes:12.1f}")
    return share


if __name__ == "__main__":
    raise SystemExit(main())
