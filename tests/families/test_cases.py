"""The cases themselves: each differs from its family's base, and every key of its config is read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.families import FAMILIES as EXPORTED
from tests.families.cases import BASES, CASES, FAMILIES, Case
from tests.families.harness import TOLERANCE, checkpoint_of, judged_cases, oracle_of, sampled, tokens, with_oracles
from tests.second_oracle import config_json

VARIANTS = [case for case in sampled(CASES) if case.name != "base" and not case.refused]

VERSIONS: dict[str, list[int]] = {}
for _case, _oracle in with_oracles(CASES):
    VERSIONS.setdefault(str(_case), []).append(_oracle)

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning"),
]


def test_every_family_has_a_base_and_no_name_is_taken_twice() -> None:
    assert set(BASES) == set(FAMILIES)
    assert len({str(case) for case in CASES}) == len(CASES)
    types = [model_type for family in EXPORTED for model_type in family.model_types]
    assert sorted(types) == sorted(set(types))


@pytest.mark.parametrize("case", judged_cases(VARIANTS))
def test_a_variant_computes_what_its_base_does_not(case: Case, tmp_path: Path) -> None:
    """By more than the tests would tolerate; so a bundle that took it for the base would be noticed."""
    base = BASES[case.family]
    folder = checkpoint_of(case, tmp_path / "variant")
    if tensors(folder) != tensors(checkpoint_of(base, tmp_path / "base")):
        return  # other tensors: it cannot be taken for the base
    ids = np.array([tokens(case, case.length, seed=1)])
    expected = oracle_of(case, folder).logits(ids)
    (folder / "config.json").write_bytes((tmp_path / "base" / "config.json").read_bytes())
    difference = float(np.abs(oracle_of(case, folder).logits(ids) - expected).max())
    if case.inert:
        assert difference <= 1e-5
    else:
        assert difference > 1.2 * TOLERANCE


def tensors(folder: Path) -> dict[str, Any]:
    """Names and shapes of a checkpoint's tensors, from the file's header."""
    data = (folder / "model.safetensors").read_bytes()
    header: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


@pytest.mark.parametrize("case", judged_cases(case for case in CASES if not case.refused))
def test_every_key_that_transformers_writes_is_understood(case: Case) -> None:
    """It leaves out what is default; written out in full, the config means the same."""
    for version in VERSIONS[str(case)]:
        short = config_json(case.family, case.config, use_diff=True, version=version)
        full = {**config_json(case.family, case.config, use_diff=False, version=version), **short}
        read = find_architecture(short, EXPORTED).read_config
        assert read(full) == read(short)
