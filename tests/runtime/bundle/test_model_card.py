"""Notes on a model's use in its model card."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import FileEntry
from edgegen.bundle.model_card import usage_note
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from tests.runtime.models import write_fake_bundle

pytestmark = pytest.mark.unit


def with_card(folder: Path, card: str | None) -> Bundle:
    """A bundle whose manifest lists the card; there is none without a text."""
    write_fake_bundle(folder)
    bundle = Bundle.open(folder)
    files = {**bundle.manifest.files, "README.md": FileEntry(1, "0" * 64)}
    listed = Bundle.with_manifest(folder, replace(bundle.manifest, files=files), bundle.content)
    if card is not None:
        listed.file("README.md").write_text(card, newline="")
    return listed


@pytest.mark.parametrize(
    ("card", "note"),
    [
        ("---\nlicense: mit\nedgegen_note: writes poems\n---\n# A model\n", "writes poems"),
        ("---\nedgegen_note: 'a teller: it''s quick'\n---\n", "a teller: it's quick"),
        ('---\r\nedgegen_note: "a teller: quick"\r\n---\r\n', "a teller: quick"),
        (f"---\nedgegen_note: {'x' * 999}\n---\n", "x" * 300),
        ("---\nedgegen_note:\nlicense: mit\n---\n", None),
        ("---\nedgegen_note: ''\n---\n", None),
        ("---\nlicense: mit\n---\nedgegen_note: in the text\n", None),
        ("edgegen_note: without front matter\n", None),
        ("", None),
        (None, None),
    ],
)
def test_the_note_is_that_of_the_front_matter(card: str | None, note: str | None, tmp_path: Path) -> None:
    assert usage_note(with_card(tmp_path / "bundle", card)) == note


def test_a_bundle_without_a_card_says_nothing(tmp_path: Path) -> None:
    write_fake_bundle(tmp_path / "bundle")
    assert usage_note(Bundle.open(tmp_path / "bundle")) is None


def test_the_embedded_model_is_a_story_teller() -> None:
    said = usage_note(Bundle.open(BundleStore().resolve(DEFAULT_MODEL)))
    assert said == 'a story-teller: begin a story, such as "Once upon a time" or "One day, Tom and his dog"'
