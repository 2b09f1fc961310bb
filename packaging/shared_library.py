"""Facts that a shared library states of itself, in whichever of the formats ELF, PE and Mach-O it is."""

from collections.abc import Iterable
from dataclasses import dataclass

import lief

Version = tuple[int, ...]

_MACHINES = {"X86_64": "x86_64", "AMD64": "x86_64", "AARCH64": "arm64", "ARM64": "arm64"}
"""Names of processors in the formats, and here."""

_LINKERS_OWN = {"__mh_dylib_header", "___dso_handle"}
"""Symbols that a linker of Mach-O may export besides: they are the image's own address."""


class UnreadableError(ValueError):
    """These bytes are no shared library of ELF, PE or Mach-O."""


@dataclass(frozen=True)
class SharedLibrary:
    """The facts of a shared library that a wheel's name makes promises about."""

    format: str
    """``ELF``, ``PE`` or ``Mach-O``."""

    machine: str
    """``x86_64`` or ``arm64``; what the header says where it is another."""

    system: Version
    """The least version of the system: of glibc by the symbols' versions, of Windows by the subsystem's, of macOS by
    ``LC_BUILD_VERSION``; empty where nothing is said."""

    exports: frozenset[str]
    """Names of the symbols that others can use; without the underscore of C in Mach-O."""

    needs: frozenset[str]
    """Names of the libraries that it is linked with."""

    install_name: str = ""
    """By which a Mach-O library asks to be found."""

    search_paths: tuple[str, ...] = ()
    """Folders of the builder's machine in which it looks for other libraries (RPATH)."""

    executable_stack: bool = False
    debug_information: bool = False


def read(data: bytes) -> SharedLibrary:
    """Read the library of these bytes.

    Raises:
        UnreadableError: they are no shared library.
    """
    lief.logging.disable()
    parsed = lief.parse(data) if data else None  # pyright: ignore[reportUnknownMemberType]: its stub has an open PathLike
    if isinstance(parsed, lief.ELF.Binary):
        return _read_elf(parsed)
    if isinstance(parsed, lief.PE.Binary):
        return _read_pe(parsed)
    if isinstance(parsed, lief.MachO.Binary):
        return _read_macho(parsed)
    raise UnreadableError("it is no shared library of ELF, PE or Mach-O")


def _machine(name: str) -> str:
    return _MACHINES.get(name, name)


def _read_elf(binary: lief.ELF.Binary) -> SharedLibrary:
    wanted = [
        str(auxiliary.name) for need in binary.symbols_version_requirement for auxiliary in need.get_auxiliary_symbols()
    ]
    glibc = [version_of(name.removeprefix("GLIBC_")) for name in wanted if name.startswith("GLIBC_")]
    stacks = [segment for segment in binary.segments if segment.type == lief.ELF.Segment.TYPE.GNU_STACK]
    paths = [
        path
        for entry in binary.dynamic_entries
        if isinstance(entry, lief.ELF.DynamicEntryRpath | lief.ELF.DynamicEntryRunPath)
        for path in entry.paths
    ]
    return SharedLibrary(
        format="ELF",
        machine=_machine(binary.header.machine_type.name),
        system=max(glibc, default=()),
        exports=frozenset(str(symbol.name) for symbol in binary.exported_symbols),
        needs=frozenset(str(name) for name in binary.libraries),
        search_paths=tuple(paths),
        executable_stack=any(lief.ELF.Segment.FLAGS.X in lief.ELF.Segment.FLAGS(segment.flags) for segment in stacks),
        debug_information=any(str(section.name).startswith(".debug") for section in binary.sections),
    )


def _read_pe(binary: lief.PE.Binary) -> SharedLibrary:
    header = binary.optional_header
    export = binary.get_export()
    return SharedLibrary(
        format="PE",
        machine=_machine(binary.header.machine.name),
        system=(header.major_subsystem_version, header.minor_subsystem_version),
        exports=frozenset(str(entry.name) for entry in export.entries) if export else frozenset(),
        needs=frozenset(str(name).lower() for name in binary.libraries),
        debug_information=any(str(section.name).startswith((".debug", "/")) for section in binary.sections),
    )


def _read_macho(binary: lief.MachO.Binary) -> SharedLibrary:
    exports = {str(symbol.name) for symbol in binary.exported_symbols} - _LINKERS_OWN
    own = lief.MachO.LoadCommand.TYPE.ID_DYLIB
    build = binary.build_version
    return SharedLibrary(
        format="Mach-O",
        machine=_machine(binary.header.cpu_type.name),
        system=tuple(build.minos[:2]) if build else (),
        exports=frozenset(name.removeprefix("_") for name in exports),
        needs=frozenset(str(library.name) for library in binary.libraries if library.command != own),
        install_name=next((str(library.name) for library in binary.libraries if library.command == own), ""),
        search_paths=tuple(str(path.path) for path in binary.rpaths),
        debug_information=any(str(section.segment_name) == "__DWARF" for section in binary.sections),
    )


def version_of(text: str) -> Version:
    """``2.28`` as numbers; empty where it is no version, such as ``PRIVATE``."""
    parts = text.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def written(version: Iterable[int]) -> str:
    """Numbers as people write a version."""
    return ".".join(map(str, version))
