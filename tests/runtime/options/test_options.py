"""GenerationOptions and EngineOptions: what callers and files may write, and what they are told."""

import json
import math
import re
from dataclasses import fields, replace
from typing import Any

import pytest

from edgegen.errors import OptionError, UsageError
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import SAMPLING_OPTIONS, GenerationOptions, GenerationOverrides

DEFAULTS = GenerationOptions()


def test_without_a_word_text_is_greedy() -> None:
    assert not DEFAULTS.do_sample


@pytest.mark.parametrize("option", [{"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.9}, {"seed": 3}])
def test_any_sampling_option_implies_sampling(option: dict[str, Any]) -> None:
    assert DEFAULTS.override(option).do_sample
    assert DEFAULTS.override(option | {"do_sample": True}).do_sample


@pytest.mark.parametrize(
    "option", [{}, {"max_new_tokens": 3}, {"seed": None}, {"stop_strings": "x"}, {"logprobs": True}]
)
def test_options_other_than_sampling_leave_sampling_as_it_is(option: dict[str, Any]) -> None:
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
        "thinking": 1,
    }
    with pytest.raises(OptionError) as caught:
        DEFAULTS.override(wrong)
    lines = str(caught.value).splitlines()
    assert lines[0] == "9 problems:"
    named = [line.removeprefix("  - ").partition(":")[0] for line in lines[1:]]
    assert sorted(set(named)) == sorted([*wrong])
    assert named.count("stop_strings") == 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "1", True])
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
    config = {"num_beam_groups": 4, "top_k": None, "temperature": 0.6, "do_sample": True, "bos_token_id": 1}
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
    "wrong",
    [
        {"threads": 0},
        {"threads": 1.5},
        {"threads": 10**9},
        {"prefill_chunk": 1},
        {"kernels": "mine"},
        {"kv": "int2"},
        {"draft": ""},
        {"draft": 5},
    ],
)
def test_wrong_engine_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        EngineOptions(**wrong)


def test_an_option_error_is_a_usage_error_and_a_value_error() -> None:
    assert issubclass(OptionError, UsageError)
    assert issubclass(OptionError, ValueError)


def test_keyword_arguments_and_options_are_the_same() -> None:
    assert set(GenerationOverrides.__annotations__) == {f.name for f in fields(GenerationOptions)}


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


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("use_cache", "the KV cache is always used, and changes no text: leave it out"),
        ("num_beam_groups", "diverse beam search is not supported: use num_beams, or num_return_sequences"),
        ("diversity_penalty", "diverse beam search is not supported"),
        ("constraints", "constrained beam search is not supported: say what the text must be with grammar"),
        ("force_words_ids", "constrained beam search is not supported"),
        ("penalty_alpha", "contrastive search is not supported: use top_k"),
        ("dola_layers", "DoLa"),
        ("assistant_model", "a draft model is loaded with the model: EngineOptions(draft=…), or --draft"),
    ],
)
def test_what_only_transformers_has_is_refused_by_name(name: str, instead: str) -> None:
    with pytest.raises(OptionError, match=f"{name}: .*{re.escape(instead)}"):
        DEFAULTS.override({name: 2})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"prompt_lookup_num_tokens": 0}, "prompt_lookup_num_tokens: must be between 1 and 32, found 0"),
        ({"prompt_lookup_num_tokens": True}, "prompt_lookup_num_tokens: int expected, found True"),
        (
            {"prompt_lookup_num_tokens": 4, "max_matching_ngram_size": 1},
            "max_matching_ngram_size: must be between 2 and 32, found 1",
        ),
        ({"num_assistant_tokens": 33}, "num_assistant_tokens: must be between 1 and 32, found 33"),
        (
            {"max_matching_ngram_size": 3},
            "max_matching_ngram_size is for prompt lookup: give prompt_lookup_num_tokens with it",
        ),
        (
            {"prompt_lookup_num_tokens": 4, "num_beams": 2},
            "prompt_lookup_num_tokens: speculative decoding does not go with num_beams: leave one or the other out",
        ),
        ({"num_assistant_tokens": 4, "guidance_scale": 2}, "num_assistant_tokens: .* with guidance_scale: leave"),
        ({"prompt_lookup_num_tokens": 4, "mirostat": 2}, "prompt_lookup_num_tokens: .* with mirostat: leave"),
    ],
    ids=str,
)
def test_wrong_options_of_speculative_decoding_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        DEFAULTS.override(given)


def test_a_file_has_no_say_in_how_fast_a_text_comes() -> None:
    config = {"prompt_lookup_num_tokens": 4, "num_assistant_tokens": 20, "max_matching_ngram_size": 2}
    assert GenerationOptions.from_config(config) == GenerationOptions.from_config({})
    assert DEFAULTS.prompt_lookup_num_tokens is None


def test_beams_do_not_draw_whatever_a_file_says_of_drawing() -> None:
    own = GenerationOptions.from_config({"do_sample": True, "temperature": 0.7})
    assert own.override({"num_beams": 3}).do_sample is False
    assert GenerationOptions.from_config({"do_sample": True, "num_beams": 3}).do_sample is False
    with pytest.raises(
        OptionError, match="num_beams: a beam search draws nothing: leave it, or the options of sampling, out"
    ):
        own.override({"num_beams": 3, "temperature": 0.5})


