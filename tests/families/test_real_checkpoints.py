"""Real trained checkpoints of several families against the logits and ids that transformers gave for them."""

import json
from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.llm import LLM
from tests.export.bundles import decoded, export_to, prefilled, runner_of

pytestmark = pytest.mark.golden

TOLERANCE = 1e-3
CHECKPOINTS = (
    "gpt2-stories-0.9m",
    "gpt2-stories-as-opt",
    "neox-stories-1.1m",
    "qwen2-stories-0.9m",
    "stories260K",
    "stories260K-as-mistral",
    "stories260K-as-phi3",
    "stories260K-as-qwen2",
    "stories260K-outliers",
)


@pytest.fixture(scope="module", params=CHECKPOINTS)
def checkpoint(request: pytest.FixtureRequest, test_data: Path) -> Path:
    return test_data / "models" / request.param


@pytest.fixture(scope="module")
def bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_to(checkpoint, tmp_path_factory.mktemp("real") / "fp32")


@pytest.fixture(scope="module")
def cases(checkpoint: Path) -> list[dict[str, Any]]:
    return json.loads((checkpoint / "golden.json").read_text())["cases"]


def test_the_tokenizer_gives_the_golden_ids(bundle: Bundle, cases: list[dict[str, Any]]) -> None:
    llm = LLM.load(bundle.path)
    assert [llm.encode(case["prompt"]) for case in cases] == [case["ids"] for case in cases]


def test_logits_are_golden_in_one_prefill_in_chunks_and_step_by_step(
    bundle: Bundle, cases: list[dict[str, Any]]
) -> None:
    runner = runner_of(bundle)
    for case in cases:
        ids, cache = case["ids"], runner.new_cache()
        steps = [decoded(runner, cache, [token])[0] for token in ids]
        ways = [steps[-1], *(prefilled(runner, runner.new_cache(), ids, chunk)[-1] for chunk in (len(ids), 3))]
        for logits in ways:
            assert [logits[token] for token, _ in case["top"]] == pytest.approx(
                [value for _, value in case["top"]], abs=TOLERANCE
            )


def test_greedy_ids_are_golden(bundle: Bundle, cases: list[dict[str, Any]]) -> None:
    llm = LLM.load(bundle.path)
    for case in cases:
        ids: list[int] = case["ids"]
        count = len(case["greedy_ids"])
        answer = llm.generate(ids, do_sample=False, max_new_tokens=count, eos_token_id=[])
        assert list(answer.token_ids) == case["greedy_ids"]


def test_the_gguf_file_of_a_checkpoint_gives_the_same_golden_text(test_data: Path, tmp_path: Path) -> None:
    folder = test_data / "models" / "stories260K"
    llm = LLM.load(export_to(folder / "stories260K-f32.gguf", tmp_path / "bundle").path)
    for case in json.loads((folder / "golden.json").read_text())["cases"]:
        prompt: str = case["prompt"]
        assert llm.encode(prompt) == case["ids"]
        answer = llm.generate(prompt, do_sample=False, max_new_tokens=len(case["greedy_ids"]))
        assert list(answer.token_ids) == case["greedy_ids"]
