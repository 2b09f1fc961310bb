"""Scores and perplexities of real trained models against transformers' logits, in float32."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from tests.export.bundles import export_to
from tests.oracle import Oracle

pytestmark = pytest.mark.parity

CHECKPOINTS = ("gpt2-stories-0.9m", "qwen2-stories-0.9m", "stories260K")
CONTEXT = "once upon a time, there was a"
CONTINUATIONS = [" little girl named lily.", " dog", " big, red ball and a very small cat who", "n old man", "\n"]

Logprobs = NDArray[np.float64]


@pytest.fixture(scope="module", params=CHECKPOINTS)
def checkpoint(request: pytest.FixtureRequest, test_data: Path) -> Path:
    return test_data / "models" / request.param


@pytest.fixture(scope="module")
def llm(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> LLM:
    bundle = export_to(checkpoint, tmp_path_factory.mktemp("scored") / "fp32")
    return LLM.load(bundle.path, options=EngineOptions(threads=1, prefill_chunk=48))


@pytest.fixture(scope="module")
def oracle(checkpoint: Path) -> Oracle:
    return Oracle(checkpoint)


@pytest.fixture(scope="module")
def text(test_data: Path) -> str:
    return (test_data / "corpora" / "tinystories_4MB.txt").read_text("utf-8")[-9000:]


def log_probabilities(oracle: Oracle, ids: list[int]) -> Logprobs:
    """[t - 1, vocab], for each place but the first."""
    logits = oracle.logits(np.array([ids]))[0, :-1].astype(np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def test_continuations_are_as_likely(llm: LLM, oracle: Oracle) -> None:
    scores = llm.score(CONTEXT, CONTINUATIONS, top_logprobs=3)
    for continuation, score in zip(CONTINUATIONS, scores, strict=True):
        whole = llm.encode(CONTEXT + continuation)
        count = len(score.token_ids)
        assert list(score.token_ids) == whole[-count:]
        rows = log_probabilities(oracle, whole)[-count:]
        expected = rows[np.arange(count), whole[-count:]]
        assert [entry.logprob for entry in score.logprobs] == pytest.approx(expected, abs=1e-3)
        assert score.logprob == pytest.approx(expected.sum(), abs=2e-3)
        assert score.is_greedy == (rows.argmax(axis=-1) == whole[-count:]).all()
        for entry, row in zip(score.logprobs, rows, strict=True):
            assert [other.logprob for other in entry.top_logprobs] == pytest.approx(np.sort(row)[:-4:-1], abs=1e-3)


def test_the_greedy_continuation_is_known_as_such(llm: LLM, oracle: Oracle) -> None:
    ids = llm.encode(CONTEXT)
    (answer,) = oracle.greedy([ids], 40)
    score = llm.score(ids, answer)
    rows = log_probabilities(oracle, ids + answer)[-40:]
    assert score.is_greedy
    assert score.logprob == pytest.approx(rows.max(axis=-1).sum(), abs=5e-3)


@pytest.mark.parametrize(("window", "stride"), [(256, 128), (100, 99), (64, 7), (None, None)])
def test_perplexity_is_that_of_transformers_recipe(
    llm: LLM, oracle: Oracle, text: str, window: int | None, stride: int | None
) -> None:
    """https://huggingface.co/docs/transformers/perplexity, but for the weights of its means: there, all windows but
    the first count one token less than was scored."""
    ids = llm.encode(text[:3000] if stride == 7 else text)
    found = llm.perplexity(text[:3000] if stride == 7 else text, window=window, stride=stride)
    window, stride = window or llm.max_context, stride or llm.max_context // 2
    nlls, seen = list[float](), 1
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        scored = end - max(seen, begin + 1)
        rows = log_probabilities(oracle, ids[begin:end])[-scored:]
        nlls += [-row[token] for row, token in zip(rows, ids[end - scored : end], strict=True)]
        seen = end
        if end == len(ids):
            break
    assert found.tokens == len(nlls) == len(ids) - 1
    assert found.nll_per_token == pytest.approx(np.mean(nlls), abs=1e-5)
    assert found.perplexity == pytest.approx(np.exp(np.mean(nlls)), rel=1e-5)


def test_every_token_of_the_text_itself_counts_where_the_tokenizer_begins_it_with_one(llm: LLM, text: str) -> None:
    assert llm.tokenizer is not None
    own = llm.tokenizer.encode(text, add_special_tokens=False)
    begun = len(llm.encode(text)) - len(own)
    assert llm.perplexity(text).tokens == len(own) - 1 + begun
