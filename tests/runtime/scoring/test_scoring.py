"""Scores of continuations: against the model's own definition, over fakes, a toy decoder in NumPy and real graphs."""

import math
import threading
from collections.abc import Sequence as Ids
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.bundle.bundle import Bundle
from edgegen.engine.engine import Engine
from edgegen.engine.finish import OUT_OF_TIME
from edgegen.errors import LogitsError, OptionError, PromptTooLongError, UsageError
from edgegen.generation.cancellation import CancelToken
from edgegen.llm import LLM
from edgegen.model.concat_runner import ConcatRunner
from edgegen.model.in_place_runner import Logits
from edgegen.options.engine import EngineOptions
from edgegen.scoring.scored_sequence import ScoredGroup, ScoredSequence
from edgegen.scoring.scores import Score
from edgegen.system import Deadline
from tests.runtime.models import (
    EOS,
    VOCAB_SIZE,
    FailAt,
    FakeGraphs,
    InterruptAt,
    digest_of,
    fake_llm,
    fake_runner,
    random_ids,
)
from tests.toy_decoder import POSITIONS, VOCABULARY, ToyGraphs, toy_logits, toy_variant, toy_weights

LIKELY = -math.log(1 + (VOCAB_SIZE - 1) * math.exp(-18))
UNLIKELY = LIKELY - 18
"""The log-probabilities of the fake model's next id, and of any other."""


def fake_logprobs(context: list[int], continuation: list[int]) -> list[float]:
    """By the fake model's definition."""
    behind = [[*context, *continuation[:n]] for n in range(len(continuation))]
    return [LIKELY if digest_of(ids) == token else UNLIKELY for ids, token in zip(behind, continuation, strict=True)]


def about(values: list[float]) -> Any:
    """But for the rounding of float32."""
    return pytest.approx(values, rel=1e-6, abs=1e-5)


def foreseen(context: list[int], count: int) -> list[int]:
    ids = list(context)
    for _ in range(count):
        ids.append(digest_of(ids))
    return ids[len(context) :]


def logprobs(score: Score) -> list[float]:
    return [entry.logprob for entry in score.logprobs]


@pytest.fixture
def graphs() -> FakeGraphs:
    return FakeGraphs(digest_of)


