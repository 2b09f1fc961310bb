"""Models as deep as published ones, saved by the newest transformers: every layer is read as what it is.

Files of deep models differ from those of two layers: keys with numbers of two digits, patterns that repeat, caches that
late layers share. Layers run one after the other in float32, as calibration runs them, so that no bundle is needed.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families import FAMILIES
from edgegen_export.files.progress import Silent
from edgegen_export.source.family_source import FamilyLoader
from tests.families.cases import CASES, Case
from tests.families.harness import checkpoint_of, tokens
from tests.second_oracle import open_oracle

pytestmark = [
    pytest.mark.release,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning"),
]

LAYERS = 12
"""At least; numbers of layers then have two digits."""

_COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")


def deep(case: Case) -> Case:
    """``case`` with its layers again and again, and with them what is said of each layer."""
    count = next((key for key in _COUNTS if key in case.config), "")
    layers = case.config[count] if count else len(case.config["layers_block_type"])
    times = -(-LAYERS // layers)

    def repeated(key: str, value: Any) -> Any:
        if ("layer" not in key and "pattern" not in key) or not isinstance(value, list | str):
            return value
        listed = cast("list[Any]", value)
        return listed * times if len(listed) == layers else listed

    config = {key: repeated(key, value) for key, value in case.config.items()}
    counted = {count: layers * times} if count else {}
    return replace(case, config={**config, **counted, **case.deep})


def _is_usual(case: Case) -> bool:
    return "depth" in case.also or (case.name == "base" and not case.shallow)


@pytest.mark.parametrize("case", [case for case in CASES if _is_usual(case)], ids=str)
def test_a_deep_model_is_that_of_transformers(case: Case, tmp_path: Path) -> None:
    subject, version = deep(case), case.oracles[-1]
    folder = checkpoint_of(subject, tmp_path / "checkpoint", oracle=version)
    loader = FamilyLoader(FAMILIES, None, None, Silent())
    (tmp_path / "scratch").mkdir()
    model = loader.load(loader.ready(Checkpoint.open(str(folder))), tmp_path / "scratch")
    assert model.facts.model.num_layers >= LAYERS
    ids = np.array([tokens(subject, subject.length, seed=3)])
    reference = model.reference
    found = reference.logits(reference.hidden([ids])[0][0])
    expected = open_oracle(folder, version).logits(ids)[0]
    apart, largest = np.abs(found - expected), np.abs(expected).max()
    # A wrong layer moves all logits; rounding, which random layers make larger, a few.
    assert np.median(apart) <= 1e-4 * largest
    assert apart.max() <= 1e-2 * largest
