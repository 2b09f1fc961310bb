"""Diagnosis: facts of the machine and the installation, what will be slow because of them, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from edgegen.system import (
    LOCAL,
    Cores,
    Source,
    available_memory,
    computer,
    cores,
    features,
    governor,
    installed_memory,
    memory_limit,
    processor,
    temperature,
    throttling,
)

RUNTIMES = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-qnn",
    "onnxruntime-rocm",
    "onnxruntime-silicon",
    "onnxruntime-training",
)
"""Distributions that all install the one package ``onnxruntime``."""

_HOT = 80
"""Degrees Celsius from which small computers begin to lower their clock."""

_LITTLE = 400 << 20
"""Bytes that Python, ONNX Runtime and a small model with its KV cache take."""

_CLOCKS_ITSELF = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose governor ``powersave`` is the usual one, and fast."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that makes models slow, or wrong: the ``problem``, and what to do."""

    problem: str
    advice: str


@dataclass(frozen=True, slots=True)
class OnnxRuntime:
    """The installed ONNX Runtime.

    Attributes:
        version: of the package that is imported; None where it cannot be.
        problem: why it cannot be imported.
        providers: the execution providers that it was built with.
        distributions: what is installed, by name: version.
        gpu_problem: why CUDA cannot be used, where it was built for that.
    """

    version: str | None
    problem: str | None
    providers: tuple[str, ...]
    distributions: Mapping[str, str]
    gpu_problem: str | None = None

    @classmethod
    def installed(cls) -> "OnnxRuntime":
        distributions = dict[str, str]()
        for name in RUNTIMES:
            try:
                distributions[name] = version(name)
            except PackageNotFoundError:
                continue
        try:
            from edgegen.model.device import CUDA, problem_of
            from edgegen.model.ort_session import runtime_providers, runtime_version

            providers = tuple(runtime_providers())
            problem = problem_of(CUDA) if CUDA.provider in providers else None
            return cls(runtime_version(), None, providers, distributions, problem)
        except (ImportError, AttributeError) as error:  # two distributions in one folder leave half of each
            return cls(None, " ".join(str(error).split()), (), distributions)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The facts, and what follows from them.

    Attributes:
        computer, processor, features: what the machine is.
        kernels: what computes matrices, in the words of :func:`~edgegen.model.kernels.describe_kernels`.
        threads: what a model computes with unless told.
        free_bytes, installed_bytes, limit_bytes: memory; the limit is a container's.
        temperature: degrees Celsius.
        throttling: why the processor is or was slowed down.
    """

    computer: str | None
    processor: str
    features: tuple[str, ...]
    kernels: str
    cores: Cores
    threads: int
    free_bytes: int | None
    installed_bytes: int | None
    limit_bytes: int | None
    temperature: float | None
    throttling: list[str]
    governor: str | None
    onnxruntime: OnnxRuntime
    findings: list[Finding]


def diagnose(kernels: str, onnxruntime: OnnxRuntime, source: Source = LOCAL) -> Diagnosis:
    """The diagnosis of a machine; what it does not tell is None."""
    layout = cores(source)
    return Diagnosis(
        computer=computer(source),
        processor=processor(source),
        features=features(source),
        kernels=kernels,
        cores=layout,
        threads=layout.usable,
        free_bytes=available_memory(source),
        installed_bytes=installed_memory(source),
        limit_bytes=memory_limit(source),
        temperature=temperature(source),
        throttling=throttling(source),
        governor=governor(source),
        onnxruntime=onnxruntime,
        findings=[
            *_of_onnxruntime(onnxruntime),
            *_of_processor(kernels, source),
            *_of_cores(layout),
            *_of_memory(source),
            *_of_clock(source),
        ],
    )


def _of_onnxruntime(onnxruntime: OnnxRuntime) -> list[Finding]:
    names, findings = [*onnxruntime.distributions], list[Finding]()
    if len(names) > 1:
        findings.append(
            Finding(
                f"{' and '.join(names)} are installed: each has written over the files of the other, and which one "
                "runs is chance.",
                f"`pip uninstall {' '.join(names)}`, then `pip install onnxruntime`.",
            )
        )
    if onnxruntime.problem is not None:
        advice = "`pip install --force-reinstall onnxruntime`; on Windows, install Microsoft's Visual C++ runtime."
        findings.append(Finding(f"onnxruntime cannot be imported, no model runs: {onnxruntime.problem}.", advice))
    elif onnxruntime.gpu_problem is not None:
        problem = f"No model runs on the GPU: {onnxruntime.gpu_problem}"
        findings.append(Finding(problem, "Install what is missing, or `pip install onnxruntime` instead: smaller."))
    elif names and "onnxruntime" not in names and "CUDAExecutionProvider" not in onnxruntime.providers:
        problem = f"{names[0]} is installed: edgegen runs its CPU provider, not {_others(onnxruntime)}."
        findings.append(
            Finding(problem, "Nothing, or `pip install onnxruntime` in an environment of its own: smaller.")
        )
    return findings


def _others(onnxruntime: OnnxRuntime) -> str:
    others = [name for name in onnxruntime.providers if name != "CPUExecutionProvider"]
    return " or ".join(others) or "another"


def _of_processor(kernels: str, source: Source) -> list[Finding]:
    names, findings = features(source), list[Finding]()
    if source.system == "darwin" and source.call("sysctl.proc_translated") == b"\1\0\0\0":
        findings.append(Finding("Python is translated by Rosetta, which is slow.", "Install Python for arm64."))
    if kernels.startswith("stock (no library"):
        problem = "edgegen's kernels are not there: ONNX Runtime's operators run, slower, with a copy of the weights."
        advice = "Install a wheel for this platform, or with a C compiler: `pip install --no-binary edgegen edgegen`."
        findings.append(Finding(problem, advice))
    elif kernels.startswith("stock (this processor"):
        problem = "The processor has no AVX2 and FMA: models run many times slower than on one that has."
        findings.append(Finding(problem, "Use a small model; nothing can be installed for it."))
    elif kernels.startswith("stock ("):
        problem = f"edgegen's kernels cannot be loaded: {kernels.removeprefix('stock (').removesuffix(')')}."
        findings.append(Finding(problem, "Reinstall edgegen: `pip install --force-reinstall --no-deps edgegen`."))
    if "AMX" in names and kernels == "avx512vnni":
        problem = (
            "The processor has AMX, and prompts run without it: the system refuses it to this process, the kernels "
            "were built without it, or EDGEGEN_ISA names others."
        )
        advice = "Linux 5.16 and newer gives it to processes that ask, where no sandbox forbids arch_prctl."
        findings.append(Finding(problem, advice))
    if "NEON" in names and "dot product" not in names:
        problem = "The processor has no dot product of 8-bit integers: prompts take about three times as long."
        findings.append(Finding(problem, "Keep prompts short, or reuse them: sessions and prefix caching do."))
    if "AVX2" in names and kernels.startswith("stock") and not {"AVX-VNNI", "AVX-512 VNNI"}.intersection(names):
        problem = "The processor has no VNNI: 8-bit matrices take ONNX Runtime twice as long."
        findings.append(Finding(problem, "Use edgegen's kernels, which do without."))
    return findings


def _of_cores(layout: Cores) -> list[Finding]:
    findings = list[Finding]()
    if layout.quota is not None and layout.quota < layout.performance:
        findings.append(
            Finding(
                f"The container or job leaves {layout.quota:g} of {layout.performance} cores; once they are used up, "
                "it waits.",
                "Raise the quota, best to a whole number of CPUs.",
            )
        )
    if layout.performance < layout.physical:
        slow = layout.physical - layout.performance
        findings.append(
            Finding(
                f"{slow} of {layout.physical} cores are efficiency cores, and left out: fast cores would wait for "
                "them.",
                "`edgegen tune` tries them.",
            )
        )
    return findings


def _of_memory(source: Source) -> list[Finding]:
    free = available_memory(source)
    if free is None or free >= _LITTLE:
        return []
    problem = f"Only {free / 1e6:,.0f} MB of memory are free: a model that is swapped out takes minutes for a token."
    return [Finding(problem, "End other programs, or use an int4 bundle with --kv int8 and --max-memory.")]


def _of_clock(source: Source) -> list[Finding]:
    findings = [Finding(f"The processor is slowed down: {what}.", _CURES[what[:3]]) for what in throttling(source)]
    degrees = temperature(source)
    if degrees is not None and degrees >= _HOT:
        findings.append(Finding(f"The processor is at {degrees:.0f} °C, and lowers its clock.", _CURES["thr"]))
    driver = (source.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver") or "").strip()
    if governor(source) == "powersave" and driver not in _CLOCKS_ITSELF:
        problem = "The governor powersave keeps the processor at its lowest clock."
        findings.append(Finding(problem, "`sudo cpupower frequency-set -g schedutil`, or performance."))
    return findings


_CURES = {
    "too": "Use the computer's own power supply and a short cable.",
    "the": "Cool it: a heat sink or fan; check the power supply.",
    "thr": "Cool it: a heat sink, a fan, or free air around it; fewer `--threads` heat less.",
    "at ": "Cool it: a heat sink, a fan, or free air around it; fewer `--threads` heat less.",
}
"""By how the line of :func:`~edgegen.system.throttling` begins."""
