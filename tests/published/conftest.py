"""The walk of a published model: the command in processes of its own, and what is recorded for docs/published.md."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forked_command import EXPORTER, SEARCH, Forks
from tests.published.made import checkpoint_of, found_by
from tests.published.models import MODELS, PublishedModel
from tests.published.tokenizer_sources import NotHereError, published_tokenizer
from tests.second_oracle import missing

PROBED = ("tests.export.bundles", "tests.published.making", "tests.published.warm")
"""Modules that this wing's processes need beside those of exports."""

Command = Callable[..., str]
"""Runs ``edgegen`` in an empty folder, and returns what it prints."""
Probed = Callable[..., dict[str, Any]]
"""Checks a bundle in a process in another folder, and returns what was compared."""
Record = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    forks = Forks(os.environ | SEARCH, also=(*EXPORTER, *PROBED))
    yield forks
    forks.close()


@pytest.fixture
def probed(forks: Forks, model: PublishedModel) -> Probed:
    def probed(bundle: Path, *checks: str) -> dict[str, Any]:
        if model.described:
            checks = (*checks, "described")
        arguments = (str(bundle), str(checkpoint_of(model)), ",".join(checks))
        done = forks.run(arguments, b"", Path("/"), os.environ | SEARCH, "tests.published.probe")
        assert done.returncode == 0, done.stderr.decode()
        said = json.loads(done.stdout)
        assert said["wrong"] == []
        return said["compared"]

    return probed


@pytest.fixture(scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Path:
    """The folder of the tokenizers that exports of this run have compiled, which its workers share."""
    folder = tmp_path_factory.getbasetemp().parent / f"compiled-{testrun_uid}"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def edgegen(forks: Forks, model: PublishedModel, tmp_path: Path, compiled_once: Path) -> Command:
    """Exports of most models are the quick ones: nothing here reads their report."""
    (tmp_path / "cwd").mkdir()

    def run(*arguments: str, stdin: str = "") -> str:
        module = "edgegen"
        if arguments[0] == "export" and not model.samples:
            module, arguments = "tests.published.quick_export", (str(compiled_once), *arguments[1:])
        done = forks.run(arguments, stdin.encode(), tmp_path / "cwd", os.environ | SEARCH, module)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return run


@pytest.fixture(params=MODELS, ids=str)
def model(request: pytest.FixtureRequest) -> PublishedModel:
    """A published model whose tokenizer and oracle are on this machine."""
    model: PublishedModel = request.param
    if reason := missing(model.oracle):
        pytest.skip(reason)
    try:
        published_tokenizer(model.tokenizer)
        model.read_template()
    except NotHereError as error:
        pytest.skip(str(error))
    return model


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Keeps what a step of a model or tokenizer found, for ``python docs/make_published.py``; until then nothing."""
    subject = str(next(iter(request.node.callspec.params.values())))
    file = found_by(subject, request.node.originalname.removeprefix("test_"))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)

    def write(found: dict[str, Any]) -> None:
        file.write_text(json.dumps(found), "utf-8")

    return write
