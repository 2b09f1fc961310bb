"""Recorded: a machine from recorded files and answers of calls. What was recorded where is said beside it."""

import struct
from collections.abc import Iterable, Mapping


class Recorded:
    """A :class:`~edgegen.system.Source` of recorded texts by path and bytes by call."""

    def __init__(
        self,
        system: str = "linux",
        machine: str = "x86_64",
        *,
        files: Mapping[str, str] | None = None,
        calls: Mapping[str, bytes] | None = None,
        cpus: Iterable[int] = range(4),
    ) -> None:
        self.system = system
        self.machine = machine
        self._files = dict(files or {})
        self._calls = dict(calls or {})
        self._cpus = frozenset(cpus)

    def read(self, path: str) -> str | None:
        return self._files.get(path)

    def names(self, folder: str) -> list[str]:
        prefix = folder + "/"
        return sorted({path.removeprefix(prefix).split("/")[0] for path in self._files if path.startswith(prefix)})

    def allowed_cpus(self) -> frozenset[int]:
        return self._cpus

    def call(self, question: str) -> bytes | None:
        return self._calls.get(question)


CPU = "/sys/devices/system/cpu/cpu"


def topology(groups: Iterable[Iterable[int]]) -> dict[str, str]:
    """``thread_siblings_list`` of every CPU, whose core is a group."""
    return {
        f"{CPU}{cpu}/topology/thread_siblings_list": (f"{group[0]}-{group[-1]}" if len(group) > 1 else str(group[0]))
        + "\n"
        for group in map(list, groups)
        for cpu in group
    }


def hybrid_x86(cpus: Iterable[int] = range(16), **more: str) -> Recorded:
    """A Core i5-1240P: four performance cores of two hyper-threads, eight efficiency cores."""
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7)]
    files = topology([*pairs, *((cpu,) for cpu in range(8, 16))])
    files["/sys/devices/cpu_core/cpus"] = "0-7\n"
    files["/sys/devices/cpu_atom/cpus"] = "8-15\n"
    files["/proc/cpuinfo"] = "".join(
        f"processor\t: {cpu}\nmodel name\t: 12th Gen Intel(R) Core(TM) i5-1240P\nflags\t\t: fpu avx2 fma avx_vnni\n\n"
        for cpu in range(16)
    )
    files["/sys/devices/virtual/dmi/id/sys_vendor"] = "LENOVO\n"
    files["/sys/devices/virtual/dmi/id/product_name"] = "21CBCTO1WW\n"
    files["/sys/class/thermal/thermal_zone0/type"] = "acpitz\n"
    files["/sys/class/thermal/thermal_zone0/temp"] = "71000\n"
    files["/sys/class/thermal/thermal_zone1/type"] = "x86_pkg_temp\n"
    files["/sys/class/thermal/thermal_zone1/temp"] = "54500\n"
    files["/sys/class/thermal/cooling_device0/type"] = "Processor\n"
    return Recorded(files=files | {f"/{path}": text for path, text in more.items()}, cpus=cpus)


_PI_CPUINFO = (
    "processor\t: {cpu}\nBogoMIPS\t: 108.00\nFeatures\t: {features}\nCPU implementer\t: 0x41\n"
    "CPU architecture: 8\nCPU variant\t: {variant}\nCPU part\t: {part}\nCPU revision\t: 1\n\n"
)


def pi_5(throttled: str = "0") -> Recorded:
    """A Raspberry Pi 5 with 64-bit Raspberry Pi OS."""
    features = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
    return _pi(features, "0xd0b", "0x4", "Raspberry Pi 5 Model B Rev 1.0", throttled)


def pi_4(throttled: str = "0") -> Recorded:
    """A Raspberry Pi 4 with 64-bit Raspberry Pi OS: no dot product."""
    return _pi("fp asimd evtstrm crc32 cpuid", "0xd08", "0x0", "Raspberry Pi 4 Model B Rev 1.4", throttled)


def _pi(features: str, part: str, variant: str, name: str, throttled: str) -> Recorded:
    cpus = range(4)
    files = topology((cpu,) for cpu in cpus) | {f"{CPU}{cpu}/cpu_capacity": "1024\n" for cpu in cpus}
    files["/proc/cpuinfo"] = "".join(
        _PI_CPUINFO.format(cpu=cpu, features=features, variant=variant, part=part) for cpu in cpus
    )
    files["/proc/cpuinfo"] += f"Revision\t: c04170\nSerial\t\t: 0\nModel\t\t: {name}\n"
    files["/proc/device-tree/model"] = name + "\0"
    files["/sys/class/thermal/thermal_zone0/type"] = "cpu-thermal\n"
    files["/sys/class/thermal/thermal_zone0/temp"] = "62322\n"
    files["/sys/devices/platform/soc/soc:firmware/get_throttled"] = throttled + "\n"
    files[f"{CPU}0/cpufreq/scaling_governor"] = "ondemand\n"
    files["/proc/meminfo"] = "MemTotal:        8245248 kB\nMemFree:         5812224 kB\nMemAvailable:    7340032 kB\n"
    return Recorded(machine="aarch64", files=files, cpus=cpus)


