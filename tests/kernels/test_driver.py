"""The operators' C code by itself: under sanitizers, and on other processors, which an emulator plays."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kernels.material import instruction_sets, needs_library
from tests.made_once import made_once
from tests.root import ROOT

pytestmark = pytest.mark.release  # compiled for each instruction set, sanitizer and board

DRIVER = [ROOT / "tests/kernels/driver.c", ROOT / "tests/kernels/parts_of_matrices.c"]
SOURCES = [path for path in sorted((ROOT / "kernels").rglob("*.c")) if path.name != "register.c"]
FLAGS = ["-std=gnu11", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'kernels'}"]
EMULATE = "-DEDGEGEN_EMULATED_TILES"
"""Tiles of AMX are memory of plain C (kernels/matmul/tiles.h); the vectors beside them stay AVX-512's."""
EMULATES = "avx512vnni" in instruction_sets() and "amx" not in instruction_sets()
HERE = [EMULATE] if EMULATES else []
"""Flags of a driver for this machine."""
ISAS = ["amx", *instruction_sets()] if EMULATES else instruction_sets()
"""Instruction sets that such a driver runs."""
# A copy of a function for each of its calls would take a minute, and optimizing what a sanitizer has added minutes.
QUICKLY = ["-O1", "-Wno-maybe-uninitialized", "-DINLINE=static __attribute__((unused))"]
PLAINLY = [*QUICKLY, "-O0", "-g"]
SANITIZERS = {
    "addresses and undefined behaviour": [*PLAINLY, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    # Optimized, it runs twice as fast, and compiles 5 s longer.
    "threads": [*QUICKLY, "-fno-inline", "-g", "-fsanitize=thread"],
}
BOARDS = {
    "a processor with i8mm": ("max", ["i8mm", "dotprod"]),
    "Raspberry Pi 5": ("cortex-a76", ["dotprod", "neon", "portable"]),
    "Raspberry Pi 4": ("cortex-a72", ["neon"]),
}
X86 = {"Haswell": "avx2", "Haswell,-fma": "portable", "Haswell,-xsave": "portable", "Nehalem": "portable"}
"""The best kernels of a processor; without xsave the system cannot save AVX's registers."""
CROSS_COMPILER = "aarch64-linux-gnu-gcc"
RANDOM_MATRICES = 200
PARTS, CHECKED_PARTS = 3000, {"addresses and undefined behaviour": 150, "threads": 40}
MATRICES = 12 * (16 + 8) * 3
LYING_MATRICES = 10
OTHERS = {
    "attention": 96 + 7,
    "gathers": 10 + 3,
    "norms": 8 + 2,
    "activations": 14,
    "scans": 10 + 3,
    "convolutions": 10 + 3,
    "delta rules": 10 + 5,
    "fused layers": 16 + 5,
    "fused layers with attention": 32 + 7,
    "experts": 12 + 4,
    "matrices of heads": 10 + 3,
    "gptq": 12,
    "nearest codes": 8,
    "ternary matrices": 12 * 10 + 6,
}
CASES = MATRICES + LYING_MATRICES + sum(OTHERS.values())


def build(to: Path, flags: Sequence[str], compiler: str = "cc") -> Path:
    """The driver, compiled; the test is skipped where the compiler is missing."""
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    files = [str(path) for path in (*DRIVER, *SOURCES)]
    subprocess.run([compiler, *FLAGS, *flags, *files, "-o", str(to), "-lm", "-pthread"], check=True)
    return to


def built_once(folder: Path, flags: Sequence[str], compiler: str = "cc") -> Path:
    """The same for several workers, which share it."""
    made_once(["driver", compiler, *flags], folder, lambda to: build(to / "driver", flags, compiler))
    (folder / "driver").chmod(0o755)
    return folder / "driver"


def output_of(command: Sequence[str | Path], isa: str, *arguments: str, emulated: str | None = None) -> list[str]:
    """The lines that the driver prints; it must end well."""
    more = {"EDGEGEN_ISA": isa} | ({"QEMU_CPU": emulated} if emulated else {})
    words = [*map(str, command), *arguments]
    done = subprocess.run(words, env=os.environ | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def lines_of(command: Sequence[str | Path], isa: str, threads: int = 1, emulated: str | None = None) -> list[str]:
    """Return the lines that the driver prints for all cases."""
    lines = output_of(command, isa, str(threads), emulated=emulated)
    assert len(lines) == CASES
    return lines


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver for this machine, without shared libraries, so that an emulator needs none."""
    static = ["-static"] if sys.platform == "linux" else []
    return built_once(tmp_path_factory.mktemp("driver"), [*QUICKLY, *static, *HERE])


@pytest.fixture(scope="module")
def expected(program: Path) -> list[str]:
    """By portable C, on this processor."""
    return lines_of([program], "portable")


def test_lengths_that_lie_are_told(expected: list[str]) -> None:
    parts = ["codes have", "scales have", "zero points have", "biases have", "the last dimension of x is not K"]
    parts = [part for part in parts for _ in "88"]
    of_cache = ["a length is not between", "has kv_num_heads * size scales", "one sink for each head"]
    of_cache += ["the bias has too few keys", "a position has no cosines"]
    parts += [*of_cache, "keys and values are [batch, tokens", "one length for each row"]
    parts += [*of_cache, "weights of one size, or none", "one length for each row"]
    parts += ["there is no row 10", "scales have 29", "zero points have 29", "biases have 19", "skip has neither"]
    parts += ["there is not a rate for each", *["do not have shapes that fit"] * 2]
    parts += [*["do not have shapes that fit"] * 2, "weights have"]
    parts += [*["do not have shapes that fit"] * 4, "a weight for each channel"]
    parts += ["codes have 3839", "do not fit each other", "skip has not the shape", "what the first step takes"]
    parts += ["do not fit each other"]
    parts += ["codes have", "an element per token and expert", "twice what the second takes", "is not K of the first"]
    parts += ["codes have", *["has not the shape"] * 2]
    parts += [
        "codes have",
        "scales have",
        "block_size must be 32, or 4",
        "biases have",
        "of x is not K",
        "no zero points",
    ]
    told = [line for line in expected if ": 2: " in line]
    assert told[:LYING_MATRICES] == expected[MATRICES:][:LYING_MATRICES]
    assert all(part in line for part, line in zip(parts, told, strict=True)), told


def test_outputs_of_cases_differ(expected: list[str]) -> None:
    hashes = [line.rsplit(" ", 1)[1] for line in expected if ": 2: " not in line]
    assert len(set(hashes)) > 0.9 * len(hashes)


@pytest.mark.parametrize("name", SANITIZERS)
def test_a_sanitizer_finds_nothing(name: str, expected: list[str], tmp_path: Path) -> None:
    empty = tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }")
    if subprocess.run(["cc", *SANITIZERS[name], str(empty), "-o", str(tmp_path / "empty")], check=False).returncode:
        pytest.skip("this compiler has no such sanitizer")
    checked = build(tmp_path / "driver", [*SANITIZERS[name], *HERE])
    for isa in ISAS:
        assert lines_of([checked], isa, 3) == expected, isa
        assert output_of([checked], "", "parts", isa, "9", str(CHECKED_PARTS[name]), "3") == [isa]


@pytest.mark.parametrize("isa", ISAS)
def test_parts_of_random_matrices_have_the_bits_of_portable_c(isa: str, program: Path) -> None:
    for seed, threads in (("1", "1"), ("2", "3")):
        assert output_of([program], "", "parts", isa, seed, str(PARTS), threads) == [isa]


@pytest.mark.parametrize("isa", ISAS)
def test_operators_have_the_bits_of_portable_c(isa: str, program: Path, expected: list[str]) -> None:
    assert lines_of([program], isa) == expected
    assert output_of([program], isa, "name") == [isa]


@pytest.mark.skipif(not EMULATES, reason="there are tiles here, or no vectors beside which they could be emulated")
def test_only_tests_emulate_tiles(program: Path) -> None:
    words = b"emulated tiles"  # what they print before they end a program
    assert words in program.read_bytes()
    assert words not in needs_library().read_bytes()


@pytest.fixture(scope="module")
def emulator() -> str:
    """A program that plays aarch64."""
    found = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if found is None:
        pytest.skip("there is no qemu-aarch64")
    return found


@pytest.fixture(scope="module")
def for_boards(emulator: str, tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    """The driver for aarch64, emulated."""
    return [emulator, built_once(tmp_path_factory.mktemp("aarch64"), [*QUICKLY, "-static"], CROSS_COMPILER)]


@pytest.mark.parametrize("board", BOARDS)
def test_boards_compute_the_same_bits(board: str, expected: list[str], for_boards: list[str | Path]) -> None:
    processor, isas = BOARDS[board]
    for isa in isas:
        assert lines_of(for_boards, isa, emulated=processor) == expected, isa
    assert output_of(for_boards, "", "name", emulated=processor) == isas[:1]  # the best there is, and it was tested


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_boards_compute_the_same_bits_of_random_matrices(
    seed: str, program: Path, for_boards: list[str | Path]
) -> None:
    expected = output_of([program], "portable", "1", seed)
    assert len(set(expected)) == RANDOM_MATRICES
    for processor, isas in BOARDS.values():
        for isa in isas:
            assert output_of(for_boards, isa, "1", seed, emulated=processor) == expected, isa


def test_a_sanitizer_finds_nothing_on_a_processor_with_i8mm(
    expected: list[str], emulator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of memory and undefined behaviour; the libraries of the sanitizer are the cross compiler's."""
    flags = SANITIZERS["addresses and undefined behaviour"]
    program = tmp_path / "driver"
    empty = tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }")
    if shutil.which(CROSS_COMPILER) is None:
        pytest.skip(f"there is no {CROSS_COMPILER}")
    trial = [CROSS_COMPILER, *flags, str(empty), "-o", str(program)]
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # which would need ptrace, and the emulator has none
    emulated = [emulator, "-L", "/usr/aarch64-linux-gnu", program]
    if subprocess.run(trial, check=False).returncode or subprocess.run(emulated, check=False).returncode:
        pytest.skip("the cross compiler has no such sanitizer")
    build(program, flags, CROSS_COMPILER)
    for isa in BOARDS["a processor with i8mm"][1]:
        assert lines_of(emulated, isa, emulated="max") == expected, isa


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the driver is built for another processor than x86-64")
def test_a_processor_without_avx512_computes_the_same_bits(expected: list[str], program: Path) -> None:
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("there is no qemu-x86_64")
    assert lines_of([emulator, program], "avx2", emulated="Haswell") == expected
    for isa in ("", "avx512vnni", "amx"):  # which it does not have: the best it has runs
        assert output_of([emulator, program], isa, "name", emulated="Haswell") == ["avx2"], isa
    for processor, name in X86.items():
        assert output_of([emulator, program], "", "name", emulated=processor) == [name], processor
