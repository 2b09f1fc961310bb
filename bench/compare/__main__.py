"""Compare the speed and memory of edgegen with other runtimes on random-weight checkpoints of three shapes.

    python -m bench.compare --work /tmp/bench
    python -m bench.compare --work /tmp/bench --reuse --shapes G --peers edgegen,llama.cpp --rounds 3

Each runtime gets its own virtual environment and converts the same checkpoint. Its logits are checked against the
float32 model. Then all runtimes are measured in interleaved rounds (A B C A B C …), each time in a fresh process.
bench/README.md explains the columns.
"""

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from bench.compare.comparison import Comparison, Workshop
from bench.compare.contestants import CONTESTANTS, DEFAULT, LONG, Contestant, chosen
from bench.compare.environments import InstallError
from bench.compare.report import LONG as LONG_CONTEXTS
from bench.compare.report import Report, Settings, rewrite
from bench.compare.shapes import DENSE, SHAPES


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compare edgegen with other runtimes on random-weight checkpoints.")
    parser.add_argument("--work", type=Path, required=True, help="folder for environments, checkpoints, conversions")
    parser.add_argument("--shapes", default=",".join(DENSE), help=f"of {','.join(SHAPES)}")
    parser.add_argument("--peers", help=f"of {','.join(CONTESTANTS)}")
    parser.add_argument("--long", action="store_true", help="long contexts and KV caches, no batches; takes hours")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", help="a peer's own Python")
    parser.add_argument("--reuse", action="store_true", help="keep what an earlier run left in WORK")
    parser.add_argument("--threads", type=int, help="default: the physical cores")
    parser.add_argument("--contexts", type=int, nargs="+", help="those that a shape has no room for are left out")
    for name in ("prefill", "repeats", "steps", "rows", "rounds"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Settings, name))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables between the markers of this page")
    parser.add_argument("--json", type=Path, help="write every single measurement here")
    return parser


def _settings(args: argparse.Namespace) -> Settings:
    return Settings(
        threads=args.threads or physical_cores(),
        contexts=tuple(args.contexts or (LONG_CONTEXTS if args.long else Settings.contexts)),
        prefill=args.prefill,
        repeats=args.repeats,
        steps=args.steps,
        rows=1 if args.long else args.rows,
        rounds=args.rounds,
    )


def _pythons(workshop: Workshop, contestants: list[Contestant]) -> dict[str, Path | InstallError]:
    """The interpreter of each environment, or the reason why there is none."""
    found: dict[str, Path | InstallError] = {}
    for environment in (contestant.environment for contestant in contestants):
        if environment.name not in found:
            try:
                found[environment.name] = workshop.python(environment)
            except InstallError as error:
                found[environment.name] = InstallError(f"{environment.command}: {error}")
    return found


def machine() -> dict[str, Any]:
    """A description of this machine for the notes and the JSON."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def physical_cores() -> int:
    try:
        import psutil
    except ImportError:
        raise SystemExit("give --threads (the number of physical cores), or pip install psutil") from None
    return psutil.cpu_count(logical=False) or os.cpu_count() or 1


def main() -> None:
    args = _parser().parse_args()
    contestants = chosen(args.peers.split(",") if args.peers else LONG if args.long else DEFAULT)
    shapes = args.shapes.split(",")
    if unknown := sorted({*shapes} - SHAPES.keys()):
        raise SystemExit(f"no such shape: {', '.join(unknown)} (there are {', '.join(SHAPES)})")
    given = {name: Path(path) for name, _, path in (text.partition("=") for text in args.python)}
    environments = {contestant.environment.name for contestant in CONTESTANTS.values()}
    if unknown := sorted(given.keys() - environments):
        raise SystemExit(f"no such environment: {', '.join(unknown)} (there are {', '.join(sorted(environments))})")

    settings = _settings(args)
    workshop = Workshop(args.work.resolve(), args.reuse, given)
    pythons = _pythons(workshop, contestants)
    flag = " --long" if args.long else ""
    command = f"python -m bench.compare{flag} --shapes {args.shapes} --rounds {settings.rounds}"
    report = Report(command, machine(), settings)
    for name in shapes:
        report.shapes.append(Comparison(name, workshop, settings).run(pythons, contestants))
        if args.json:
            args.json.write_text(json.dumps(report.as_json(), indent=1) + "\n", encoding="utf-8")
    print(report.markdown())
    if args.write:
        rewrite(args.write, report.markdown())
    results = [result for shape in report.shapes for result in shape.results]
    sys.exit(any(result.failure for result in results if not result.contestant.is_peer))


if __name__ == "__main__":
    main()
