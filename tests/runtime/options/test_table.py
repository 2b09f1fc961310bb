"""The table of options: it agrees with the classes and feeds their checks; None leaves any option out."""

import re
from dataclasses import fields, replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.errors import OptionError
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions, GenerationOverrides
from edgegen.options.kinds import Number
from edgegen.options.option import Option
from edgegen.options.option_set import OptionSet, options_of
from edgegen.options.sampling import LogitsSettings
from edgegen.options.table import ENGINE_OPTIONS, GENERATION_OPTIONS, OPTIONS
from edgegen.server.http.options import ServerOptions
from edgegen_export.options import ExportOptions

TABLES: list[tuple[type[OptionSet], tuple[Option, ...]]] = [
    (GenerationOptions, GENERATION_OPTIONS),
    (EngineOptions, ENGINE_OPTIONS),
    (ServerOptions, options_of(ServerOptions)),
    (ExportOptions, options_of(ExportOptions)),
]
NUMBERS = [
    (options, option, option.kind) for options, table in TABLES for option in table if isinstance(option.kind, Number)
]
BASES: list[GenerationOptions] = [
    GenerationOptions(),
    GenerationOptions(temperature=0.7, top_k=5, seed=3, max_length=30, max_time=1.5),
    GenerationOptions(stop_strings=("x",), stop_token_ids=(4,), stop_regex="a", eos_token_id=(), logprobs=True),
    GenerationOptions(num_beams=3, length_penalty=0.5, early_stopping="never", priority=4),
    GenerationOptions(logit_bias={5: 1.0}, guidance_scale=2.0, negative_prompt="no", response_format={"type": "text"}),
    GenerationOptions(prompt_lookup_num_tokens=4, max_matching_ngram_size=3, mirostat_tau=2.0, penalty_last_n=9),
]


@pytest.mark.parametrize(("options", "table"), TABLES)
def test_the_rows_are_the_fields(options: type[OptionSet], table: tuple[Option, ...]) -> None:
    names = [option.name for option in table]
    assert sorted(names) == sorted(f.name for f in fields(options))
    assert len(OPTIONS) == len(GENERATION_OPTIONS) + len(ENGINE_OPTIONS)
    assert (options.__doc__ or "").count("\n        ") >= len(names)


def test_the_rows_are_the_keyword_arguments_and_each_may_be_none() -> None:
    given = GenerationOverrides.__annotations__
    assert sorted(given) == sorted(option.name for option in GENERATION_OPTIONS)
    unmarked = [
        name for name, kind in given.items() if not re.search("None|Optional", str(kind)) and str(kind) != "typing.Any"
    ]
    assert unmarked == []


@pytest.mark.parametrize(("options", "table"), TABLES)
def test_every_default_is_right_by_its_row(options: type[OptionSet], table: tuple[Option, ...]) -> None:
    defaults = options()
    for option in table:
        if (value := getattr(defaults, option.name)) is not None:
            assert option.kind.problems(option.name, value) == []


def test_every_row_says_in_a_sentence_what_it_is() -> None:
    for option in OPTIONS.values():
        assert option.help.endswith("."), option.name
        assert option.help[0].isupper() or option.help[0] in "2(", option.name
        assert option.kind.spelled, option.name


@pytest.mark.parametrize(("options", "option", "kind"), NUMBERS, ids=lambda case: getattr(case, "name", ""))
def test_a_number_out_of_its_range_is_refused_by_name(options: type[OptionSet], option: Option, kind: Number) -> None:
    wrong: list[Any] = ["1", True, [1]]
    wrong += [kind.low - 1] if kind.low > -inf else []
    wrong += [kind.high * 2] if kind.high < inf else []
    wrong += [kind.low] if kind.above else []
    wrong += [kind.high] if kind.below else []
    for value in wrong:
        with pytest.raises(OptionError, match=f"(^|- ){option.name}: "):
            options(**{option.name: value})


@pytest.mark.parametrize(("options", "table"), TABLES)
def test_none_is_the_default_of_every_option(options: type[OptionSet], table: tuple[Option, ...]) -> None:
    for option in table:
        assert options(**{option.name: None}) == options(), option.name
    assert options(**{option.name: None for option in table}) == options()


@given(base=st.sampled_from(BASES), names=st.sets(st.sampled_from([option.name for option in GENERATION_OPTIONS])))
def test_none_overrides_nothing(base: GenerationOptions, names: set[str]) -> None:
    assert base.override(dict.fromkeys(names)) == base
    assert base.override({**dict.fromkeys(names), "max_new_tokens": 3}) == base.override({"max_new_tokens": 3})


def test_none_takes_a_value_back() -> None:
    options = GenerationOptions(top_k=5, stop_strings=("x",), logit_bias={5: 1.0})
    taken_back: dict[str, Any] = dict.fromkeys(("top_k", "stop_strings", "logit_bias", "do_sample"))
    assert replace(options, **taken_back) == GenerationOptions()
    assert LogitsSettings(top_k=None).top_k == 0  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("options", "name", "hint"),
    [
        (GenerationOptions, "stream", "llm.stream(…)"),
        (GenerationOptions, "messages", "llm.chat(messages)"),
        (GenerationOptions, "tools", "llm.chat(Conversation(messages, tools=…))"),
        (GenerationOptions, "max_tokens", "did you mean 'max_new_tokens'?"),
        (GenerationOptions, "stop", "stop_strings"),
        (GenerationOptions, "n", "num_return_sequences"),
        (GenerationOptions, "threads", "options=EngineOptions(threads=…)"),
        (GenerationOptions, "n_threads", "EngineOptions(threads=…)"),
        (EngineOptions, "temperature", "llm.generate(…, temperature=…)"),
        (EngineOptions, "do_sample", "llm.generate(…, do_sample=…)"),
        (EngineOptions, "thread", "did you mean 'threads'?"),
    ],
)
def test_an_option_in_the_wrong_place_is_met_with_a_hint(options: type[OptionSet], name: str, hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        options(**{name: 1})
    assert name in str(caught.value)
    assert hint in str(caught.value)
    if options is GenerationOptions:
        with pytest.raises(OptionError) as overridden:
            GenerationOptions().override({name: 1})
        assert str(overridden.value) == str(caught.value)


def test_no_hint_hides_an_option() -> None:
    for name in OPTIONS:
        known: Any = GenerationOptions if name in GenerationOverrides.__annotations__ else EngineOptions
        known(**{name: None})
