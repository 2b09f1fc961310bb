"""The assumed tokenizer classes by model type are those of transformers."""

from typing import Any

import pytest

from edgegen_export.families import FAMILIES
from edgegen_export.tokenizer.classes import CLASS_OF_MODEL_TYPE, NOT_READ, TOKENIZER_CLASSES, class_name
from edgegen_export.tokenizer.settings import TokenizerSettings
from tests.oracle import import_transformers

NONE = TokenizerSettings.read({})


def test_a_models_type_has_the_class_of_transformers() -> None:
    import_transformers()
    auto: Any = pytest.importorskip("transformers.models.auto.tokenization_auto")
    families = {model_type for family in FAMILIES for model_type in family.model_types}
    for model_type in families | CLASS_OF_MODEL_TYPE.keys():
        slow, fast = auto.TOKENIZER_MAPPING_NAMES.get(model_type, (None, None))
        expected = (slow or fast or "PreTrainedTokenizer").removesuffix("Fast")
        assert (class_name(NONE, {"model_type": model_type}) or "PreTrainedTokenizer") == expected, model_type


def test_every_class_that_is_assumed_is_known() -> None:
    assert set(CLASS_OF_MODEL_TYPE.values()) - set(NOT_READ.values()) <= TOKENIZER_CLASSES.keys()
    assert not set(NOT_READ.values()) & TOKENIZER_CLASSES.keys()


def test_the_nearest_config_that_names_a_class_counts() -> None:
    named = TokenizerSettings.read({"tokenizer_config.json": b'{"tokenizer_class": "GemmaTokenizerFast"}'})
    config = {"tokenizer_class": "CohereTokenizer", "model_type": "llama"}
    assert class_name(named, config) == "GemmaTokenizer"
    assert class_name(NONE, config) == "CohereTokenizer"
    assert class_name(NONE, {"model_type": "llama"}) == "LlamaTokenizer"
    assert class_name(NONE, {"model_type": ["llama"]}) is None
