"""A hub whose answers are not true, with each version of huggingface_hub that is there: one sentence, nothing kept.

All lies are told to one process, since huggingface_hub reads its environment when it is imported: each repository has
its own.
"""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.export.checkpoint.layouts import write_gpt2
from tests.root import ROOT
from tests.second_oracle import ENVIRONMENT
from tests.standin_hub import Answer, StandInHub

OPEN = """
import json, sys
from edgegen_export.checkpoint import Checkpoint
for repo in sys.argv[1:]:
    said = []
    try:
        Checkpoint.open(repo, progress=said.append)
        print(json.dumps([repo, None, None, said]))
    except Exception as error:
        print(json.dumps([repo, type(error).__name__, str(error), said]))
"""
OTHER = "f" * 40
OUTSIDE = "../../../../outside/x"

Lie = Callable[[Answer], Answer]


def headers(**changed: str) -> Lie:
    """Other headers where there are such."""
    named = {name.replace("_", "-"): value for name, value in changed.items()}
    return lambda a: a._replace(headers={k: named.get(k, v) for k, v in a.headers.items()})


def listing(change: Callable[[dict[str, Any]], object]) -> Lie:
    """Another listing: ``change`` changes it, or returns what comes instead of it."""

    def lie(answer: Answer) -> Answer:
        if not answer.request.path.startswith("/api/"):
            return answer
        told = json.loads(answer.body)
        return answer._replace(body=json.dumps(change(told) or told).encode())

    return lie


def weights_listed(**fields: object) -> Lie:
    """Other fields of the weights in the listing."""

    def change(told: dict[str, Any]) -> None:
        next(file for file in told["siblings"] if file["rfilename"] == "model.safetensors").update(fields)

    return listing(change)


def body(end: str, change: Callable[[bytes], bytes], **more: str) -> Lie:
    """Another content of the files whose names end so, with ``more`` headers."""
    named = {name.replace("_", "-"): value for name, value in more.items()}

    def lie(answer: Answer) -> Answer:
        if answer.request.method != "GET" or not answer.request.path.endswith(end) or answer.status >= 300:
            return answer
        return answer._replace(body=change(answer.body), headers={**answer.headers, **named})

    return lie


def redirect(to: Callable[[str], str], status: int = 307) -> Lie:
    """Files lie where ``to`` says of their path."""

    def lie(answer: Answer) -> Answer:
        if "/resolve/" not in answer.request.path:
            return answer
        return answer._replace(status=status, body=b"", headers={**answer.headers, "Location": to(answer.request.path)})

    return lie


LIES: dict[str, tuple[Lie, str]] = {
    "etag": (headers(ETag=f'"{OUTSIDE}"'), "the ETag '../../../../outside/x', which is no plain word"),
    "etag-absolute": (headers(ETag='"/tmp/x"'), "which is no plain word"),
    "linked-etag": (headers(X_Linked_ETag=f'"{OUTSIDE}"'), "model.safetensors: the hub answers with the ETag '../"),
    "etag-backslash": (headers(ETag='"..\\\\..\\\\x"'), "which is no plain word"),
    "other-sha256": (headers(X_Linked_ETag=f'"{"0" * 64}"'), "and then announces 000000"),
    "commit-header": (headers(X_Repo_Commit=OUTSIDE), "the X-Repo-Commit '../../../../outside/x', which"),
    "other-commit": (headers(X_Repo_Commit=OTHER), "no revision"),
    "commit": (listing(lambda told: told.update(sha=OUTSIDE)), "lists the commit '../../../../outside/x'"),
    "commit-number": (listing(lambda told: told.update(sha=5)), "lists the commit 5"),
    "commit-none": (listing(lambda told: told.update(sha=None)), "lists the commit None"),
    "name-number": (weights_listed(rfilename=5), "a file with the name 5"),
    "size-text": (weights_listed(size="5"), "with the size '5'"),
    "size-less-than-none": (weights_listed(size=-5), "with the size -5"),
    "size-immense": (weights_listed(size=10**30), "with the size 1000000"),
    "size-other": (weights_listed(size=10), "lists 10 bytes and then announces"),
    "sha256-path": (weights_listed(lfs={"sha256": OUTSIDE, "size": 1, "pointerSize": 1}), "with the SHA-256 '../"),
    "sha256-number": (weights_listed(lfs={"sha256": 5, "size": 1, "pointerSize": 1}), "with the SHA-256 5"),
    "lfs-empty": (weights_listed(lfs={"size": 1}), "does not answer as a model hub"),
    "size-none-weights-longer": (
        lambda a: body("model.safetensors", lambda b: b * 9)(weights_listed(size=None)(a)),
        "sends more than the",
    ),
    "files-number": (listing(lambda told: told.update(siblings=5)), "does not answer as a model hub"),
    "listing-list": (listing(lambda told: [told]), "does not answer as a model hub"),
    "listing-text": (body("/listing-text", lambda _: b"<html>"), "does not answer as a model hub"),
    "listing-deep": (body("/listing-deep", lambda _: b"[" * 200_000), "does not answer as a model hub"),
    "config-immense": (
        listing(lambda told: next(f for f in told["siblings"] if f["rfilename"] == "config.json").update(size=10**9)),
        "config.json with 1000000000 bytes",
    ),
    "corrupt": (body("model.safetensors", lambda b: b[:-1] + bytes([b[-1] ^ 1])), "it has been deleted"),
    "longer": (body("/config.json", lambda b: b + b" " * 10_000_000), "config.json: the hub sends more than the"),
    "chunks": (body("/config.json", lambda b: b + b" " * 10_000_000, Transfer_Encoding="chunked"), "sends more than"),
    "weights-chunks": (body(".safetensors", lambda b: b * 9, Transfer_Encoding="chunked"), "sends more than the"),
    "gzip": (body("/config.json", gzip.compress, Content_Encoding="gzip"), "answers in the encoding 'gzip'"),
    "listing-gzip": (body("/listing-gzip", gzip.compress, Content_Encoding="gzip"), "in the encoding 'gzip'"),
    "listing-long": (body("/listing-long", lambda b: b + b" " * 101_000_000), "sends more than the 100000000 bytes"),
    "redirect-file": (redirect(lambda _: "file:///etc/passwd", 302), "'file:///etc/passwd', which is no address"),
    "redirect-circle": (redirect(lambda path: path), "redirects without end"),
}


