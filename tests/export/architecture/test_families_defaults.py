"""Defaults of every family are those of transformers' config class, and all keys it writes are understood."""

import difflib
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.checkpoint import BaseNames
from edgegen_export.families import FAMILIES
from edgegen_export.graph.decoder import kv_spec, rotary_tables
from tests.export.checkpoint.adapters import GPT2_NAMES, LLAMA_NAMES
from tests.families.cases import CASES, Case
from tests.oracle import import_transformers
from tests.second_oracle import FIRST, SECOND, config_json, judged

TYPES = {model_type: family for family in FAMILIES if family.inside is None for model_type in family.model_types}
"""Tests of the others, which wrap a language model: tests/families/test_wrapped.py."""

BASES = {case.family: case for case in CASES if case.name == "base"} | {
    alias: Case(alias, case.name, case.config) for case in CASES for alias in case.aliases
}
CLASSES = {model_type: case.config_classes or case.oracles for model_type, case in BASES.items()}
"""The versions of transformers that have a config class of the type."""

COMPARED = {model_type for model_type, case in BASES.items() if not case.no_defaults}
BY_TYPE = {
    model_type: TYPES[model_type] for model_type in BASES if model_type in COMPARED and FIRST in CLASSES[model_type]
}
LATER = sorted(model_type for model_type in COMPARED if FIRST not in CLASSES[model_type])


@pytest.fixture(params=judged(BY_TYPE, lambda _: FIRST))
def model_type(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def family(model_type: str) -> Architecture:
    return BY_TYPE[model_type]


def theirs(model_type: str, **config: Any) -> Any:
    return import_transformers().CONFIG_MAPPING[model_type](**config)


def test_class_defaults_are_filled_in(model_type: str, family: Architecture) -> None:
    assert family.read_config({"model_type": model_type}) == family.read_config(theirs(model_type).to_dict())


def test_every_key_that_transformers_writes_is_understood(model_type: str, family: Architecture) -> None:
    config = theirs(model_type)
    for only_differences in (True, False):
        written = json.loads(config.to_json_string(use_diff=only_differences))
        assert family.read_config(written) == family.read_config({"model_type": model_type})


@pytest.mark.parametrize("model_type", judged(LATER, lambda _: SECOND))
def test_class_defaults_of_transformers_5_are_filled_in(model_type: str) -> None:
    defaults = TYPES[model_type].read_config({"model_type": model_type})
    for only_differences in (True, False):
        written = config_json(model_type, {}, use_diff=only_differences, version=SECOND)
        assert TYPES[model_type].read_config(written) == defaults


@pytest.mark.parametrize("model_type", sorted(BASES.keys() - COMPARED))
def test_defaults_that_make_no_model_are_refused(model_type: str) -> None:
    with pytest.raises(UnsupportedModelError, match=BASES[model_type].no_defaults):
        TYPES[model_type].read_config({"model_type": model_type})


@pytest.mark.parametrize("version", judged((FIRST, SECOND), lambda version: version))
def test_every_type_that_transformers_has_has_cases(version: int) -> None:
    """A type without cases is unknown there, or has a language model inside, which has a config of its own."""
    known = set[str]()
    for model_type in TYPES.keys() - BASES.keys():
        with suppress(KeyError, RuntimeError):
            if "text_config" not in config_json(model_type, {}, use_diff=False, version=version):
                known.add(model_type)
    assert known == set()


def test_defaults_that_follow_from_other_keys_follow(model_type: str, family: Architecture) -> None:
    (key, value), (heads, count) = BASES[model_type].size, BASES[model_type].heads
    given = {key: value, heads: count}
    given |= {k: v for k, v in {"num_key_value_heads": 2, "rotary_dim": 32}.items() if k in family.defaults}
    read = family.read_config({"model_type": model_type, **given})
    assert read == family.read_config(theirs(model_type, **given).to_dict())
    assert read.hidden_size == value
    assert all(attention.heads == count for attention in read.attentions.values())


def test_a_misspelt_key_is_refused_with_the_nearest_name(model_type: str, family: Architecture) -> None:
    written = theirs(model_type).to_dict()
    for key in ("vocab_size", "tie_word_embeddings", "initializer_range"):
        wrong = key.replace("i", "ii")
        value = written.get(key, 1)
        with pytest.raises(UnsupportedModelError) as caught:
            family.read_config({**written, wrong: value})
        assert f"{wrong} = {value!r}: not understood, and it may change the result" in str(caught.value)
        assert f"(did you mean {key!r}?)" in str(caught.value)
        assert "problems" not in str(caught.value)


def test_a_key_of_another_spelling_is_not_mistaken_for_a_note(model_type: str, family: Architecture) -> None:
    keys = theirs(model_type).to_dict().keys() - {"model_type"}
    sizes = sorted(key for key in keys if key.endswith(("_size", "_layers", "_heads", "n_embd", "n_layer", "n_head")))
    for key in sizes:
        wrong = key + "s" if not key.endswith("s") else key[:-1]
        assert difflib.get_close_matches(wrong, [key])
        # GPT-2's n_head beside n_heads is another name that must agree.
        with pytest.raises(UnsupportedModelError, match=r"did you mean|what another key of the file says"):
            family.read_config({"model_type": model_type, wrong: 64})


@pytest.mark.parametrize(
    ("model_type", "names"),
    [
        ("llama", LLAMA_NAMES),
        ("gpt2", GPT2_NAMES),
        ("gpt_bigcode", BaseNames("wte", "lm_head", prefixes=("", "transformer."))),
        ("gpt_neox", BaseNames("embed_in", "embed_out", prefixes=("", "gpt_neox."))),
        ("falcon", BaseNames("word_embeddings", "lm_head", prefixes=("", "transformer."))),
    ],
)
def test_what_an_adapter_changes_in_its_own_way(model_type: str, names: BaseNames) -> None:
    family = BY_TYPE[model_type]
    assert family.base_names(family.read_config({})) == names


YARN = {"rope_type": "yarn", "factor": 1e30, "original_max_position_embeddings": 1}
ODD_SCALARS: list[Any] = [None, True, False, 0, -1, 1, 2, 3, 7, 8, 1 << 67, 0.0, -0.5, 1e-30, 1e30, float("nan"), "x"]
ODD_LISTS: list[Any] = [[], [1], [[1]], [["a"], 2]]
ODD_OBJECTS: list[Any] = [
    {},
    {"a": 1},
    YARN,
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "longrope", "short_factor": [1.0]},
    {"full_attention": YARN},
    {"full_attention": []},
]
ODD_VALUES = [*ODD_SCALARS, *ODD_LISTS, *ODD_OBJECTS]


@pytest.mark.parametrize("model_type", judged(BY_TYPE, lambda _: FIRST))
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_no_config_breaks_a_family(model_type: str, data: st.DataObject) -> None:
    config = theirs(model_type).to_dict()
    keys = [*config, "head_dim", "rope_scaling", "rope_parameters", "partial_rotary_factor", "layer_types"]
    config |= data.draw(st.dictionaries(st.sampled_from(keys), st.sampled_from(ODD_VALUES), min_size=1, max_size=3))
    try:
        read = BY_TYPE[model_type].read_config(config)
    except UnsupportedModelError:
        return
    read = read.for_context(read.max_positions)
    assert len(kv_spec(read).layers) == len(read.cached_layers)
    assert all(len(table.inverse_frequencies) for table in rotary_tables(read).values())
    assert decoder_tensors(read)[0]
