"""Beams, guidance and log-probabilities through the public API: ids and numbers are those of transformers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from edgegen.generation.results import GenerationResult
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from tests.families.cases import cases_also
from tests.families.harness import checkpoint_of, export_case, tokens
from tests.oracle import Oracle, import_torch
from tests.second_oracle import FIRST, judged

pytestmark = pytest.mark.parity

GROUPED = {case.family: case for case in cases_also("groups")}
FEW, MANY = (3,), (3, 11, 17, 40, 41, 77)
LIKELY: dict[str, Any] = {"sequence_bias": [[[3], 5.0]]}
"""The one end-of-sequence id comes about as often as words do in a text."""
ENDS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = ((FEW, {}), (FEW, LIKELY), (MANY, {}), ((), {}))


@dataclass(frozen=True, slots=True)
class Pair:
    """A bundle in float32 and the model it was made of."""

    llm: LLM
    oracle: Oracle
    prompts: tuple[list[int], ...]


@pytest.fixture(scope="module", params=judged(GROUPED, lambda _: FIRST))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("groups")
    case = GROUPED[request.param]
    checkpoint = checkpoint_of(case, folder / "checkpoint")
    bundle = export_case(case, checkpoint, folder / "bundle")
    oracle = Oracle(checkpoint)
    oracle.model.generation_config.eos_token_id = None  # so that None means none
    options = EngineOptions(threads=1, prefill_chunk=4)
    return Pair(LLM.load(bundle.path, options=options), oracle, tuple(tokens(case, n, seed=n) for n in (1, 3, 9)))


def generate(oracle: Oracle, prompt: list[int], eos: tuple[int, ...], **options: Any) -> list[tuple[list[int], float]]:
    """Ids and score of each of transformers' answers, to their end-of-sequence id, and without the fill after it."""
    torch = import_torch()
    ids = torch.tensor([prompt])
    with torch.no_grad():
        found = oracle.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            eos_token_id=list(eos) or None,
            pad_token_id=1,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
    answers: list[list[int]] = found.sequences[:, len(prompt) :].tolist()
    ends = [next((at + 1 for at, token in enumerate(answer) if token in eos), len(answer)) for answer in answers]
    scores = [0.0] * len(answers) if found.get("sequences_scores") is None else found.sequences_scores.tolist()
    return [(answer[:end], score) for answer, end, score in zip(answers, ends, scores, strict=True)]


def answers_of(result: GenerationResult) -> list[tuple[list[int], float]]:
    return [(list(choice.token_ids), choice.score or 0.0) for choice in result.choices]


BEAMS: tuple[dict[str, Any], ...] = (
    *({"num_beams": n, "num_return_sequences": n} for n in (2, 3, 4, 5)),
    *({"num_beams": 3, "length_penalty": penalty, "num_return_sequences": 2} for penalty in (0.0, 2.0, -1.0, -0.4)),
    *({"num_beams": 4, "early_stopping": how, "num_return_sequences": 4} for how in (True, "never")),
    *({"num_beams": 3, "early_stopping": how, "length_penalty": 0.0} for how in (True, "never")),
    *({"num_beams": 2, "early_stopping": how, "length_penalty": -1.0} for how in (True, "never")),
    {"num_beams": 3, "early_stopping": "never", "length_penalty": 2.0, "num_return_sequences": 3},
    {"num_beams": 3, "min_new_tokens": 7, "num_return_sequences": 3},
    {"num_beams": 3, "repetition_penalty": 1.4, "num_return_sequences": 2},
    {"num_beams": 3, "no_repeat_ngram_size": 2, "num_return_sequences": 2},
    {"num_beams": 4, "no_repeat_ngram_size": 3, "repetition_penalty": 0.8, "early_stopping": True},
    {"num_beams": 2, "suppress_tokens": [5, 6], "renormalize_logits": True},
    {"num_beams": 3, "forced_eos_token_id": 3, "num_return_sequences": 3},
    {"num_beams": 3, "max_new_tokens": 1, "num_return_sequences": 3},
    {"num_beams": 5, "max_new_tokens": 2, "num_return_sequences": 5},
    {"num_beams": 3, "exponential_decay_length_penalty": [4, 1.5], "forced_eos_token_id": 3},
    {"num_beams": 16, "max_new_tokens": 12, "num_return_sequences": 7},
)


