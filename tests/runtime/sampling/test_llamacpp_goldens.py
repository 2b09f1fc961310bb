"""The golden values of llama.cpp's own test of its samplers: probabilities in, probabilities out."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline, LogitsProcessor, LogitsSettings
from edgegen.sampling.processors.penalties import Dry, FrequencyPenalty, RepetitionPenalty
from edgegen.sampling.processors.truncation import Xtc
from edgegen.sampling.random_numbers import uniform
from edgegen.sampling.sampler import Sampler

pytestmark = pytest.mark.golden


@dataclass(frozen=True)
class Golden:
    """A case of the file."""

    sampler: str
    probs: list[float]
    expected: list[float]
    params: Any
    last_tokens: tuple[int, ...] = ()
    breakers: tuple[str, ...] = ()


def left(golden: Golden, *processors: LogitsProcessor) -> NDArray[np.float64]:
    """The probabilities of what the processors leave."""
    given = Candidates(np.log(np.array(golden.probs, np.float32)))
    candidates = LogitsPipeline(processors)(given, LogitsContext(list(golden.last_tokens)))
    probabilities = np.exp(candidates.logits.astype(np.float64))
    return probabilities / probabilities.sum()


def by_settings(**settings: Any) -> tuple[LogitsProcessor, ...]:
    return LogitsPipeline.from_settings(LogitsSettings(**settings), do_sample=True).processors


def temperature(golden: Golden) -> NDArray[np.float64]:
    if golden.params[0] > 0:
        return left(golden, *by_settings(temperature=golden.params[0]))
    # Temperature 0 is for the sampler that draws.
    best = Sampler(seed=0, do_sample=False).sample(Candidates(np.log(np.array(golden.probs, np.float32))), 0)
    return np.eye(len(golden.probs))[best]


def penalties(golden: Golden) -> NDArray[np.float64]:
    strength, last_n = golden.params, len(golden.last_tokens)
    repetition = RepetitionPenalty(strength["repeat"], last_n)
    return left(golden, repetition, FrequencyPenalty(strength["freq"], strength["presence"], last_n))


def dry(golden: Golden) -> NDArray[np.float64]:
    given = golden.params
    last_n, allowed = int(given["penalty_last_n"]), int(given["allowed_length"])
    breakers = tuple(int(b) for b in golden.breakers)
    return left(golden, Dry(given["multiplier"], given["base"], allowed, last_n, breakers))


def xtc(golden: Golden) -> NDArray[np.float64]:
    probability, threshold = golden.params
    seed = next(seed for seed in range(100) if uniform(seed, 0, 1) < probability)
    return left(golden, Xtc(probability, threshold, seed))


HOW: dict[str, Callable[[Golden], NDArray[np.float64]]] = {
    "temp": temperature,
    "temp_ext": temperature,  # of no range: the very same
    "top_k": lambda golden: left(golden, *by_settings(top_k=int(golden.params[0]))),
    "top_p": lambda golden: left(golden, *by_settings(top_p=golden.params[0])),
    "min_p": lambda golden: left(golden, *by_settings(min_p=min(golden.params[0], 1.0))),
    "typical": lambda golden: left(golden, *by_settings(typical_p=golden.params[0])),
    "top_n_sigma": lambda golden: left(golden, *by_settings(top_n_sigma=golden.params[0])),
    "xtc": xtc,
    "penalties": penalties,
    "dry": dry,
}


def test_samplers_match_llamacpps_goldens(test_data: Path) -> None:
    goldens = [Golden(**case) for case in json.loads((test_data / "suites/llamacpp_sampler_goldens.json").read_text())]
    assert len(goldens) == 41
    for golden in goldens:
        expected = np.array(golden.expected)
        in_place = golden.sampler in ("penalties", "dry")
        expected = expected if in_place else np.sort(expected[expected > 0])
        found = HOW[golden.sampler](golden)
        found = found if in_place else np.sort(found[found > 0])
        # Two of their samplers leave the probabilities as they were; ours add up to 1.
        np.testing.assert_allclose(found, expected / expected.sum(), atol=2e-5, err_msg=str(golden))


@pytest.mark.parametrize("probability", [0.0, 0.01])
def test_xtc_leaves_the_rest_of_the_time(probability: float) -> None:
    golden = Golden("xtc", [0.4, 0.3, 0.2, 0.1], [], None)
    seed = next(seed for seed in range(100) if uniform(seed, 0, 1) > probability)
    assert left(golden, Xtc(probability, 0.09, seed)).size == 4
