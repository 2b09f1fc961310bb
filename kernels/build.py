"""Compile the kernels: `python kernels/build.py` puts their library where the package looks for it.

Needs a C compiler (gcc or clang) and nothing else. `CC` names another one, a cross compiler for instance.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
LIBRARY = SOURCES.parent / "edgegen" / "model" / f"edgegen_kernels{SUFFIX}"

FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
"""Contraction would join a product and a sum into one rounding where the compiler likes: other bits."""


def compiler() -> list[str] | None:
    """The C compiler's command; None where there is none."""
    if named := os.environ.get("CC"):
        return shlex.split(named)
    return next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), None)


def build(output: Path = LIBRARY, flags: Sequence[str] = (), sources: Sequence[Path] = ()) -> None:
    """Compile every source of this folder, and ``sources``, into the shared library ``output``.

    Raises:
        RuntimeError: there is no compiler.
        subprocess.CalledProcessError: it fails; what it wrote is on stderr.
    """
    command = compiler()
    if command is None:
        raise RuntimeError("there is no C compiler: install gcc or clang, or name one by CC")
    own = [*sorted(SOURCES.glob("*.c")), *sources]
    partial = output.with_suffix(".partial")
    shared = [] if sys.platform == "win32" else ["-lm"]
    subprocess.run([*command, *FLAGS, *flags, "-shared", *map(str, own), "-o", str(partial), *shared], check=True)
    partial.replace(output)


def main() -> int:
    """Build, and say where the library is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=LIBRARY, help="where the library goes")
    parser.add_argument("flags", nargs="*", help="more flags for the compiler, after --")
    arguments = parser.parse_args()
    try:
        build(arguments.output, arguments.flags)
    except (RuntimeError, subprocess.CalledProcessError, OSError) as error:
        print(f"error: the kernels cannot be built: {error}", file=sys.stderr)
        return 1
    print(arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
