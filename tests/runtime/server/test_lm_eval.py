"""lm-evaluation-harness' own ``local-completions`` against a running server finds what ``edgegen eval`` finds."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from edgegen.evaluation.items import read_questions
from edgegen.llm import LLM
from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from tests.export.bundles import export_to
from tests.runtime.evaluation.lm_eval_material import PROMPTS, Ran, check_figures, harness, held_out_texts, write_tasks
from tests.runtime.server.sockets import on_socket

MISSING = [name for name in ("lm_eval", "transformers", "aiohttp", "tenacity") if find_spec(name) is None]
pytestmark = [
    pytest.mark.parity,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (lm_eval[api] is the oracle here)"),
    pytest.mark.slow,
]

CHECKPOINTS = {"gpt2-stories-0.9m": "", "stories260K": ",add_bos_token=True"}
"""The harness puts no BOS before a text, where the tokenizer of a model does, unless it is told."""


@pytest.fixture(scope="module", params=CHECKPOINTS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def llm(name: str, test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM.load(export_to(test_data / "models" / name, tmp_path_factory.mktemp("served") / "fp32").path) as llm:
        yield llm


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory, test_data: Path) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    write_tasks(folder, held_out_texts(test_data))
    return folder


@pytest.fixture(scope="module")
def ran(name: str, llm: LLM, tasks: Path, test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    with on_socket(create_app({name: llm}, ServerOptions())) as (host, port):
        arguments = f"model={name},base_url=http://{host}:{port}/v1/completions,num_concurrent=4"
        arguments += f",tokenizer={test_data / 'models' / name},max_length={llm.max_context}{CHECKPOINTS[name]}"
        return harness(tmp_path_factory.mktemp("local-completions"), tasks, "local-completions", arguments)


def test_figures_are_those_of_edgegen_eval(ran: Ran, llm: LLM, tasks: Path) -> None:
    check_figures(ran, llm, tasks)


def test_log_probabilities_are_those_of_the_model(ran: Ran, llm: LLM, tasks: Path) -> None:
    questions = read_questions((tasks / "choices.jsonl").read_text(), "choices").whole()
    asked = [(question.context, ending) for question in questions for ending in question.choices]
    for (logprob, greedy), (context, ending) in zip(ran.answers("choices"), asked, strict=True):
        score = llm.score(context, f" {ending}")
        assert float(logprob) == pytest.approx(score.logprob, abs=2e-3)
        assert greedy == str(score.is_greedy)


def test_answers_are_those_of_the_model(ran: Ran, llm: LLM) -> None:
    told = llm.generate([*PROMPTS], max_new_tokens=40, temperature=0, stop_strings=["."])
    assert [text.rstrip(".") for text in ran.answers("answers")] == [one.text.rstrip(".") for one in told]