class Told(NamedTuple):
    """How it ended for a repository: the error, and the stages that were told."""

    kind: str | None
    error: str | None
    said: list[str]


class Session(NamedTuple):
    hub: StandInHub
    home: Path
    told: dict[str, Told]


VERSIONS = {
    "installed": Path(sys.executable),
    "newer": ROOT / (os.environ.get(ENVIRONMENT) or ".venv-transformers5") / "bin" / "python",
}


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The words of a process about every repository, the true one last."""
    python = VERSIONS[request.param]
    if not python.is_file():
        pytest.skip("has no environment of transformers 5")
    home = tmp_path_factory.mktemp("hub")
    folder = write_gpt2(home / "true", layout="original", n_embd=8, n_head=2, vocab_size=11, n_positions=6)
    (home / "outside").mkdir()
    names = [*LIES, "true"]
    with StandInHub({f"org/{name}": folder for name in names}) as hub:
        known = {name: lie for name, (lie, _) in LIES.items()}

        def lie(answer: Answer) -> Answer:
            name = next((name for name in known if f"/org/{name}/" in f"{answer.request.path}/"), None)
            return known[name](answer) if name else answer

        hub.lie = lie
        path = os.pathsep.join([str(ROOT), str(ROOT / "export")])
        env = hub.environment(home / "hf") | {"PYTHONPATH": path}
        command = [str(python), "-c", OPEN, *(f"org/{name}" for name in names)]
        done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return Session(hub, home, {repo.removeprefix("org/"): Told(*rest) for repo, *rest in lines})


@pytest.mark.slow
@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_one_sentence(session: Session, name: str) -> None:
    kind, error, _ = session.told[name]
    assert kind == "HubError"
    assert error is not None
    assert LIES[name][1] in error
    assert "\n" not in error
    assert len(error) < 500


@pytest.mark.slow
def test_nothing_is_kept_of_what_was_refused(session: Session) -> None:
    cache = session.home / "hf" / "hub"
    assert {path.name for path in session.home.iterdir()} == {"true", "outside", "hf"}
    assert not list((session.home / "outside").iterdir())
    for name in LIES:
        kept = [path for path in (cache / f"models--org--{name}").rglob("*") if path.is_file()]
        assert not [path for path in kept if path.suffix in (".safetensors", ".incomplete")], name
        assert sum(path.stat().st_size for path in kept) < 100_000, name


@pytest.mark.slow
def test_the_truth_is_believed_and_verified(session: Session) -> None:
    kind, _, said = session.told["true"]
    assert kind is None
    assert said[-2].startswith("downloading model.safetensors")
    assert said[-1] == "verifying model.safetensors"
