"""ConfigReader: defaults, nulls, wrong types, inner objects and unknown keys."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.config_reader import NEUTRAL_KEYS, ConfigReader, every


def problems(read: ConfigReader) -> list[str]:
    """The problems that ``finish`` reports, one line each."""
    with pytest.raises(UnsupportedModelError) as caught:
        read.finish()
    text = str(caught.value).removeprefix("config.json asks for what edgegen cannot export: ")
    return text.split("\n  - ")[1:] or [text]


# Values.


def test_a_file_goes_before_the_class_and_the_class_before_the_caller() -> None:
    read = ConfigReader({"a": 1}, {"a": 2, "b": 3})
    assert (read.positive("a", 9), read.positive("b", 9), read.positive("c", 9)) == (1, 3, 9)
    read.finish()


def test_null_is_none_and_not_the_default_of_the_class() -> None:
    read = ConfigReader({"a": None, "b": None, "c": None, "d": None}, {"a": 2, "b": 2.0, "c": True, "d": [1]})
    assert read.optional("a", int) is None
    assert read.limit("b") is None
    assert read.flag("c") is False
    assert read.per_layer("d", {1: "one"}, 1) is None
    assert not read.has("a")
    assert ConfigReader({}, {"a": 2}).has("a")
    read.finish()


def test_null_where_a_value_is_needed_is_missing() -> None:
    read = ConfigReader({"a": None}, {"a": 2})
    read.positive("a")
    read.number("b")
    read.factors("c", 2)
    assert problems(read) == ["a: missing", "b: missing", "c: missing"]


READS: dict[str, Callable[[ConfigReader], object]] = {
    "int": lambda read: read.positive("x", 1),
    "int ": lambda read: read.optional("x", int),
    "int  ": lambda read: read.count("x"),
    "float": lambda read: read.number("x", 1.0),
    "float ": lambda read: read.limit("x"),
    "bool": lambda read: read.flag("x"),
    "str": lambda read: read.choice("x", {"a": 1}, "a"),
    "list": lambda read: read.per_layer("x", {0: 0}, 2),
    "list ": lambda read: read.factors("x", 2),
    "dict": lambda read: read.inner("x"),
}
WRONG: dict[str, list[Any]] = {
    "int": [1.0, "1", True, [], {}, float("nan")],
    "float": ["1", True, [], {}, float("nan"), float("-inf"), 3.5e38, 10**400],
    "bool": [1, 0.0, "true", [], {}],
    "str": [1, 1.5, True, [], {}],
    "list": [1, "a", True, {}],
    "dict": [1, "a", True, [1]],
}


NAMES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "list": "a list",
    "dict": "an object",
}


@pytest.mark.parametrize("how", READS)
def test_a_value_of_the_wrong_type_is_one_problem(how: str) -> None:
    kind = how.strip()
    for value in WRONG[kind]:
        read = ConfigReader({"x": value})
        READS[how](read)
        found = repr(value) if value != 10**400 else "1" + "0" * 56 + "..."
        assert problems(read) == [f"x: {NAMES[kind]} expected, found {found}"]


def test_a_whole_number_is_a_number_and_comes_out_as_one() -> None:
    read = ConfigReader({"x": 3, "y": 0})
    assert isinstance(read.number("x"), float)
    assert read.number("y", 5.0) == 0.0
    read.finish()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (0, "x: must be positive, found 0"),
        (-7, "x: must be positive, found -7"),
        (1 << 31, "x: must be at most 2147483647, found 2147483648"),
    ],
)
def test_sizes_are_those_of_a_model(value: int, problem: str) -> None:
    read = ConfigReader({"x": value})
    assert read.positive("x", 5) == 5
    assert problems(read) == [problem]


def test_there_are_not_so_many_layers() -> None:
    read = ConfigReader({"x": 10**9})
    assert read.count("x") == 1
    assert problems(read) == ["x: must be at most 4096, found 1000000000"]


def test_numbers_can_have_a_least_value() -> None:
    read = ConfigReader({"x": 0.5, "y": 1, "z": -1.0})
    assert (read.number("x", least=1), read.number("y", least=1)) == (1.0, 1.0)
    assert read.limit("z") is None
    assert problems(read) == ["x: must be at least 1, found 0.5", "z: must be positive, found -1.0"]


def test_choices_are_named() -> None:
    read = ConfigReader({"x": "gelu_nwe", "y": None})
    assert read.choice("x", {"gelu_new": 1, "relu": 2}, "relu") == 2
    assert read.choice("y", {"gelu_new": 1, "relu": 2}, "relu") == 2
    assert problems(read) == ["x: 'gelu_nwe' is not supported (did you mean 'gelu_new'?)"]


def test_lists_with_an_entry_per_layer() -> None:
    kinds = {"full": False, "sliding": True}
    read = ConfigReader({"x": ["full", "sliding"], "y": ["full"], "z": ["full", ["sliding"]], "w": [{}, None]})
    assert read.per_layer("x", kinds, 2) == (False, True)
    assert [read.per_layer(key, kinds, 2) for key in "yzwv"] == [None] * 4
    assert problems(read) == [
        f"{key}: 2 entries out of 'full', 'sliding' expected, found {found}"
        for key, found in (("y", "1: ['full']"), ("z", "2: ['full', ['sliding']]"), ("w", "2: [{}, None]"))
    ]


@pytest.mark.parametrize("values", [[1.0], [1.0, 0.0], [1.0, True], [1.0, "2"], [1.0, float("nan")], [1.0, [2.0]]])
def test_factors_are_positive_numbers_of_a_known_count(values: list[Any]) -> None:
    read = ConfigReader({"x": values})
    assert read.factors("x", 2) == (1.0, 1.0)
    (problem,) = problems(read)
    assert problem == f"x: a list of 2 positive numbers expected, found {len(values)}: {values!r}"


@pytest.mark.parametrize(("period", "expected"), [(1, "xxxx"), (2, "oxox"), (3, "ooxo"), (9, "oooo")])
def test_every_counts_layers_from_one(period: int, expected: str) -> None:
    assert "".join(every(period, "x", "o", 4)) == expected


# Objects inside.


def test_problems_of_an_object_inside_carry_its_name() -> None:
    read = ConfigReader({"rope": {"kind": "a", "factor": "2", "other": {"deep": 1, "wide": 2}}})
    inner = read.inner("rope")
    assert inner is not None
    assert inner is read.inner("rope")
    inner.ignore("kind")
    inner.number("factor", 1.0)
    other = inner.inner("other")
    assert other is not None
    other.positive("deep")
    assert problems(read) == [
        "rope.factor: a number expected, found '2'",
        "rope.other.wide = 2: not understood, and it may change the result",
    ]


@pytest.mark.parametrize("value", [None, {}])
def test_an_empty_object_is_none(value: Any) -> None:
    read = ConfigReader({"rope": value})
    assert read.inner("rope") is None
    assert read.inner("missing") is None
    read.finish()


def test_neutral_keys_are_neutral_outside_only() -> None:
    read = ConfigReader({"rope": {"temperature": 2.0}})
    read.inner("rope")
    assert problems(read) == ["rope.temperature = 2.0: not understood, and it may change the result"]


def test_the_rest_of_an_object_can_be_left_alone() -> None:
    read = ConfigReader({"rope": {"kind": "a", "factor": "2"}})
    inner = read.inner("rope")
    assert inner is not None
    inner.ignore_rest()
    read.finish()


# Rules.


def test_heads_divide_the_width() -> None:
    read = ConfigReader({})
    assert read.head_dim(4, None, 64, "width", "heads") == 16
    assert read.head_dim(4, 32, 66, "width", "heads") == 32
    read.finish()
    read.head_dim(4, None, 66, "width", "heads")
    assert problems(read) == ["width = 66 is not a multiple of heads = 4"]


@pytest.mark.parametrize(("given", "width", "said"), [(None, 80, "width / heads = 20"), (12, 64, "head_dim = 12")])
def test_heads_are_of_a_size_that_the_operator_takes(given: int | None, width: int, said: str) -> None:
    read = ConfigReader({})
    read.head_dim(4, given, width, "width", "heads")
    assert problems(read) == [f"{said}: heads of this size are not supported, only multiples of 8"]


@pytest.mark.parametrize("given", [0, -16])
def test_heads_have_a_width(given: int) -> None:
    read = ConfigReader({})
    assert read.head_dim(4, given, 64, "width", "heads") == 8
    assert problems(read) == [f"head_dim = {given}: heads of this size are not supported, only multiples of 8"]


def test_shared_heads_divide_the_heads() -> None:
    read = ConfigReader({"a": 2, "b": 3, "c": None, "d": 8})
    assert [read.kv_heads(4, "heads", key) for key in "abcde"] == [2, 4, 4, 4, 4]
    assert problems(read) == ["b = 3 does not divide heads = 4", "d = 8 does not divide heads = 4"]


def test_what_follows_from_a_wrong_value_is_not_a_second_problem() -> None:
    read = ConfigReader({"width": "64", "heads": -4, "kv": 3, "head_dim": "wide"})
    width, heads = read.positive("width"), read.positive("heads")
    read.head_dim(heads, read.optional("head_dim", int), width, "width", "heads")
    read.kv_heads(heads, "heads", "kv")
    assert not read.sound("width")
    assert read.sound("kv", "other")
    assert problems(read) == [
        "width: a whole number expected, found '64'",
        "heads: must be positive, found -4",
        "head_dim: a whole number expected, found 'wide'",
    ]


@pytest.mark.parametrize("harmless", [None, False, 0])
def test_harmless_values_are_not_refused(harmless: Any) -> None:
    read = ConfigReader({"x": harmless})
    read.refuse("x", (False,), "why")
    read.refuse("absent", (), "why")
    read.finish()


@pytest.mark.parametrize("value", [True, 1, "no", [], {"a": []}])
def test_unsupported_config_values_are_refused_with_the_reason(value: Any) -> None:
    read = ConfigReader({"x": value})
    read.refuse("x", (False,), "why")
    assert problems(read) == [f"x = {value!r}: why"]


# Other names.


def test_a_key_is_found_by_its_other_name() -> None:
    read = ConfigReader({"n_embed": 64}, {"width": 8}, {"n_embed": "width", "n_head": "heads"})
    assert read.positive("width") == 64
    read.finish()


@pytest.mark.parametrize("width", [64, None])
def test_both_names_may_say_the_same(width: int | None) -> None:
    read = ConfigReader({"n_embed": 64, "width": width}, {"width": 8}, {"n_embed": "width"})
    assert read.positive("width") == 64
    read.finish()


def test_two_names_that_contradict_each_other_are_refused() -> None:
    read = ConfigReader({"n_embed": 32, "width": 64}, {}, {"n_embed": "width"})
    assert read.positive("width") == 64
    assert problems(read) == ["n_embed = 32: contradicts the value 64 of its other name, width"]


def test_a_default_contradicts_nobody() -> None:
    read = ConfigReader({"b": 2}, {"a": 1})
    read.agree("a", 5, "c")
    read.agree("b", 5, "c")
    assert problems(read) == ["b = 2: contradicts the value 5 of its other name, c"]


# The end.


@pytest.mark.parametrize("key", sorted(NEUTRAL_KEYS))
def test_neutral_keys_need_no_family(key: str) -> None:
    ConfigReader({key: "anything"}).finish()


def test_notes_of_the_library_and_nulls_are_passed_over() -> None:
    ConfigReader({"_name_or_path": "x", "_commit_hash": 7, "surprise": None}).finish()


def test_a_note_that_is_read_is_a_key_like_others() -> None:
    read = ConfigReader({"_pattern": "six"})
    read.positive("_pattern", 6)
    assert problems(read) == ["_pattern: a whole number expected, found 'six'"]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"quantization_config": {"bits": 4}},
            "bitsandbytes and bitnet are read; export the original checkpoint",
        ),
        ({"add_cross_attention": True}, "cross-attention"),
        ({"pruned_heads": {"0": [1]}}, "pruned heads"),
    ],
)
def test_what_no_family_can_have_is_refused(config: dict[str, Any], reason: str) -> None:
    (problem,) = problems(ConfigReader(config))
    assert reason in problem


def test_a_key_that_nobody_read_is_refused_with_the_nearest_that_was() -> None:
    read = ConfigReader({"hiden_size": 64, "xyz": [1]}, {"hidden_size": 32})
    read.positive("hidden_size")
    assert problems(read) == [
        "hiden_size = 64: not understood, and it may change the result (did you mean 'hidden_size'?)",
        "xyz = [1]: not understood, and it may change the result",
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(value=json_values)
def test_no_value_breaks_a_reader(value: Any) -> None:
    for reads in READS.values():
        read = ConfigReader({"x": value})
        reads(read)
        with suppress(UnsupportedModelError):
            read.finish()
