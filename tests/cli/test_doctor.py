"""``edgegen doctor``: what it finds on recorded machines and installations, and what it prints on this one."""

import json
import os
import struct
from pathlib import Path

import pytest

from edgegen.cli.diagnosis import Diagnosis, OnnxRuntime, diagnose
from edgegen.cli.doctor import table
from edgegen.system import Source, cores
from tests.cli.conftest import Edgegen
from tests.root import ROOT
from tests.runtime.system.recorded import Recorded, hybrid_x86, mac, pi_4, pi_5, windows

CPU = ("CPUExecutionProvider",)
PLAIN = OnnxRuntime("1.30.0", None, CPU, {"onnxruntime": "1.30.0"})
AMX = "flags\t: avx2 fma avx512f avx512_vnni amx_int8\n"
NO_LIBRARY = "stock (no library for this platform: edgegen_kernels.so is not there)"


def found(source: Source, kernels: str = "dotprod", onnxruntime: OnnxRuntime = PLAIN) -> Diagnosis:
    return diagnose(kernels, onnxruntime, source)


def problems(diagnosis: Diagnosis) -> list[str]:
    assert all(finding.advice for finding in diagnosis.findings)
    return [finding.problem for finding in diagnosis.findings]


@pytest.mark.unit
class TestFindings:
    def test_there_are_none_on_a_healthy_computer(self) -> None:
        assert found(pi_5()).findings == []
        assert "Nothing here makes models slow." in table(found(pi_5()))

    @pytest.mark.parametrize(
        ("source", "kernels", "expected"),
        [
            (pi_4(), "neon", ["The processor has no dot product"]),
            (pi_5("0x50005"), "dotprod", ["too little voltage, now", "throttled, now"]),
            (hybrid_x86(), "avxvnni", ["8 of 12 cores are efficiency cores"]),
            (windows(), "avxvnni", ["8 of 12 cores are efficiency cores"]),
            (Recorded(files={"/proc/cpuinfo": AMX}), "avx512vnni", ["has AMX, and prompts run without it"]),
            (Recorded(files={"/proc/cpuinfo": AMX}), "amx", []),
            (mac(), "i8mm", ["4 of 8 cores are efficiency cores"]),
            (Recorded(), NO_LIBRARY, ["edgegen's kernels are not there"]),
            (Recorded(), "stock (this processor has no AVX2 and FMA, …)", ["The processor has no AVX2 and FMA"]),
            (Recorded(), "stock (edgegen_kernels.so cannot be loaded)", ["edgegen_kernels.so cannot be loaded."]),
            (
                Recorded(files={"/proc/cpuinfo": "flags\t: avx2 fma\n"}),
                NO_LIBRARY,
                ["kernels are not there", "no VNNI: 8-bit matrices"],
            ),
            (
                Recorded(files={"/sys/fs/cgroup/cpu.max": "150000 100000"}),
                "avx2",
                ["The container or job leaves 1.5 of 4 cores"],
            ),
            (
                Recorded(files={"/proc/meminfo": "MemTotal: 500000 kB\nMemAvailable: 250000 kB\n"}),
                "avx2",
                ["Only 256 MB of memory are free"],
            ),
            (
                Recorded(files={"/sys/class/thermal/thermal_zone0/temp": "84100"}),
                "avx2",
                ["The processor is at 84 °C"],
            ),
            (
                Recorded("darwin", "x86_64", calls={"sysctl.proc_translated": struct.pack("<i", 1)}),
                "avx2",
                ["translated by Rosetta"],
            ),
        ],
    )
    def test_what_a_machine_makes_slow_is_said(self, source: Source, kernels: str, expected: list[str]) -> None:
        said = problems(found(source, kernels))
        assert len(said) == len(expected)
        for problem, part in zip(said, expected, strict=True):
            assert part in problem

    @pytest.mark.parametrize(("driver", "slow"), [("acpi-cpufreq", True), ("intel_pstate", False)])
    def test_the_governor_powersave_is_slow_where_the_processor_does_not_clock_itself(
        self, driver: str, slow: bool
    ) -> None:
        folder = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_"
        source = Recorded(files={folder + "governor": "powersave\n", folder + "driver": driver + "\n"})
        assert bool(problems(found(source))) is slow

    def test_two_builds_of_onnxruntime_are_explained(self) -> None:
        both = {"onnxruntime": "1.30.0", "onnxruntime-gpu": "1.29.0"}
        runtime = OnnxRuntime(None, "no attribute 'SessionOptions'", (), both)
        collision, broken = found(pi_5(), onnxruntime=runtime).findings
        assert collision.problem.startswith("onnxruntime and onnxruntime-gpu are installed")
        assert collision.advice == "`pip uninstall onnxruntime onnxruntime-gpu`, then `pip install onnxruntime`."
        assert "cannot be imported, no model runs: no attribute 'SessionOptions'." in broken.problem

    def test_a_gpu_that_cannot_be_used_is_explained(self) -> None:
        providers = ("CUDAExecutionProvider", *CPU)
        runtime = OnnxRuntime("1.31.1", None, providers, {"onnxruntime-gpu": "1.31.1"}, "libcuda.so.1: no such file.")
        (problem,) = problems(found(pi_5(), onnxruntime=runtime))
        assert problem == "No model runs on the GPU: libcuda.so.1: no such file."

    def test_a_gpu_that_can_be_used_is_no_problem(self) -> None:
        runtime = OnnxRuntime("1.31.1", None, ("CUDAExecutionProvider", *CPU), {"onnxruntime-gpu": "1.31.1"})
        assert problems(found(pi_5(), onnxruntime=runtime)) == []

    def test_other_builds_are_said_to_run_on_the_cpu(self) -> None:
        runtime = OnnxRuntime("1.29.0", None, ("DmlExecutionProvider", *CPU), {"onnxruntime-directml": "1.29.0"})
        (problem,) = problems(found(pi_5(), onnxruntime=runtime))
        assert problem == "onnxruntime-directml is installed: edgegen runs its CPU provider, not DmlExecutionProvider."


@pytest.mark.unit
def test_the_table_has_what_a_machine_tells_and_no_empty_rows() -> None:
    text = table(found(pi_5()))
    assert "computer  Raspberry Pi 5 Model B Rev 1.0" in text
    assert "processor  Cortex-A76 (NEON, dot product)" in text
    assert "memory  7,516 MB free, 8,443 MB installed" in text
    assert "temperature  62 °C" in text
    assert "cores  12 (16 logical CPUs, 4 of them performance cores); 4 threads by default" in table(
        found(hybrid_x86())
    )
    bare = table(found(Recorded("win32", "ARM64")))
    assert "None" not in bare
    assert "computer" not in bare


def test_doctor_describes_this_machine(edgegen: Edgegen) -> None:
    done = edgegen("doctor")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"ONNX Runtime" in done.stdout
    facts = json.loads(edgegen("doctor", "--json").stdout)
    assert facts["threads"] == cores().usable
    assert "CPUExecutionProvider" in facts["onnxruntime"]["providers"]
    assert "onnxruntime" in facts["onnxruntime"]["distributions"]


def test_an_onnxruntime_that_cannot_be_imported_is_reported(edgegen: Edgegen, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('DLL load failed')")
    path = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "export")))
    done = edgegen("doctor", PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (1, b"")
    assert "no model runs: DLL load failed." in done.stdout.decode()
