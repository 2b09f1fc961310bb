"""Bundles of 3 and 2 bits: made by flags that are budgets with names, and run by edgegen's kernels alone."""

from pathlib import Path

import pytest

from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.cli import main
from edgegen.errors import BundleError
from edgegen.model.kernels import runs_kernels
from tests.export.bundles import little_calibration
from tests.export.checkpoint.layouts import write_gpt2

Capture = pytest.CaptureFixture[str]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not runs_kernels("auto"), reason="the kernels are not built or not for this processor"),
]


@pytest.mark.parametrize(("flag", "budget", "least"), [("--int3", 3.6, 3), ("--int2", 2.8, 2)])
def test_a_flag_is_a_budget_with_a_name(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, flag: str, budget: float, least: int
) -> None:
    monkeypatch.setenv("EDGEGEN_HOME", str(tmp_path / "home"))
    checkpoint = write_gpt2(tmp_path / "model", layout="original", n_layer=2, n_embd=64, n_positions=32)
    with little_calibration(), pytest.raises(SystemExit) as ended:
        main(["export", str(checkpoint), flag])
    assert not ended.value.code
    out, err = capsys.readouterr()
    assert out.strip().endswith(f"model-{flag[2:]}")
    assert "only edgegen's kernels read" in err
    bundle = Bundle.open(Path(out.strip()))
    quantization = bundle.manifest.quantization
    assert budget - 0.3 < quantization.bits_per_weight <= budget
    assert quantization.narrow[0] <= least
    with pytest.raises(SystemExit):
        main(["info", str(bundle.path)])
    assert f"bits: {quantization.bits_per_weight:.2f} per weight" in capsys.readouterr().out
    found = list[object]()
    for chunk in (2, 7, 16):  # matrices by few rows, by more, and by a panel
        with LLM.load(bundle.path, options=EngineOptions(prefill_chunk=chunk)) as llm:
            result = llm.generate([*range(3, 19)], max_new_tokens=8, temperature=0, logprobs=True)
            found.append((result.token_ids, result.logprobs))
    assert found == found[:1] * 3
    with pytest.raises(BundleError, match="matrices of 3 or 2 bits"):
        LLM.load(bundle.path, options=EngineOptions(kernels="stock"))
