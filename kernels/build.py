"""Compile the kernels: `python kernels/build.py` puts their library where the package looks for it.

Needs a C compiler (gcc or clang) and nothing else. `CC` names another one, a cross compiler for instance:
`CC=aarch64-linux-gnu-gcc`, or `CC="python -m ziglang cc -target aarch64-macos"`.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
SUFFIXES = {"win": ".dll", "macosx": ".dylib"}
"""Of a shared library, by the first word of a platform's tag; `.so` elsewhere."""

_PLATFORM = {"win32": "win", "darwin": "macosx"}.get(sys.platform, "linux")
LIBRARY = SOURCES.parent / "edgegen" / "model" / f"edgegen_kernels{SUFFIXES.get(_PLATFORM, '.so')}"

FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra")
"""Contraction would join a product and a sum into one rounding where the compiler likes: other bits."""

_SYSTEMS = {"_WIN32": ("Windows", ".dll"), "__APPLE__": ("macOS", ".dylib")}
"""By a macro that compilers for the system define: its name, and the suffix of its shared libraries."""

_MACHINES = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64", "arm64")}
"""As compilers call them, and the ends of platforms' tags."""


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


class Target:
    """Target of a compiler, by the macros that it defines: ``macros``, each with its value.

    Flags depend on the compiler, not on the system that it runs on.
    """

    def __init__(self, macros: Mapping[str, str]) -> None:
        self._macros = macros
        self.system, self.suffix = next((_SYSTEMS[name] for name in _SYSTEMS if name in macros), ("Linux", ".so"))
        self.machine = next((name for name in _MACHINES if f"__{name}__" in macros), "another processor")

    @property
    def is_clang(self) -> bool:
        """Whether it is clang, under whatever name: ``zig cc`` and Apple's cc are."""
        return "__clang__" in self._macros

    def to_compile(self) -> list[str]:
        """Flags of one source. Paths of this machine are kept out, so that two builds have the same bytes."""
        flags = [] if self.system == "Windows" else ["-fPIC"]
        if self.system == "Windows" and "__x86_64__" in self._macros and not self.is_clang:
            # MinGW-w64 gcc moves vectors to the stack as if it were aligned to them; Windows does not promise that.
            # Only the GNU assembler knows the flag. Clang aligns the stack itself.
            flags.append("-Wa,-muse-unaligned-vector-move")
        return [*flags, f"-ffile-prefix-map={SOURCES}=kernels"]

    def to_link(self, name: str, linker: str = "") -> list[str]:
        """Flags of the library called ``name``; ``linker`` is what it says of its version."""
        if self.system == "macOS":
            return [f"-Wl,-install_name,@rpath/{name}"]  # otherwise the path it is built at
        if self.system == "Linux":
            return []
        flags = ["-s"]  # neither a table of symbols nor a .pdb with this machine's paths
        if not self.is_clang:
            flags.append("-static-libgcc")
        if not linker.startswith("zig"):  # whose library has neither the time nor an address made of its path
            flags.append("-Wl,--no-insert-timestamp,--disable-auto-image-base")
        return flags


def target_of(command: Sequence[str]) -> Target:
    """Return the target of the compiler ``command``.

    Raises:
        BuildError: it cannot be started, fails, or is neither gcc nor clang.
    """
    written = _run([*command, "-dM", "-E", "-x", "c", "-"], command)
    macros = dict(
        line.split(" ", 2)[1:] for line in written.splitlines() if line.startswith("#define ") and line.count(" ") > 1
    )
    if "__GNUC__" not in macros:
        raise BuildError(f"{shlex.join(command)} is neither gcc nor clang: name one of them by CC")
    return Target(macros)


def build(output: Path = LIBRARY, flags: Sequence[str] = (), sources: Sequence[Path] = (), platform: str = "") -> None:
    """Compile every source below this folder, and ``sources``, into the shared library ``output``, all at once.

    ``platform`` is the tag of the wheel that it goes into, such as ``win_amd64``; empty if it goes into none.

    Raises:
        BuildError: there is no compiler, it fails or makes code for another system or processor than ``output`` and
            ``platform`` say, or ``output`` cannot be written.
    """
    command = compiler()
    if command is None:
        raise BuildError("there is no C compiler: install gcc or clang, or name one by CC")
    target = target_of(command)
    if output.suffix != target.suffix:
        raise BuildError(
            f"{shlex.join(command)} compiles for {target.system}, whose libraries end in {target.suffix}, "
            f"and {output.name} does not: name another compiler by CC, or another library"
        )
    machine = next((name for name, ends in _MACHINES.items() if platform.endswith(ends)), target.machine)
    if machine != target.machine:
        raise BuildError(
            f"{shlex.join(command)} compiles for {target.machine}, and {platform} is a platform of {machine}: "
            "name another compiler by CC, or another platform"
        )
    own = [*sorted(SOURCES.rglob("*.c")), *sources]
    try:
        with tempfile.TemporaryDirectory() as folder:
            library = _compile(command, flags, target, own, Path(folder) / output.name)
            output.parent.mkdir(parents=True, exist_ok=True)
            partial = output.with_name(f".{output.name}.{os.getpid()}")
            shutil.copy(library, partial)
            partial.replace(output)
    except OSError as error:
        raise BuildError(f"{output} cannot be written: {error.strerror or error}") from error


def _compile(
    command: Sequence[str], flags: Sequence[str], target: Target, sources: Sequence[Path], library: Path
) -> Path:
    """Compile all sources at once into ``library``, and their objects beside it."""
    # `zig cc` adds debugging information unless it is told not to, and links for debugging unless it is told -O3.
    whole = [*command, "-g0", *flags, *FLAGS]
    objects = [library.with_name(f"{source.stem}.o") for source in sources]

    def compile_one(source: Path, to: Path) -> None:
        _run([*whole, *target.to_compile(), f"-I{SOURCES}", "-c", str(source), "-o", str(to)], command)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(compile_one, sources, objects))
    linker = _run([*command, "-Wl,--version"], command) if target.is_clang and target.system == "Windows" else ""
    link = [*target.to_link(library.name, linker), "-o", str(library), "-lm"]
    _run([*whole, "-shared", *map(str, objects), *link], command)
    return library


def is_current(library: Path = LIBRARY) -> bool:
    """Whether ``library`` is there, and no file below this folder is newer."""
    files = [path for path in SOURCES.rglob("*") if path.suffix in (".c", ".h", ".inc", ".py")]
    return library.is_file() and library.stat().st_mtime > max(path.stat().st_mtime for path in files)


def without_kernels(error: BuildError) -> str:
    """The line for users who get no library."""
    return f"edgegen's kernels are not built ({error}): ONNX Runtime's own operators will be used"


def _run(words: Sequence[str], command: Sequence[str]) -> str:
    """Run the compiler ``command``, and return its output.

    Raises:
        BuildError: it cannot be started, or fails.
    """
    name = shlex.join(command)
    try:
        done = subprocess.run(words, input="", capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise BuildError(f"{name} cannot be started: {error.strerror or error}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        first = next((line for line in lines if "error" in line), lines[0])
        raise BuildError(f"{name} fails: {first.strip()}", done.stderr)
    sys.stderr.write(done.stderr)
    return done.stdout


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
