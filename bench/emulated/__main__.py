"""Run a bundle on emulated Raspberry Pis and on this machine: equal token ids, and CPU time per step and prompt.

    python -m bench.emulated --work /tmp/edgegen-emulated
    python -m bench.emulated --work /tmp/edgegen-emulated --bundle gpt2-int8 --fp32 gpt2-fp32 --tokens 16

Debian only; it needs qemu-user-static and gcc-aarch64-linux-gnu, downloads 110 MB into WORK and keeps them there. Times
of emulated processors mean something only next to other times of emulated processors.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.emulated.root import PI4, PI5, REPOSITORY, Root, RootError, run_here
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.errors import EdgegenError
from edgegen.model.loading import open_tokenizer

PROMPTS = (
    "Once upon a time",
    "Lily and Tom went to",
    "The little dog was",
    "One day, a big bear",
    "Mom said",
    "The end",
)
"""Of greedy answers without penalties."""

BOARDS = (PI5, PI4)

LENGTH = 64
"""Of the prompt that is timed."""

MOST_OVER_PI5, MOST_OF_FP32 = 2.5, 0.5
"""Limits of a decode step on a Pi 4: times that of a Pi 5, and of the fp32 bundle."""


@dataclass(frozen=True)
class Way:
    """One way to run the model: which bundle, KV cache and kernels."""

    label: str
    bundle: str
    kv: str | None
    kernels: str

    def task(self, prompts: list[list[int]], length: int, tokens: int, repeats: int) -> Mapping[str, object]:
        """Return the worker's task: ``length`` of the prompt to be timed, ``tokens`` of each answer."""
        told = {name: value for name, value in asdict(self).items() if name != "label"}
        return told | {"prompts": prompts, "length": length, "tokens": tokens, "repeats": repeats}


def ways(bundle: Path, fp32: Path | None) -> list[Way]:
    """Every way to run the two bundles; the default is the first."""
    found = [
        Way(f"{kv} KV cache, {'our kernels' if kernels == 'auto' else 'stock'}", str(bundle), kv, kernels)
        for kernels in ("auto", "stock")
        for kv in ("int8", "float32")
    ]
    return found + ([Way("fp32 bundle", str(fp32), "float32", "auto")] if fp32 else [])


def prompts_of(bundle: Path) -> list[list[int]]:
    """``PROMPTS`` as the bundle's tokenizer writes them."""
    tokenizer = open_tokenizer(Bundle.open(bundle))
    if tokenizer is None:
        raise RootError(f"{bundle} has no tokenizer: choose a bundle with one")
    return [tokenizer.encode(prompt) for prompt in PROMPTS]


def agreement(here: list[dict[str, Any]], there: list[dict[str, Any]]) -> str:
    """How many answers have the same logits, or else the same ids, and at which gap the first of the others differs."""
    same = sum(one["ids"] == other["ids"] for one, other in zip(here, there, strict=True))
    bits = all(one["digest"] == other["digest"] for one, other in zip(here, there, strict=True))
    text = f"{same} of {len(here)}{', all bits' if bits else ''}"
    for one, other in zip(here, there, strict=True):
        for ours, theirs, gap in zip(one["ids"], other["ids"], one["gaps"], strict=True):
            if ours != theirs:
                return f"{text}; first at a gap of {gap:.2g}"
    return text


def table(rows: list[tuple[Way, list[dict[str, Any]], dict[str, Any]]]) -> str:
    """Rows of a way, its results on the Pis, and its result on this machine."""
    heads = [f"{board.name}, {what}" for what in ("step", f"prompt of {LENGTH}", "ids") for board in BOARDS]
    lines = ["| CPU seconds | " + " | ".join(heads) + " |", "|---|" + "---:|" * 4 + "---|" * 2]
    for way, results, here in rows:
        cells = [f"{result['step']:.3f}" for result in results] + [f"{result['prompt']:.2f}" for result in results]
        cells += [agreement(here["answers"], result["answers"]) for result in results]
        lines.append(f"| {way.label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def export_fp32(work: Path) -> Path:
    """The default model's checkpoint as an fp32 bundle in ``work``."""
    to = work / "fp32"
    export = [sys.executable, "-m", "edgegen", "export", str(REPOSITORY / "models" / DEFAULT_MODEL), "--fp32"]
    done = subprocess.run([*export, "--force", "-o", str(to)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RootError(f"the fp32 bundle cannot be exported: {done.stderr.strip()}")
    return to


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the emulated system")
    parser.add_argument("--bundle", default=DEFAULT_MODEL, help="a name in the store, or a path (default: %(default)s)")
    parser.add_argument("--fp32", help="an fp32 bundle to compare with; the default model's is exported")
    parser.add_argument("--tokens", type=int, default=48, help="of each greedy answer (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="of a prompt that is timed (default: %(default)s)")
    parser.add_argument("--prepare", action="store_true", help="make the emulated system, and run nothing")
    arguments = parser.parse_args()
    try:
        return run(arguments)
    except (RootError, EdgegenError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run(arguments: argparse.Namespace) -> int:
    """Make the system, run every way on every Pi, print the table; 1 where a limit is not met."""
    root = Root(arguments.work)
    root.make()
    if arguments.prepare:
        return 0
    root.take_edgegen()
    bundle = BundleStore().resolve(arguments.bundle)
    fp32 = BundleStore().resolve(arguments.fp32) if arguments.fp32 else None
    if fp32 is None and arguments.bundle == DEFAULT_MODEL:
        fp32 = export_fp32(arguments.work)
    prompts = prompts_of(bundle)
    rows: list[tuple[Way, list[dict[str, Any]], dict[str, Any]]] = []
    for way in ways(bundle, fp32):
        print(way.label, file=sys.stderr, flush=True)
        task = way.task(prompts, LENGTH, arguments.tokens, arguments.repeats)
        rows.append((way, [root.run(board, task) for board in BOARDS], run_here(task)))
    print(table(rows))
    _, (pi5, pi4), _ = rows[0]
    over_pi5 = pi4["step"] / pi5["step"]
    print(f"a decode step on a Pi 4 costs {over_pi5:.2f} of a Pi 5's; the limit is {MOST_OVER_PI5}")
    if fp32 is None:
        return int(over_pi5 > MOST_OVER_PI5)
    of_fp32 = pi4["step"] / rows[-1][1][1]["step"]
    print(f"and {of_fp32:.2f} of the fp32 bundle's; the limit is {MOST_OF_FP32}")
    return int(over_pi5 > MOST_OVER_PI5 or of_fp32 > MOST_OF_FP32)


if __name__ == "__main__":
    sys.exit(main())
