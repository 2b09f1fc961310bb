"""Multi-token prediction heads against formulas in NumPy, where transformers 4 has no layer like theirs."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import Listener, export_to, random_ids
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of
from tests.families.mtp_formulas import FORMULAS, Formula
from tests.families.mtp_heads import assert_head_computes


@dataclass(frozen=True)
class Subject:
    formula: Formula
    checkpoint: Path
    bundle: Bundle


@pytest.fixture(scope="module", params=FORMULAS, ids=str)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("formula")
    checkpoint = request.param.write(folder / "checkpoint")
    return Subject(request.param, checkpoint, export_to(checkpoint, folder / "bundle"))


@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_the_head_computes_what_the_formula_says(subject: Subject, chunk: int) -> None:
    ids = random_ids(subject.bundle, 16)
    size = subject.bundle.manifest.model.hidden_size
    hidden = np.random.default_rng(1).normal(size=(16, size)).astype(np.float32)
    expected = subject.formula.run(subject.checkpoint, ids, hidden)
    assert_head_computes(subject.bundle, ids, hidden, expected, chunk)


def test_texts_are_the_models_own_with_a_quantized_head(subject: Subject, tmp_path: Path) -> None:
    bundle = export(str(subject.checkpoint), tmp_path / "bundle", ExportOptions(scheme="int8", fast=True))[0]
    prompt = random_ids(bundle, 9, seed=3)
    with LLM.load(bundle.path, options=EngineOptions(threads=1, speculate="off")) as llm:
        expected = llm.generate(prompt, max_new_tokens=40, eos_token_id=()).token_ids
    with LLM.load(bundle.path, options=EngineOptions(threads=1, speculate="mtp")) as llm:
        found = llm.generate(prompt, max_new_tokens=40, eos_token_id=())
    assert found.speculation.proposed
    assert found.token_ids == expected


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("ernie4_5_moe: base", "model.mtp_linear_proj.0.weight"),
        ("minimax_m2: base", "model.layers.{n}.eh_proj.weight"),
    ],
)
def test_a_head_whose_formula_is_not_known_is_named(case: str, name: str, tmp_path: Path) -> None:
    model = checkpoint_of(next(one for one in CASES if str(one) == case), tmp_path / "checkpoint")
    config = json.loads((model / "config.json").read_text("utf-8"))
    tensors = {key: one.read() for key, one in open_safetensors(model / "model.safetensors").items()}
    size, layers = config["hidden_size"], config["num_hidden_layers"]
    beside = {name.replace("{n}", str(layers)): np.ones((size, 2 * size), np.float32)}
    write_safetensors(model / "with_head", {**tensors, **beside}).replace(
        model / "model.safetensors"
    )  # which is mapped
    heard = Listener()
    export(str(model), tmp_path / "bundle", ExportOptions(scheme="fp32"), progress=heard)
    [warning] = [one for one in heard.warnings if "multi-token" in one]
    (found,) = (key.removeprefix("model.") for key in beside)
    assert warning == (
        f"its multi-token prediction head is left out: {found}: heads of {config['model_type']} are not read"
    )


def test_a_head_of_other_layers_is_left_out_and_named(subject: Subject, tmp_path: Path) -> None:
    """As a pattern of layers that is not known."""
    tensors = {name: one.read() for name, one in open_safetensors(subject.checkpoint / "model.safetensors").items()}
    last = list(subject.formula.copied.values())[-1]
    other = {name: one for name, one in tensors.items() if not (name.startswith(last) and ".experts." in name)}
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", other)
    (folder / "config.json").write_bytes((subject.checkpoint / "config.json").read_bytes())
    heard = Listener()
    assert (
        export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32"), progress=heard)[0].manifest.mtp is None
    )
    assert any("multi-token prediction head is left out" in one and "experts.0." in one for one in heard.warnings)