def rock_5() -> Recorded:
    """An RK3588: four Cortex-A55 and four Cortex-A76, whose capacities differ a little."""
    capacities = [414] * 4 + [1024, 1024, 1002, 1002]
    files = topology((cpu,) for cpu in range(8))
    files |= {f"{CPU}{cpu}/cpu_capacity": f"{capacity}\n" for cpu, capacity in enumerate(capacities)}
    files["/proc/cpuinfo"] = "".join(
        _PI_CPUINFO.format(cpu=cpu, features="fp asimd asimddp", variant="0x2", part="0xd05" if cpu < 4 else "0xd0b")
        for cpu in range(8)
    )
    files["/proc/device-tree/model"] = "Radxa ROCK 5B\0"
    return Recorded(machine="aarch64", files=files, cpus=range(8))


def windows_core(efficiency_class: int, mask: int, group: int = 0) -> bytes:
    """A record of ``GetLogicalProcessorInformationEx``: the layout of ``winnt.h``."""
    hyper_threaded = int(mask.bit_count() > 1)
    return struct.pack("<IIBB20xHQH6x", 0, 48, hyper_threaded, efficiency_class, 1, mask, group)


def memory_status(total: int, available: int, commit_limit: int, commit_left: int) -> bytes:
    """MEMORYSTATUSEX: the layout of ``sysinfoapi.h``; what it calls the page file is the limit of committed memory."""
    return struct.pack("<II7Q", 64, 41, total, available, commit_limit, commit_left, 1 << 47, 1 << 46, 0)


def job_limits(*, process: int | None = None, job: int | None = None) -> bytes:
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION: the layout of ``winnt.h`` on 64 bits."""
    flags = 0x100 * (process is not None) | 0x200 * (job is not None) | 0x2000  # which is another limit
    return struct.pack("<16xI44x48x4Q", flags, process or 0, job or 0, 5, 6).ljust(144, b"\0")


def windows(**calls: bytes) -> Recorded:
    """A laptop with Windows 11 on an i5-1240P: class 1 is the performance cores'."""
    cores = [windows_core(1, 0b11 << 2 * n) for n in range(4)] + [windows_core(0, 1 << n) for n in range(8, 16)]
    known = {
        "GetLogicalProcessorInformationEx": b"".join(cores),
        "GetProcessAffinityMask": struct.pack("<Q", 0xFFFF),
        # MEMORYSTATUSEX: size, load, then total and available memory, page file and address space
        "GlobalMemoryStatusEx": memory_status(16_890_011_648, 9_912_344_576, 20_111_237_120, 11_005_341_696),
        # PROCESS_MEMORY_COUNTERS: size, page faults, peak and current working set, four others, committed, its peak
        "K32GetProcessMemoryInfo": struct.pack(
            "<II8Q", 72, 9, 312_000_512, 287_002_624, 0, 0, 0, 0, 241_336_320, 250_000_000
        ),
        r"HKLM\HARDWARE\DESCRIPTION\System\CentralProcessor\0\ProcessorNameString": b"12th Gen Intel(R) Core(TM) i5",
        r"HKLM\HARDWARE\DESCRIPTION\System\BIOS\SystemManufacturer": b"LENOVO",
        r"HKLM\HARDWARE\DESCRIPTION\System\BIOS\SystemProductName": b"21CBCTO1WW",
    }
    return Recorded("win32", "AMD64", calls=known | calls, cpus=range(16))


def mac() -> Recorded:
    """A MacBook Air with an M2: four performance and four efficiency cores."""
    statistics = [74_211, 301_377, 298_114, 120_006]  # pages: free, active, inactive, wired
    rusage = struct.pack("<16x8Q", 1, 2, 3, 4, 5, 6, 300_105_728, 271_433_728).ljust(160, b"\0")
    calls = {
        "hw.physicalcpu": struct.pack("<i", 8),
        "hw.perflevel0.physicalcpu": struct.pack("<i", 4),
        "hw.l2cachesize": struct.pack("<q", 4_194_304),
        "hw.memsize": struct.pack("<q", 17_179_869_184),
        "hw.pagesize": struct.pack("<q", 16_384),
        "hw.model": b"Mac14,2\0",
        "hw.optional.neon": struct.pack("<i", 1),
        "hw.optional.arm.FEAT_DotProd": struct.pack("<i", 1),
        "hw.optional.arm.FEAT_I8MM": struct.pack("<i", 1),
        "machdep.cpu.brand_string": b"Apple M2\0",
        "host_statistics64": struct.pack("<4I", *statistics).ljust(152, b"\0"),
        "proc_pid_rusage": rusage,
    }
    return Recorded("darwin", "arm64", calls=calls, cpus=range(8))
