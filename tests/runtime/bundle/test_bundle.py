"""Bundle: a damaged one is told apart and never run; a good one is read once."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import MOST_BYTES
from edgegen.bundle.verified_files import VerifiedFiles
from edgegen.errors import BundleError, BundleNotFoundError, ManifestError, UsageError, VerificationError
from edgegen.llm import LLM
from edgegen.model.ort_session import require_version
from edgegen.options.engine import EngineOptions
from tests.runtime.models import raw_manifest, write_fake_bundle
from tests.systems import link


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:  # the fakes suffice here
    return write_fake_bundle(tmp_path / "bundle")


@pytest.fixture(scope="module")
def unused_bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Bundle]:
    """Whole ones that age while other tests run: verification is remembered for what has been left alone a while."""
    return [write_fake_bundle(tmp_path_factory.mktemp("aging") / "bundle") for _ in range(3)]


@pytest.fixture(autouse=True, scope="module")
def begin_to_age(unused_bundles: list[Bundle]) -> None:
    assert unused_bundles


@pytest.fixture
def old_bundle(unused_bundles: list[Bundle]) -> Bundle:
    bundle = unused_bundles.pop()
    newest = max(bundle.file(name).stat().st_ctime_ns for name in bundle.manifest.files)
    time.sleep(max(0.0, (newest - time.time_ns()) / 1e9 + 2.01))
    return bundle


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def replace_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_a_link_to_a_copy_elsewhere(path: Path) -> None:
    shutil.move(path, path.parents[2] / "elsewhere")
    link(path, path.parents[2] / "elsewhere")


def replace_by_a_dangling_link(path: Path) -> None:
    path.unlink()
    link(path, Path("nowhere"))


def replace_by_a_circle(path: Path) -> None:
    path.unlink()
    link(path, Path(path.name))


DAMAGES: dict[Callable[[Path], None], str] = {
    flip_a_bit: "contents differ from the manifest's hash",
    truncate: "bytes, but the manifest says",
    lengthen: "bytes, but the manifest says",
    Path.unlink: "missing",
    replace_by_a_folder: "not a file",
    replace_by_a_link_to_a_copy_elsewhere: "leads out of the bundle",
    replace_by_a_dangling_link: "missing",
    replace_by_a_circle: "",
}


def test_a_whole_bundle_passes(bundle: Bundle) -> None:
    bundle.verify()
    bundle.verify_once()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", ["weights.data", "tokenizer.json", "prefill.onnx"])
def test_damage_is_told_by_file(bundle: Bundle, damage: Callable[[Path], None], name: str) -> None:
    damage(bundle.file(name))
    with pytest.raises(VerificationError) as caught:
        bundle.verify()
    message = str(caught.value)
    assert f"the bundle {bundle.path} is damaged: {name}: " in message
    assert DAMAGES[damage] in message
    assert message.endswith("Export it again with --force.")


def test_all_damages_are_told_at_once(bundle: Bundle) -> None:
    damages = list(DAMAGES)[:6]
    for name, damage in zip(sorted(bundle.manifest.files), damages, strict=False):
        damage(bundle.file(name))
    with pytest.raises(VerificationError, match=f"{len(damages)} problems:") as caught:
        bundle.verify()
    for name, damage in zip(sorted(bundle.manifest.files), damages, strict=False):
        assert f"  - {name}: " in str(caught.value)
        assert DAMAGES[damage] in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_told_by_name(bundle: Bundle) -> None:
    bundle.file("weights.data").chmod(0)
    with pytest.raises(VerificationError, match=r"weights\.data: cannot be read: Permission denied"):
        bundle.verify()


def test_a_folder_of_the_files_that_is_a_link_out_is_found(bundle: Bundle, tmp_path: Path) -> None:
    shutil.move(bundle.content, tmp_path / "outside")
    link(bundle.content, tmp_path / "outside")
    with pytest.raises(VerificationError, match="leads out of the bundle"):
        bundle.verify()


def test_a_manifest_that_leads_out_of_the_bundle_is_told(bundle: Bundle, tmp_path: Path) -> None:
    shutil.move(bundle.path / "edgegen.json", tmp_path / "outside.json")
    link(bundle.path / "edgegen.json", tmp_path / "outside.json")
    for check in (bundle.verify, bundle.verify_once):
        with pytest.raises(VerificationError, match=r"edgegen\.json: leads out of the bundle"):
            check()


def test_files_that_the_manifest_does_not_list_are_left_alone(bundle: Bundle) -> None:
    (bundle.content / "more.py").write_text("raise SystemExit")
    (bundle.path / "v7").mkdir()
    bundle.verify()


def test_a_hard_link_is_a_file_like_others(bundle: Bundle, tmp_path: Path) -> None:
    weights = bundle.file("weights.data")
    os.link(weights, tmp_path / "another")
    bundle.verify()


def test_a_link_to_the_bundle_is_the_bundle(bundle: Bundle, tmp_path: Path) -> None:
    link(tmp_path / "link", bundle.path)
    Bundle.open(tmp_path / "link").verify()


def test_files_the_manifest_does_not_know_are_left_alone(bundle: Bundle) -> None:
    (bundle.content / "notes.txt").write_text("mine")
    bundle.verify()


class TestReachingOnnxRuntime:
    """Proved by graphs that it could not load: were they tried, the error would be another one."""

    def test_a_damaged_bundle_does_not(self, bundle: Bundle) -> None:
        with pytest.raises(BundleError, match=r"cannot load prefill\.onnx"):
            LLM.load(bundle.path)  # whole, so it is tried
        flip_a_bit(bundle.file("prefill.onnx"))
        with pytest.raises(VerificationError):
            LLM.load(bundle.path)

    def test_a_bundle_with_damaged_weights_does_not(self, int8_bundle: Bundle, tmp_path: Path) -> None:
        shutil.copytree(int8_bundle.path, tmp_path / "copy")
        copy = Bundle.open(tmp_path / "copy")
        LLM.load(copy.path)
        flip_a_bit(copy.file("weights.data"))
        with pytest.raises(VerificationError, match=r"weights\.data: contents differ"):
            LLM.load(copy.path)
        LLM.load(copy.path, options=EngineOptions(verify="never"))  # its graphs would load: nothing but the hash knows

    def test_a_bundle_for_a_newer_version_of_it_does_not(self, bundle: Bundle) -> None:
        raw = raw_manifest(bundle.path)
        raw["variants"][0]["minimum_onnxruntime"] = "99.0.0"
        (bundle.path / "edgegen.json").write_text(json.dumps(raw))
        with pytest.raises(BundleError, match=r"needs ONNX Runtime 99\.0\.0 or newer, and .* is installed"):
            LLM.load(bundle.path)

    def test_a_variant_for_a_newer_version_of_it_leaves_the_others(self, int8_bundle: Bundle, tmp_path: Path) -> None:
        shutil.copytree(int8_bundle.path, tmp_path / "copy")
        raw = raw_manifest(tmp_path / "copy")
        raw["variants"][0]["minimum_onnxruntime"] = "99.0.0"
        (tmp_path / "copy" / "edgegen.json").write_text(json.dumps(raw))
        LLM.load(tmp_path / "copy", options=EngineOptions(kv="float32"))
        with pytest.raises(BundleError, match=r"the variant 'int8-kv-int8' of this bundle needs ONNX Runtime 99\.0\.0"):
            LLM.load(tmp_path / "copy")

    @pytest.mark.parametrize("minimum", ["1.4.0", "1.9", "1", "1.23.2"])
    def test_versions_are_compared_as_numbers(self, minimum: str) -> None:
        require_version(minimum)

    def test_a_malformed_manifest_does_not(self, bundle: Bundle) -> None:
        (bundle.path / "edgegen.json").write_text("{}")
        with pytest.raises(ManifestError):
            LLM.load(bundle.path)


class TestMemoryOfVerification:
    @pytest.fixture
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The names of the files whose contents are hashed."""
        seen: list[str] = []
        check = VerifiedFiles.problem

        def counting(files: VerifiedFiles, name: str) -> str | None:
            seen.append(name)
            return check(files, name)

        monkeypatch.setattr(VerifiedFiles, "problem", counting)
        return seen

    def test_the_second_time_no_file_is_read(self, old_bundle: Bundle, reads: list[str]) -> None:
        bundle = old_bundle
        bundle.verify_once()
        assert sorted(reads) == sorted(bundle.manifest.files)
        reads.clear()
        Bundle.open(bundle.path).verify_once()
        assert reads == []
        bundle.verify()  # asked for by name, it is done all the same
        assert sorted(reads) == sorted(bundle.manifest.files)

        # What has changed is read again: its contents, even with the old size and time …
        before = bundle.file("weights.data").stat()
        flip_a_bit(bundle.file("weights.data"))
        os.utime(bundle.file("weights.data"), ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(VerificationError):
            bundle.verify_once()
        flip_a_bit(bundle.file("weights.data"))
        reads.clear()
        bundle.verify_once()
        assert sorted(reads) == sorted(bundle.manifest.files)

    def test_another_manifest_over_the_same_files_is_verified(self, old_bundle: Bundle) -> None:
        bundle = old_bundle
        bundle.verify_once()
        raw = raw_manifest(bundle.path)
        raw["files"]["weights.data"]["sha256"] = "0" * 64
        (bundle.path / "edgegen.json").write_text(json.dumps(raw))
        with pytest.raises(VerificationError):
            Bundle.open(bundle.path).verify_once()

    def test_a_bundle_that_has_just_been_written_is_not_remembered(self, bundle: Bundle, reads: list[str]) -> None:
        """Another write within the clock's tick would look like the same file."""
        bundle.verify_once()
        bundle.verify_once()
        assert len(reads) == 2 * len(bundle.manifest.files)

    def test_a_damaged_bundle_is_not_remembered(self, bundle: Bundle, edgegen_home: Path) -> None:
        flip_a_bit(bundle.file("weights.data"))
        for _ in range(2):
            with pytest.raises(VerificationError):
                bundle.verify_once()
        assert not list(edgegen_home.rglob("*.json"))

    @pytest.mark.parametrize("remembered", ["", "nonsense", "[]", "null", "\ud800", "{}"])
    def test_a_memory_that_is_broken_is_none(
        self, bundle: Bundle, edgegen_home: Path, remembered: str, reads: list[str]
    ) -> None:
        memory = edgegen_home / "verified"
        memory.mkdir(parents=True)
        bundle.verify_once()
        for path in memory.iterdir():
            path.unlink()
        name = hashlib.sha256(str(bundle.path.resolve()).encode()).hexdigest()[:32]
        (memory / f"{name}.json").write_bytes(remembered.encode("utf-8", "surrogatepass"))
        reads.clear()
        bundle.verify_once()
        assert len(reads) == len(bundle.manifest.files)

    def test_a_home_that_cannot_be_written_costs_a_verification_each_time(
        self, old_bundle: Bundle, edgegen_home: Path, reads: list[str]
    ) -> None:
        edgegen_home.write_text("a file where the folder should be")
        bundle = old_bundle
        for _ in range(2):
            bundle.verify_once()
        assert len(reads) == 2 * len(bundle.manifest.files)


class TestOpening:
    def test_reads_the_manifest_and_nothing_else(self, bundle: Bundle) -> None:
        shutil.rmtree(bundle.content)
        assert Bundle.open(bundle.path).manifest == bundle.manifest

    @pytest.mark.parametrize("path", ["nowhere", "bundle/v1", "bundle/edgegen.json"])
    def test_a_folder_without_a_manifest_is_no_bundle(self, bundle: Bundle, tmp_path: Path, path: str) -> None:
        with pytest.raises(BundleNotFoundError, match=r"is not a bundle: it has no edgegen\.json"):
            Bundle.open(tmp_path / path)

    def test_a_manifest_of_any_size_is_not_read(self, bundle: Bundle) -> None:
        manifest = bundle.path / "edgegen.json"
        manifest.write_bytes(manifest.read_bytes().rstrip() + b" " * MOST_BYTES)
        with pytest.raises(ManifestError, match=r"edgegen\.json is larger than 4,194,304 bytes"):
            Bundle.open(bundle.path)

    def test_unknown_keys_of_any_number_are_counted(self, bundle: Bundle) -> None:
        more = {f"nam{n}": n for n in range(100_000)}
        (bundle.path / "edgegen.json").write_text(json.dumps(raw_manifest(bundle.path) | more))
        with pytest.raises(ManifestError) as caught:
            Bundle.open(bundle.path)
        assert "nam0: unknown key (did you mean 'name'?)" in str(caught.value)
        assert str(caught.value).endswith("and 99900 more")

    def test_knows_where_things_are_and_how_large(self, bundle: Bundle) -> None:
        assert bundle.file("weights.data") == bundle.path / "v1" / "weights.data"
        assert bundle.nbytes == sum(path.stat().st_size for path in bundle.content.iterdir())
        assert bundle.variant is bundle.manifest.variants[0]
        assert bundle.json("parity.json")["tokens"] == 512

    def test_finds_the_variant_by_what_its_cache_holds(self, int8_bundle: Bundle, bundle: Bundle) -> None:
        assert [int8_bundle.variant_with(kv) for kv in ("int8", "float32")] == [*int8_bundle.manifest.variants]
        assert bundle.variant_with("float32") is bundle.variant
        with pytest.raises(UsageError, match=r"bundle has no variant with a KV cache in int8, only in float32"):
            bundle.variant_with("int8")

    def test_runs_the_float32_variant_with_an_int4_cache(self, int8_bundle: Bundle) -> None:
        floats, packed = int8_bundle.variant_with("float32"), int8_bundle.variant_with("int4")
        assert (packed.prefill, packed.weights) == (floats.prefill, floats.weights)
        assert packed.name == f"{floats.name}-kv-int4"
        (layer, *_) = packed.kv.layers
        assert packed.kv.layer_bytes(layer) == 2 * layer.kv_heads * (layer.head_dim / 2 + 4)

    def test_tells_what_traced_graphs_cannot_have(self, bundle: Bundle) -> None:
        kv = replace(bundle.variant.kv, kind="concat")
        traced = replace(bundle, manifest=replace(bundle.manifest, variants=(replace(bundle.variant, kv=kv),)))
        with pytest.raises(UsageError, match=r"only in float32: graphs traced by optimum have no others\.$"):
            traced.variant_with("int8")
