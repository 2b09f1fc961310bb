"""Processor and computer on recorded machines: names, features, temperature and throttling."""

import pytest

from edgegen.system import (
    Source,
    computer,
    features,
    governor,
    has_vnni,
    processor,
    processor_features,
    second_level_cache,
    temperature,
    throttling,
)
from tests.runtime.system.recorded import Recorded, hybrid_x86, mac, pi_4, pi_5, rock_5, windows


@pytest.mark.parametrize(
    ("machine", "name", "of_computer"),
    [
        (hybrid_x86(), "12th Gen Intel(R) Core(TM) i5-1240P", "LENOVO 21CBCTO1WW"),
        (pi_5(), "Cortex-A76", "Raspberry Pi 5 Model B Rev 1.0"),
        (pi_4(), "Cortex-A72", "Raspberry Pi 4 Model B Rev 1.4"),
        (rock_5(), "Cortex-A55 + Cortex-A76", "Radxa ROCK 5B"),
        (windows(), "12th Gen Intel(R) Core(TM) i5", "LENOVO 21CBCTO1WW"),
        (mac(), "Apple M2", "Mac14,2"),
        (Recorded(machine="riscv64"), "riscv64", None),
        (Recorded("win32", "ARM64"), "ARM64", None),
    ],
)
def test_names_of_processor_and_computer(machine: Source, name: str, of_computer: str | None) -> None:
    assert processor(machine) == name
    assert computer(machine) == of_computer


def test_a_core_of_another_maker_with_the_number_of_one_of_arms_is_not_named_after_it() -> None:
    files = {"/proc/cpuinfo": "CPU implementer\t: 0x51\nCPU part\t: 0xd0b\n"}
    assert processor(Recorded(machine="aarch64", files=files)) == "aarch64"


def test_features() -> None:
    assert features(hybrid_x86()) == ("AVX2", "FMA", "AVX-VNNI")
    assert features(pi_5()) == ("NEON", "dot product")
    assert features(pi_4()) == ("NEON",)
    assert features(mac()) == ("NEON", "dot product", "int8 matrix product")
    assert features(windows()) == ()


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("flags\t\t: fpu avx2 avx512_vnni\n", True),
        ("flags\t\t: fpu avx2 avx_vnni fma\n", True),
        ("flags\t\t: fpu avx2 avx512f avx_vnni_int8\n", False),
        ("Features\t: fp asimd asimddp i8mm\n", False),
        (None, False),
    ],
)
def test_processors_with_vnni_are_known_by_their_flags(cpuinfo: str | None, expected: bool) -> None:
    assert has_vnni(Recorded(files={} if cpuinfo is None else {"/proc/cpuinfo": cpuinfo})) is expected


def test_another_kind_of_processor_has_other_features() -> None:
    texts = {processor_features(machine) for machine in (pi_4(), pi_5(), hybrid_x86(), mac(), windows())}
    assert len(texts) == 5
    assert processor_features(pi_4()) == processor_features(pi_4())


def test_the_second_level_cache_of_a_mac() -> None:
    assert second_level_cache(mac()) == 4_194_304
    assert second_level_cache(Recorded("win32")) is None


def test_temperature_is_that_of_the_processor_or_else_of_any_sensor() -> None:
    assert temperature(hybrid_x86()) == 54.5
    assert temperature(pi_5()) == 62.322
    other = {"/sys/class/thermal/thermal_zone0/type": "acpitz\n", "/sys/class/thermal/thermal_zone0/temp": "48000\n"}
    assert temperature(Recorded(files=other)) == 48
    assert temperature(Recorded(files={"/sys/class/thermal/thermal_zone0/temp": "x"})) is None
    assert temperature(windows()) is None


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("0", []),
        ("0x4", ["throttled, now"]),
        ("50005", ["too little voltage, now", "throttled, now"]),
        ("50000", ["too little voltage, at some time since the start", "throttled, at some time since the start"]),
        ("nonsense", []),
    ],
)
def test_throttling_of_a_raspberry_pi(told: str, expected: list[str]) -> None:
    assert throttling(pi_5(told)) == expected


def test_throttling_that_x86_has_counted() -> None:
    count = "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count"
    assert throttling(Recorded(files={count: "12\n"})) == ["throttled for heat 12 times since the start"]
    assert throttling(Recorded(files={count: "0\n"})) == []


def test_the_governor() -> None:
    assert governor(pi_5()) == "ondemand"
    assert governor(mac()) is None
