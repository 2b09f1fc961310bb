"""The processor and the computer: name, features, second-level cache, temperature, throttling and clock."""

import os
from contextlib import suppress
from functools import cache

from edgegen.system.cores import macos_number
from edgegen.system.source import LOCAL, Source

_ARM_PARTS = {
    "0xd03": "Cortex-A53",
    "0xd04": "Cortex-A35",
    "0xd05": "Cortex-A55",
    "0xd07": "Cortex-A57",
    "0xd08": "Cortex-A72",
    "0xd09": "Cortex-A73",
    "0xd0a": "Cortex-A75",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse-N1",
    "0xd40": "Neoverse-V1",
    "0xd41": "Cortex-A78",
    "0xd44": "Cortex-X1",
    "0xd46": "Cortex-A510",
    "0xd47": "Cortex-A710",
    "0xd48": "Cortex-X2",
    "0xd49": "Neoverse-N2",
    "0xd4d": "Cortex-A715",
    "0xd4f": "Neoverse-V2",
    "0xd80": "Cortex-A520",
    "0xd81": "Cortex-A720",
}
"""Arm's own cores by their number in ``/proc/cpuinfo``, which has no name for them."""

_ARM = "0x41"

_WINDOWS_PROCESSOR = r"HKLM\HARDWARE\DESCRIPTION\System\CentralProcessor\0\ProcessorNameString"
_WINDOWS_COMPUTER = r"HKLM\HARDWARE\DESCRIPTION\System\BIOS\System"


@cache
def processor(source: Source = LOCAL) -> str:
    """The processor's name, or at least its kind."""
    if source.system == "win32":
        name = _text(source.call(_WINDOWS_PROCESSOR))
    elif source.system == "darwin":
        name = _text(source.call("machdep.cpu.brand_string"))
    else:
        facts = _cpuinfo(source)
        parts = [_ARM_PARTS.get(part, "") for part in facts.get("CPU part", ()) if _ARM in facts["CPU implementer"]]
        name = next(iter(facts.get("model name", ())), "") or " + ".join(filter(None, parts))
    return name or source.machine


def computer(source: Source = LOCAL) -> str | None:
    """Return the computer's own name, such as ``Raspberry Pi 5 Model B Rev 1.0``; None if it reports none."""
    if source.system == "win32":
        parts = [_text(source.call(_WINDOWS_COMPUTER + name)) for name in ("Manufacturer", "ProductName")]
    elif source.system == "darwin":
        parts = [_text(source.call("hw.model"))]
    else:
        tree = source.read("/proc/device-tree/model") or source.read("/sys/firmware/devicetree/base/model")
        names = (source.read(f"/sys/devices/virtual/dmi/id/{name}") for name in ("sys_vendor", "product_name"))
        parts = [tree] if tree else [name or "" for name in names]
    return " ".join(filter(None, (part.strip("\0 \n") for part in parts))) or None


_FEATURES = {
    "avx2": "AVX2",
    "fma": "FMA",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX-VNNI",
    "amx_int8": "AMX",
    "asimd": "NEON",
    "asimddp": "dot product",
    "i8mm": "int8 matrix product",
    "sve": "SVE",
}
"""The features that matter here, by Linux's names for them."""


def features(source: Source = LOCAL) -> tuple[str, ...]:
    """The processor's features that make models fast, as far as the system tells.

    Windows tells some of x86-64's: whether there is VNNI, only the kernels' library finds out.
    """
    if source.system == "darwin":
        known = {"NEON": "hw.optional.neon", "dot product": "hw.optional.arm.FEAT_DotProd"}
        known["int8 matrix product"] = "hw.optional.arm.FEAT_I8MM"
        return tuple(name for name, question in known.items() if macos_number(source, question))
    words = {word for name in ("flags", "Features") for line in _cpuinfo(source).get(name, ()) for word in line.split()}
    return tuple(name for word, name in _FEATURES.items() if word in words)