@pytest.fixture
def llm(graphs: FakeGraphs, tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", graphs)


CONTEXT = random_ids(21)


class TestScores:
    def test_of_what_greedy_decoding_says(self, llm: LLM) -> None:
        answer = foreseen(CONTEXT, 40)
        score = llm.score(CONTEXT, answer)
        assert score.token_ids == tuple(answer) == llm.generate(CONTEXT, max_new_tokens=40).token_ids
        assert (score.is_greedy, score.complete) == (True, True)
        assert score.logprob == pytest.approx(40 * LIKELY, abs=1e-4)
        assert score.perplexity == pytest.approx(math.exp(-LIKELY), abs=1e-5)

    @pytest.mark.parametrize("wrong", [0, 1, 7, 8, 39])
    def test_one_other_token_anywhere_is_not_greedy(self, llm: LLM, wrong: int) -> None:
        answer = foreseen(CONTEXT, 40)
        answer[wrong] = (answer[wrong] + 1) % 256
        score = llm.score(CONTEXT, answer)
        assert logprobs(score) == about(fake_logprobs(CONTEXT, answer))
        assert not score.is_greedy

    def test_keep_alternatives_that_are_asked_for(self, llm: LLM) -> None:
        likeliest = digest_of(CONTEXT)
        (entry,) = llm.score(CONTEXT, [(likeliest + 1) % 256], top_logprobs=2).logprobs
        assert [other.token_id for other in entry.top_logprobs] == [likeliest, 0 if likeliest else 1]
        assert (entry.is_best, entry.top_logprobs[0].is_best) == (False, True)

    def test_without_a_token_have_no_perplexity(self) -> None:
        assert math.isnan(Score((), (), False, False).perplexity)

    @settings(deadline=None, max_examples=60)
    @given(
        context=st.integers(1, 60),
        lengths=st.lists(st.integers(1, 70), min_size=1, max_size=20),
        chunk=st.integers(2, 20),
        seed=st.integers(0, 9),
    )
    def test_of_several_are_those_of_each(
        self, tmp_path_factory: pytest.TempPathFactory, context: int, lengths: list[int], chunk: int, seed: int
    ) -> None:
        graphs = FakeGraphs(digest_of)
        llm = fake_llm(tmp_path_factory.mktemp("fake") / "fake", graphs, prefill_chunk=chunk)
        before = random_ids(context, seed)
        texts = [[*foreseen(before, n - n // 3), *random_ids(n // 3, seed + n)] for n in lengths]
        scores = llm.score(before, texts)
        assert [score.token_ids for score in scores] == [tuple(text) for text in texts]
        for score, text in zip(scores, texts, strict=True):
            assert logprobs(score) == about(fake_logprobs(before, text))
            assert score.is_greedy == all(value == LIKELY for value in fake_logprobs(before, text))

    @given(length=st.integers(1, 900), most=st.integers(2, 200))
    def test_no_piece_is_a_single_token_and_the_last_token_is_never_run(self, length: int, most: int) -> None:
        """A single token is computed by other kernels; two tokens need one run of one, for the second is not run."""
        row = ScoredSequence.of([0] * (length + 1), 1, 1, lambda logits, token: None)
        row.append(0)
        pieces = list[int]()
        while row.finish is None:
            piece = 1 + len(row.propose(most, alone=False))
            pieces.append(piece)
            for _ in range(piece):
                row.append(0)
        assert sum(pieces) == length - 1
        assert length == 2 or 1 not in pieces
        assert all(piece <= most + 1 for piece in pieces)


class TestSharing:
    """Continuations of one context."""

    def test_the_context_is_computed_once_for_eight(self, llm: LLM, graphs: FakeGraphs) -> None:
        llm.score(random_ids(8), [foreseen(random_ids(8), 5)] * 8)
        assert graphs.runs == [("prefill", 8), *[("decode", 4)] * 8]
        graphs.runs.clear()
        llm.score(random_ids(8), [foreseen(random_ids(8), 5)] * 9)
        assert graphs.runs.count(("prefill", 8)) == 2

    def test_single_tokens_cost_nothing_beside_the_context(self, llm: LLM, graphs: FakeGraphs) -> None:
        scores = llm.score(random_ids(8), [[n] for n in range(200)])
        assert graphs.runs == [("prefill", 8)]
        assert [n for n, score in enumerate(scores) if score.is_greedy] == [digest_of(random_ids(8))]

    def test_they_may_be_mixed_in_any_order(self, llm: LLM, graphs: FakeGraphs) -> None:
        texts = [[5], [6, 7, 8], [9], foreseen(CONTEXT, 4), [digest_of(CONTEXT)]]
        scores = llm.score(CONTEXT, texts)
        assert [logprobs(score) for score in scores] == [about(fake_logprobs(CONTEXT, text)) for text in texts]
        assert [phase for phase, _ in graphs.runs] == ["prefill"] * 3 + ["decode"] * 2


class TestContext:
    """The last token needs no room: its keys and values are never computed."""

    @pytest.mark.parametrize("context", [1, 5, 31, 32])
    def test_a_continuation_may_reach_one_token_beyond(self, graphs: FakeGraphs, tmp_path: Path, context: int) -> None:
        llm = fake_llm(tmp_path / "short", graphs, max_context=32)
        ids = random_ids(33)
        assert logprobs(llm.score(ids[:context], ids[context:])) == about(fake_logprobs(ids[:context], ids[context:]))

    def test_a_longer_one_is_refused_before_any_work(self, graphs: FakeGraphs, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "short", graphs, max_context=32)
        with pytest.raises(PromptTooLongError, match="the context and the continuation have 34 tokens together"):
            llm.score([1] * 30, [1] * 4)
        with pytest.raises(
            PromptTooLongError, match=r"2 problems:\n.*continuation 1 have 34 .*\n.*continuation 3 have"
        ):
            llm.score([1] * 30, [[1] * 4, [1], [1] * 9])
        assert graphs.runs == []

    def test_an_empty_one_is_the_models_own_token(self, llm: LLM) -> None:
        assert llm.score("", "Zoë") == llm.score([EOS], list("Zoë".encode())) == llm.score([], list("Zoë".encode()))
        assert llm.score(" \n", "Zoë") == llm.score("", " \nZoë")

    def test_an_empty_one_is_refused_where_the_model_has_no_such_token(
        self, graphs: FakeGraphs, tmp_path: Path
    ) -> None:
        llm = fake_llm(tmp_path / "no bos", graphs, config={})
        pairs: list[tuple[Any, Any]] = [("", "a"), (" ", "a"), ([], [5])]
        for empty, continuation in pairs:
            with pytest.raises(UsageError, match="the context is empty, and this model has no token to begin"):
                llm.score(empty, continuation)
        assert graphs.runs == []


REFUSED: list[tuple[Any, Any, str]] = [
    ("a", "", "the continuation is empty: give at least one token"),
    ("a ", "", "the continuation is empty"),
    ([1], [], "the continuation is empty"),
    ("a", [], "the continuation is empty: give at least one token"),
    ("a", [[]], "the continuation is empty"),
    ("a", [5], "the continuation is no text"),
    ([1], "a", "the continuation is a text, but the context is not"),
    ([1], ["a"], "the continuation is a text, but the context is not"),
    ([1], [VOCAB_SIZE], f"token id {VOCAB_SIZE} of the continuation is outside"),
    ([-1], [5], "token id -1 of the context is outside"),
    (None, "a", "the context must be a text or a list of token ids"),
    ([1], None, "the continuation must be a text or a list of token ids"),
    ([1], [1.5], "the continuation must be a text or a list of token ids"),
    ("a\udc80", "b", "the context is no Unicode text: character 1 "),
    ("a", "b\udc80", "the continuation is no Unicode text: character 2 "),
    ("a", ["b", "", "c", ""], r"2 problems:\n  - continuation 2 is empty.*\n  - continuation 4 is empty"),
    ("a", ["", "b\udc80"], r"2 problems:\n  - continuation 1 .*\n  - continuation 2 "),
]


class TestRefusals:
    @pytest.mark.parametrize(("context", "continuation", "message"), REFUSED)
    def test_come_before_any_work(
        self, llm: LLM, graphs: FakeGraphs, context: Any, continuation: Any, message: str
    ) -> None:
        with pytest.raises(UsageError, match=message):
            llm.score(context, continuation)
        assert graphs.runs == []

    @pytest.mark.parametrize("count", [-1, 21, True, 1.5, "3"])
    def test_of_so_many_alternatives(self, llm: LLM, count: Any) -> None:
        with pytest.raises(OptionError, match="top_logprobs: "):
            llm.score("a", "b", top_logprobs=count)

    def test_texts_need_a_tokenizer(self, graphs: FakeGraphs, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "ids only", graphs, tokenizer=False)
        with pytest.raises(UsageError, match="no tokenizer: give the context as a list of token ids"):
            llm.score("a", "b")
        assert logprobs(llm.score([1], [2, 3])) == about(fake_logprobs([1], [2, 3]))


class TestTexts:
    """As lm-evaluation-harness cuts them; ids by the tokenizer of a real model."""

    @pytest.fixture
    def llm(self, stories: Bundle) -> LLM:
        return LLM.load(stories.path, options=EngineOptions(threads=1))

    @staticmethod
    def encode_pair(llm: LLM, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """``_encode_pair`` of lm-evaluation-harness (lm_eval/api/model.py)."""
        spaces = len(context) - len(context.rstrip())
        if spaces > 0:
            continuation = context[-spaces:] + continuation
            context = context[:-spaces]
        whole, before = llm.encode(context + continuation), llm.encode(context)
        return before, whole[len(before) :]

    @pytest.mark.parametrize(
        ("context", "continuation"),
        [
            ("once upon a time", ", there was a"),
            ("once upon a time ", "there was"),
            ("once upon a time", " there was"),
            ("she said.\n\n", "so they went home."),
            ("question: who?\nanswer:", " lily"),
            ("a", " "),
        ],
    )
    def test_white_space_before_the_border_is_the_continuations(
        self, llm: LLM, context: str, continuation: str
    ) -> None:
        before, after = self.encode_pair(llm, context, continuation)
        score = llm.score(context, continuation)
        assert list(score.token_ids) == after
        assert logprobs(score) == pytest.approx(logprobs(llm.score(before, after)))

    def test_a_token_over_the_border_is_the_continuations(self, llm: LLM) -> None:
        """The harness would pair tokens here that never stand beside each other."""
        whole, before = llm.encode("a little girl"), llm.encode("a lit")
        assert whole[: len(before)] != before
        score = llm.score("a lit", "tle girl")
        assert "".join(entry.token for entry in score.logprobs) == " little girl"
        assert score == llm.score("a", " little girl")

    @pytest.mark.parametrize(
        ("context", "texts"),
        [
            ("a lit", ["tle girl", " x", "tle", "tle dog and a cat", "s"]),
            ("o", ["nce upon", " x", "n it", "z", "ff we go", "nce"]),
        ],
    )
    def test_several_are_each_cut_at_their_own_place(self, llm: LLM, context: str, texts: list[str]) -> None:
        for found, alone in zip(llm.score(context, texts), [llm.score(context, text) for text in texts], strict=True):
            assert (found.token_ids, found.is_greedy) == (alone.token_ids, alone.is_greedy)
            assert logprobs(found) == pytest.approx(logprobs(alone), abs=0.05)  # int8 rounds one token otherwise


class TestRealGraphs:
    def test_the_chain_rule_holds(self, fp32_bundle: Bundle) -> None:
        llm, ids = LLM.load(fp32_bundle.path, options=EngineOptions(threads=1)), random_ids(90)
        for cut, end in ((1, 2), (5, 60), (59, 61), (30, 90)):
            first, second = llm.score(ids[:1], ids[1:cut]) if cut > 1 else None, llm.score(ids[:cut], ids[cut:end])
            whole = llm.score(ids[:1], ids[1:end])
            assert whole.logprob == pytest.approx((first.logprob if first else 0) + second.logprob, abs=1e-3)

    def test_a_greedy_answer_has_the_log_probabilities_it_was_generated_with(self, bundle: Bundle) -> None:
        llm = LLM.load(bundle.path, options=EngineOptions(threads=1))
        answer = llm.generate(CONTEXT, max_new_tokens=50, logprobs=True, eos_token_id=())
        score = llm.score(CONTEXT, [*answer.token_ids])
        # One token at a time, and several, are rounded differently.
        assert logprobs(score) == pytest.approx([entry.logprob for entry in answer.logprobs], abs=0.05)
        if bundle.manifest.quantization.scheme == "fp32":
            assert score.is_greedy
            assert logprobs(score) == pytest.approx([entry.logprob for entry in answer.logprobs], abs=1e-4)

    @pytest.mark.parametrize("chunk", [3, 128])
    def test_with_int8_keys_and_values_both_hold_to_the_last_bit(self, int8_bundle: Bundle, chunk: int) -> None:
        llm = LLM.load(int8_bundle.path, options=EngineOptions(threads=1, prefill_chunk=chunk, kv="int8"))
        answer = llm.generate(CONTEXT, max_new_tokens=150, logprobs=True, eos_token_id=())
        assert llm.score(CONTEXT, [*answer.token_ids]).logprobs == answer.logprobs
        ids = random_ids(200)
        parts = [llm.score(ids[:start], ids[start:end]) for start, end in ((5, 6), (6, 8), (8, 100), (100, 200))]
        assert llm.score(ids[:5], ids[5:]).logprobs == tuple(entry for part in parts for entry in part.logprobs)

    @pytest.mark.parametrize("chunk", [2, 3, 37])
    def test_the_size_of_pieces_does_not_change_a_bit(self, bundle: Bundle, chunk: int) -> None:
        whole, cut = (LLM.load(bundle.path, options=EngineOptions(threads=1, prefill_chunk=n)) for n in (128, chunk))
        for context, continuation in ((2, 3), (40, 41), (50, 100), (75, 117)):
            ids = random_ids(context + continuation)
            assert cut.score(ids[:context], ids[context:]) == whole.score(ids[:context], ids[context:])


def finish(engine: Engine, group: ScoredGroup) -> None:
    engine.add(group)
    for _ in range(500):
        if group.finished:
            return
        engine.step()
    raise AssertionError("the engine does not come to an end")


class Recorded:
    """The log-probabilities of one row, by NumPy in float64."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def record(self, logits: Logits, token_id: int) -> None:
        shifted = logits.astype(np.float64) - logits.max()
        self.values.append(float(shifted[token_id] - np.log(np.exp(shifted).sum())))


class TestEngine:
    @settings(deadline=None, max_examples=25)
    @given(
        context=st.integers(1, 12),
        lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4),
        chunk=st.integers(2, 9),
        unscored=st.integers(0, 3),
    )
    def test_a_cache_that_is_made_anew_at_every_step_serves_as_well(
        self, context: int, lengths: list[int], chunk: int, unscored: int
    ) -> None:
        weights = toy_weights()
        engine = Engine(ConcatRunner(_TOY, toy_variant(), VOCABULARY, POSITIONS), prefill_chunk=chunk)
        rng = np.random.default_rng(context)
        before: list[int] = rng.integers(0, VOCABULARY, context).tolist()
        texts: list[list[int]] = [[*before, *rng.integers(0, VOCABULARY, n).tolist()] for n in lengths]
        found = [Recorded() for _ in texts]
        rows = [
            ScoredSequence.of(ids, context, context + min(unscored, len(ids) - context - 1), one.record)
            for ids, one in zip(texts, found, strict=True)
        ]
        finish(engine, ScoredGroup(rows))
        for row, ids, one in zip(rows, texts, found, strict=True):
            expected, greedy = _reference(toy_logits(weights, ids[:-1]), ids, row.scored_from)
            assert one.values == pytest.approx(expected, abs=1e-4)
            assert (row.is_greedy, row.error) == (greedy, None)

    def test_a_row_whose_time_is_up_ends(self) -> None:
        engine, found = Engine(fake_runner(FakeGraphs(digest_of)), prefill_chunk=8), Recorded()
        row = ScoredSequence.of(random_ids(40), 5, 5, found.record)
        row.params = replace(row.params, deadline=Deadline.after(0))
        finish(engine, ScoredGroup([row]))
        assert (row.finish, found.values) == (OUT_OF_TIME, [])


_TOY = ToyGraphs(toy_weights())


def _reference(logits: Logits, ids: Ids[int], scored_from: int) -> tuple[list[float], bool]:
    recorded, greedy = Recorded(), True
    for place in range(scored_from, len(ids)):
        recorded.record(logits[place - 1], ids[place])
        greedy &= int(logits[place - 1].argmax()) == ids[place]
    return recorded.values, greedy


class TestEnds:
    """However it ends, the model is as good as new."""

    @pytest.fixture(autouse=True)
    def as_good_as_new(self, llm: LLM, graphs: FakeGraphs) -> Any:
        yield
        graphs.before_run = graphs.after_run = lambda: None
        answer = foreseen(CONTEXT, 30)
        assert llm.score(CONTEXT, answer).logprob == pytest.approx(30 * LIKELY, abs=1e-4)
        assert llm.generate(CONTEXT, max_new_tokens=30).token_ids == tuple(answer)

    def test_cancelled_before_it_began(self, llm: LLM, graphs: FakeGraphs) -> None:
        token = CancelToken()
        token.cancel()
        score = llm.score(CONTEXT, [1, 2, 3], cancel=token)
        assert score == Score((), (), is_greedy=False, complete=False)
        assert graphs.runs == []

    @pytest.mark.parametrize("at", [1, 3, 4, 6, 9])
    def test_cancelled_amid(self, llm: LLM, graphs: FakeGraphs, at: int) -> None:
        token, left = CancelToken(), [at]

        def cancel() -> None:
            left[0] -= 1
            if not left[0]:
                threading.Thread(target=token.cancel).run()

        graphs.before_run = cancel
        answer = foreseen(CONTEXT, 30)
        scores = llm.score(CONTEXT, [answer, answer[:20]], cancel=token)
        assert not all(score.complete for score in scores)
        for score in scores:
            assert score.token_ids == tuple(answer[: len(score.token_ids)])
            assert score.is_greedy == score.complete

    @pytest.mark.parametrize("at", [1, 3, 4, 6, 9])
    def test_by_an_interrupt(self, llm: LLM, graphs: FakeGraphs, at: int) -> None:
        graphs.before_run = InterruptAt(at)
        with pytest.raises(KeyboardInterrupt):
            llm.score(CONTEXT, [random_ids(30), random_ids(20)])

    @pytest.mark.parametrize("at", [1, 3, 4, 6, 9])
    def test_by_a_graph_that_fails(self, llm: LLM, graphs: FakeGraphs, at: int) -> None:
        graphs.before_run = FailAt(at, RuntimeError("the graph failed"))
        with pytest.raises(RuntimeError, match="the graph failed"):
            llm.score(CONTEXT, [random_ids(30), random_ids(20), [1]])

    @pytest.mark.parametrize("wrong", [math.nan, math.inf])
    def test_logits_that_are_no_numbers_are_told_with_their_place(self, wrong: float) -> None:
        row = ScoredSequence.of([1, 2, 3, 4], 1, 2, lambda logits, token: None)
        bad = np.array([0.0, 1.0, wrong, 0.0, 0.0], np.float32)
        row.extend(bad)  # of the context: not asked for
        row.extend(np.zeros(5, np.float32))
        row.extend(bad)
        assert isinstance(row.error, LogitsError)
        assert str(row.error).startswith("at token 2 of the scored text, the model's logits are NaN or infinite")
