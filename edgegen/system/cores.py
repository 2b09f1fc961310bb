"""Cores of this machine: hyper-threads, performance and efficiency cores, CPU affinity, and a container's quota."""

import math
import struct
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from edgegen.system.cgroup import Group, groups_of
from edgegen.system.source import LOCAL, Source

_NEARLY = 0.6
"""A core counts as a performance core if it has this share of the fastest one's capacity: of three kinds of cores
two are fast, at 0.9 and 1, and one is slow, at 0.3 to 0.5."""


class Cores(NamedTuple):
    """The cores that this process may use.

    Attributes:
        logical: CPUs as the system counts them, hyper-threads included.
        physical: cores.
        performance: those of the fastest kind; ``physical`` where all are alike.
        quota: CPUs that a container or job leaves, such as 1.5; None without a quota.
    """

    logical: int
    physical: int
    performance: int
    quota: float | None = None

    @property
    def at_once(self) -> int:
        """Threads that may run at the same time: one for each hyper-thread, the quota rounded up."""
        return max(1, self.logical if self.quota is None else min(self.logical, math.ceil(self.quota)))

    @property
    def usable(self) -> int:
        """Threads that compute fastest: one for each performance core, the quota rounded up."""
        return max(1, self.performance if self.quota is None else min(self.performance, math.ceil(self.quota)))


@cache
def physical_cores(source: Source = LOCAL) -> int:
    """Performance cores that this process may use: affinity and a container's quota respected, at least 1.

    Two hyper-threads of a core share one set of arithmetic units: a thread for each makes decoding slower, and one
    thread more than cores makes it several times slower. An efficiency core is waited for by the fast ones.
    """
    return cores(source).usable


def cores(source: Source = LOCAL) -> Cores:
    """The cores that this process may use; what the system does not tell, every CPU is a core."""
    if source.system == "win32":
        return _windows(source)
    if source.system == "darwin":
        return _macos(source)
    return _linux(source)


def _linux(source: Source) -> Cores:
    cpus = source.allowed_cpus()
    # Hyper-threads of one core have one list of siblings; where the system does not tell, the CPU is a core.
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    names = {cpu: (source.read(siblings.format(cpu)) or str(cpu)).strip() for cpu in cpus}
    fast = _fast_cpus(cpus, source)
    return Cores(len(cpus), len({*names.values()}), len({names[cpu] for cpu in fast}), _quota(source))


def _fast_cpus(cpus: frozenset[int], source: Source) -> frozenset[int]:
    """The CPUs of the fastest kind: hybrid x86 lists them, Arm tells each one's capacity."""
    listed = source.read("/sys/devices/cpu_core/cpus")
    if listed and (fast := cpus & cpu_list(listed)):
        return fast
    told = {cpu: source.read(f"/sys/devices/system/cpu/cpu{cpu}/cpu_capacity") or "" for cpu in cpus}
    capacities = {cpu: int(text) for cpu, text in told.items() if text.strip().isdecimal()}
    if len(capacities) < len(cpus):
        return cpus
    most = max(capacities.values(), default=0)
    return frozenset(cpu for cpu, capacity in capacities.items() if capacity >= _NEARLY * most)


def cpu_list(text: str) -> frozenset[int]:
    """The CPUs of a list as Linux writes it, such as ``0-3,8``; none where it is malformed."""
    cpus = set[int]()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return frozenset()
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def _quota(source: Source) -> float | None:
    """CPUs that the tightest quota of cgroup v2 or v1 leaves, of this process's group and all above it."""
    return min((quota for group in groups_of(source, "cpu") if (quota := _quota_of(group)) is not None), default=None)


def _quota_of(group: Group) -> float | None:
    if group.version == 2:
        quota, _, period = (group.read("cpu.max") or "").strip().partition(" ")
    else:
        quota, period = ((group.read(f"cpu.cfs_{what}_us") or "").strip() for what in ("quota", "period"))
    if not quota.isdecimal() or not period.isdecimal() or not int(period):
        return None
    return int(quota) / int(period)


_HARD_CAP = 0b101
"""Flags of a job's rate control: it is on, and a limit."""

_RATE_OF_ALL = 10_000


def _windows(source: Source) -> Cores:
    logical = len(source.allowed_cpus())
    mask = source.call("GetProcessAffinityMask")
    # Groups have 64 CPUs each; a process in several has the mask 0, which says nothing.
    allowed = (struct.unpack("<Q", mask)[0] if mask else 0) or None
    kinds = dict[int, int]()
    cpus = 0
    for index, (kind, masks) in enumerate(_windows_cores(source.call("GetLogicalProcessorInformationEx") or b"")):
        own = sum((bits & allowed if allowed and not group else bits).bit_count() for group, bits in masks)
        if own:
            kinds[index] = kind
            cpus += own
    if not kinds:
        return Cores(logical, logical, logical, _windows_quota(source, logical))
    fastest = max(kinds.values())
    fast = sum(kind == fastest for kind in kinds.values())
    return Cores(cpus, len(kinds), fast, _windows_quota(source, logical))


def _windows_cores(records: bytes) -> Iterable[tuple[int, list[tuple[int, int]]]]:
    """Of each core its efficiency class, greater is faster, and its CPUs: group and mask."""
    offset = 0
    while offset + 32 <= len(records):
        _, size, _, kind = struct.unpack_from("<IIBB", records, offset)
        if size < 32 or offset + size > len(records):
            return
        count = min(struct.unpack_from("<H", records, offset + 30)[0], (size - 32) // 16)
        groups = [struct.unpack_from("<QH", records, offset + 32 + 16 * n) for n in range(count)]
        yield kind, [(group, mask) for mask, group in groups]
        offset += size


def _windows_quota(source: Source, logical: int) -> float | None:
    told = source.call("JobObjectCpuRateControlInformation")
    if told is None or len(told) < 8:
        return None
    flags, rate = struct.unpack_from("<II", told)
    return logical * rate / _RATE_OF_ALL if flags & _HARD_CAP == _HARD_CAP and 0 < rate < _RATE_OF_ALL else None


def _macos(source: Source) -> Cores:
    logical = len(source.allowed_cpus())
    physical = macos_number(source, "hw.physicalcpu") or logical
    return Cores(logical, physical, macos_number(source, "hw.perflevel0.physicalcpu") or physical)


def macos_number(source: Source, name: str) -> int | None:
    """A sysctl that is a number, of 32 or 64 bits."""
    told = source.call(name)
    return int.from_bytes(told, "little") if told and len(told) in (4, 8) else None
