"""Every code block of the documentation is run, or held against what it describes."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import Manifest
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.cli.environment import API_KEY, variables_of
from edgegen.cli.serve import command as serve
from edgegen.server.app import EMBEDDING_WIRES, WIRES
from edgegen.server.ollama.schema import PULL, PULL_REQUEST
from edgegen.tokenizer import Tokenizer
from tests.command_line import parameters
from tests.docs.markdown import PAGES, ROOT, Block, blocks
from tests.export.checkpoint.adapters import C_ATTN, factors, write_lora
from tests.export.checkpoint.gguf_bytes import write_whole_llama
from tests.export.checkpoint.layouts import write_gpt2
from tests.forked_command import LITTLE, SEARCH, Forks
from tests.standin_hub import StandInHub
from tests.systems import WINDOWS

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("little_parity")]

# What the pages name, and what stands in for it.
TOKEN = "hf_your_token"
OTHER_HUB = "https://hub.example.com"
PRIVATE = "my-org/private-model"
GGUF = "my-org/model-GGUF"
LISTED = "HuggingFaceTB/SmolLM2-135M-Instruct"

SERVER = "http://127.0.0.1:8000"
OLLAMA_SERVER = "http://127.0.0.1:11434"
CLIENTS = {"clients.md": ("openai", "anthropic", "ollama")}
"""Pages whose Python talks to a server, and the modules that they use for it."""


RUN = {"edgegen", "echo"}
"""Commands that are run."""

TEXTS = {
    ("architecture.md", "tree"): "test_tree.py",
    ("architecture.md", "layers"): "test_tree.py",
    ("bundle-format.md", "bundle"): "test_bundle_format.py",
    ("cli.md", "help"): "test_cli.py",
    ("serving.md", "log"): "runtime/server/test_request_log.py",
}
"""Blocks that are neither commands nor code, and the test that holds each against what it shows."""

Run = Callable[[str], str]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tiny GPT-2s with the embedded model's tokenizer, an adapter of the second, and GGUF files."""
    folder = tmp_path_factory.mktemp("checkpoints")
    embedded = Bundle.open(BundleStore().resolve(DEFAULT_MODEL))
    tokenizer = embedded.file("tokenizer.json")
    vocabulary = Tokenizer.from_file(tokenizer).vocab_size
    write_gpt2(folder / "gpt2", layout="original", vocab_size=vocabulary, tokenizer=tokenizer)
    write_gpt2(folder / "my-model", layout="trainer", vocab_size=vocabulary, tokenizer=tokenizer, seed=1)
    write_gpt2(folder / "private", layout="untied", vocab_size=vocabulary, tokenizer=tokenizer, seed=2)
    write_lora(folder / "my-adapter", factors(C_ATTN, 64, 192), base_model_name_or_path="my-model", fan_in_fan_out=True)
    (folder / "gguf").mkdir()
    for name in ("model.Q8_0.gguf", "model.Q4_K_M.gguf"):
        write_whole_llama(folder / "gguf" / name)
    return folder


@pytest.fixture(scope="module")
def hub(checkpoints: Path) -> Iterator[StandInHub]:
    repos = {
        "gpt2": checkpoints / "gpt2",
        LISTED: checkpoints / "my-model",
        PRIVATE: checkpoints / "private",
        GGUF: checkpoints / "gguf",
    }
    with StandInHub(repos, private=[PRIVATE], token=TOKEN) as hub:
        yield hub


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    forks = Forks(os.environ | SEARCH, also=LITTLE)
    yield forks
    forks.close()


