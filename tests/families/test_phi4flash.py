"""Configs of Phi-4-mini-flash: how they are read, and refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.families.phi4flash import PHI4FLASH
from tests.families.formulas.phi4flash import BASE


def test_the_second_half_runs_for_wanted_tokens_alone() -> None:
    assert PHI4FLASH.read_config(BASE).cached_until == 6


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": 6}, "num_hidden_layers = 6: a multiple of 4 expected"),
        ({"num_key_value_heads": 1}, "num_key_value_heads = 1: an even number expected"),
        ({"mb_per_layer": 4}, "mb_per_layer = 4: only attention in every other layer is supported"),
        ({"sliding_window": [12] * 8}, "sliding_window: one size expected, in every other layer of the first half"),
        ({"sliding_window": [None, 0, None, 0, *[None] * 4]}, "sliding_window: one size expected"),
        ({"hidden_act": "gelu"}, "hidden_act: recurrent layers are supported with silu only"),
    ],
)
def test_other_models_of_the_type_are_refused(changes: Mapping[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        PHI4FLASH.read_config({**BASE, **changes})