def name(options: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in options.items())


@pytest.mark.parametrize("options", BEAMS, ids=name)
def test_beams_are_those_of_transformers(pair: Pair, options: dict[str, Any]) -> None:
    for n, (eos, more) in enumerate(ENDS):
        if not eos and "exponential_decay_length_penalty" in options:
            continue
        prompt = pair.prompts[n % 3]
        wanted: dict[str, Any] = {"max_new_tokens": 24, **more, **options}
        expected = generate(pair.oracle, prompt, eos, **wanted)
        found = answers_of(pair.llm.generate(prompt, eos_token_id=eos, **wanted))
        assert [ids for ids, _ in found] == [ids for ids, _ in expected]
        np.testing.assert_allclose([s for _, s in found], [s for _, s in expected], rtol=1e-3, atol=1e-4)


GUIDED: tuple[dict[str, Any], ...] = (
    {"guidance_scale": 1.5},
    {"guidance_scale": 3.0},
    {"guidance_scale": 0.5},
    {"guidance_scale": 1.5, "repetition_penalty": 1.3},
    {"guidance_scale": 2.0, "min_new_tokens": 6, "no_repeat_ngram_size": 2},
)


@pytest.mark.parametrize("options", GUIDED, ids=name)
@pytest.mark.parametrize("negative", [None, [7], [9, 50, 9, 31, 8, 62]], ids=["the default", "shorter", "longer"])
def test_guidance_is_that_of_transformers(pair: Pair, options: dict[str, Any], negative: list[int] | None) -> None:
    torch, prompt = import_torch(), pair.prompts[1]
    beside = {} if negative is None else {"negative_prompt_ids": torch.tensor([negative])}
    ((expected, _),) = generate(pair.oracle, prompt, FEW, max_new_tokens=24, **options, **beside)
    result = pair.llm.generate(prompt, eos_token_id=FEW, max_new_tokens=24, negative_prompt=negative, **options)
    assert list(result.token_ids) == expected
    plain = pair.llm.generate(prompt, eos_token_id=FEW, max_new_tokens=24)
    assert result.token_ids != plain.token_ids  # it says something


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": False},
        {"temperature": 1.7, "seed": 5, "num_return_sequences": 3},
        {"do_sample": False, "suppress_tokens": [*range(40)], "repetition_penalty": 1.5, "logit_bias": {50: 4.0}},
        {"seed": 3, "top_k": 3, "guidance_scale": 1.5},
    ],
    ids=["greedy", "drawn", "masked", "guided"],
)
def test_logprobs_are_those_of_the_model_whatever_shaped_the_choice(pair: Pair, options: dict[str, Any]) -> None:
    torch, prompt = import_torch(), pair.prompts[2]
    result = pair.llm.generate(prompt, max_new_tokens=16, eos_token_id=(), top_logprobs=5, **options)
    for choice in result.choices:
        assert len(choice.logprobs) == len(choice.token_ids) == 16
        logits = pair.oracle.logits(np.array([[*prompt, *choice.token_ids]]))[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(torch.from_numpy(logits), dim=-1).numpy()
        for row, token_id, entry in zip(expected, choice.token_ids, choice.logprobs, strict=True):
            assert entry.token_id == token_id
            assert entry.logprob == pytest.approx(float(row[token_id]), abs=2e-3)
            assert entry.is_best is bool(row.argmax() == token_id)
            assert [top.token_id for top in entry.top_logprobs] == np.argsort(-row, kind="stable")[:5].tolist()
            likeliest = np.sort(row)[::-1][:5]
            np.testing.assert_allclose([top.logprob for top in entry.top_logprobs], likeliest, rtol=0, atol=2e-3)
