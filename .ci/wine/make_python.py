"""Makes a Windows Python under Wine, from package registries alone: `make_python.py FOLDER REQUIREMENT…`.

Interpreter: panda3d's Windows wheel carries python311.dll and its extension modules, to freeze games. C++ runtime:
msvc-runtime. Standard library: that of this Python, hence 3.11. Scripts of Tcl/Tk: Debian's. What Wine 8 lacks is
compiled here: complex functions of the C runtime, the forwards of python3.dll, ProcessPrng, a DXGI without GPUs. A
requirement is a wheel's file, or what pip understands. Needs wine and gcc-mingw-w64-x86-64, and for tkinter libtcl8.6
and libtk8.6. `.ci/wine/python FOLDER` runs it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

HERE = Path(__file__).resolve().parent
COMPILE = ("x86_64-w64-mingw32-gcc", "-O1", "-s", "-static-libgcc")
INTERPRETER = ("panda3d", "msvc-runtime")
BY_SYSTEM = ("colorama", "pefile", "pywin32-ctypes")
"""Requirements on Windows only, of click, pytest, tqdm and PyInstaller: pip judges such by the system it runs on."""

OURS = ("ucrtbase", "dxgi")
"""Libraries that Wine has too, and that each of `PROGRAMS` loads from its own folder."""
PROGRAMS = ("python.exe", "frozen_app.exe")

PROFILES = "C:\\users\\Zoë Ünïcode 山"
"""Where Windows has the profiles of users, their data and temporary files among them: no ASCII."""

PROFILE_LIST = r"HKLM\Software\Microsoft\Windows NT\CurrentVersion\ProfileList"

TCL = Path("/usr/share/tcltk")
"""Where Debian has the scripts of Tcl/Tk 8.6, which are the same on every system."""

COMPLEX = (
    "abs acos acosh arg asin asinh atan atanh conj cos cosh exp imag log pow proj real sin sinh sqrt tan tanh".split()
)
"""Functions of complex numbers, which Wine's C runtime lacks and NumPy needs: for double, float and long double."""


def download(to: Path, requirements: Iterable[str], *options: str) -> None:
    """Wheels for Windows and Python 3.11 of ``requirements``, and of what they need."""
    target = "--platform win_amd64 --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    subprocess.run([*pip, *target.split(), "--dest", str(to), *options, *requirements], check=True)


def install(wheel: Path, python: Path) -> None:
    """Unpack a wheel into the Python in the folder ``python``."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if not entry.is_dir() and (to := _place(wheel.name, PurePosixPath(entry.filename))):
                (python / to).parent.mkdir(parents=True, exist_ok=True)
                (python / to).write_bytes(archive.read(entry))


def _place(wheel: str, name: PurePosixPath) -> str | None:
    """Where a file of a wheel goes in a Python's folder; None where it does not."""
    if wheel.startswith("panda3d"):
        if name.parts[0] != "deploy_libs" or name.name.startswith(("api-ms", "VCRUNTIME")):
            return None
        extension = name.suffix == ".pyd" or name.name.startswith(("lib", "sqlite"))
        return f"DLLs/{name.name}" if extension else name.name
    if wheel.startswith("msvc_runtime"):
        return name.name.lower() if name.suffix.lower() == ".dll" else None
    if name.parts[0].endswith(".data"):
        name = PurePosixPath(*name.parts[2:]) if name.parts[1] in ("purelib", "platlib") else PurePosixPath()
    return f"Lib/site-packages/{name}" if name.parts else None


def exports(library: Path) -> list[str]:
    """Names of the functions and data that a library exports."""
    dump = ["x86_64-w64-mingw32-objdump", "-p", str(library)]
    text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    table = text.partition("Name Pointer] Table")[2].partition("\n\n")[0]
    return [line.split()[-1] for line in table.splitlines() if re.match(r"\t\[", line)]


def compile_library(output: Path, code: str | Path, definitions: Iterable[str] = (), *options: str) -> None:
    """``code`` is a file, or the text of one; ``definitions`` are the lines of exports."""
    work = output.parent.parent / "build"
    work.mkdir(exist_ok=True)
    if isinstance(code, str):
        (work / f"{output.stem}.c").write_text(code)
        code = work / f"{output.stem}.c"
    sources = [str(code)]
    if lines := list(definitions):
        (work / f"{output.stem}.def").write_text("\n".join([f"LIBRARY {output.name}", "EXPORTS", *lines, ""]))
        sources.append(str(work / f"{output.stem}.def"))
    subprocess.run([*COMPILE, "-shared", *sources, "-o", str(output), *options], check=True)


def complex_functions() -> Iterator[tuple[str, str]]:
    """Names of the functions, and their C code; long double is double on Windows."""
    for suffix, real in (("", "double"), ("f", "float"), ("l", "double")):
        kind, own = f"struct {real}s", "f" if suffix == "f" else ""
        load = f"{real} _Complex w; memcpy(&w, &z, sizeof w);"
        for name in COMPLEX:
            full = name + suffix if name == "conj" else f"c{name}{suffix}"
            called = f"{name}{own}" if name == "conj" else f"c{name}{own}"
            if name in ("abs", "arg", "imag", "real"):
                yield full, f"{real} my_{full}({kind} z) {{ {load} return {called}(w); }}"
                continue
            second, power = (f", {kind} y", ", v") if name == "pow" else ("", "")
            more = f"{real} _Complex v; memcpy(&v, &y, sizeof v);" if power else ""
            store = f"w = {called}(w{power}); memcpy(&z, &w, sizeof w); return z;"
            yield full, f"{kind} my_{full}({kind} z{second}) {{ {load} {more} {store} }}"


