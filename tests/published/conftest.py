"""The walk of a published model: the command in processes of its own, and what is recorded for docs/published.md."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forked_command import EXPORTER, Forks
from tests.published.made import store
from tests.published.models import MODELS, PublishedModel
from tests.published.tokenizer_sources import NotHereError, published_tokenizer
from tests.root import ROOT
from tests.second_oracle import missing

SEARCH = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")])}

Command = Callable[..., str]
"""Runs ``edgegen`` in an empty folder, and returns what it prints."""
Record = Callable[[str, dict[str, Any]], None]


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    forks = Forks(os.environ | SEARCH, also=EXPORTER)
    yield forks
    forks.close()


@pytest.fixture
def edgegen(forks: Forks, tmp_path: Path) -> Command:
    (tmp_path / "cwd").mkdir()

    def run(*arguments: str, stdin: str = "") -> str:
        done = forks.run(arguments, stdin.encode(), tmp_path / "cwd", os.environ | SEARCH)
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
    """Keeps what a step found, for ``python docs/make_published.py``."""

    def write(subject: str, found: dict[str, Any]) -> None:
        folder = store() / "found"
        folder.mkdir(parents=True, exist_ok=True)
        name = request.node.originalname.removeprefix("test_")
        (folder / f"{subject}.{name}.json").write_text(json.dumps(found), "utf-8")

    return write
