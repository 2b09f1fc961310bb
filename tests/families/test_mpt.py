"""MPT's ALiBi slopes, where transformers does not read how steep they are."""

import pytest

from edgegen_export.families.mpt import MPT


@pytest.mark.parametrize(
    ("heads", "most", "slopes"),
    [
        (4, 8, [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        (4, 16, [2.0**-4, 2.0**-8, 2.0**-12, 2.0**-16]),
        (3, 8, [1 / 16, 1 / 256, 1 / 4]),
    ],
)
def test_slopes_are_as_steep_as_the_config_says(heads: int, most: int, slopes: list[float]) -> None:
    config = MPT.read_config({"d_model": 8 * heads, "n_heads": heads, "attn_config": {"alibi_bias_max": most}})
    assert config.attention.alibi
    assert config.attention.alibi.slopes == pytest.approx(slopes)
