"""DBRX's RoPE, whose base transformers 5 does not read where the published files have it."""

import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.families.dbrx import DBRX

PUBLISHED = {"d_model": 64, "n_heads": 4, "attn_config": {"kv_n_heads": 2, "rope_theta": 500000.0}}


def test_base_of_the_published_files_is_read() -> None:
    rope = DBRX.read_config(PUBLISHED).attention.rope
    assert rope
    assert rope.theta == 500000.0


def test_bases_that_differ_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"attn_config\.rope_theta = 500000\.0: contradicts .* 10000\.0"):
        DBRX.read_config({**PUBLISHED, "rope_parameters": {"rope_theta": 10000.0}})
