"""A case's random checkpoint, its bundle, and the difference of their logits."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.evaluation.parity.report import ParityReport
from edgegen.model.interfaces import Runner
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.every_case import EVERY
from tests.export.bundles import decoded, export_to, prefilled, runner_of
from tests.families.cases import BASES, Case
from tests.made_once import made_once
from tests.second_oracle import Judge, judged, open_oracle, write_random

TOLERANCE = 1e-3
"""Largest allowed difference of any float32 logit."""

MARGIN = 2e-3
"""Least distance of the oracle's first choice from its second: nearer ones would be decided by rounding."""

CHUNKS = (1, 5, 16, 31)

Ids = list[int]
Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Differences:
    """Greatest absolute difference of any logit, by the way in which the bundle computed it.

    ``prefill``: all at once, the last position; ``chunks``: in chunks of several sizes, the last position of each;
    ``steps``: token by token; ``together``: by the decode graph at once.
    """

    prefill: float
    chunks: float
    steps: float
    together: float

    @property
    def greatest(self) -> float:
        return max(asdict(self).values())


@dataclass(frozen=True, slots=True)
class Subject:
    """A case's bundle, running, and the oracle that wrote its checkpoint."""

    case: Case
    bundle: Bundle
    runner: Runner[Any]
    oracle: Judge


@dataclass(frozen=True, slots=True)
class Continuation:
    """Ids that a bundle generated after a prompt, and the logits of both sides at each of those steps."""

    ids: Ids
    found: Logits
    expected: Logits


def tokens(case: Case, count: int, seed: int) -> Ids:
    """Random ids of the case's vocabulary."""
    return np.random.default_rng(seed).integers(0, case.config["vocab_size"], count).tolist()


def judged_cases(cases: Iterable[Case]) -> list[Any]:
    """Parameters of tests: cases, each judged by its first oracle."""
    return judged(cases, lambda case: case.oracles[0])


def sampled(cases: Iterable[Case]) -> list[Case]:
    """The cases of this run: the base of each family, what is refused, and of the variants those with a key or a value
    in their config that no case before them has changed. `make families` has all."""
    seen, chosen = set[str](), list[Case]()
    for case in cases:
        base = BASES[case.family].config
        values = {json.dumps([key, value]) for key, value in case.config.items() if base.get(key) != value}
        values |= {json.dumps([key]) for key in base.keys() - case.config.keys()}
        if EVERY or case.name == "base" or case.refused or values - seen:
            chosen.append(case)
        seen |= values
    return chosen


def with_oracles(cases: Iterable[Case]) -> list[tuple[Case, int]]:
    """The cases, those that are refused last, each with the versions of transformers that write it in this run: all
    that know it of a family's first ones, and the first of the others."""
    # Sorting keeps the order within; a family's refused cases may stand between the others.
    sorted_cases = sorted(cases, key=lambda case: bool(case.refused))
    return [
        (case, oracle)
        for _, of_family in groupby(sorted_cases, lambda case: (case.family, bool(case.refused)))
        for number, case in enumerate(of_family)
        for oracle in case.oracles[: None if EVERY or not number else 1]
    ]


def checkpoint_of(case: Case, folder: Path, *, oracle: int | None = None, seed: int | None = None) -> Path:
    """Write the case's random model with ``oracle``, the case's first unless given; another ``seed`` is for trying."""
    version = oracle or case.oracles[0]
    seed = case.seed(version) if seed is None else seed
    return made_once(
        [case.family, case.config, seed, version, case.quiet],
        folder,
        lambda to: write_random(to, case.family, case.config, seed=seed, version=version, quiet=case.quiet),
    )


def oracle_of(case: Case, checkpoint: Path) -> Judge:
    """The checkpoint as the case's first oracle computes it."""
    return open_oracle(checkpoint, case.oracles[0])


def export_case(case: Case, checkpoint: Path, target: Path) -> Bundle:
    if case.max_context is None:
        return export_to(checkpoint, target)
    return export(str(checkpoint), target, ExportOptions(scheme="fp32", max_context=case.max_context))[0]


def subject_of(case: Case, folder: Path, oracle: int) -> Subject:
    """Let ``oracle`` write the case's checkpoint, export it and open both sides."""
    checkpoint = checkpoint_of(case, folder / "checkpoint", oracle=oracle)
    bundle = export_case(case, checkpoint, folder / "bundle")
    return Subject(case, bundle, runner_of(bundle), open_oracle(checkpoint, oracle))


def differences(subject: Subject) -> Differences:
    """Over one random sequence, which crosses every window."""
    runner, length = subject.runner, subject.case.length
    ids = tokens(subject.case, length, seed=1)
    expected = subject.oracle.logits(np.array([ids]))[0]

    def apart(found: Logits, positions: Iterable[int]) -> float:
        return float(np.abs(found - expected[list(positions)]).max())

    def in_chunks(chunk: int) -> float:
        ends = [min(at + chunk, length) - 1 for at in range(0, length, chunk)]
        return apart(prefilled(runner, runner.new_cache(), ids, chunk), ends)

    cache = runner.new_cache()
    steps = np.concatenate([decoded(runner, cache, [token]) for token in ids])
    return Differences(
        prefill=in_chunks(length),
        chunks=max(in_chunks(chunk) for chunk in CHUNKS),
        steps=apart(steps, range(length)),
        together=apart(decoded(runner, runner.new_cache(), ids), range(length)),
    )


def continuation(subject: Subject) -> Continuation:
    """The bundle's greedy ids; the oracle judges them in one pass over prompt and ids.

    That is its own greedy decoding: where it agrees with every choice so far, its next choice follows from them.
    """
    runner, cache = subject.runner, subject.runner.new_cache()
    prompt = tokens(subject.case, subject.case.prompt, seed=2)
    found = [prefilled(runner, cache, prompt, len(prompt))[0]]
    while len(found) < subject.case.generated:
        found.append(decoded(runner, cache, [int(found[-1].argmax())])[0])
    ids = [int(logits.argmax()) for logits in found]
    expected = subject.oracle.logits(np.array([prompt + ids[:-1]]))[0, len(prompt) - 1 :]
    return Continuation(ids, np.array(found), expected)


def assert_computes(runner: Runner[Any], judge: Callable[[Ids], Logits], ids: Ids) -> None:
    """That the runner's logits are the judge's, [t, vocab] for ids [t], at once and in chunks; and its greedy ids after
    the first 8."""
    expected = judge(ids)
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected, rtol=0, atol=TOLERANCE)
    assert np.abs(prefilled(runner, runner.new_cache(), ids, 7)[-1] - expected[-1]).max() < TOLERANCE
    cache, prompt = runner.new_cache(), ids[:8]
    found = [int(prefilled(runner, cache, prompt, len(prompt))[0].argmax())]
    while len(found) < 64:
        found.append(int(decoded(runner, cache, found[-1:])[0].argmax()))
    continued = judge(prompt + found[:-1])[len(prompt) - 1 :]
    assert margins(continued).min() >= MARGIN
    assert found == continued.argmax(-1).tolist()


def worst_kl(report: ParityReport) -> float:
    """The largest mean divergence; an int4 KV cache leaves little of random heads of 8."""
    return max(parity.mean_kl for name, parity in report.variants.items() if not name.endswith("kv-int4"))


def margins(logits: Logits) -> NDArray[np.float32]:
    """The distance of the first choice from the second at each of [t, vocab]."""
    second, first = np.partition(logits, -2, axis=-1)[:, -2:].T
    return first - second
