"""Configs for which IQuest-Coder Loop is refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.families.iquestcoder import IQUESTLOOPCODER
from tests.families.formulas.iquestloopcoder import BASE


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loop_num": 3}, "loop_num = 3: only two passes are supported"),
        ({"loop_num": 1}, "loop_num = 1: only two passes are supported"),
        ({"loop_window_size": 0}, "loop_window_size: must be positive, found 0"),
    ],
)
def test_other_loops_are_refused(changes: Mapping[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        IQUESTLOOPCODER.read_config({**BASE, **changes})
