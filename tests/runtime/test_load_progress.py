"""Progress that LLM.load reports."""

import shutil
from pathlib import Path
from typing import Literal

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.errors import VerificationError
from edgegen.llm import LLM
from edgegen.model.loading import LoadProgress
from edgegen.options.engine import EngineOptions


@pytest.fixture
def fresh(int8_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    """A bundle that has never been verified."""
    monkeypatch.setenv("EDGEGEN_HOME", str(tmp_path / "home"))
    return Bundle.open(Path(shutil.copytree(int8_bundle.path, tmp_path / "fresh")))


def told(bundle: Bundle, verify: Literal["once", "always", "never"] = "once") -> list[LoadProgress]:
    progress = list[LoadProgress]()
    LLM.load(bundle.path, options=EngineOptions(threads=1, verify=verify), on_progress=progress.append).close()
    return progress


def test_every_byte_is_told_as_it_is_hashed(fresh: Bundle) -> None:
    verified = [progress for progress in told(fresh) if progress.stage == "verify"]
    assert len(verified) > len(fresh.manifest.files)
    assert [progress.done for progress in verified] == sorted(progress.done for progress in verified)
    assert verified[-1] == LoadProgress("verify", fresh.nbytes, fresh.nbytes)
    assert verified[-1].fraction == 1


def test_stages_come_in_order_and_end_full(fresh: Bundle) -> None:
    progress = told(fresh)
    assert list(dict.fromkeys(one.stage for one in progress)) == ["verify", "weights", "tokenizer"]
    assert progress[-1] == LoadProgress("weights", fresh.weights_size, fresh.weights_size)
    assert [one.done for one in progress if one.stage == "weights"] == [0, fresh.weights_size]


def test_always_is_every_time(fresh: Bundle) -> None:
    for _ in range(2):
        assert sum(one.stage == "verify" for one in told(fresh, "always")) > len(fresh.manifest.files)


def test_without_verifying_nothing_is_told_of_it(fresh: Bundle) -> None:
    assert "verify" not in {one.stage for one in told(fresh, "never")}


def test_a_draft_model_has_its_own_stages(fresh: Bundle) -> None:
    progress = list[LoadProgress]()
    options = EngineOptions(threads=1, draft=fresh.path, verify="never")
    LLM.load(fresh.path, options=options, on_progress=progress.append).close()
    assert [(one.stage, one.fraction) for one in progress][:2] == [("draft", 0), ("draft", 1)]


@pytest.mark.parametrize("stage", ["verify", "weights", "tokenizer"])
def test_an_error_of_the_callback_ends_loading(fresh: Bundle, stage: str) -> None:
    def fail(progress: LoadProgress) -> None:
        if progress.stage == stage:
            raise RuntimeError("of the caller")

    with pytest.raises(RuntimeError, match="of the caller"):
        LLM.load(fresh.path, options=EngineOptions(threads=1), on_progress=fail)
    assert LLM.load(fresh.path, options=EngineOptions(threads=1)).generate("a", max_new_tokens=1).token_ids


def test_damage_is_found_while_progress_is_told(fresh: Bundle) -> None:
    weights = fresh.file(fresh.variant.weights)
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(VerificationError, match="contents differ"):
        told(fresh)
