"""LogitsSettings and the order of the pipeline it makes."""

import pkgutil
import re
from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.errors import OptionError
from edgegen.sampling import LogitsPipeline, LogitsSettings, processors


def unchanged(ids: Any, logits: Any) -> Any:
    return logits


EVERYTHING: dict[str, Any] = {
    "guidance_scale": 1.5,
    "logit_bias": {1: 1.0},
    "sequence_bias": {(1, 2): 1.0},
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "dry_multiplier": 0.8,
    "no_repeat_ngram_size": 3,
    "bad_words_ids": [[5]],
    "min_length": 5,
    "min_new_tokens": 5,
    "forced_bos_token_id": 1,
    "forced_eos_token_id": 2,
    "remove_invalid_values": True,
    "exponential_decay_length_penalty": [5, 1.1],
    "suppress_tokens": [7],
    "begin_suppress_tokens": [8],
    "logits_processor": [unchanged],
    "top_n_sigma": 1.0,
    "temperature": 0.7,
    "top_k": 50,
    "top_p": 0.9,
    "min_p": 0.1,
    "typical_p": 0.9,
    "epsilon_cutoff": 0.1,
    "eta_cutoff": 0.1,
    "xtc_probability": 0.5,
    "renormalize_logits": True,
}
ORDER = (
    "Guidance SequenceBias SequenceBias RepetitionPenalty FrequencyPenalty Dry NoRepeatNGram BadWords MinLength "
    "MinNewTokens ForcedBos ForcedEos RemoveInvalidValues ExponentialDecayLengthPenalty SuppressTokens "
    "SuppressTokensAtBegin CustomProcessor"
).split()
WARPERS = "TopNSigma Temperature TopK TopP MinP TypicalP EpsilonCutoff EtaCutoff Xtc".split()


def names(do_sample: bool = True, **settings: Any) -> list[str]:
    pipeline = LogitsPipeline.from_settings(
        LogitsSettings(**settings), do_sample=do_sample, eos_token_ids=(2,), max_new_tokens=9
    )
    return [type(process).__name__ for process in pipeline.processors]


def test_the_one_order() -> None:
    assert names(**EVERYTHING) == [*ORDER, *WARPERS, "Renormalization"]


def test_without_sampling_nothing_is_cut_off() -> None:
    assert names(do_sample=False, **EVERYTHING) == [*ORDER, "Renormalization"]


def test_mirostat_comes_after_the_temperature() -> None:
    assert names(mirostat=2, temperature=0.5) == ["Temperature", "Mirostat"]


def test_the_defaults_ask_for_nothing() -> None:
    assert names() == []


@pytest.mark.parametrize("name", EVERYTHING)
def test_each_setting_asks_for_one_processor(name: str) -> None:
    assert len(names(**{name: EVERYTHING[name]})) == 1


def test_every_processor_is_in_the_order() -> None:
    """The processors of a request's thoughts and of llama.cpp's mirostat have a place that no list of names gives."""
    classes = {
        name
        for module in pkgutil.iter_modules(processors.__path__, f"{processors.__name__}.")
        for name, kind in vars(import_module(module.name)).items()
        if isinstance(kind, type) and kind.__module__ == module.name and "__call__" in vars(kind)
    }
    assert classes == {*ORDER, *WARPERS, "Renormalization", "Mirostat", "ThinkingBudget"}


def test_lists_and_single_ids_are_taken_as_json_has_them() -> None:
    settings = LogitsSettings(
        sequence_bias=[[[1, 2], 3.0], [[4], -1]],  # pyright: ignore[reportArgumentType]
        bad_words_ids=[[1, 2], [3]],  # pyright: ignore[reportArgumentType]
        forced_eos_token_id=5,  # pyright: ignore[reportArgumentType]
        suppress_tokens=None,  # pyright: ignore[reportArgumentType]
        exponential_decay_length_penalty=[3, 1.5],  # pyright: ignore[reportArgumentType]
    )
    assert settings.sequence_bias == {(1, 2): 3.0, (4,): -1}
    assert settings.bad_words_ids == ((1, 2), (3,))
    assert settings.forced_eos_token_id == (5,)
    assert settings.suppress_tokens == ()
    assert settings.exponential_decay_length_penalty == (3, 1.5)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        LogitsSettings(
            top_k=-1,
            top_p=2.0,
            min_p="much",  # pyright: ignore[reportArgumentType]
            bad_words_ids=[[1], "word"],  # pyright: ignore[reportArgumentType]
            logits_processor=[3],  # pyright: ignore[reportArgumentType]
            remove_invalid_values=1,  # pyright: ignore[reportArgumentType]
        )
    assert str(caught.value).splitlines() == [
        "6 problems:",
        "  - remove_invalid_values: True or False expected, found 1",
        "  - top_k: must be at least 0, found -1",
        "  - top_p: must be between 0 and 1, found 2.0",
        "  - min_p: float expected, found 'much'",
        "  - bad_words_ids: a list of token ids expected, found 'word'",
        "  - logits_processor: a function expected, found 3",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"forced_eos_token_id": [3, 4], "suppress_tokens": [4, 3]}, "forced_eos_token_id: 3, 4 stands in"),
        (
            {"mirostat": 2, "xtc_probability": 0.5},
            "mirostat stands in for all that cuts off: leave xtc",
        ),
        ({"penalty_last_n": -1}, "penalty_last_n: must be at least 0, found -1"),
        (
            {"forced_bos_token_id": "<s>"},
            "forced_bos_token_id: a token id is a whole number",
        ),
        ({"sequence_bias": [[[1, 2]]]}, "sequence_bias: a mapping of token ids to biases expected"),
        ({"sequence_bias": {(): 1.0}}, "sequence_bias: at least 1 token id expected, found none"),
        ({"sequence_bias": {(1,): "big"}}, "sequence_bias of (1,): float expected, found 'big'"),
        ({"bad_words_ids": "words"}, "bad_words_ids: a list of lists of token ids expected"),
        ({"exponential_decay_length_penalty": [2.5, 1.1]}, "the start of exponential_decay_length_penalty: int"),
        ({"exponential_decay_length_penalty": [2, 0]}, "the factor of exponential_decay_length_penalty: must be above"),
        ({"logits_processor": print}, "logits_processor: a list of functions expected"),
    ],
)
def test_problems(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        LogitsSettings(**settings)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(name=st.sampled_from([f.name for f in fields(LogitsSettings)]), value=ANYTHING)
def test_whatever_is_given_is_taken_or_refused(name: str, value: Any) -> None:
    try:
        settings = LogitsSettings(**{name: value})
    except OptionError as error:
        refusal = str(error)
    else:
        settings.check_vocabulary(2**70)
        refusal = name
    assert name in refusal


def test_ids_outside_the_vocabulary_are_all_said() -> None:
    settings = LogitsSettings(
        logit_bias={10: 1.0, 3: 1.0}, bad_words_ids=((1, 11),), forced_eos_token_id=(12,), sequence_bias={(9, 1): 1.0}
    )
    with pytest.raises(OptionError) as caught:
        settings.check_vocabulary(10)
    assert [line.split(" is")[0] for line in str(caught.value).splitlines()[1:]] == [
        "  - logit_bias: token id 10",
        "  - bad_words_ids: token id 11",
        "  - forced_eos_token_id: token id 12",
    ]
    settings.check_vocabulary(13)
