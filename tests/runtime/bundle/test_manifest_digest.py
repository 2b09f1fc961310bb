"""The hash that edgegen.json carries of itself: any change of the file is found."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.errors import ManifestError, VerificationError
from tests.runtime.models import raw_manifest

FLIPS = 600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(BundleStore().resolve(DEFAULT_MODEL), tmp_path / "stories")


def test_the_digest_is_of_the_text_with_zeros_in_its_place(folder: Path) -> None:
    text = (folder / "edgegen.json").read_text()
    stated = json.loads(text)["sha256"]
    zeros = re.sub('"sha256": "[0-9a-f]{64}"(?=\n}\n$)', f'"sha256": "{64 * "0"}"', text)
    assert zeros != text
    assert stated == hashlib.sha256(zeros.encode()).hexdigest() == Bundle.open(folder).sha256


def test_no_flipped_bit_passes(folder: Path) -> None:
    manifest = folder / "edgegen.json"
    whole = manifest.read_bytes()
    for n in range(FLIPS):
        changed = bytearray(whole)
        changed[n * len(whole) // FLIPS] ^= 1 << n % 8
        manifest.write_bytes(changed)
        with pytest.raises((ManifestError, VerificationError)):
            Bundle.open(folder).verify()


@pytest.mark.parametrize("more", ["\n", " ", "}", "\0"])
def test_no_text_may_follow_the_digest(folder: Path, more: str) -> None:
    with (folder / "edgegen.json").open("a") as file:
        file.write(more)
    with pytest.raises(ManifestError):
        Bundle.open(folder)


@pytest.mark.parametrize("hash_", ["", 64 * "0", 7])
def test_a_hash_in_another_place_is_damage(folder: Path, hash_: object) -> None:
    raw = raw_manifest(folder)
    (folder / "edgegen.json").write_text(json.dumps({"sha256": hash_, **raw}, indent=1) + "\n", newline="\n")
    with pytest.raises(ManifestError, match="the hash of its own text is not where an export writes it"):
        Bundle.open(folder)


def test_a_changed_manifest_reaches_no_graph(folder: Path) -> None:
    manifest = folder / "edgegen.json"
    manifest.write_text(manifest.read_text().replace('"parameters": ', '"parameters": 1'), newline="\n")
    with pytest.raises(VerificationError, match=r"edgegen\.json: contents differ from its own hash"):
        LLM.load(folder)


def test_an_older_bundle_has_none(folder: Path) -> None:
    text = json.dumps(raw_manifest(folder), indent=1)
    (folder / "edgegen.json").write_text(text, newline="\n")
    bundle = Bundle.open(folder)
    assert (bundle.manifest_digest.stated, bundle.sha256) == (None, hashlib.sha256(text.encode()).hexdigest())
    bundle.verify()


def test_only_the_expected_bundle_is_loaded(folder: Path) -> None:
    expected = Bundle.open(folder).sha256
    with LLM.load(folder, options=EngineOptions(expect_sha256=expected.upper())) as llm:
        assert llm.bundle.sha256 == expected
    (folder / "edgegen.json").write_text(json.dumps(raw_manifest(folder)))
    with pytest.raises(VerificationError, match=f"its SHA-256 is [0-9a-f]{{64}}, not {expected}"):
        LLM.load(folder, options=EngineOptions(expect_sha256=expected))
