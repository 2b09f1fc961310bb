"""Compile the kernels: `python kernels/build.py` puts their library where the package looks for it.

Needs a C compiler (gcc or clang) and nothing else. `CC` names another one, a cross compiler for instance.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
SUFFIXES = {"win": ".dll", "macosx": ".dylib"}
"""Of a shared library, by the first word of a platform's tag; `.so` elsewhere."""

_PLATFORM = {"win32": "win", "darwin": "macosx"}.get(sys.platform, "linux")
LIBRARY = SOURCES.parent / "edgegen" / "model" / f"edgegen_kernels{SUFFIXES.get(_PLATFORM, '.so')}"

FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra")
"""Contraction would join a product and a sum into one rounding where the compiler likes: other bits."""

_COMPILE = {".dll": ("-Wa,-muse-unaligned-vector-move",)}
"""By suffix. MinGW-w64 gcc moves vectors to the stack as if it were aligned to them; Windows does not promise that."""

_LINK = {".dll": ("-static-libgcc",)}


class BuildError(Exception):
    """The library cannot be built; the text says why in one line, and ``output`` is all that the compiler wrote."""

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(reason)
        self.output = output


def compiler() -> list[str] | None:
    """The C compiler's command; None where there is none."""
    if named := os.environ.get("CC"):
        return shlex.split(named)
    names = ("gcc",) if sys.platform == "win32" else ("cc", "gcc", "clang")
    return next(([name] for name in names if shutil.which(name)), None)


def build(output: Path = LIBRARY, flags: Sequence[str] = (), sources: Sequence[Path] = ()) -> None:
    """Compile every source of this folder, and ``sources``, into the shared library ``output``, all at once.

    Raises:
        BuildError: there is no compiler, it fails, or ``output`` cannot be written.
    """
    command = compiler()
    if command is None:
        raise BuildError("there is no C compiler: install gcc or clang, or name one by CC")
    own = [*sorted(SOURCES.glob("*.c")), *sources]
    try:
        with tempfile.TemporaryDirectory() as folder:
            library = _compile([*command, *flags], own, Path(folder) / output.name)
            output.parent.mkdir(parents=True, exist_ok=True)
            partial = output.with_name(f".{output.name}.{os.getpid()}")
            shutil.copy(library, partial)
            partial.replace(output)
    except OSError as error:
        raise BuildError(f"{output} cannot be written: {error.strerror or error}") from error


def _compile(command: Sequence[str], sources: Sequence[Path], library: Path) -> Path:
    """Compile all sources at once into ``library``, and their objects beside it."""
    suffix = library.suffix
    code = [] if suffix == ".dll" else ["-fPIC"]
    objects = [library.with_name(f"{source.stem}.o") for source in sources]

    def compile_one(source: Path, to: Path) -> None:
        _run([*command, *FLAGS, *code, *_COMPILE.get(suffix, ()), "-c", str(source), "-o", str(to)])

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(compile_one, sources, objects))
    _run([*command, "-shared", *map(str, objects), *_LINK.get(suffix, ()), "-o", str(library), "-lm"])
    return library


def is_current(library: Path = LIBRARY) -> bool:
    """Whether ``library`` is there, and no file of this folder is newer."""
    files = [path for path in SOURCES.iterdir() if path.suffix in (".c", ".h", ".inc", ".py")]
    return library.is_file() and library.stat().st_mtime > max(path.stat().st_mtime for path in files)


def without_kernels(error: BuildError) -> str:
    """The line for users who get no library."""
    return f"edgegen's kernels are not built ({error}): ONNX Runtime's own operators will be used"


def _run(command: Sequence[str]) -> None:
    """Run a command of the compiler.

    Raises:
        BuildError: the command cannot be started, or fails.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be started: {error.strerror or error}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        first = next((line for line in lines if "error" in line), lines[0])
        raise BuildError(f"{command[0]} fails: {first.strip()}", done.stderr)
    sys.stderr.write(done.stderr)


def main() -> int:
    """Build, and say where the library is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=LIBRARY, help="where the library goes")
    parser.add_argument("--optional", action="store_true", help="only if it is older than its sources; failing is fine")
    parser.add_argument("flags", nargs="*", help="more flags for the compiler, after --")
    arguments = parser.parse_args()
    if arguments.optional and is_current(arguments.output):
        return 0
    try:
        build(arguments.output, arguments.flags if arguments.optional else ["-Werror", *arguments.flags])
    except BuildError as error:
        if arguments.optional:
            arguments.output.unlink(missing_ok=True)  # what is older than its sources may not fit the package
            print(f"note: {without_kernels(error)}", file=sys.stderr)
            return 0
        print(f"{error.output}error: the kernels cannot be built: {error}", file=sys.stderr)
        return 1
    print(arguments.output, file=sys.stderr if arguments.optional else sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
