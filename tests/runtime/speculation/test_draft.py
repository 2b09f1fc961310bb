"""A draft model: what it proposes, what it costs, and that the text is the model's own all the same."""

from collections.abc import Sequence as Ids
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.engine.engine import Engine
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams
from edgegen.errors import LogitsError, UsageError
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.adaptive_length import AdaptiveLength
from edgegen.speculation.draft_model import DraftModel
from edgegen.speculation.draft_proposer import DraftProposer
from edgegen.speculation.token_choice import TokenChoice
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.runtime.models import VOCAB_SIZE, RandomGraphs, fake_runner, random_ids, write_fake_bundle

PROMPT = random_ids(21)
CHEAP = 0.01


def drafted(graphs: RandomGraphs, *, chunk: int = 8, max_context: int = 512, cost: float = CHEAP) -> DraftModel:
    return DraftModel(fake_runner(graphs, max_context), cost, chunk)


def proposer(model: DraftModel, *, longest: int = 8, pipeline: LogitsPipeline | None = None) -> DraftProposer:
    choice = TokenChoice(pipeline or LogitsPipeline(), Sampler(seed=5, do_sample=True), len(PROMPT))
    return DraftProposer(model, choice, AdaptiveLength(longest, model.cost), VOCAB_SIZE)


def row(new: int, *proposers: DraftProposer) -> Sequence:
    sampler = Sampler(seed=5, do_sample=True)
    params = SequenceParams(len(PROMPT), new, LogitsPipeline(), sampler, lambda ids: None)
    return Sequence(list(PROMPT), params, proposers=proposers)


def run(graphs: RandomGraphs, one: Sequence) -> Sequence:
    engine = Engine(fake_runner(graphs), prefill_chunk=8)
    engine.add(SequenceGroup([one]))
    while one.finish is None:
        engine.step()
    assert one.error is None
    return one


def answer_of(graphs: RandomGraphs, count: int, ids: Ids[int] = PROMPT) -> list[int]:
    sampler, text = Sampler(seed=5, do_sample=True), list(ids)
    for _ in range(count):
        text.append(sampler.sample(Candidates(graphs.logits(text)), len(text)))
    return text[len(ids) :]


class Misled(RandomGraphs):
    """Says something else at each text whose ids add up to a multiple of ``every``."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every

    def logits(self, ids: list[int]) -> Any:
        logits = super().logits(ids)
        return np.roll(logits, 1) if sum(ids) % self.every == 0 else logits


def test_a_draft_that_says_the_same_is_always_right() -> None:
    graphs, draft = RandomGraphs(), RandomGraphs()
    one = run(graphs, row(60, proposer(drafted(draft))))
    assert one.generated == answer_of(graphs, 60)
    assert one.speculation.proposed == one.speculation.accepted > 40
    # The prompt is read in chunks, one in a step, with what is said meanwhile; then, after a proposal, its last token
    # and the one that the model adds.
    assert [tokens for _, tokens in draft.runs[:3]] == [8, 8, 8]
    assert {tokens for _, tokens in draft.runs[3:]} == {1, 2}


@settings(deadline=None, max_examples=25)
@given(every=st.integers(1, 9), longest=st.integers(1, 20), chunk=st.integers(1, 30))
def test_whatever_a_draft_says_the_ids_are_the_same(every: int, longest: int, chunk: int) -> None:
    graphs = RandomGraphs()
    one = run(graphs, row(50, proposer(drafted(Misled(every), chunk=chunk), longest=longest)))
    assert one.generated == answer_of(graphs, 50)


def test_each_guess_is_what_the_draft_says_of_the_very_ids() -> None:
    """Whatever it has read before: grown, taken back, another's."""
    graphs = RandomGraphs()
    model = drafted(graphs, chunk=64)
    first, second = proposer(model), proposer(model)
    ids = random_ids(40)
    for who, text in [(first, ids[:30]), (first, ids[:33]), (second, ids), (first, [*ids[:25], 7]), (first, ids[:25])]:
        proposal = who.propose(text)
        assert proposal == answer_of(graphs, 2, text)


def test_another_reader_begins_anew() -> None:
    """The proposals to a request must not depend on what was read for another."""
    graphs = RandomGraphs()
    model = drafted(graphs, chunk=64)
    proposer(model).propose(PROMPT)
    runs = list(graphs.runs)
    graphs.runs.clear()
    proposer(model).propose(PROMPT)
    assert graphs.runs == runs


def test_where_its_context_ends_it_proposes_nothing() -> None:
    graphs = RandomGraphs()
    model = drafted(graphs, chunk=64, max_context=len(PROMPT) + 5)
    who = proposer(model, longest=2)
    assert [len(who.propose(PROMPT + random_ids(k))) for k in range(8)] == [2, 2, 2, 2, 2, 1, 0, 0]
    one = run(graphs, row(40, proposer(model)))
    assert one.generated == answer_of(graphs, 40)
    assert 0 < one.speculation.proposed < 10


def test_a_smaller_or_larger_head_is_fitted_and_an_unknown_id_is_not_read() -> None:
    for size in (VOCAB_SIZE - 4, VOCAB_SIZE + 4):
        graphs = RandomGraphs(vocab_size=size)
        proposal = proposer(drafted(graphs, chunk=64)).propose(PROMPT)
        assert len(proposal) == 2
        assert max(proposal) < min(size, VOCAB_SIZE)
        assert len(proposer(drafted(graphs, chunk=64)).propose([*PROMPT, VOCAB_SIZE - 1])) == (2 if size > 256 else 0)