@pytest.fixture
def reader(tmp_path: Path, checkpoints: Path, hub: StandInHub, forks: Forks, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands as a reader of a page would: one folder, one store, one cache for all blocks of the page."""
    if WINDOWS:
        pytest.skip("the pages' commands are bash's")
    folder = tmp_path / "reader"
    folder.mkdir()
    for name in ("my-model", "my-adapter"):
        (folder / name).symlink_to(checkpoints / name)
    (folder / "model.gguf").symlink_to(checkpoints / "gguf" / "model.Q8_0.gguf")
    (folder / "prompt.txt").write_text("One day, a little girl")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEGEN_HOME", str(tmp_path / "home"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))} | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        **SEARCH,
    }

    def run(command: str) -> str:
        """A shell's simple commands in a pipe: words, quotes, comments, variables set for one command."""
        said = b""
        for words, file in _piped(command.replace(OTHER_HUB, hub.url)):
            assignments = [word for word in words[:-1] if re.match(r"[A-Z_]+=", word)]
            program, *arguments = words[len(assignments) :]
            if program == "echo":
                said = f"{' '.join(arguments)}\n".encode()
            else:
                assert program == "edgegen"
                own = environment | dict(word.split("=", 1) for word in assignments)
                done = forks.run(arguments, said, folder, own)
                assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr.decode()}"
                said = done.stdout
            if file:
                (folder / file).write_bytes(said)
                said = b""
        return said.decode()

    return run


