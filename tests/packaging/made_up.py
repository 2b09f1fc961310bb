"""Shared libraries of a few hundred bytes in ELF, PE and Mach-O: no code, only what they say of themselves."""

import struct
from collections.abc import Sequence


def elf(
    exports: Sequence[str],
    needs: Sequence[str] = ("libc.so.6",),
    *,
    glibc: Sequence[str] = ("2.2.5", "2.14"),
    machine: int = 62,
    run_path: str = "",
    stack: int = 6,
) -> bytes:
    """For x86-64 (62) or aarch64 (183), with symbol versions of the first library; flags of its stack are ``stack``."""
    names = bytearray(b"\0")

    def name(text: str) -> int:
        names.extend(text.encode() + b"\0")
        return len(names) - len(text) - 1

    symbols = bytearray(24)
    for one in exports:
        symbols += struct.pack("<IBBHQQ", name(one), 0x12, 0, 1, 0x1000, 1)  # a global function
    count = 1 + len(exports)
    table = struct.pack("<II", 1, count) + struct.pack("<I", 1 if count > 1 else 0) + bytes(4 * count)
    versions = struct.pack("<H", 0) + struct.pack("<H", 1) * len(exports)
    wanted = struct.pack("<HHIII", 1, len(glibc), name(needs[0]), 16, 0)
    for index, version in enumerate(glibc):
        following = 16 if index + 1 < len(glibc) else 0
        wanted += struct.pack("<IHHII", 0, 0, 2 + index, name(f"GLIBC_{version}"), following)
    entries = [(1, name(library)) for library in needs]
    if run_path:
        entries.append((29, name(run_path)))
    parts = {5: bytes(names), 6: bytes(symbols), 4: table, 0x6FFFFFF0: versions, 0x6FFFFFFE: wanted}
    at = dynamic = 64 + 3 * 56
    at += 16 * (len(entries) + len(parts) + 4)
    body = b""
    for tag, part in parts.items():
        entries.append((tag, at + len(body)))
        body += part + bytes(-len(part) % 8)
    entries += [(10, len(names)), (11, 24), (0x6FFFFFFF, 1), (0, 0)]
    size = at + len(body)
    header = (
        b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0)
    )
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    segments += struct.pack("<IIQQQQQQ", 2, 6, dynamic, dynamic, dynamic, at - dynamic, at - dynamic, 8)
    segments += struct.pack("<IIQQQQQQ", 0x6474E551, stack, 0, 0, 0, 0, 0, 16)
    return header + segments + b"".join(struct.pack("<QQ", *entry) for entry in entries) + body


def pe(
    exports: Sequence[str],
    needs: Sequence[str] = ("KERNEL32.dll",),
    *,
    windows: tuple[int, int] = (6, 0),
    machine: int = 0x8664,
) -> bytes:
    """For x86-64 (0x8664) or arm64 (0xAA64), with one section."""
    base, headers = 0x1000, 0x200
    data = bytearray(40 + 20 * (len(needs) + 1))  # the directory of exports, then that of imports

    def put(part: bytes) -> int:
        data.extend(part)
        return base + len(data) - len(part)

    names = [put(one.encode() + b"\0") for one in sorted(exports)]
    count = len(names)
    functions = put(struct.pack(f"<{count}I", *[base] * count))
    pointers = put(struct.pack(f"<{count}I", *names))
    ordinals = put(struct.pack(f"<{count}H", *range(count)))
    own = put(b"made_up.dll\0")
    struct.pack_into("<IIHHIIIIIII", data, 0, 0, 0, 0, 0, own, 1, count, count, functions, pointers, ordinals)
    for index, library in enumerate(needs):
        function = put(b"\0\0Sleep\0\0")
        lookup = put(struct.pack("<QQ", function, 0))
        struct.pack_into("<IIIII", data, 40 + 20 * index, lookup, 0, 0, put(library.encode() + b"\0"), lookup)
    data += bytes(-len(data) % 0x200)
    size = len(data)
    optional = struct.pack("<HBBIIIII", 0x20B, 14, 0, 0, size, 0, 0, base)
    optional += struct.pack("<QII6H", 0x180000000, 0x1000, 0x200, 6, 0, 0, 0, *windows)
    optional += struct.pack("<4I2H", 0, 0x2000, headers, 0, 2, 0x160)
    optional += struct.pack("<4Q2I", 0x100000, 0x1000, 0x100000, 0x1000, 0, 16)
    optional += struct.pack("<IIII", base, 40, base + 40, 20 * (len(needs) + 1)) + bytes(14 * 8)
    section = b".rdata\0\0" + struct.pack("<IIIIIIHHI", size, base, size, headers, 0, 0, 0, 0, 0x40000040)
    coff = struct.pack("<HHIIIHH", machine, 1, 0, 0, 0, len(optional), 0x2022)
    start = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0" + coff + optional + section
    return start + bytes(headers - len(start)) + bytes(data)


def macho(
    exports: Sequence[str],
    needs: Sequence[str] = ("/usr/lib/libSystem.B.dylib",),
    *,
    macos: tuple[int, int] = (11, 0),
    install_name: str = "@rpath/made_up.dylib",
    machine: int = 0x0100000C,
) -> bytes:
    """For arm64 (0x0100000C) or x86-64 (0x01000007)."""
    strings, symbols = bytearray(b"\0"), b""
    for one in exports:
        symbols += struct.pack("<IBBHQ", len(strings), 0x0F, 1, 0, 0x100)  # external, of the first section
        strings += b"_" + one.encode() + b"\0"

    trie = bytes([0, len(exports)])  # a node without a symbol of its own, and a child for each name
    first = len(trie) + sum(len(one) + 4 for one in exports)
    for index, one in enumerate(exports):
        offset = first + 5 * index
        trie += b"_" + one.encode() + b"\0" + bytes([offset & 0x7F | 0x80, offset >> 7])
    trie += bytes([3, 0, 0x80, 0x02, 0]) * len(exports)  # of three bytes: a regular symbol at 0x100; no children
    trie += bytes(-len(trie) % 8)

    def library(command: int, name: str) -> bytes:
        text = name.encode() + b"\0"
        text += bytes(-len(text) % 8)
        return struct.pack("<IIIIII", command, 24 + len(text), 24, 0, 0x10000, 0x10000) + text

    version = macos[0] << 16 | macos[1] << 8
    commands = [library(0xD, install_name), *(library(0xC, name) for name in needs)]
    commands.append(struct.pack("<IIIIII", 0x32, 24, 1, version, version, 0))
    segment = b"__TEXT" + bytes(10)
    section = b"__text" + bytes(10) + segment + struct.pack("<QQIIIIIIII", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    length = sum(map(len, commands)) + 72 + len(section) + 24 + 16
    trie_at, symbols_at = 32 + length, 32 + length + len(trie)
    size = symbols_at + len(symbols) + len(strings)
    command = struct.pack("<II", 0x19, 72 + len(section)) + segment
    commands.append(command + struct.pack("<QQQQIIII", 0, size, 0, size, 5, 5, 1, 0) + section)
    commands.append(struct.pack("<IIIIII", 2, 24, symbols_at, len(exports), symbols_at + len(symbols), len(strings)))
    commands.append(struct.pack("<IIII", 0x80000033, 16, trie_at, len(trie)))
    header = struct.pack("<IIIIIIII", 0xFEEDFACF, machine, 0, 6, len(commands), length, 0, 0)
    return header + b"".join(commands) + trie + symbols + bytes(strings)
