"""More published config.json files, as facts: each is read up to the weights, or refused for a reason that is true.

``published_configs.json`` has of each checkpoint the keys that are not neutral, with their values; of parts that are
left out only their kind. ``parameters`` is what transformers 5.24 makes of the file, without towers that are left out,
and with the biases of experts, which it keeps apart; none where it does not know the type.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.families import FAMILIES
from edgegen_export.families.refused import why_not

Published = Mapping[str, Any]

CHECKPOINTS: Mapping[str, Published] = json.loads(Path(__file__).with_name("published_configs.json").read_text("utf-8"))


def read(published: Published) -> DecoderConfig:
    config = published["config"]
    return find_architecture(config, FAMILIES, why_not).read_config(config)


def with_outcome(key: str) -> list[Any]:
    return [pytest.param(published, id=name) for name, published in CHECKPOINTS.items() if key in published]


@pytest.mark.parametrize("published", with_outcome("parameters"))
def test_a_config_asks_for_as_many_parameters_as_transformers_makes(published: Published) -> None:
    required, optional = decoder_tensors(read(published))
    least = sum(int(np.prod(shape)) for shape in required.values())
    if (parameters := published["parameters"]) is not None:
        biases = sum(int(np.prod(shape)) for shape in optional.values())
        assert 0 <= parameters - least <= biases


@pytest.mark.parametrize("published", with_outcome("refused"))
def test_what_cannot_be_exported_is_refused_for_its_reason(published: Published) -> None:
    with pytest.raises(UnsupportedModelError, match=re.escape(published["refused"])):
        read(published)


def test_many_checkpoints_are_known() -> None:
    assert len(CHECKPOINTS) >= 120
