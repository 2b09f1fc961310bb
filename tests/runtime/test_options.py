"""GenerationOptions and EngineOptions: what callers and files may write, and what they are told."""

import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest

from edgegen.errors import OptionError, UsageError
from edgegen.options import SAMPLING_OPTIONS, UNSUPPORTED, EngineOptions, GenerationOptions, GenerationOverrides

DEFAULTS = GenerationOptions()


def test_without_a_word_text_is_greedy() -> None:
    assert not DEFAULTS.do_sample


@pytest.mark.parametrize("option", [{"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.9}, {"seed": 3}])
def test_any_sampling_option_implies_sampling(option: dict[str, Any]) -> None:
    assert DEFAULTS.override(option).do_sample
    assert DEFAULTS.override(option | {"do_sample": True}).do_sample


@pytest.mark.parametrize(
    "option", [{}, {"max_new_tokens": 3}, {"seed": None}, {"stop_strings": "x"}, {"use_cache": False}]
)
def test_other_options_leave_sampling_as_it_is(option: dict[str, Any]) -> None:
    assert not DEFAULTS.override(option).do_sample
    assert GenerationOptions(do_sample=True).override(option).do_sample


@pytest.mark.parametrize("option", [{}, {"seed": 3}, {"top_k": 5}, {"do_sample": True}, {"do_sample": False}])
def test_temperature_zero_is_greedy_whatever_else_is_said(option: dict[str, Any]) -> None:
    assert not DEFAULTS.override(option | {"temperature": 0}).do_sample
    assert not GenerationOptions(do_sample=True).override(option | {"temperature": 0.0}).do_sample


def test_temperature_zero_is_greedy_in_a_file_too() -> None:
    config = GenerationOptions.from_config({"temperature": 0.0, "do_sample": True})
    assert not config.do_sample
    assert not config.override({"top_k": 5}).do_sample
    assert config.override({"temperature": 0.5}).do_sample


@pytest.mark.parametrize("option", ["temperature", "top_k", "top_p", "seed"])
def test_sampling_switched_off_beside_a_sampling_option_is_a_contradiction(option: str) -> None:
    with pytest.raises(OptionError, match=f"do_sample=False contradicts {option}"):
        DEFAULTS.override({"do_sample": False, option: 1})


def test_a_misspelt_option_is_told_with_the_nearest_right_one() -> None:
    with pytest.raises(OptionError) as caught:
        DEFAULTS.override({"temprature": 1, "max_tokens": 3, "qqq": 1})
    assert str(caught.value) == (
        "3 problems:\n"
        "  - 'temprature' is not an option (did you mean 'temperature'?)\n"
        "  - 'max_tokens' is not an option (did you mean 'max_new_tokens'?)\n"
        "  - 'qqq' is not an option"
    )


def test_everything_wrong_is_told_at_once() -> None:
    wrong: dict[str, Any] = {
        "max_new_tokens": "7",
        "temperature": -1,
        "top_k": 2.5,
        "top_p": 1.5,
        "seed": True,
        "eos_token_id": [3, "x", -1],
        "stop_strings": ["ok", 5, ""],
        "use_cache": 1,
    }
    with pytest.raises(OptionError) as caught:
        DEFAULTS.override(wrong)
    lines = str(caught.value).splitlines()
    assert lines[0] == "9 problems:"
    named = [line.removeprefix("  - ").partition(":")[0] for line in lines[1:]]
    assert sorted(set(named)) == sorted([*wrong])
    assert named.count("stop_strings") == 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "1", None, True])
@pytest.mark.parametrize("name", ["temperature", "top_p"])
def test_numbers_that_are_none_are_refused(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=name):
        GenerationOptions(**{name: value})


@pytest.mark.parametrize("value", [0, -1, 1.0, math.inf, "1", True])
def test_at_least_one_token_must_be_wanted(value: Any) -> None:
    with pytest.raises(OptionError, match="max_new_tokens"):
        GenerationOptions(max_new_tokens=value)


def test_however_large_a_number_is_it_is_a_number() -> None:
    assert GenerationOptions(max_new_tokens=10**400, top_k=10**400).top_k == 10**400


@pytest.mark.parametrize(("written", "meant"), [(5, (5,)), ([5, 6], (5, 6)), ((5,), (5,)), ((), ()), ([], ())])
def test_one_id_or_a_list_of_them_ends_a_text(written: Any, meant: tuple[int, ...]) -> None:
    assert GenerationOptions(eos_token_id=written).eos_token_id == meant
    assert DEFAULTS.override({"eos_token_id": written}).eos_token_id == meant
    assert GenerationOptions.from_config({"eos_token_id": written}).eos_token_id == meant


@pytest.mark.parametrize("written", ["END", ["END"], ("END",)])
def test_one_stop_string_is_not_its_letters(written: Any) -> None:
    assert GenerationOptions(stop_strings=written).stop_strings == ("END",)
    assert DEFAULTS.override({"stop_strings": written}).stop_strings == ("END",)


def test_a_file_may_say_more_than_edgegen_knows_and_null() -> None:
    config = {"num_beams": 4, "top_k": None, "temperature": 0.6, "do_sample": True, "bos_token_id": 1}
    assert GenerationOptions.from_config(config) == GenerationOptions(temperature=0.6, do_sample=True)


def test_a_files_sampling_values_do_not_imply_sampling() -> None:
    """As transformers reads them: they wait for ``do_sample``."""
    config = GenerationOptions.from_config({"temperature": 0.6})
    assert not config.do_sample
    assert config.override({"do_sample": True}).temperature == 0.6


def test_options_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        DEFAULTS.top_k = 3  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "wrong", [{"threads": 0}, {"threads": 1.5}, {"threads": 10**9}, {"prefill_chunk": 1}, {"sessions": "three"}]
)
def test_wrong_engine_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        EngineOptions(**wrong)