def test_options_in_effect_are_plain_json() -> None:
    options = GenerationOptions(
        sequence_bias={(1, 2): -3.0}, logit_bias={7: 1.5}, bad_words_ids=((1,),), logits_processor=(lambda _, x: x,)
    )
    shown = json.loads(json.dumps(options.to_json()))
    assert shown["sequence_bias"] == [[[1, 2], -3.0]]
    assert shown["max_new_tokens"] == 256
    assert "logits_processor" not in shown
    assert GenerationOptions(**shown | {"logit_bias": options.logit_bias}) == replace(options, logits_processor=())


class TestStopping:
    def test_one_of_a_kind_may_stand_for_itself(self) -> None:
        options = DEFAULTS.override({"stop_token_ids": 5, "stopping_criteria": len, "stop_strings": "x"})
        assert (options.stop_token_ids, options.stopping_criteria, options.stop_strings) == ((5,), (len,), ("x",))
        options = DEFAULTS.override({"stop_token_ids": [5, 6], "stopping_criteria": [len, any]})
        assert (options.stop_token_ids, options.stopping_criteria) == ((5, 6), (len, any))
        assert DEFAULTS.override({"stop_token_ids": None, "stopping_criteria": None}) == DEFAULTS

    def test_everything_wrong_is_told_at_once(self) -> None:
        wrong: dict[str, Any] = {
            "max_length": 0,
            "max_time": 0,
            "stop_token_ids": [1, "2"],
            "stop_regex": "a(?=b)",
            "include_stop_str_in_output": "yes",
            "stopping_criteria": [len, "len"],
        }
        with pytest.raises(OptionError) as caught:
            DEFAULTS.override(wrong)
        assert str(caught.value) == (
            "6 problems:\n"
            "  - max_length: must be at least 1, found 0\n"
            "  - max_time: must be above 0, found 0\n"
            "  - stop_token_ids: a token id is a whole number from 0 to 2147483647, found '2'\n"
            "  - stop_regex: 'a(?=b)' has lookahead or lookbehind, which cannot be told while text arrives: "
            "say it without\n"
            "  - include_stop_str_in_output: True or False expected, found 'yes'\n"
            "  - stopping_criteria: a function expected, found 'len'"
        )

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("max_length", value) for value in (-1, 1.0, True, "9", math.inf)),
            *(("max_time", value) for value in (-1, 0.0, math.nan, math.inf, True, "9")),
            *(("stop_token_ids", value) for value in ("5", -1, [2**31], [[1]], True)),
            *(("stop_regex", value) for value in (5, ["a"], "", "a*", "(", b"a")),
            *(("include_stop_str_in_output", value) for value in ("no", 1)),
            *(("stopping_criteria", value) for value in (5, [None], {"a": len})),
        ],
    )
    def test_a_wrong_value_is_refused_by_name(self, name: str, value: Any) -> None:
        with pytest.raises(OptionError, match=f"^{name}: "):
            GenerationOptions(**{name: value})

    def test_ids_outside_the_vocabulary_are_told_with_all_others(self) -> None:
        options = GenerationOptions(stop_token_ids=(3, 96, 97), suppress_tokens=(100,))
        with pytest.raises(OptionError) as caught:
            options.check_vocabulary(96)
        assert str(caught.value) == (
            "3 problems:\n"
            "  - suppress_tokens: token id 100 is outside the model's vocabulary of 96\n"
            "  - stop_token_ids: token id 96 is outside the model's vocabulary of 96\n"
            "  - stop_token_ids: token id 97 is outside the model's vocabulary of 96"
        )
        options.check_vocabulary(101)

    @pytest.mark.parametrize(
        ("length", "context", "meant"),
        [
            (20, 1024, None),
            (21, 1024, 21),
            (1023, 1024, 1023),
            (1024, 1024, None),
            (2048, 1024, None),
            (2048, None, 2048),
        ],
    )
    def test_a_files_max_length_counts_if_somebody_chose_it(
        self, length: int, context: int | None, meant: int | None
    ) -> None:
        assert GenerationOptions.from_config({"max_length": length}, context).max_length == meant

    def test_a_callers_max_length_always_counts(self) -> None:
        assert GenerationOptions(max_length=20).max_length == DEFAULTS.override({"max_length": 20}).max_length == 20

    def test_a_file_may_say_everything_but_functions(self) -> None:
        config = {
            "stop_strings": ["x"],
            "max_time": 2.5,
            "stop_token_ids": [4],
            "stop_regex": "a",
            "stopping_criteria": 5,
        }
        options = GenerationOptions.from_config(config)
        assert options == GenerationOptions(stop_strings=("x",), max_time=2.5, stop_token_ids=(4,), stop_regex="a")

    def test_functions_are_no_json(self) -> None:
        shown = GenerationOptions(stopping_criteria=(len,), stop_regex="a").to_json()
        assert "stopping_criteria" not in shown
        assert shown["stop_regex"] == "a"