def make_c_runtime(python: Path) -> None:
    """A ucrtbase.dll that forwards to a copy of Wine's, and has the functions of complex numbers besides."""
    wines = next(path for path in Path("/usr/lib").rglob("ucrtbase.dll") if "x86_64-windows" in path.parts)
    # Wine would replace a file with this mark by its own.
    (python / "wucrt.dll").write_bytes(wines.read_bytes().replace(b"Wine builtin DLL", b"This is no built"))
    own = dict(complex_functions())
    structs = "struct doubles { double r, i; }; struct floats { float r, i; };"
    code = "\n".join(["#include <complex.h>", "#include <string.h>", structs, *own.values(), ""])
    names = sorted({*exports(wines), *own})
    forwards = [f"{name} = {f'my_{name}' if name in own else f'wucrt.{name}'}" for name in names]
    compile_library(python / "ucrtbase.dll", code, forwards, "-fno-builtin", "-lmingwex")


def copy_tcl(python: Path) -> None:
    """The scripts that tkinter needs, which demand no longer the very patch level of Debian's libraries."""
    for name in ("tcl8.6", "tk8.6"):
        if (TCL / name).is_dir():
            shutil.copytree(TCL / name, python / "tcl" / name)
            for script in (python / "tcl" / name).glob("*.tcl"):
                code = script.read_bytes()
                script.write_bytes(re.sub(rb"(?m)^(package require) -exact (Tcl|Tk) +8\.6\.\d+", rb"\1 \2 8.6", code))


def make(folder: Path, requirements: list[str], constraints: Path | None) -> None:
    """Download, unpack, compile, and let Wine make its prefix."""
    python, wheels = folder / "python", folder / "wheels"
    (python / "DLLs").mkdir(parents=True)
    wheels.mkdir()
    download(wheels, INTERPRETER, "--no-deps")
    files = [Path(one) for one in requirements if one.endswith(".whl")]
    names = [one for one in requirements if not one.endswith(".whl")]
    download(wheels, [*BY_SYSTEM, *names], *(["--constraint", str(constraints)] if constraints else []))
    not_taken = shutil.ignore_patterns("site-packages", "test", "lib-dynload", "_sysconfigdata*")
    shutil.copytree(sysconfig.get_path("stdlib"), python / "Lib", ignore=not_taken)
    for wheel in (*sorted(wheels.glob("*.whl")), *files):
        install(wheel, python)
    copy_tcl(python)
    subprocess.run([*COMPILE, "-municode", str(HERE / "launch.c"), "-o", str(python / "python.exe")], check=True)
    stable = [f"{name} = python311.{name}" for name in exports(python / "python311.dll")]
    compile_library(python / "python3.dll", "int nothing(void) { return 0; }\n", stable)
    compile_library(python / "bcryptprimitives.dll", HERE / "bcryptprimitives.c", (), "-ladvapi32")
    compile_library(python / "dxgi.dll", HERE / "dxgi.c")
    make_c_runtime(python)
    make_prefix(folder / "prefix")


def make_prefix(prefix: Path) -> None:
    """A Windows of Wine's, in which `PROGRAMS` load `OURS`, whose users have their profiles in `PROFILES`."""
    keys = [rf"HKCU\Software\Wine\AppDefaults\{program}\DllOverrides" for program in PROGRAMS]
    temporary = PROFILES + "\\Temp"
    (prefix / "drive_c" / temporary.replace("\\", "/").removeprefix("C:/")).mkdir(parents=True)
    own = {"WINEPREFIX": str(prefix), "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "winemenubuilder.exe=d"}
    for command in (
        ["wineboot", "-i"],
        *(["wine", "reg", "add", key, "/v", one, "/d", "native", "/f"] for key in keys for one in OURS),
        ["wine", "reg", "add", PROFILE_LIST, "/v", "ProfilesDirectory", "/t", "REG_EXPAND_SZ", "/d", PROFILES, "/f"],
        *(["wine", "reg", "add", r"HKCU\Environment", "/v", name, "/d", temporary, "/f"] for name in ("TEMP", "TMP")),
        ["wineserver", "-k"],  # profiles are read when Windows starts
    ):
        # Not captured: Wine's server outlives the command and would keep a pipe open.
        null = subprocess.DEVNULL
        subprocess.run(command, check=True, env=os.environ | own, stdin=null, stdout=null, stderr=null)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="one that does not exist yet")
    parser.add_argument("requirements", nargs="+", metavar="REQUIREMENT")
    parser.add_argument(
        "--install", action="store_true", help="only put these wheels in the place of the edgegen there"
    )
    parser.add_argument("--constraint", type=Path, metavar="FILE", help="of pip")
    arguments = parser.parse_args()
    if sys.version_info[:2] != (3, 11):
        sys.exit(f"Python 3.11 is needed, whose standard library is taken: this is {sys.version.split()[0]}")
    if arguments.install:
        for old in (arguments.folder / "python/Lib/site-packages").glob("edgegen*"):
            shutil.rmtree(old)
        for wheel in arguments.requirements:
            install(Path(wheel), arguments.folder / "python")
        return
    try:
        make(arguments.folder.resolve(), arguments.requirements, arguments.constraint)
    except subprocess.CalledProcessError as error:
        sys.exit(f"a Windows Python cannot be made: {' '.join(error.cmd[:6])} … ended with {error.returncode}")


if __name__ == "__main__":
    main()
