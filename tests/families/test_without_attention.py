"""Models without attention: bundles without a KV cache, whose sequences take the same memory at any length."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.cli import app
from edgegen.cli.info import describe
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import export_to, runner_of
from tests.families.cases import CASES, Case
from tests.families.harness import checkpoint_of, oracle_of, tokens

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.usefixtures("little_parity"),
]

RECURRENT = {case.family: case for case in CASES if case.kept and all(kind == "fixed" for _, kind in case.kept.states)}
LENGTHS = (150, 3, 47)
GREEDY: dict[str, Any] = {"do_sample": False, "eos_token_id": (), "repetition_penalty": 1.0}

BundleOf = Callable[[Scheme], Bundle]


@pytest.fixture(scope="module", params=RECURRENT)
def case(request: pytest.FixtureRequest) -> Case:
    return RECURRENT[request.param]


@pytest.fixture(scope="module")
def checkpoint(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint_of(case, tmp_path_factory.mktemp("recurrent") / "checkpoint")


@pytest.fixture(scope="module")
def bundle_of(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> BundleOf:
    @cache
    def made(scheme: Scheme) -> Bundle:
        return export_to(checkpoint, tmp_path_factory.mktemp("recurrent") / scheme, scheme)

    return made


def test_prompts_of_many_lengths_get_the_ids_of_transformers(case: Case, checkpoint: Path, bundle_of: BundleOf) -> None:
    prompts = [tokens(case, length, seed=length) for length in LENGTHS]
    expected = oracle_of(case, checkpoint).greedy(prompts, 40)
    with LLM.load(bundle_of("fp32").path, options=EngineOptions(threads=1, prefill_chunk=16)) as llm:
        streams = [llm.stream(prompt, max_new_tokens=40, **GREEDY) for prompt in prompts]
        assert [[i for chunk in stream for i in chunk.token_ids] for stream in streams] == expected


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize("kv", [None, "int8", "float32"])
def test_rows_of_many_lengths_are_as_if_alone(case: Case, bundle_of: BundleOf, scheme: Scheme, kv: Any) -> None:
    prompts = [tokens(case, length, seed=length) for length in LENGTHS]
    path, answers = bundle_of(scheme).path, list[list[tuple[int, ...]]]()
    for chunk in (7, 64):
        with LLM.load(path, options=EngineOptions(threads=1, prefill_chunk=chunk, kv=kv, prefix_cache=0)) as llm:
            streams = [llm.stream(prompt, max_new_tokens=30, **GREEDY) for prompt in prompts]
            answers.append([tuple(i for chunk in stream for i in chunk.token_ids) for stream in streams])
            answers += [[llm.generate(prompt, max_new_tokens=30, **GREEDY).token_ids for prompt in prompts]]
    assert all(found == answers[0] for found in answers)


@pytest.mark.parametrize("scheme", ["fp32", "int8", "int4"])
def test_there_is_one_variant_and_no_kv_cache(bundle_of: BundleOf, scheme: Scheme) -> None:
    bundle = bundle_of(scheme)
    (variant,) = bundle.manifest.variants
    assert not variant.kv.layers
    assert not variant.kv.classes
    assert {state.kind for state in variant.kv.states} == {"fixed"}
    memory = describe(bundle)["memory"]
    assert memory["kv_bytes_per_token"] == 0
    assert memory["state_bytes_per_row"] == variant.kv.bytes_per_row > 0
    assert memory["kv_bytes"] == describe(bundle, context=1)["memory"]["kv_bytes"]
    said = CliRunner().invoke(app, ["info", str(bundle.path)], catch_exceptions=False).output
    assert "nothing per token + " in said
    assert "(no KV cache, " in said


def test_memory_is_the_same_at_any_length(bundle_of: BundleOf) -> None:
    runner = runner_of(bundle_of("int8"))
    kept = runner.new_cache()
    kept.reserve(2, 8)
    before = kept.nbytes
    kept.reserve(2, 100_000)
    assert kept.nbytes == before > 0
