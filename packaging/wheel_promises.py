"""Holds wheels to what their names promise: `python packaging/wheel_promises.py WHEEL...`.

A wheel says for which system it is; here its library is read, and everything else that users rely on is looked at: the
record, the licence, the software bill of materials, the size.
"""

import base64
import csv
import hashlib
import io
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared_library import SharedLibrary, UnreadableError, Version, read, written

LIBRARY = "edgegen/model/edgegen_kernels"
SUFFIXES = (".so", ".dll", ".dylib")

EXPORTS = frozenset(
    {
        "RegisterCustomOps",
        "edgegen_kernels_name",
        "edgegen_gptq_block",
        "edgegen_round_nearest",
        "edgegen_search_scales",
        "edgegen_tokenizer_encode",
        "edgegen_tokenizer_find",
    }
)
"""The entry points of the kernels: ONNX Runtime's, and those that Python calls."""

MOST_LIBRARY_BYTES = 1_500_000
MOST_WHEEL_BYTES = 12_000_000

_WINDOWS = (10, 0)
"""The oldest Windows that ONNX Runtime runs on; the names of wheels have no place for it."""

_SYSTEMS = {"ELF": "glibc", "PE": "Windows", "Mach-O": "macOS"}
"""Systems whose versions the libraries of a format name."""

_SYSTEM_LIBRARIES = {
    "ELF": re.compile(r"(?:libc|libm|ld-linux-[a-z0-9-]+)\.so\.\d+"),
    "PE": re.compile(r"kernel32\.dll|ntdll\.dll|msvcrt\.dll|ucrtbase\.dll|api-ms-win-[a-z0-9-]+\.dll"),
    "Mach-O": re.compile(r"/usr/lib/libSystem\.B\.dylib"),
}
"""Libraries that every system of a format has."""

_BUILDERS_FOLDER = re.compile(rb"(?:/tmp/|/home/|/root/|/work/|/Users/|[A-Z]:\\Users\\)[ -~]{0,80}")


@dataclass(frozen=True)
class Platform:
    """Promises of the platform tag in a wheel's name."""

    format: str
    suffix: str
    machine: str
    system: Version
    """The oldest system that it is for."""

    @classmethod
    def of(cls, tag: str) -> "Platform":
        """Return the platform of a tag such as ``manylinux_2_28_x86_64``.

        Raises:
            ValueError: the tag is of a platform that edgegen has no wheels for.
        """
        if match := re.fullmatch(r"manylinux_(\d+)_(\d+)_(x86_64|aarch64)", tag):
            return cls("ELF", ".so", match[3].replace("aarch64", "arm64"), (int(match[1]), int(match[2])))
        if match := re.fullmatch(r"macosx_(\d+)_(\d+)_(x86_64|arm64)", tag):
            return cls("Mach-O", ".dylib", match[3], (int(match[1]), int(match[2])))
        if match := re.fullmatch(r"win_(amd64|arm64)", tag):
            return cls("PE", ".dll", match[1].replace("amd64", "x86_64"), _WINDOWS)
        raise ValueError(f"there are no wheels for the platform {tag}")


@dataclass(frozen=True)
class Name:
    """The parts of a wheel's file name."""

    distribution: str
    version: str
    tag: str

    @classmethod
    def of(cls, name: str) -> "Name":
        """Parse a name such as ``edgegen-1.0-py3-none-any.whl``.

        Raises:
            ValueError: it is not the name of a wheel for Python 3 without an ABI.
        """
        match = re.fullmatch(r"([A-Za-z0-9_.]+)-([A-Za-z0-9_.!+]+)-(py3-none-([a-z0-9_]+))\.whl", name)
        if match is None:
            raise ValueError(f"{name} is not the name of a wheel for any Python 3 (NAME-VERSION-py3-none-PLATFORM.whl)")
        return cls(match[1], match[2], match[3])

    @property
    def platform(self) -> str:
        """The last part of the tag; ``any`` for a pure wheel."""
        return self.tag.rpartition("-")[2]


@dataclass(frozen=True)
class Report:
    """A wheel: what it needs and weighs, and every promise that it breaks."""

    name: str
    size: int
    """Bytes."""

    system: str
    """The least system of its library; empty for a pure wheel."""

    problems: Sequence[str]


