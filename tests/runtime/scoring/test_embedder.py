"""Embeddings: pooled hidden states of prompts, beside other requests, and what is refused."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.errors import LogitsError, MemoryBudgetError, OptionError, PromptTooLongError, UsageError
from edgegen.generation.cancellation import CancelToken
from edgegen.llm import LLM
from edgegen.scoring.embeddings import Embeddings
from tests.runtime.models import (
    EOS,
    HIDDEN_SIZE,
    FailAt,
    FakeGraphs,
    Gate,
    InterruptAt,
    RandomGraphs,
    digest_of,
    fake_llm,
    random_ids,
)
from tests.waiting import PATIENCE_S

PROMPTS = ["Zoë asked: “Why?”", "Once upon a time", "D"]


@pytest.fixture
def graphs() -> FakeGraphs:
    return FakeGraphs(digest_of)


@pytest.fixture
def llm(graphs: FakeGraphs, tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", graphs, max_context=64, hidden=True)


def states(ids: list[int]) -> NDArray[np.float64]:
    """The fake model's hidden states [t, size], each of all the text before it."""
    fake = FakeGraphs(digest_of)
    return np.array([fake.hidden(ids[: end + 1]) for end in range(len(ids))], np.float64)


def unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    return vector / np.sqrt((vector**2).sum())


class TestVectors:
    @settings(deadline=None, max_examples=40)
    @given(lengths=st.lists(st.integers(1, 64), min_size=1, max_size=5), chunk=st.integers(2, 20), data=st.data())
    def test_are_pooled_from_the_hidden_states_of_every_token(
        self, tmp_path_factory: pytest.TempPathFactory, lengths: list[int], chunk: int, data: st.DataObject
    ) -> None:
        folder = tmp_path_factory.mktemp("fake") / "fake"
        graphs = FakeGraphs(digest_of)
        llm = fake_llm(folder, graphs, max_context=64, prefill_chunk=chunk, hidden=True)
        texts = [random_ids(length, seed) for seed, length in enumerate(lengths)]
        found = llm.embed(texts, normalize=False)
        np.testing.assert_allclose(found.vectors, [states(ids).mean(axis=0) for ids in texts], rtol=1e-5, atol=1e-6)
        last = llm.embed(texts, pooling="last", normalize=False)
        np.testing.assert_allclose(last.vectors, [states(ids)[-1] for ids in texts], rtol=1e-6)
        weighted = llm.embed(texts, pooling="weightedmean", normalize=False)
        meant = [np.average(states(ids), axis=0, weights=np.arange(1, len(ids) + 1)) for ids in texts]
        np.testing.assert_allclose(weighted.vectors, meant, rtol=1e-5, atol=1e-6)
        assert (found.prompt_tokens, found.complete) == (sum(lengths), True)
        assert max(tokens for _, tokens in graphs.runs) <= max(chunk, 3)
        assert {phase for phase, _ in graphs.runs} == {"prefill"}

    def test_have_length_1_unless_told(self, llm: LLM) -> None:
        (vector,) = llm.embed("Once").vectors
        np.testing.assert_allclose(vector, unit(states(list(b"Once")).mean(axis=0)), rtol=1e-5)

    def test_keep_the_first_dimensions(self, llm: LLM) -> None:
        """And have length 1 with these alone, as OpenAI's do."""
        (vector,) = llm.embed("Once", dimensions=2).vectors
        np.testing.assert_allclose(vector, unit(states(list(b"Once")).mean(axis=0)[:2]), rtol=1e-5)
        assert llm.embed("Once", dimensions=HIDDEN_SIZE).vectors.shape == (1, HIDDEN_SIZE)

    def test_are_float32_one_row_for_each_prompt(self, llm: LLM) -> None:
        found = llm.embed(PROMPTS)
        assert (found.vectors.dtype, found.vectors.shape) == (np.float32, (3, HIDDEN_SIZE))
        assert repr(found) == f"Embeddings(3 of {HIDDEN_SIZE} dimensions, {found.prompt_tokens} tokens)"
        single = [llm.embed(prompt).vectors[0] for prompt in PROMPTS]
        np.testing.assert_array_equal(found.vectors, single)
        assert llm.embed([]).vectors.shape == (0, HIDDEN_SIZE)

    def test_of_a_text_are_those_of_its_ids(self, llm: LLM) -> None:
        ids = [list(text.encode()) for text in PROMPTS[1:]]
        np.testing.assert_array_equal(llm.embed(PROMPTS[1:]).vectors, llm.embed(ids).vectors)

    def test_of_an_empty_prompt_are_those_of_the_beginning(self, llm: LLM) -> None:
        np.testing.assert_allclose(llm.embed("", normalize=False).vectors, states([EOS]), rtol=1e-6)

    def test_of_zeros_are_zeros(self, tmp_path: Path) -> None:
        class Zeros(FakeGraphs):
            def hidden(self, ids: list[int]) -> NDArray[np.float32]:
                return np.zeros(HIDDEN_SIZE, np.float32)

        llm = fake_llm(tmp_path / "zeros", Zeros(digest_of), hidden=True)
        assert not llm.embed("Once").vectors.any()