def has_vnni(source: Source = LOCAL) -> bool:
    """Whether this x86-64 has VNNI, which adds products of 8-bit integers in 32 bits; False where it is not known."""
    return bool({"AVX-512 VNNI", "AVX-VNNI"}.intersection(features(source)))


_IDENTIFYING = ("model name", "flags", "Features", "CPU implementer", "CPU part", "CPU variant", "isa")


@cache
def processor_features(source: Source = LOCAL) -> str:
    """Identifies the kind of processor: a library may choose other kernels for another kind."""
    facts = _cpuinfo(source)
    lines = sorted(f"{name}: {value}" for name in _IDENTIFYING for value in facts.get(name, ()))
    return "\n".join([source.machine, *(lines or [processor(source)])])


@cache
def _cpuinfo(source: Source) -> dict[str, list[str]]:
    """The different values of each field of ``/proc/cpuinfo``, in their order."""
    found = dict[str, dict[str, None]]()
    for line in (source.read("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), {})[value.strip()] = None
    return {name: [*values] for name, values in found.items()}


_SC_LEVEL2_CACHE_SIZE = 191
"""glibc's number of the question; Python has no name for it."""


def second_level_cache(source: Source = LOCAL) -> int | None:
    """Bytes of the second-level cache, as ONNX Runtime asks for it; None where the system does not tell."""
    if source.system == "darwin":
        return macos_number(source, "hw.l2cachesize")
    if source.system == "linux" and source is LOCAL:
        with suppress(OSError, ValueError):
            return max(0, os.sysconf(_SC_LEVEL2_CACHE_SIZE)) or None
    return None


def temperature(source: Source = LOCAL) -> float | None:
    """Degrees Celsius of the hottest sensor of the processor, or of any; None where the system does not tell."""
    sensors = dict[str, float]()
    for zone in source.names("/sys/class/thermal"):
        folder = f"/sys/class/thermal/{zone}"
        told = (source.read(f"{folder}/temp") or "").strip()
        if zone.startswith("thermal_zone") and told.lstrip("-").isdecimal():
            kind = (source.read(f"{folder}/type") or "").strip().lower()
            sensors[f"{kind} {zone}"] = int(told) / 1000
    of_processor = [degrees for name, degrees in sensors.items() if any(word in name for word in _PROCESSOR_SENSORS)]
    return max(of_processor or sensors.values(), default=None)


_PROCESSOR_SENSORS = ("cpu", "x86_pkg", "soc", "package", "bigcore")

_PI_NOW = {
    0: "too little voltage",
    1: "the clock is capped for heat or voltage",
    2: "throttled",
    3: "at its soft limit of temperature",
}
"""Meanings of bits of a Raspberry Pi's ``get_throttled``; 16 higher is the same at some time since it was started."""

_PI_FILES = ("/sys/devices/platform/soc/soc:firmware/get_throttled", "/sys/devices/platform/soc/soc:firmware/throttled")


def throttling(source: Source = LOCAL) -> list[str]:
    """Why the processor is or was slower than it can be, one line each; none where it is not, or nothing is told."""
    reasons = list[str]()
    told = next((text for path in _PI_FILES if (text := source.read(path))), "").strip().removeprefix("0x")
    with suppress(ValueError):
        bits = int(told or "0", 16)
        for bit, what in _PI_NOW.items():
            if bits >> bit & 1:
                reasons.append(f"{what}, now")
            elif bits >> bit + 16 & 1:
                reasons.append(f"{what}, at some time since the start")
    counted = (source.read("/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count") or "").strip()
    if counted.isdecimal() and int(counted):
        reasons.append(f"throttled for heat {int(counted)} times since the start")
    return reasons


def governor(source: Source = LOCAL) -> str | None:
    """Which rule sets the clock, such as ``powersave``; None where the system does not tell."""
    return (source.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "").strip() or None


def _text(told: bytes | None) -> str:
    return (told or b"").decode(errors="replace").strip("\0 \n")
