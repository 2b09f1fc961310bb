"""Instructions of the kernels for aarch64: how many a product with a matrix takes, by instruction set and rows.

    python -m bench.studies.instructions

Counted by QEMU's emulation of one instruction at a time, of a matrix of 64 rows and 512 columns, so no such processor
is needed. A count is no time: instructions differ, and memory is not counted. Needs aarch64-linux-gnu-gcc and
qemu-aarch64-static.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernels.build import FLAGS, SOURCES

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"
ISAS = ("i8mm", "dotprod", "neon")
ROWS = (1, 2, 4, 8, 32, 128)
KINDS = ((64, 8), (32, 4))
"""Block and bits."""


def compiled(folder: Path) -> Path:
    """The program that is counted: the sources without ONNX Runtime's side, and one that multiplies."""
    sources = [path for path in sorted(SOURCES.rglob("*.c")) if path.name != "register.c"]
    own, program = Path(__file__).with_suffix(".c"), folder / "instructions"
    words = [COMPILER, *FLAGS, f"-I{SOURCES}", "-static", *map(str, [own, *sources]), "-o", str(program), "-lm"]
    subprocess.run(words, check=True)
    return program


def instructions(program: Path, isa: str, rows: int, block: int, bits: int) -> int:
    """Of one product: those of two products less those of one."""
    one, two = (_traced(program, isa, (rows, block, bits, times)) for times in (1, 2))
    return two - one


def _traced(program: Path, isa: str, arguments: Sequence[int]) -> int:
    # A line of the trace for each block that runs, and a block is one instruction.
    words = [EMULATOR, "-cpu", "max", "-singlestep", "-d", "exec,nochain", str(program), *map(str, arguments)]
    variables = os.environ | {"EDGEGEN_ISA": isa}
    with subprocess.Popen(words, env=variables, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        count = sum(line.startswith(b"Trace") for line in running.stderr)
    if running.returncode:
        raise SystemExit(f"error: {program.name} ends with {running.returncode} in {EMULATOR}")
    return count


def main() -> None:
    """Print a table for each kind of matrix."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for tool in (COMPILER, EMULATOR):
        if shutil.which(tool) is None:
            raise SystemExit(f"error: there is no {tool}: install gcc-aarch64-linux-gnu and qemu-user-static")
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder))
        for block, bits in KINDS:
            print(f"\n| {bits} bits, blocks of {block}: rows | {' | '.join(ISAS)} | dotprod / i8mm |")
            print(f"|---:|{'---:|' * (len(ISAS) + 1)}")
            for rows in ROWS:
                counts = {isa: instructions(program, isa, rows, block, bits) for isa in ISAS}
                numbers = " | ".join(f"{count:,}" for count in counts.values())
                print(f"| {rows} | {numbers} | {counts['dotprod'] / counts['i8mm']:.2f} |")


if __name__ == "__main__":
    main()