def check(wheel: Path) -> Report:
    """Look at a wheel.

    Raises:
        ValueError: its name is not one of edgegen's wheels.
        OSError: it cannot be read.
        zipfile.BadZipFile: it is no archive.
    """
    name = Name.of(wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        files = {entry.filename: archive.read(entry) for entry in archive.infolist() if not entry.is_dir()}
    size = wheel.stat().st_size
    problems = [*_of_metadata(name, files), *_of_record(name, files)]
    if size > MOST_WHEEL_BYTES:
        problems.append(f"it has {size} bytes, at most {MOST_WHEEL_BYTES} are allowed")
    libraries = sorted(path for path in files if path.endswith(SUFFIXES))
    if name.platform == "any":
        problems += [f"a pure wheel has no libraries, and this one has {path}" for path in libraries]
        return Report(wheel.name, size, "", problems)
    platform = Platform.of(name.platform)
    path = LIBRARY + platform.suffix
    problems += [f"{other} is no library of this platform" for other in libraries if other != path]
    if path not in files:
        return Report(wheel.name, size, "", [*problems, f"it has no {path}"])
    try:
        library = read(files[path])
    except UnreadableError as error:
        return Report(wheel.name, size, "", [*problems, f"{path}: {error}"])
    problems += [f"{path}: {problem}" for problem in of_library(library, platform)]
    problems += [f"{path}: {problem}" for problem in of_bytes(files[path])]
    return Report(wheel.name, size, f"{_SYSTEMS[library.format]} {written(library.system)}", problems)


def of_library(library: SharedLibrary, platform: Platform) -> Iterator[str]:
    """The promises of a platform's tag that a library breaks."""
    if (library.format, library.machine) != (platform.format, platform.machine):
        yield f"it is {library.format} for {library.machine}, not {platform.format} for {platform.machine}"
        return
    if not library.system:
        yield "it does not say which system it needs"
    elif library.system > platform.system:
        yield f"it needs {written(library.system)}, and the oldest system promised is {written(platform.system)}"
    if more := library.exports - EXPORTS:
        yield f"it exports {', '.join(sorted(more))} besides its entry points"
    if missing := EXPORTS - library.exports:
        yield f"it does not export {', '.join(sorted(missing))}"
    known = _SYSTEM_LIBRARIES[library.format]
    if foreign := sorted(name for name in library.needs if not known.fullmatch(name)):
        yield f"it needs {', '.join(foreign)}, which not every system has"
    if library.format == "Mach-O" and not library.install_name.startswith("@rpath/"):
        yield f"its install name is {library.install_name or 'missing'}, not one that begins with @rpath/"
    if library.search_paths:
        yield f"it looks for libraries in {', '.join(library.search_paths)}"
    if library.executable_stack:
        yield "its stack is executable"
    if library.debug_information:
        yield "it has debug information"


def of_bytes(data: bytes) -> Iterator[str]:
    """Yield the parts that no library of a wheel may have, whatever its format: too many bytes, and paths of the
    builder's machine."""
    if len(data) > MOST_LIBRARY_BYTES:
        yield f"it has {len(data)} bytes, at most {MOST_LIBRARY_BYTES} are allowed"
    if match := _BUILDERS_FOLDER.search(data):
        yield f"it names a folder of the machine that built it: {match[0].decode('ascii')}"


def _of_metadata(name: Name, files: dict[str, bytes]) -> Iterator[str]:
    info = f"{name.distribution}-{name.version}.dist-info"
    metadata, wheel = (files.get(f"{info}/{part}", b"").decode("utf-8") for part in ("METADATA", "WHEEL"))
    for field, value in (("Name", name.distribution), ("Version", name.version)):
        if f"\n{field}: {value}\n" not in metadata:
            yield f"METADATA does not say {field}: {value}"
    if f"\nTag: {name.tag}\n" not in f"\n{wheel}":
        yield f"WHEEL does not say Tag: {name.tag}"
    pure = "true" if name.platform == "any" else "false"
    if f"\nRoot-Is-Purelib: {pure}\n" not in f"\n{wheel}":
        yield f"WHEEL does not say Root-Is-Purelib: {pure}"
    if not files.get(f"{info}/licenses/LICENSE", b"").strip():
        yield f"it has no {info}/licenses/LICENSE"
    yield from _of_sbom(name, files.get(f"{info}/sboms/{name.distribution}.cdx.json"))
    allowed = ("edgegen/", "edgegen_export/", f"{info}/")
    yield from (f"{path} belongs to no package of ours" for path in sorted(files) if not path.startswith(allowed))


def _of_sbom(name: Name, data: bytes | None) -> Iterator[str]:
    """A bill of materials (PEP 770) is of this version, and lists the library where there is one."""
    try:
        sbom = json.loads(data or b"")
        subject = sbom["metadata"]["component"]
        components = {component["name"] for component in sbom["components"]}
        said = sbom["bomFormat"], subject["name"], subject["version"]
    except (ValueError, KeyError, TypeError):
        yield "it has no CycloneDX bill of materials in dist-info/sboms"
        return
    if said != ("CycloneDX", name.distribution, name.version):
        yield f"its bill of materials is {' '.join(map(str, said))}"
    if (name.platform != "any") != ("edgegen-kernels" in components):
        yield f"its bill of materials {'leaves out' if name.platform != 'any' else 'lists'} the kernels"


def _of_record(name: Name, files: dict[str, bytes]) -> Iterator[str]:
    """Every file has a line in RECORD, with its digest and its size."""
    path = f"{name.distribution}-{name.version}.dist-info/RECORD"
    rows = csv.reader(io.StringIO(files.get(path, b"").decode("utf-8")))
    recorded = {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}
    for file in sorted(files.keys() | recorded.keys()):
        if file == path:
            continue
        data = files.get(file)
        if data is None:
            yield f"RECORD lists {file}, which is not there"
        elif recorded.get(file) != (_digest(data), str(len(data))):
            yield f"RECORD has not the digest and size of {file}"


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode("ascii")


def main(arguments: Sequence[str]) -> int:
    """Check the wheels of these paths, say what each needs, and return how many break a promise."""
    failed = 0
    for path in map(Path, arguments):
        try:
            report = check(path)
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            report = Report(path.name, 0, "", [str(error)])
        print(f"{report.name}: {report.size / 1e6:.2f} MB{report.system and f', needs {report.system}'}")
        for problem in report.problems:
            print(f"  {problem}", file=sys.stderr)
        failed += bool(report.problems)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
