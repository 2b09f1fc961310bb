"""Files that the tests of published models make once, in a folder that outlives the run: named by the hash of their
inputs."""

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import tokenizers

from tests.published import gguf_file, hard_texts, making, tokenizer_sources
from tests.published.models import PublishedModel
from tests.published.tokenizer_sources import published_tokenizer
from tests.root import ROOT
from tests.second_oracle import FIRST, second_oracle

_VARIABLE = "EDGEGEN_PUBLISHED"


def store() -> Path:
    """The folder of what has been made: build/published, or that of EDGEGEN_PUBLISHED."""
    return Path(os.environ.get(_VARIABLE) or ROOT / "build" / "published")


def found_by(subject: str, step: str) -> Path:
    """The file that keeps what the last run of a step found of a model, or of the tokenizer of a source."""
    return store() / "found" / f"{re.sub('[:/]', '-', subject)}.{step}.json"


def checkpoint_of(model: PublishedModel) -> Path:
    """The model's checkpoint folder, with its goldens."""

    def make(folder: Path) -> None:
        if model.oracle == FIRST:
            making.make(model.name, folder)
        else:
            second_oracle().ask("published", name=model.name, folder=str(folder))

    return _made(f"{model}-{_inputs(model)}", make)


def gguf_of(model: PublishedModel) -> Path:
    """The same model as one GGUF file, which the gguf library writes."""
    checkpoint = checkpoint_of(model)
    key = hashlib.sha256(f"{checkpoint.name} {version('gguf')}".encode())
    for file in (Path(gguf_file.__file__), *sorted((ROOT / "tests/export/checkpoint").glob("gguf_*.py"))):
        key.update(file.read_bytes())
    folder = _made(
        f"{model}-gguf-{key.hexdigest()[:16]}", lambda to: gguf_file.write(model, checkpoint, to / "model.gguf")
    )
    return folder / "model.gguf"


def tokens_of(source: str) -> dict[str, Any]:
    """The hard texts of a published tokenizer and their ids: see ``making.spelled``."""
    content = published_tokenizer(source).content
    key = hashlib.sha256(content + version("tokenizers").encode())
    for module in (making, hard_texts):
        key.update(Path(str(module.__file__)).read_bytes())

    def make(folder: Path) -> None:
        library = cast(Any, tokenizers).Tokenizer.from_str(content.decode())
        (folder / making.GOLDEN).write_text(json.dumps(making.spelled(library)), "utf-8")

    folder = _made(f"{source.partition(':')[2].replace('/', '-')}-tokens-{key.hexdigest()[:16]}", make)
    return json.loads((folder / making.GOLDEN).read_bytes())


@cache
def _inputs(model: PublishedModel) -> str:
    """The hash of all that a model's checkpoint is made of."""
    found = hashlib.sha256(json.dumps(asdict(model), sort_keys=True).encode())
    found.update(json.dumps([model.read_config(), model.read_template()]).encode())
    tokenizer = published_tokenizer(model.tokenizer)
    found.update(tokenizer.content + json.dumps(tokenizer.settings, sort_keys=True).encode())
    for module in (making, hard_texts, tokenizer_sources):
        found.update(Path(str(module.__file__)).read_bytes())
    second = (ROOT / "tests" / "second_oracle.txt").read_text("utf-8")
    names = ("tokenizers", "torch", "transformers") if model.oracle == FIRST else ("tokenizers", "torch")
    found.update(f"{'' if model.oracle == FIRST else second} {[version(name) for name in names]}".encode())
    return found.hexdigest()[:16]


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name; made first where it is not there, by one process at a time."""
    folder = store() / name
    if folder.is_dir():
        return folder
    with _alone(name):
        if not folder.is_dir():
            begun = store() / f"{name}.part"
            shutil.rmtree(begun, ignore_errors=True)
            begun.mkdir()
            make(begun)
            begun.rename(folder)
    return folder


@contextmanager
def _alone(name: str) -> Generator[None]:
    store().mkdir(parents=True, exist_ok=True)
    with (store() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