def _piped(command: str) -> Iterator[tuple[list[str], str]]:
    """The words of each command of a pipe, and the file that takes its output behind a ``>``; empty if none does."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    for is_pipe, group in groupby(lexer, lambda word: word == "|"):
        words, file = [*group], ""
        if words[-2:-1] == [">"]:
            *words, _, file = words
        if not is_pipe:
            assert not any(re.fullmatch("[();<>|&]+", word) for word in words), f"{command!r} wants a shell"
            yield words, file


@pytest.fixture
def served(path: Path) -> Iterator[str]:
    """The address of a server, for a page whose Python is a client's."""
    if path.name not in CLIENTS:
        yield SERVER
        return
    for client in CLIENTS[path.name]:
        pytest.importorskip(client, reason="the page is about this client, and it is not installed")
    command = [sys.executable, "-m", "edgegen", "serve", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        yield process.stderr.readline().partition(" at ")[2].split()[0]
    finally:
        process.kill()
        process.communicate()


SLOW = {
    "README.md",
    "adapters.md",
    "adding-a-family.md",
    "batch.md",
    "benchmarking.md",
    "chat.md",
    "configuration.md",
    "constrained-output.md",
    "embeddings.md",
    "evaluating.md",
    "exporting.md",
    "generating.md",
    "gpus.md",
    "kernels.md",
    "layer-state.md",
    "parity.md",
    "performance.md",
    "prefix-caching.md",
    "pulling.md",
    "python.md",
    "quantization.md",
    "speculative-decoding.md",
}


@pytest.mark.parametrize(
    "path", [pytest.param(page, id=page.name, marks=[pytest.mark.slow] * (page.name in SLOW)) for page in PAGES]
)
def test_page(path: Path, reader: Run, served: str) -> None:
    """The blocks of a page in order, Python with one namespace, commands in one folder."""
    namespace: dict[str, Any] = {"__name__": "__page__"}
    clients: dict[int, Any] = {}
    for block in blocks(path):
        try:
            code = block.code.replace(SERVER, served).replace(OLLAMA_SERVER, served)
            _execute(replace(block, code=code), namespace, reader)
        except Exception as error:
            raise AssertionError(f"{block}: {type(error).__name__}: {error}") from error
        if "client" in namespace:
            clients[id(namespace["client"])] = namespace["client"]
    for client in clients.values():
        client.close()  # or its connection would be closed during another test, with a warning


def _execute(block: Block, namespace: dict[str, Any], reader: Run) -> None:
    match block.language, block.kind:
        case "python", "":
            exec(compile("\n" * (block.line - 1) + block.code, str(block.path), "exec"), namespace)
        case (("sh" | "console"), ""):
            for command, output in _commands(block):
                _command(command, output, reader)
        case "json", "":
            json.loads(block.code)
        case "yaml", "":
            _check_addresses(yaml.safe_load(block.code))
        case "toml", "":
            _check_addresses(tomllib.loads(block.code))
        case "ini", "":
            _check_settings(block.code.split("\n"))
        case "js", "":
            _check_javascript(block.code)
        case "json", "manifest":
            Manifest.from_json(block.code)
        case "text", kind:
            assert (block.path.name, kind) in TEXTS, "a text block that no test looks at"
        case _:
            pytest.fail(f"{block}: no test knows what to do with {block.language!r} {block.kind!r}")


def _commands(block: Block) -> list[tuple[str, str]]:
    """Command and expected output; in a ``console`` block a command begins with ``$``, the rest is output."""
    code = block.code.replace("\\\n", " ")
    if block.language == "sh":
        return [(line, "") for line in code.split("\n") if line.strip()]
    assert code.startswith("$ "), "a console block begins with a command"
    parts = [part.partition("\n") for part in ("\n" + code).split("\n$ ")[1:]]
    return [(command, output) for command, _, output in parts]


def _command(command: str, output: str, reader: Run) -> None:
    if _words(command)[:2] == ["edgegen", "serve"]:
        _check_serve(_words(command))
        return
    programs = [_words(piece)[0] for piece in command.split("|")]
    if not set(programs) <= RUN:
        assert programs[0] in NOT_RUN, f"no test knows what to do with {command!r}"
        NOT_RUN[programs[0]](_words(command))
        return
    said = reader(command)
    if output:
        assert re.fullmatch(_pattern(output), said.rstrip("\n")), f"{command}\nsaid\n{said}\nand not\n{output}"


def _words(command: str) -> list[str]:
    """A command's words, without comment and without the variables set before it."""
    words = shlex.split(command, comments=True)
    return words[next(i for i, word in enumerate(words) if not re.match(r"[A-Z_]+=", word)) :]


def _pattern(output: str) -> str:
    """``...`` stands for anything in a line, and alone on a line for any lines."""
    lines = ["(?s:.*)" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") for line in output.split("\n")]
    return "\n".join(lines)


def _check_make(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets, variables = (re.findall(form, makefile, re.MULTILINE) for form in (r"^([a-z]+):", r"^([A-Z0-9_]+) \?="))
    for name, is_set, _ in (word.partition("=") for word in words[1:]):
        assert name in (variables if is_set else targets)


def _check_pip(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert words[1] == "install"
    for word in words[2:]:
        if word != "-e":
            match = re.fullmatch(r"(\.|[a-z]+)(?:\[(\w+)\])?", word)
            assert match
            assert match[1] in (".", project["name"])
            assert match[2] is None or match[2] in project["optional-dependencies"]


def _check_python(words: list[str]) -> None:
    """``python -m bench.NAME --option``: the module exists and knows the options. A harness may be missing.

    Examples have tests of their own.
    """
    if words[1].startswith("examples/"):
        assert (ROOT / words[1]).is_file()
        return
    assert words[1] == "-m"
    if words[2] == "http.server":
        assert words[3] == "--directory"
        assert (ROOT / words[4]).is_dir()
        return
    if words[2] == "edgegen.evaluation.lm_eval":
        assert find_spec(words[2])
        return
    assert words[2].startswith(("bench.", "tests.long."))
    assert all(f"{word} " in _help_of(words[2]) for word in words if word.startswith("--"))


@cache
def _help_of(module: str) -> str:
    """The help of a module: its options."""
    return subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def _check_serve(words: list[str]) -> None:
    """``edgegen serve --option`` runs until it is stopped: it knows the options."""
    parameters("serve", words[2:])


def _check_curl(words: list[str]) -> None:
    """``curl URL -d BODY``: a request that the server takes."""
    _, url, data, body = words
    assert data == "-d"
    read: dict[str, Callable[[Any], object]] = {wire.url: wire.read for wire in WIRES}
    read |= {wire.url: wire.read for wire in EMBEDDING_WIRES} | {PULL: PULL_REQUEST.read}
    read[urlsplit(url).path](json.loads(body))


def _check_addresses(settings: Any) -> None:
    """Settings of a client that name the server, by OpenAI's base URL."""
    addresses: list[str] = re.findall(r"http://[^'\"]*", str(settings))
    assert addresses
    assert all(urlsplit(address).path == "/v1" for address in addresses)


def _check_client(words: list[str]) -> None:
    """A client's own command, with options that were tried; a model has the name that its page gives it."""
    known = CLIENT_OPTIONS[words[0]]
    assert {word for word in words if word.startswith("-")} <= known.keys()
    given = [words[at + 1] for at, word in enumerate(words) if known.get(word)]
    assert set(given) <= {"my-model", "openai/my-model", "edgegen", "edgegen-text"}


CLIENT_OPTIONS: dict[str, dict[str, bool]] = {
    "aider": {"--model": True, "--map-tokens": False},
    "claude": {"--model": True},
    "codex": {"--disable": False},
    "llm": {"-m": True, "-o": False, "--schema": False},
    "opencode": {},
}
"""Options of programs that talk to the server, and whether a model follows."""


def _check_settings(lines: list[str]) -> None:
    """Lines ``NAME=value`` of the service's settings: variables of the server."""
    known = {*variables_of(serve), API_KEY}
    assert sorted({line.partition("=")[0] for line in lines} - known) == []


def _check_sudo(words: list[str]) -> None:
    """``sudo COMMAND``: a program that is checked too, wherever it is installed."""
    words = _words(" ".join(words[1:]))
    NOT_RUN[Path(words[0]).name](words)


def _check_windows(words: list[str]) -> None:
    """``.ci/windows SUITE``: suites that it knows."""
    known = re.findall(r'^    "(\w+)": \[', (ROOT / ".ci" / "wine" / "check.py").read_text("utf-8"), re.MULTILINE)
    assert len(known) > 4
    assert {*words[1:]} <= {*known, "same"}


def _check_venv(words: list[str]) -> None:
    assert words[1:3] == ["-m", "venv"]


def _check_install(words: list[str]) -> None:
    assert (ROOT / words[-2]).is_file()


def _check_javascript(code: str) -> None:
    """It uses what examples/browser/bundle.js exports; tests/e2e/test_browser_example.py runs such lines."""
    exported = set(re.findall(r"^export (?:class|function) (\w+)", _bundle_js(), re.MULTILINE))
    (imported,) = re.findall(r'^import \{ (.+) \} from "./bundle.js";$', code, re.MULTILINE)
    assert set(imported.split(", ")) <= exported
    methods = set(re.findall(r"^  (?:static )?(?:async )?\*?(\w+)\(", _bundle_js(), re.MULTILINE))
    assert set(re.findall(r"[bB]undle\.(\w+)\(", code)) <= methods


def _bundle_js() -> str:
    return (ROOT / "examples" / "browser" / "bundle.js").read_text("utf-8")


def _check_copy(words: list[str]) -> None:
    assert (ROOT / words[-2]).exists()


def _check_npm(words: list[str]) -> None:
    """``npm ci --prefix FOLDER``: its packages are listed and locked."""
    assert words[1:3] == ["ci", "--prefix"]
    listed = json.loads((ROOT / words[3] / "package.json").read_bytes())["dependencies"]
    locked = json.loads((ROOT / words[3] / "package-lock.json").read_bytes())["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in listed} == listed


def _check_pyinstaller(words: list[str]) -> None:
    """A program that tests/packaging/test_frozen.py freezes."""
    assert words[1:] == ["examples/desktop/frozen_app.py"]


def _check_unit(words: list[str]) -> None:
    """``systemctl`` and ``journalctl``: the unit is there, if one is named."""
    names = [word for word in words[2:] if not word.startswith("-")]
    assert all((ROOT / "packaging" / (name if "." in name else f"{name}.service")).is_file() for name in names)


def _check_edgegen(words: list[str]) -> None:
    """A verb that knows its flags."""
    parameters(words[1], words[2:])


def _check_podman(words: list[str]) -> None:
    """``podman build -f FILE`` and ``podman run … edgegen VERB``: the file is there, variables and flags are known."""
    if words[1] == "build":
        assert (ROOT / words[words.index("-f") + 1]).is_file()
        return
    options = words[2 : words.index("edgegen")]
    _check_settings([value for flag, value in pairwise(options) if flag == "-e"])
    if words[-1] != "edgegen":
        _check_edgegen(words[words.index("edgegen") :])


NOT_RUN = {
    ".ci/windows": _check_windows,
    "curl": _check_curl,
    "edgegen": _check_edgegen,
    "cp": _check_copy,
    "install": _check_install,
    "journalctl": _check_unit,
    "make": _check_make,
    "npm": _check_npm,
    "pip": _check_pip,
    "podman": _check_podman,
    "pyinstaller": _check_pyinstaller,
    "python": _check_python,
    "python3": _check_venv,
    "sudo": _check_sudo,
    "systemctl": _check_unit,
    **dict.fromkeys(CLIENT_OPTIONS, _check_client),
}
"""Commands that are only checked: they build environments, install from the network, or take minutes."""
