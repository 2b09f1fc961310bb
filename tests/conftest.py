"""Fixtures of every test: a home of its own, no network, and the real test material where it is at hand."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen_export.pipeline import export
from tests.runtime.models import write_checkpoint

# A shell starts background jobs with interrupts ignored, and so all that they start: Ctrl-C could not be tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
# huggingface_hub and transformers read these once, when they are imported.
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@pytest.fixture(autouse=True, scope="session")
def session_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What session fixtures do must not reach the user's home either."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("EDGEGEN_HOME", str(tmp_path_factory.mktemp("session-home")))
        yield


@pytest.fixture(autouse=True)
def edgegen_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``EDGEGEN_HOME`` for each test."""
    home = tmp_path / "edgegen-home"
    monkeypatch.setenv("EDGEGEN_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real checkpoints, tokenizers and texts."""
    folder = os.environ.get("EDGEGEN_TEST_DATA")
    if not folder:
        pytest.skip("EDGEGEN_TEST_DATA is not set: it names the folder of real checkpoints, tokenizers and texts")
    return Path(folder)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random checkpoint whose tokens are bytes."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="session")
def int8_bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export(str(checkpoint), tmp_path_factory.mktemp("bundles") / "tiny-int8", scheme="int8")[0]
