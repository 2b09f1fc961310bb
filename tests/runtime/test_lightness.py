"""Cost of importing edgegen: each part loads what it needs, when it needs it."""

import json
import subprocess
import sys

import pytest

import edgegen
from edgegen.bundle.bundle import Bundle
from edgegen.model.kernels import kernel_library

HEAVY = {
    "asyncio",
    "gguf",
    "huggingface_hub",
    "jinja2",
    "llguidance",
    "ml_dtypes",
    "numpy",
    "onnx",
    "onnxruntime",
    "optimum",
    "platformdirs",
    "prometheus_client",
    "prompt_toolkit",
    "safetensors",
    "starlette",
    "tokenizers",
    "torch",
    "tqdm",
    "transformers",
    "uvicorn",
}
RUNTIME = {"numpy", "onnxruntime", "tokenizers"}

UNNEEDED = {
    "difflib",
    "edgegen.benchmark",
    "edgegen.chat",
    "edgegen.constraint",
    "edgegen.engine.beam_group",
    "edgegen.engine.beam_search",
    "edgegen.engine.guidance_group",
    "edgegen.generation.session",
    "edgegen.model.concat_runner",
    "edgegen.model.device",
    "edgegen.options.tuned",
    "edgegen.evaluation.parity",
    "edgegen.sampling.logprobs",
    "edgegen.scoring",
    "edgegen.server",
    "edgegen.speculation.draft_model",
    "edgegen.speculation.draft_proposer",
    "edgegen.speculation.ngram_proposer",
    "edgegen.stop_regex",
    "fractions",
    "secrets",
    "shutil",
    "statistics",
    "subprocess",
    "tempfile",
}
"""Modules that generating a text does without; all of them were once imported before the first token."""


def imports_of(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after ``code``."""
    report = "\nimport sys, json\nsys.stderr.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr))


def heavy_imports_of(code: str) -> set[str]:
    """Which of the heavy packages a fresh interpreter has loaded after ``code``."""
    return HEAVY & imports_of(code)


@pytest.fixture(scope="module")
def of_libraries() -> set[str]:
    """The modules that come with the three libraries, whatever edgegen does."""
    return imports_of(f"import {', '.join(sorted(RUNTIME))}")


def test_importing_edgegen_loads_nothing() -> None:
    assert heavy_imports_of("import edgegen") == set()


@pytest.mark.parametrize("name", ["EdgegenError", "GenerationOptions", "Bundle", "BundleStore"])
def test_names_that_only_describe_things_load_nothing(name: str) -> None:
    assert heavy_imports_of(f"from edgegen import {name}") == set()


def test_llm_loads_two_packages() -> None:
    assert heavy_imports_of("from edgegen import LLM") == RUNTIME - {"tokenizers"}


def test_generating_loads_nothing_of_the_exporters_nor_of_the_trainers(int8_bundle: Bundle) -> None:
    code = f"from edgegen import LLM; LLM.load({str(int8_bundle.path)!r}).generate('a', max_new_tokens=2, seed=1)"
    read = {"tokenizers"} if kernel_library() is None else set[str]()  # of which a compiled tokenizer has no need
    assert heavy_imports_of(code) - {"platformdirs"} == RUNTIME - {"tokenizers"} | read


def test_llm_loads_what_every_text_needs(of_libraries: set[str]) -> None:
    loaded = imports_of("from edgegen import LLM") - of_libraries
    assert loaded & (UNNEEDED | {"edgegen.graph.check"}) == set()


@pytest.mark.parametrize("options", ["do_sample=False", "temperature=0.8, top_p=0.9, repetition_penalty=1.1, seed=1"])
def test_a_text_loads_what_it_needs(int8_bundle: Bundle, of_libraries: set[str], options: str) -> None:
    code = f"from edgegen import LLM; llm = LLM.load({str(int8_bundle.path)!r})\n"
    code += f"for chunk in llm.stream('a', max_new_tokens=2, {options}): pass"
    assert (imports_of(code) - of_libraries) & UNNEEDED == set()


def test_the_command_that_generates_loads_what_a_text_needs(int8_bundle: Bundle, of_libraries: set[str]) -> None:
    arguments = ["generate", "-m", str(int8_bundle.path), "--max-new-tokens", "2", "a"]
    loaded = imports_of(f"from edgegen.cli import run; assert run({arguments!r}) == 0")
    assert (loaded - of_libraries) & UNNEEDED - {"difflib"} == set()  # which reads unknown variables of the tests


def test_a_chat_loads_jinja_when_it_is_rendered() -> None:
    code = "from edgegen.chat import ChatTemplate, Conversation\n"
    code += "chat, said = ChatTemplate({}), Conversation([{'role': 'user', 'content': 'a'}])\n"
    assert heavy_imports_of(code) == set()
    assert heavy_imports_of(code + "chat.render(said)") == {"jinja2"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["export", "--help"],
        ["chat", "--help"],
        ["serve", "--help"],
        ["list"],
        ["list", "--json"],
    ],
)
def test_small_verbs_load_nothing_heavy(arguments: list[str]) -> None:
    code = f"from edgegen.cli import run; assert run({arguments!r}) == 0"
    assert heavy_imports_of(code) - {"platformdirs"} == set()


def test_describing_and_verifying_need_no_onnx_runtime(int8_bundle: Bundle) -> None:
    for verb in ("info", "verify"):
        code = f"from edgegen.cli import run; assert run([{verb!r}, {str(int8_bundle.path)!r}]) == 0"
        assert heavy_imports_of(code) - {"platformdirs"} == set()


def test_every_public_name_is_there() -> None:
    names: list[str] = vars(edgegen)["__all__"]
    for name in names:
        assert getattr(edgegen, name).__name__ == name
    assert sorted(names) == sorted(set(names))


def test_unknown_names_are_not_imported() -> None:
    with pytest.raises(AttributeError, match="module 'edgegen' has no attribute 'LMM'"):
        _ = edgegen.LMM  # pyright: ignore