class TestBesideOthers:
    def test_nothing_is_taken_from_the_prefix_cache_nor_left_there(self, tmp_path: Path) -> None:
        """For a cached prefix has no hidden states; and those who chat need theirs."""
        graphs = FakeGraphs(digest_of)
        llm = fake_llm(tmp_path / "fake", graphs, hidden=True, prefix_cache=1 << 20)
        ids = random_ids(40)
        fresh = llm.embed(ids).vectors
        assert llm.generate(ids, max_new_tokens=3).timings.cached_tokens == 0
        graphs.runs.clear()
        np.testing.assert_array_equal(llm.embed(ids).vectors, fresh)
        assert sum(tokens for _, tokens in graphs.runs) == 40
        assert llm.generate([*ids, 1, 2, 3], max_new_tokens=3).timings.cached_tokens >= 40

    def test_a_stream_that_runs_gets_its_own_tokens(self, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "fake", RandomGraphs(), hidden=True)
        alone = llm.generate("The dragon", max_new_tokens=60, eos_token_id=[]).token_ids
        with llm.stream("The dragon", max_new_tokens=60, eos_token_id=[]) as stream:
            next(iter(stream))
            found = llm.embed(PROMPTS)
            rest = list(stream)
        assert rest
        assert stream.result.token_ids == alone
        np.testing.assert_array_equal(found.vectors, llm.embed(PROMPTS).vectors)

    def test_a_request_waits_for_few_of_many_prompts(self, tmp_path: Path) -> None:
        graphs = FakeGraphs(digest_of)
        llm = fake_llm(tmp_path / "fake", graphs, hidden=True)
        prompts = [random_ids(8, seed) for seed in range(100)]
        gate = Gate(graphs, 3)
        found = list[Embeddings]()
        embedding = threading.Thread(target=lambda: found.append(llm.embed(prompts)))
        embedding.start()
        assert gate.reached.wait(PATIENCE_S)
        with llm.stream("The dragon", max_new_tokens=4, eos_token_id=[]) as stream:
            gate.opened.set()
            assert len(list(stream)) == 4
        embedding.join(PATIENCE_S)
        assert graphs.runs.index(("decode", 1)) < 30
        np.testing.assert_array_equal(found[0].vectors[-1:], llm.embed(prompts[-1]).vectors)


class TestCancelled:
    def test_what_was_ready_is_the_result(self, llm: LLM, graphs: FakeGraphs) -> None:
        token = CancelToken()
        prompts = [random_ids(8), random_ids(8, 1), random_ids(8, 2)]
        first = llm.embed(prompts[:1])
        graphs.runs.clear()
        graphs.after_run = lambda: token.cancel() if len(graphs.runs) == 2 else None
        found = llm.embed(prompts, cancel=token)
        assert (found.prompt_tokens, found.complete) == (8, False)
        np.testing.assert_array_equal(found.vectors, first.vectors)
        assert len(graphs.runs) == 2
        assert llm.embed(prompts).complete

    def test_beforehand_nothing_is_run(self, llm: LLM, graphs: FakeGraphs) -> None:
        token = CancelToken()
        token.cancel()
        found = llm.embed(PROMPTS, cancel=token)
        assert (found.vectors.shape, found.prompt_tokens, found.complete) == ((0, HIDDEN_SIZE), 0, False)
        assert graphs.runs == []

    def test_ctrl_c_ends_it(self, llm: LLM, graphs: FakeGraphs) -> None:
        graphs.before_run = InterruptAt(2, graphs)
        with pytest.raises(KeyboardInterrupt):
            llm.embed(random_ids(40))
        graphs.before_run = lambda: None
        assert llm.embed("Once").complete

    def test_a_closed_model_is_refused(self, llm: LLM) -> None:
        llm.close()
        with pytest.raises(UsageError, match="closed"):
            llm.embed("Once")


