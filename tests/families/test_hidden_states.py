"""Bundles with hidden states: they are transformers' ``last_hidden_state``, in every family, however they are cut."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.llm import LLM
from edgegen.model.interfaces import Runner
from edgegen.options.engine import EngineOptions
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import decoded, runner_of
from tests.families.cases import CASES, Case
from tests.families.harness import checkpoint_of, judged_cases, oracle_of, tokens

TOLERANCE = 1e-3
"""Largest difference of a hidden state, whose norm spreads logits as widely as trained models have them."""

pytestmark = [
    pytest.mark.release,
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning"),
]


def last_hidden_state(case: Case, checkpoint: Path, ids: list[int]) -> NDArray[np.float32]:
    """As transformers has it, float32 [t, size]."""
    return oracle_of(case, checkpoint).hidden_states(np.array([ids]))[0]


def hidden_states(runner: Runner[Any], ids: list[int], chunk: int) -> NDArray[np.float32]:
    """As the bundle has it when prefilled in chunks, float32 [t, size]."""
    found, cache = list[NDArray[np.float32]](), runner.new_cache()
    for at in range(0, len(ids), chunk):
        runner.prefill(cache, 0, ids[at : at + chunk], lambda hidden: found.append(hidden.copy()))
    return np.concatenate(found)


def exported(case: Case, folder: Path, scheme: Scheme = "fp32") -> tuple[Path, Bundle]:
    checkpoint = checkpoint_of(case, folder / "checkpoint")
    context = case.max_context
    bundle, _ = export(
        str(checkpoint), folder / "bundle", ExportOptions(scheme=scheme, max_context=context, with_hidden=True)
    )
    return checkpoint, bundle


def case_of(name: str) -> Case:
    return next(case for case in CASES if str(case) == name)


# The others differ in what is folded into the final norm or stands after it, or in the kinds of their caches.
SHOWN = [case for case in CASES if not case.refused and (case.name == "base" or "hidden states" in case.also)]


@pytest.mark.parametrize("case", judged_cases(SHOWN))
def test_hidden_states_match_transformers(case: Case, tmp_path: Path) -> None:
    checkpoint, bundle = exported(case, tmp_path)
    ids = tokens(case, case.length, seed=1)
    expected, runner = last_hidden_state(case, checkpoint, ids), runner_of(bundle)
    output = bundle.variant.hidden_states
    assert output is not None
    assert output.size == expected.shape[1]
    for chunk in (case.length, 16, 5):  # across the windows of those that have some
        np.testing.assert_allclose(hidden_states(runner, ids, chunk), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("llama: base", "int8"), ("llama: base", "int4"), ("gemma2: base", "int8"), ("opt: untied and projected", "int8")],
)
def test_quantized_ones_are_as_near_as_the_logits(name: str, scheme: Scheme, tmp_path: Path) -> None:
    """Smoothing divides what the head takes by factors of its own, which must not show."""
    case = case_of(name)
    checkpoint, bundle = exported(case, tmp_path, scheme)
    ids = tokens(case, case.length, seed=1)
    expected, logits = last_hidden_state(case, checkpoint, ids), oracle_of(case, checkpoint).logits(np.array([ids]))[0]
    for variant in bundle.manifest.variants:
        runner = runner_of(bundle, kv=variant.kv.dtype)
        error = relative_error(hidden_states(runner, ids, 16), expected)
        assert error < 1.2 * relative_error(decoded(runner, runner.new_cache(), ids), logits)
        assert error < {"int8": 0.08, "int4": 0.7}[scheme]


def relative_error(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("name", ["llama: base", "gemma2: base", "mistral: base"])
def test_embeddings_do_not_depend_on_chunks_nor_on_company(name: str, tmp_path: Path) -> None:
    case = case_of(name)
    checkpoint, bundle = exported(case, tmp_path)
    texts = [tokens(case, length, seed=length) for length in (case.length, 1, 7, 31, 2)]
    expected = [last_hidden_state(case, checkpoint, ids) for ids in texts]
    for chunk in (case.length, 16, 2):
        for kv in ("float32", "int8"):
            with LLM.load(bundle.path, options=EngineOptions(threads=1, prefill_chunk=chunk, kv=kv)) as llm:
                together = llm.embed(texts, normalize=False)
                alone = [llm.embed(ids, normalize=False).vectors[0] for ids in texts]
                last = llm.embed(texts, pooling="last", normalize=False)
            np.testing.assert_array_equal(together.vectors, alone)
            for found, pooled in (
                (together.vectors, [one.mean(axis=0) for one in expected]),
                (last.vectors, [one[-1] for one in expected]),
            ):
                if kv == "float32":
                    np.testing.assert_allclose(found, pooled, rtol=0, atol=TOLERANCE)
                else:
                    assert relative_error(found, np.array(pooled)) < 0.1
