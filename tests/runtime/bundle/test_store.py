"""BundleStore: names and paths."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.errors import BundleError, BundleNotFoundError, UsageError
from tests.runtime.models import write_fake_bundle
from tests.systems import link
from tests.windows_files import windows_files


@pytest.fixture
def store(edgegen_home: Path) -> BundleStore:
    store = BundleStore()
    assert store.root == edgegen_home / "bundles"
    for name in ("gpt2-int8", "gpt2-fp32", "other"):
        write_fake_bundle(store.root / name)
    return store


def names(store: BundleStore) -> list[str]:
    return [entry.name for entry in store if entry.name != DEFAULT_MODEL]


def test_lists_its_bundles_by_name_and_nothing_else(store: BundleStore) -> None:
    (store.root / "empty").mkdir()
    (store.root / "file").write_text("")
    assert names(store) == ["gpt2-fp32", "gpt2-int8", "other"]


def test_lists_unreadable_ones_with_the_reason(store: BundleStore) -> None:
    (store.root / "other" / "edgegen.json").write_text("{}")
    (entry,) = [entry for entry in store if entry.name == "other"]
    assert entry.bundle is None
    assert "format version None" in str(entry.problem)


def test_an_absent_store_is_an_empty_one(tmp_path: Path) -> None:
    assert names(BundleStore(tmp_path / "nowhere")) == []


def test_finds_a_bundle_by_name_and_by_path(store: BundleStore, tmp_path: Path) -> None:
    assert store.resolve("gpt2-int8") == store.root / "gpt2-int8"
    write_fake_bundle(tmp_path / "elsewhere")
    assert store.resolve(tmp_path / "elsewhere") == tmp_path / "elsewhere"
    assert store.resolve(str(tmp_path / "elsewhere")) == tmp_path / "elsewhere"


def test_a_path_wins_over_a_name(store: BundleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fake_bundle(tmp_path / "here" / "other")
    monkeypatch.chdir(tmp_path / "here")
    assert store.resolve("other") == Path("other")
    assert store.resolve("gpt2-int8") == store.root / "gpt2-int8"


def test_a_folder_that_is_no_bundle_does_not_hide_a_name(
    store: BundleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "other").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert store.resolve("other") == store.root / "other"


def test_a_home_in_a_path_is_the_users(store: BundleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fake_bundle(tmp_path / "me" / "mine")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "me"))
    assert store.resolve("~/mine") == tmp_path / "me" / "mine"


def test_an_unknown_name_is_told_with_the_nearest_one(store: BundleStore) -> None:
    with pytest.raises(BundleNotFoundError, match=r"'gpt2-int4' \(did you mean 'gpt2-int8'\?\); `edgegen list`"):
        store.resolve("gpt2-int4")


@pytest.mark.parametrize("reference", ["nowhere/at/all", "/nowhere", "..", "", "a\0b", "x" * 200, "~nobody-at-all/x"])
def test_whatever_the_reference_the_answer_is_one_error(store: BundleStore, reference: str) -> None:
    with pytest.raises(BundleNotFoundError):
        store.resolve(reference)


def test_a_checkpoint_is_told_to_be_exported_first(store: BundleStore, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        BundleNotFoundError, match=f"looks like a checkpoint: run `edgegen export {re.escape(str(tmp_path))}` first"
    ):
        store.resolve(tmp_path)


class TestRemoving:
    def test_deletes_the_bundle_of_that_name(self, store: BundleStore) -> None:
        assert store.remove("other") == store.root / "other"
        assert not (store.root / "other").exists()
        assert names(store) == ["gpt2-fp32", "gpt2-int8"]

    def test_deletes_an_unreadable_one_too(self, store: BundleStore) -> None:
        (store.root / "other" / "edgegen.json").write_text("{}")
        store.remove("other")
        assert not (store.root / "other").exists()

    def test_of_one_in_use_leaves_it_whole(self, store: BundleStore, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "The process cannot access the file")

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", refuse)
            with pytest.raises(
                BundleError, match="other cannot be removed: The process cannot access the file; if it is still in use"
            ):
                store.remove("other")
        store.resolve("other")
        Bundle.open(store.root / "other").verify()

    def test_remains_are_told_and_are_no_bundle(self, store: BundleStore, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, ignore_errors: bool = False) -> None:
            if not ignore_errors:
                raise PermissionError(13, "The process cannot access the file")

        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", refuse)
            for _ in range(2):  # a bundle that takes its place, and is in use too
                with pytest.raises(BundleError, match=r"other is removed, but files of it stay in .*removed-\d+"):
                    store.remove("other")
                assert names(store) == ["gpt2-fp32", "gpt2-int8"]
                write_fake_bundle(store.root / "other")
        assert len([*store.root.glob(".other.removed-*")]) == 2
        store.remove("other")
        assert [*store.root.glob(".*")] == []

    def test_remains_are_swept_once_nothing_uses_them(self, store: BundleStore) -> None:
        remains = store.root / ".other.removed-123"
        remains.mkdir()
        (remains / "weights.data").write_bytes(b"mapped")
        (store.root / ".mine").mkdir()
        with windows_files():
            with (remains / "weights.data").open("rb"):
                store.remove("other")
                assert names(store) == ["gpt2-fp32", "gpt2-int8"]
                assert (remains / "weights.data").exists()
            assert names(store) == ["gpt2-fp32", "gpt2-int8"]
        assert sorted(path.name for path in store.root.iterdir()) == [".mine", "gpt2-fp32", "gpt2-int8"]

    def test_of_one_whose_files_are_open_says_so_and_leaves_it_whole(self, store: BundleStore) -> None:
        bundle = Bundle.open(store.root / "other")
        with windows_files(), bundle.file("weights.data").open("rb"), pytest.raises(BundleError, match="still in use"):
            store.remove("other")
        if sys.platform != "win32" or "other" in names(store):  # Wine renames a folder in use
            bundle.verify()

    def test_of_an_unknown_name_suggests_the_nearest(self, store: BundleStore) -> None:
        with pytest.raises(BundleNotFoundError, match="did you mean 'other'"):
            store.remove("othr")

    @pytest.mark.parametrize(
        "name", ["../bundles/other", "/etc", "a/b", "..", ".", "", ".hidden", "C:x", "a\\b", "nul", "a."]
    )
    def test_takes_names_only(self, store: BundleStore, name: str) -> None:
        with pytest.raises(UsageError, match="cannot be a bundle's name"):
            store.remove(name)

    def test_of_a_folder_that_is_no_bundle_is_refused(self, store: BundleStore) -> None:
        (store.root / "notes").mkdir()
        with pytest.raises(BundleNotFoundError):
            store.remove("notes")
        assert (store.root / "notes").is_dir()

    def test_of_the_embedded_one_is_refused(self, store: BundleStore) -> None:
        with pytest.raises(BundleNotFoundError, match="the embedded one cannot be removed"):
            store.remove(DEFAULT_MODEL)

    def test_of_a_link_leaves_what_it_leads_to(self, store: BundleStore, tmp_path: Path) -> None:
        elsewhere = write_fake_bundle(tmp_path / "elsewhere")
        link(store.root / "linked", tmp_path / "elsewhere")
        store.remove("linked")
        assert "linked" not in names(store)
        elsewhere.verify()
