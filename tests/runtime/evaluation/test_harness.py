"""Requests of lm-evaluation-harness, answered without it: log-probabilities by the chain rule, text, and what is
cut."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import OptionError, PromptTooLongError, UsageError
from edgegen.evaluation.harness import HarnessModel
from edgegen.evaluation.lm_eval import register
from tests.runtime.models import EOS, FakeGraphs, RandomGraphs, after_prompt, fake_llm

CONTEXT = 32


@dataclass
class Asked:
    args: tuple[Any, ...]


def asked(*args: tuple[Any, ...]) -> list[Asked]:
    return [Asked(one) for one in args]


@pytest.fixture
def model(tmp_path: Path) -> HarnessModel:
    return HarnessModel(fake_llm(tmp_path / "fake", RandomGraphs(), max_context=CONTEXT))


def score(ids: list[int], begin: int) -> tuple[float, bool]:
    total, greedy = 0.0, True
    for place in range(begin, len(ids)):
        logits = RandomGraphs().logits(ids[:place]).astype(np.float64)
        total += logits[ids[place]] - np.log(np.exp(logits).sum())
        greedy &= bool(logits.argmax() == ids[place])
    return total, greedy


def near(expected: tuple[float, bool]) -> Any:
    return (pytest.approx(expected[0], abs=1e-4), expected[1])


class TestLoglikelihood:
    def test_of_choices_and_of_contexts_that_come_back(self, model: HarnessModel) -> None:
        requests = [("One", " two"), ("One", " three"), ("Other", " two"), ("One", " two")]
        found = model.loglikelihood(asked(*requests))
        for (context, continuation), answer in zip(requests, found, strict=True):
            assert answer == near(score([*(context + continuation).encode()], len(context)))
        assert found[0] == found[3] != found[2]

    @pytest.mark.parametrize("context", ["", " ", "\n\n"])
    def test_no_context_is_the_token_that_begins_a_text(self, model: HarnessModel, context: str) -> None:
        (found,) = model.loglikelihood(asked((context, " two")))
        assert found == near(score([EOS, *context.encode(), *b" two"], 1))

    def test_which_is_not_put_twice(self, model: HarnessModel) -> None:
        (found,) = model.loglikelihood(asked(("", "<|endoftext|>two")))
        assert found == near(score([EOS, *b"two"], 1))

    def test_white_space_at_the_end_of_a_context_is_the_continuations(self, model: HarnessModel) -> None:
        (found,) = model.loglikelihood(asked(("One  ", "two")))
        assert found == near(score([*b"One  two"], 3))

    def test_a_long_context_loses_its_beginning(self, model: HarnessModel) -> None:
        context = "".join(map(chr, range(48, 100)))
        found = model.loglikelihood(asked((context, "two"), (context, "three")))
        assert found[0] == near(score([*(context[-CONTEXT + 2 :] + "two").encode()], CONTEXT - 2))
        assert found[1] == near(score([*(context[-CONTEXT + 4 :] + "three").encode()], CONTEXT - 4))

    def test_a_continuation_does_not(self, model: HarnessModel) -> None:
        with pytest.raises(PromptTooLongError):
            model.loglikelihood(asked(("One", "a" * (CONTEXT + 1))))

    def test_greedy_text_is_known_as_such(self, tmp_path: Path) -> None:
        model = HarnessModel(fake_llm(tmp_path / "fake", FakeGraphs(after_prompt(*b"two", prompt=3))))
        assert [greedy for _, greedy in model.loglikelihood(asked(("One", "two"), ("One", "too")))] == [True, False]


class TestRolling:
    @pytest.mark.parametrize("length", [1, CONTEXT, CONTEXT + 1, 3 * CONTEXT, 3 * CONTEXT + 7])
    def test_is_cut_as_the_harness_cuts_it(self, model: HarnessModel, length: int) -> None:
        """``get_rolling_token_windows`` and ``make_disjoint_window``, written out: each piece is fed ``CONTEXT`` ids at
        most, and all but the last have one id that is not their own."""
        text = "".join(chr(48 + n % 70) for n in range(length))
        ids, expected = [EOS, *text.encode()], 0.0
        for begin in range(1, length + 1, CONTEXT):
            end = min(begin + CONTEXT, length + 1)
            fed_from = max(0, end - 1 - CONTEXT)
            expected += score(ids[fed_from:end], begin - fed_from)[0]
        assert model.loglikelihood_rolling(asked((text,))) == [pytest.approx(expected, abs=1e-3)]

    def test_no_text_has_nothing_unlikely(self, model: HarnessModel) -> None:
        assert model.loglikelihood_rolling(asked(("",))) == [0.0]


class TestGeneration:
    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"until": ["."], "max_gen_toks": 40}, " and so on"),
            ({"until": ".", "do_sample": False, "temperature": 0.0, "top_p": 1.0}, " and so on"),
            ({"until": ["so", "", "on"], "temperature": 1.0, "do_sample": False}, " and "),
            ({"until": [], "max_new_tokens": 4}, " and"),
            ({"until": None, "max_tokens": 6, "max_gen_toks": 4}, " and"),
        ],
    )
    def test_goes_on_until_it_is_told_to_stop(self, tmp_path: Path, settings: dict[str, Any], said: str) -> None:
        graphs = FakeGraphs(after_prompt(*b" and so on. And on.", prompt=3))
        model = HarnessModel(fake_llm(tmp_path / "fake", graphs))
        assert model.generate_until(asked(("One", settings), ("Two", settings))) == [said, said]

    def test_draws_where_it_is_told_to(self, model: HarnessModel) -> None:
        settings = {"max_gen_toks": 8, "temperature": 2.0, "top_k": 0, "seed": 1}
        greedy = {"max_gen_toks": 8}
        drawn, again, plain = model.generate_until(asked(("One", settings), ("One", settings), ("One", greedy)))
        assert drawn == again != plain

    def test_a_long_prompt_loses_its_beginning(self, model: HarnessModel) -> None:
        prompt, settings = "".join(map(chr, range(48, 100))), {"max_gen_toks": 8}
        whole, end, less = model.generate_until(
            asked(*((prompt[cut:], settings) for cut in (0, 8 - CONTEXT, 9 - CONTEXT)))
        )
        assert whole == end != less

    def test_settings_that_are_none_are_told(self, model: HarnessModel) -> None:
        with pytest.raises(OptionError, match="'temprature' is not an option"):
            model.generate_until(asked(("One", {"max_gen_toks": 4, "temprature": 1.0})))
        with pytest.raises(
            PromptTooLongError, match="256 new tokens leave no room for a prompt in this model's context"
        ):
            model.generate_until(asked(("One", {})))


def test_a_model_without_a_tokenizer_is_none_for_the_harness(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no tokenizer"):
        HarnessModel(fake_llm(tmp_path / "fake", RandomGraphs(), tokenizer=False))


@pytest.mark.skipif(find_spec("lm_eval") is not None, reason="lm_eval is installed")
def test_a_harness_that_is_missing_is_told() -> None:
    with pytest.raises(UsageError, match=r'lm-evaluation-harness is missing .*: run `pip install "edgegen\[eval\]"`'):
        register()