class TestRefused:
    def test_a_bundle_without_hidden_states_says_how_to_export_some(self, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "fake", FakeGraphs(digest_of))
        assert llm.embedding_size is None
        with pytest.raises(UsageError, match="edgegen export MODEL --with-hidden"):
            llm.embed("Once")

    def test_the_size_is_told_before(self, llm: LLM) -> None:
        assert llm.embedding_size == HIDDEN_SIZE

    def test_all_that_is_wrong_with_the_options_is_told(self, llm: LLM, graphs: FakeGraphs) -> None:
        wrong: dict[str, Any] = {"pooling": "mena", "normalize": 1, "dimensions": HIDDEN_SIZE + 1}
        with pytest.raises(OptionError) as caught:
            llm.embed("Once", **wrong)
        said = str(caught.value)
        assert "pooling: 'mean', 'last' or 'weightedmean' expected, found 'mena' (did you mean 'mean'?)" in said
        assert "normalize: True or False expected, found 1" in said
        assert f"dimensions: must be between 1 and {HIDDEN_SIZE}, found {HIDDEN_SIZE + 1}" in said
        assert graphs.runs == []

    @pytest.mark.parametrize("dimensions", [0, -1, 10 * HIDDEN_SIZE, True, 2.0, float("nan")])
    def test_dimensions_are_between_1_and_the_size(self, llm: LLM, dimensions: Any) -> None:
        with pytest.raises(OptionError, match=r"^dimensions: "):
            llm.embed("Once", dimensions=dimensions)

    def test_a_prompt_may_be_as_long_as_the_context(self, llm: LLM, graphs: FakeGraphs) -> None:
        assert llm.embed(random_ids(64)).complete
        graphs.runs.clear()
        with pytest.raises(PromptTooLongError, match="the prompt has 65 tokens, but this model's context is 64"):
            llm.embed(random_ids(65))
        with pytest.raises(PromptTooLongError, match=r"2 problems:\n  - prompt 1 has 65 .*\n  - prompt 3 has 66 "):
            llm.embed([random_ids(65), [1], random_ids(66)])
        assert graphs.runs == []

    def test_all_prompts_that_cannot_be_encoded_are_told(self, llm: LLM) -> None:
        with pytest.raises(UsageError, match=r"2 problems:\n  - .* prompt 2 .*\n  - prompt 3 has 65 ") as caught:
            llm.embed([[1], [999], random_ids(65)])
        assert type(caught.value) is UsageError

    def test_what_can_never_fit_the_memory(self, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "fake", FakeGraphs(digest_of), hidden=True)
        engine: Any = llm._client.thread._engine  # pyright: ignore[reportPrivateUsage]
        engine._executor._kv_budget = 64
        with pytest.raises(MemoryBudgetError, match="30 positions"):
            llm.embed(random_ids(30))

    def test_hidden_states_that_are_no_numbers(self, tmp_path: Path) -> None:
        class Broken(FakeGraphs):
            def hidden(self, ids: list[int]) -> NDArray[np.float32]:
                return np.full(HIDDEN_SIZE, np.nan if ids[0] == 2 else 1, np.float32)

        llm = fake_llm(tmp_path / "broken", Broken(digest_of), hidden=True)
        with pytest.raises(LogitsError, match="hidden states for prompt 2 are NaN or infinite"):
            llm.embed([[1], [2], [3]])

    def test_a_run_that_fails_fails_only_the_call(self, llm: LLM, graphs: FakeGraphs) -> None:
        graphs.before_run = FailAt(2, RuntimeError("out of luck"))
        with pytest.raises(RuntimeError, match="out of luck"):
            llm.embed(random_ids(40))
        found = llm.embed(random_ids(40))
        assert isinstance(found, Embeddings)
        np.testing.assert_allclose(found.vectors[0], unit(states(random_ids(40)).mean(axis=0)), rtol=1e-5)