def test_an_option_error_is_a_usage_error_and_a_value_error() -> None:
    assert issubclass(OptionError, UsageError)
    assert issubclass(OptionError, ValueError)


def test_keyword_arguments_and_options_are_the_same() -> None:
    assert set(GenerationOverrides.__annotations__) == {f.name for f in fields(GenerationOptions)} - UNSUPPORTED.keys()


def test_every_sampling_option_asks_for_sampling() -> None:
    values: dict[str, Any] = {"temperature": 0.5, "top_k": 3, "mirostat": 2, "mirostat_tau": 3.0, "seed": 1}
    for name in SAMPLING_OPTIONS:
        value = values.get(name, 0.25)
        assert DEFAULTS.override({name: value}).do_sample is True, name
        assert GenerationOptions(**{name: value}).do_sample is True, name
        with pytest.raises(OptionError, match=f"do_sample=False contradicts {name}"):
            DEFAULTS.override({name: value, "do_sample": False})


def test_penalties_and_bans_do_not_ask_for_sampling() -> None:
    asked = DEFAULTS.override({"frequency_penalty": 0.5, "no_repeat_ngram_size": 3, "suppress_tokens": [4]})
    assert asked.do_sample is False


def test_mirostat_takes_the_place_of_what_cuts_off() -> None:
    own = GenerationOptions(top_k=40, top_p=0.9, min_p=0.1)  # of the bundle, say
    chosen = own.override({"mirostat": 2})
    assert (chosen.top_k, chosen.top_p, chosen.min_p) == (0, 1.0, 0.0)
    with pytest.raises(OptionError, match="mirostat stands in for all that cuts off: leave top_p out"):
        own.override({"mirostat": 2, "top_p": 0.9})
    assert GenerationOptions(mirostat=2).top_k == 0


def test_what_is_not_supported_yet_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match="guidance_scale: guidance by a negative prompt is not supported yet"):
        DEFAULTS.override({"guidance_scale": 1.5})
    assert GenerationOptions.from_config({"guidance_scale": 1.5}).guidance_scale == 1.0


def test_options_in_effect_are_plain_json() -> None:
    options = GenerationOptions(
        sequence_bias={(1, 2): -3.0}, logit_bias={7: 1.5}, bad_words_ids=((1,),), logits_processor=(lambda _, x: x,)
    )
    shown = json.loads(json.dumps(options.to_json()))
    assert shown["sequence_bias"] == [[[1, 2], -3.0]]
    assert shown["max_new_tokens"] == 256
    assert "logits_processor" not in shown
    assert GenerationOptions(**shown | {"logit_bias": options.logit_bias}) == replace(options, logits_processor=())