def test_what_was_not_read_meanwhile_is_paid_for_and_the_prompt_is_not() -> None:
    graphs = RandomGraphs()
    model = drafted(graphs, chunk=64, cost=0.4)
    prompt_only, behind = proposer(model), proposer(model)
    assert len(prompt_only.propose(PROMPT)) > 0
    assert len(behind.propose([*PROMPT, *random_ids(12)])) > 0
    # Left of the debt: 1 step, and 11 tokens of 0.1 less. A proposed token costs 0.65.
    assert len(prompt_only.propose(PROMPT)) > 0
    assert len(behind.propose([*PROMPT, *random_ids(12)])) == 0


def test_a_processor_that_fails_on_a_guess_leaves_the_text_alone() -> None:
    graphs = RandomGraphs()

    def fail(candidates: Candidates, context: LogitsContext) -> Candidates:
        raise LogitsError("not of this text")

    one = run(graphs, row(9, proposer(drafted(RandomGraphs()), pipeline=LogitsPipeline([fail]))))
    assert one.generated == answer_of(graphs, 9)
    assert one.speculation.proposed == 0


EMBEDDED = Path(BundleStore().resolve(DEFAULT_MODEL))
TEXT = "Once upon a time, there was a little girl named Lily."


@pytest.mark.parametrize(
    "sampling", [{"do_sample": False}, {"seed": 3}, {"seed": 4, "repetition_penalty": 1.2}], ids=str
)
def test_a_model_that_is_its_own_draft_accepts_all_it_says(sampling: dict[str, Any]) -> None:
    alone = LLM.load(options=EngineOptions(kv="int8", threads=1))
    helped = LLM.load(options=EngineOptions(kv="int8", threads=1, draft=EMBEDDED))
    options: dict[str, Any] = {"max_new_tokens": 60, **sampling}
    plain, drafted = alone.generate(TEXT, **options), helped.generate(TEXT, **options)
    assert (plain.token_ids, plain.text) == (drafted.token_ids, drafted.text)
    assert plain.speculation.runs == 0
    # It costs what it saves, so it is soon left; float32 keys and values of its own are no reason to miss.
    assert 0 < drafted.speculation.accepted <= drafted.speculation.proposed < 20


def test_another_bundle_drafts(fp32_bundle: Bundle, int8_bundle: Bundle) -> None:
    options = EngineOptions(threads=1, kv="int8")
    plain = LLM.load(fp32_bundle.path, options=options)
    helped = LLM.load(fp32_bundle.path, options=replace(options, draft=int8_bundle.path))
    expected = plain.generate("Zoë", seed=1, max_new_tokens=40)
    result = helped.generate("Zoë", seed=1, max_new_tokens=40, num_assistant_tokens=3)
    assert result.token_ids == expected.token_ids
    assert result.speculation.proposed > 0
    # One that reads more than the model itself can save nothing, and is not even asked.
    larger = LLM.load(int8_bundle.path, options=replace(options, draft=fp32_bundle.path))
    assert larger.generate("Zoë", seed=1, max_new_tokens=40).speculation.proposed == 0


@pytest.mark.parametrize("choice", [{"num_beams": 2}, {"guidance_scale": 1.5}, {"mirostat": 2, "seed": 1}], ids=str)
def test_what_goes_hand_in_hand_or_is_stateful_is_not_guessed(int8_bundle: Bundle, choice: dict[str, Any]) -> None:
    llm = LLM.load(int8_bundle.path, options=EngineOptions(threads=1, draft=int8_bundle.path))
    result = llm.generate("Zoë", max_new_tokens=10, **choice)
    assert result.speculation.runs == result.speculation.proposed == 0


def test_other_vocabularies_are_refused(int8_bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be the draft model of .*: token 0 is not the same in both\. Take"):
        LLM.load(int8_bundle.path, options=EngineOptions(draft=EMBEDDED))
    without = write_fake_bundle(tmp_path / "without", tokenizer=False)
    with pytest.raises(UsageError, match="without has none: leave it out"):
        LLM.load(int8_bundle.path, options=EngineOptions(draft=str(without.path)))


def test_tokens_for_a_draft_need_one(llm: LLM) -> None:
    with pytest.raises(
        UsageError, match=r"num_assistant_tokens is for a draft model or a multi-token prediction head, and there"
    ):
        llm.generate("Zoë", num_assistant_tokens=4)


@pytest.mark.parametrize("name", ["gpt2-stories-0.9m", "qwen2-stories-0.9m"])
def test_real_models_say_the_same_with_guesses(test_data: Path, tmp_path: Path, name: str) -> None:
    """int8 keys and values; a draft of 4 bits, and what stood in the text before."""
    source = str(test_data / "models" / name)
    bundle, draft = (
        export(source, tmp_path / scheme, ExportOptions(scheme=scheme, fast=True))[0] for scheme in ("int8", "int4")
    )
    options = EngineOptions(threads=1, kv="int8")
    plain, helped = (LLM.load(bundle.path, options=replace(options, draft=d)) for d in (None, draft.path))
    text = "once upon a time there was a big dog. the big dog was sad. the big dog"
    for choice in ({"do_sample": False}, {"seed": 1}, {"seed": 2, "temperature": 0.7, "top_p": 0.9}):
        own: dict[str, Any] = {"max_new_tokens": 120, "eos_token_id": (), **choice}
        expected = plain.generate(text, **own)
        looked_up = plain.generate(text, prompt_lookup_num_tokens=8, **own)
        drafted = helped.generate(text, **own)
        both = helped.generate(text, prompt_lookup_num_tokens=8, **own)
        assert expected.token_ids == looked_up.token_ids == drafted.token_ids == both.token_ids
        assert drafted.speculation.proposed > 0
        if choice == {"do_sample": False}:
            assert looked_up.speculation.accepted > 20
