"""Bundles whose layers keep different things (int8 KV cache) answer as if they were alone and never interrupted,
whatever happens to them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen import LLM, EngineOptions, Session
from edgegen.benchmark.memory_forecast import kv_bytes
from edgegen.benchmark.memory_plan import plan_memory
from edgegen.bundle.bundle import Bundle
from edgegen.constraint import Regex
from edgegen.evaluation.parity.measure import log_probabilities
from edgegen.graph.kernel_operators import inexact_operators, with_kernels
from edgegen.graph.pending_tokens import MOST_PENDING
from edgegen.model.kernels import kernel_library
from edgegen.sampling import Candidates
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.draft_model import DraftModel
from tests.export.bundles import prefilled, runner_of
from tests.families.harness import tokens
from tests.families.hybrids import CASE, JUDGED, KEPT, OF_EACH_KIND, BundleOf
from tests.runtime.engine.beam_reference import transformers_beam_search
from tests.runtime.models import EOS, VOCAB_SIZE
from tests.runtime.recomputed import recomputed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning"),
]

GREEDY: dict[str, Any] = {"do_sample": False, "eos_token_id": (), "repetition_penalty": 1.0}


@pytest.fixture(scope="module", params=JUDGED)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def bundle(family: str, hybrid: BundleOf) -> Bundle:
    return hybrid(family)


def load(bundle: Bundle, **options: Any) -> LLM:
    return LLM.load(bundle.path, options=EngineOptions(kv="int8", threads=1, prefill_chunk=8, **options))


@pytest.fixture(scope="module")
def llm(bundle: Bundle) -> LLM:
    return load(bundle)


@pytest.fixture(scope="module")
def alone(bundle: Bundle) -> LLM:
    return load(bundle, prefix_cache=0)


def ids_of(llm: LLM, prompt: list[int], count: int, **options: Any) -> tuple[int, ...]:
    return llm.generate(prompt, max_new_tokens=count, **(GREEDY | options)).token_ids


def test_the_manifest_says_what_layers_keep(family: str, bundle: Bundle) -> None:
    kinds = [(state.layer, state.kind) for state in bundle.variant.kv.states]
    assert (tuple(kinds), bundle.variant.kv.bytes_per_row) == (KEPT[family].states, KEPT[family].bytes_per_row)


def test_bits_of_states_depend_on_nothing(family: str, bundle: Bundle) -> None:
    """With edgegen's kernels, only matrices too small for them are computed by others whose order is not known.

    A head of LinearAttention is computed by one thread, token by token. Experts, and a rotation of 8 numbers, are ONNX
    Runtime's in every family; a choice of experts only negates and moves numbers, and adds up two of them, or adds up
    and compares integers.
    """
    graph = with_kernels(bundle.file(bundle.variant.prefill).read_bytes())
    assert inexact_operators(graph) <= {b"MatMulNBits", b"FusedMatMul", *KEPT[family].operators}


def test_states_after_a_rejection_are_those_of_a_run_without_proposals(family: str, bundle: Bundle) -> None:
    """Of four proposed tokens each number is accepted in turn; what comes next has the same bits, too."""
    runner = runner_of(bundle, kv="int8")
    rolled_back = KEPT[family].rolled_back and kernel_library() is not None
    assert runner.rollback_limit == (MOST_PENDING * rolled_back if bundle.variant.kv.fixed else None)
    if not rolled_back:
        pytest.skip("tokens that were accepted are run again")
    ids, plain, own = tokens(CASE, 60, seed=5), runner.new_cache(), runner.new_cache()
    for cache in (plain, own):
        cache.reserve(1, 60)
        runner.prefill(cache, 0, ids[:7])
    at = 7
    for accepted in (0, 3, 4, 1, 2, 0, 4):
        expected = [runner.decode(plain, np.array([[one]]))[0, 0].copy() for one in ids[at : at + 1 + accepted]]
        proposed = [*ids[at : at + 1 + accepted], *[9] * (4 - accepted)]
        found = runner.decode(own, np.array([proposed]))[0, : 1 + accepted]
        assert [row.tobytes() for row in found] == [row.tobytes() for row in expected]
        at += 1 + accepted
        own.truncate(0, at)
    for cache in (plain, own):
        runner.decode(cache, np.array([[ids[at]]]))
    one, other = plain.save(0).states, own.save(0).states
    assert [*one] == [*other] == [at + 1]
    assert [state.tobytes() for state in one[at + 1]] == [state.tobytes() for state in other[at + 1]]


@pytest.mark.parametrize("family", OF_EACH_KIND, indirect=True, scope="module")
@settings(deadline=None, max_examples=25)
@given(turns=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50), st.integers(2, 20), st.integers(1, 12))))
def test_any_prefix_that_is_reused_gives_the_same_bits(
    llm: LLM, alone: LLM, turns: list[tuple[int, int, int, int]]
) -> None:
    texts = [tokens(CASE, 40, seed=7)]
    for n, (which, shared, own, new) in enumerate(turns):
        prompt = [*texts[which % len(texts)][:shared], *tokens(CASE, own, seed=n)][:60]
        found = ids_of(llm, prompt, new, prompt_lookup_num_tokens=(None, 4)[n % 2])
        assert found == ids_of(alone, prompt, new)
        texts.append([*prompt, *found])


def test_a_plan_has_room_for_what_is_reserved(bundle: Bundle, alone: LLM) -> None:
    """Fixed states and their checkpoints, windows: a request of the whole context, twice at once, is within a plan."""
    options, context = EngineOptions(kv="int8", threads=1, prefill_chunk=64), bundle.manifest.model.max_context
    cache, of_one = runner_of(bundle, kv="int8").new_cache(), kv_bytes(bundle, options)
    assert [of_one(length) for length in (1, 64, context)] == [cache.bytes_for(1, n) for n in (1, 64, context)]
    plan = plan_memory(bundle, 10**9, options, batch=2)
    assert (plan.context, plan.sequences) == (context, 2)
    prompt = tokens(CASE, context - 8, seed=4)
    with LLM.load(bundle.path, options=plan.options) as llm:
        assert len(answers(llm, prompt, {"max_new_tokens": 8, "num_return_sequences": 2, "do_sample": True})) == 2
        assert ids_of(llm, prompt, 8) == ids_of(alone, prompt, 8)


WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"do_sample": True, "seed": 3},
    {"do_sample": True, "seed": 5, "num_return_sequences": 3},
    {"num_beams": 3, "num_return_sequences": 2},
    {"stop_token_ids": tuple(range(0, 256, 20))},
    {"stop_strings": ("a", "Q")},
    {"grammar": Regex("[a-f]{3,30}x|[a-c]{2}"), "eos_token_id": EOS},
    {"prompt_lookup_num_tokens": 4},
    {"repetition_penalty": 1.3},
    {"guidance_scale": 1.5, "negative_prompt": [1, 2, 3, 4]},
)
WHERE_NOTHING_CHANGES = ("prompt_lookup_num_tokens",)


def answers(llm: LLM, prompt: list[int], way: dict[str, Any]) -> list[tuple[int, ...]]:
    options: dict[str, Any] = {**GREEDY, "max_new_tokens": 20, **way}
    return [choice.token_ids for choice in llm.generate(prompt, **options).choices]


@pytest.mark.parametrize("family", OF_EACH_KIND, indirect=True, scope="module")
@settings(deadline=None, max_examples=8)
@given(
    asked=st.lists(
        st.tuples(
            st.integers(0, 9),
            st.sampled_from([0, 9, 65, 200]),
            st.integers(1, 40),
            st.sampled_from(WAYS),
            st.booleans(),
        ),
        min_size=2,
        max_size=6,
    ),
    chunk=st.sampled_from([2, 7, 64]),
    prefixes=st.sampled_from([None, 1 << 15, 1 << 28]),
    rows=st.sampled_from([1, 4]),
    narrow=st.booleans(),
)
def test_whatever_is_asked_in_between_an_answer_is_that_alone(
    bundle: Bundle,
    alone: LLM,
    asked: list[tuple[int, int, int, dict[str, Any], bool]],
    chunk: int,
    prefixes: int | None,
    rows: int,
    narrow: bool,
) -> None:
    """Prompts that begin like earlier texts, all options, answers that no client reads, and little memory."""
    texts, budget = [tokens(CASE, 90, seed=7)], None
    if narrow:
        budget = 3 * kv_bytes(bundle, EngineOptions(kv="int8"))(300)
    options = EngineOptions(
        kv="int8", threads=1, prefill_chunk=chunk, prefix_cache=prefixes, kv_budget=budget, max_batch_size=rows
    )
    with LLM.load(bundle.path, options=options) as llm:
        for n, (which, shared, own, way, leaves) in enumerate(asked):
            prompt = [*texts[which % len(texts)][:shared], *tokens(CASE, own, seed=n)]
            expected = answers(alone, prompt, {k: v for k, v in way.items() if k not in WHERE_NOTHING_CHANGES})
            if leaves:
                with llm.stream([*prompt, 1], max_new_tokens=40, **GREEDY) as stream:
                    next(stream)
            assert answers(llm, prompt, way) == expected
            texts.append([*prompt, *expected[0]])


def test_together_as_alone(llm: LLM, alone: LLM) -> None:
    prompts = [tokens(CASE, length, seed=length) for length in (3, 17, 30, 9)]
    streams = [llm.stream(prompt, max_new_tokens=20, **GREEDY) for prompt in prompts]
    found = [tuple(token for chunk in stream for token in chunk.token_ids) for stream in streams]
    assert found == [ids_of(alone, prompt, 20) for prompt in prompts]


def test_beams_copy_states(bundle: Bundle, llm: LLM) -> None:
    prompt, runner = tokens(CASE, 20, seed=3), runner_of(bundle, kv="int8")

    def log_probs(ids: tuple[int, ...]) -> NDArray[np.float32]:
        logits = recomputed(runner, [*prompt, *ids], len(prompt), 8)
        return log_probabilities(logits).astype(np.float32)

    assert ids_of(llm, prompt, 16, num_beams=3) == transformers_beam_search(log_probs, 3, 16)[0][0]


def test_answers_copy_states(bundle: Bundle, llm: LLM) -> None:
    prompt, runner = tokens(CASE, 20, seed=3), runner_of(bundle, kv="int8")
    options: dict[str, Any] = {"num_return_sequences": 2, "do_sample": True, "top_k": 0, "seed": 1}
    for n, found in enumerate(answers(llm, prompt, options)):
        ids, sampler = list(prompt), Sampler(seed=1 + (n << 64), do_sample=True)
        while len(ids) < len(prompt) + len(found):
            ids.append(sampler.sample(Candidates(recomputed(runner, ids, len(prompt), 8)), len(ids)))
        assert found == tuple(ids[len(prompt) :])


def test_a_session_goes_on_from_its_file(bundle: Bundle, alone: LLM, tmp_path: Path) -> None:
    prompt, session, found = tokens(CASE, 20, seed=5), Session(), list[int]()
    for n in range(3):
        result = load(bundle).generate("" if n else prompt, max_new_tokens=9, session=session, **GREEDY)
        assert result.timings.cached_tokens == (20 + 9 * n - 1 if n else 0)
        found += result.token_ids
        session.save(tmp_path / "session")
        session = Session.load(tmp_path / "session")
    assert tuple(found) == ids_of(alone, prompt, 27)


def test_a_stream_that_is_left_does_not_show(llm: LLM, alone: LLM) -> None:
    prompt = tokens(CASE, 30, seed=11)
    for left in range(1, 5):
        with llm.stream(prompt, max_new_tokens=40, **GREEDY) as stream:
            for _ in range(left):
                next(stream)
        assert ids_of(llm, prompt, 20) == ids_of(alone, prompt, 20)


def test_a_hybrid_drafts_from_its_checkpoints(bundle: Bundle) -> None:
    runner, fresh = (runner_of(bundle, kv="int8") for _ in range(2))
    draft, text, random = DraftModel(runner, 0.5, 64), tokens(CASE, 12, seed=1), np.random.default_rng(0)
    for _ in range(12):
        proposed = list(text)
        for _ in range(int(random.integers(1, 5))):
            logits = draft.read(proposed, "reader")
            assert logits is not None
            np.testing.assert_array_equal(logits, prefilled(fresh, fresh.new_cache(), proposed, 64)[-1])
            proposed.append(int(random.integers(VOCAB_SIZE)))
        text = [*proposed[: len(text) + int(random.integers(3))], int(random.integers(VOCAB_SIZE))]
    assert draft.unread([*text, 5], "reader") < len(text)
