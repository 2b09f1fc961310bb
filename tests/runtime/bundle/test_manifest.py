"""Manifest: strict reading, every problem at once."""

import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import (
    AdapterSource,
    BaseBundle,
    FileEntry,
    GraphContract,
    HiddenStates,
    KVLayer,
    KVSpec,
    Manifest,
    Quantization,
    SharedLayer,
)
from edgegen.errors import ManifestError
from edgegen.system import is_portable
from tests.runtime.models import write_fake_bundle


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return write_fake_bundle(tmp_path_factory.mktemp("fake") / "fake").manifest


@pytest.fixture
def raw(manifest: Manifest) -> dict[str, Any]:
    return without_hash(manifest)


def without_hash(manifest: Manifest) -> dict[str, Any]:
    """Return the written manifest without its last key, the hash."""
    raw: dict[str, Any] = json.loads(manifest.to_json())
    assert list(raw)[-1] == "sha256"
    del raw["sha256"]
    return raw


def problems(raw: Any) -> list[str]:
    """Return the problems that reading reports, line by line."""
    with pytest.raises(ManifestError) as caught:
        Manifest.from_json(json.dumps(raw), "here")
    text = str(caught.value)
    assert text.startswith("here ")
    first, *rest = text.removeprefix("here is malformed: ").splitlines()
    return [line.removeprefix("  - ") for line in rest] or [first]


def test_what_was_written_is_read(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_an_exported_bundles_manifest_is_what_it_says(int8_bundle: Bundle) -> None:
    text = (int8_bundle.path / "edgegen.json").read_text()
    assert Manifest.from_json(text) == int8_bundle.manifest
    assert int8_bundle.manifest.to_json() == text


def test_every_dataclass_of_the_manifest_is_frozen() -> None:
    for kind in (Manifest, FileEntry, KVSpec, KVLayer, SharedLayer, GraphContract, Quantization):
        assert is_dataclass(kind)
        assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


NAMES = st.text("abcé/_.-0", min_size=1, max_size=12).filter(is_portable)


@settings(deadline=None, max_examples=50)
@given(
    files=st.dictionaries(NAMES, st.tuples(st.integers(0, 2**63), st.text("0123456789abcdef")), max_size=5),
    provenance=st.dictionaries(
        st.text(max_size=5), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists), max_size=4
    ),
    name=st.text(max_size=20).filter(lambda text: text.isprintable()),
)
def test_any_files_and_provenance_survive(
    manifest: Manifest, files: dict[str, tuple[int, str]], provenance: dict[str, Any], name: str
) -> None:
    raw = without_hash(manifest)
    raw["files"] |= {path: {"size": size, "sha256": digest} for path, (size, digest) in files.items()}
    raw |= {"provenance": provenance, "name": name}
    read = Manifest.from_json(json.dumps(raw))
    assert Manifest.from_json(read.to_json()) == read
    assert read.provenance == provenance
    assert all(read.files[path] == FileEntry(*entry) for path, entry in files.items())


def test_every_fault_of_a_manifest_is_listed(raw: dict[str, Any]) -> None:
    del raw["name"]
    raw["nam"] = "x"
    raw["model"]["num_layers"] = "4"
    raw["model"]["hidden_size"] = True
    raw["quantization"]["scheme"] = "int3"
    raw["variants"][0]["kv"]["layers"][0]["kv_heads"] = 1.5
    raw["files"]["weights.data"]["size"] = None
    raw["tokenizer"] = 5
    raw["source"] = ["folder"]
    raw["provenance"] = "lost"
    assert sorted(problems(raw)) == sorted(
        [
            "nam: unknown key (did you mean 'name'?)",
            "name: missing",
            "model.num_layers: int expected, found str",
            "model.hidden_size: int expected, found bool",
            "quantization.scheme: 'int3' is not one of 'int8', 'int4', 'fp16', 'fp32'",
            "variants[0].kv.layers[0].kv_heads: int expected, found float",
            "files.weights.data.size: int expected, found NoneType",
            "tokenizer: str expected, found int",
            "source: object expected, found list",
            "provenance: object expected, found str",
        ]
    )


@pytest.mark.parametrize("kind", [Manifest])
def test_every_key_is_needed_but_provenance(raw: dict[str, Any], kind: type[Manifest]) -> None:
    for name in (f.name for f in fields(kind)):
        less = {key: value for key, value in raw.items() if key != name}
        if name == "provenance":
            assert Manifest.from_json(json.dumps(less)).provenance == {}
        elif name in ("base", "mtp"):
            assert getattr(Manifest.from_json(json.dumps(less)), name) is None
        elif name == "format_version":
            assert "format version None" in problems(less)[0]
        else:
            assert problems(less) == [f"{name}: missing"]


def test_an_adapter_bundle_names_its_base_and_has_no_graphs(raw: dict[str, Any]) -> None:
    own = {"name": "tiny-int8", "sha256": "0" * 64, "adapter": "adapter.safetensors"}
    files = {name: entry for name, entry in raw["files"].items() if not name.endswith((".onnx", ".data"))}
    files["adapter.safetensors"] = {"size": 1, "sha256": "0" * 64}
    kept = {**raw, "base": own, "files": files}
    manifest = Manifest.from_json(json.dumps(kept))
    assert manifest.base == BaseBundle(**own)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert '"base"' not in Manifest.from_json(json.dumps(raw)).to_json()
    wrong = {**own, "name": "../tiny", "sha256": "0", "adapter": "factors"}
    assert problems({**kept, "base": wrong}) == [
        "base.name: unsafe name '../tiny'",
        "base.sha256: 64 hex digits expected",
        "base.adapter: 'factors' is not among files",
    ]


def test_an_adapter_is_told_where_one_was_merged_in(raw: dict[str, Any]) -> None:
    assert raw["source"]["adapter"] is None
    assert Manifest.from_json(json.dumps(raw)).source.adapter is None
    raw["source"]["adapter"] = {"kind": "hub", "id": "org/lora", "revision": "c0ffee"}
    manifest = Manifest.from_json(json.dumps(raw))
    assert manifest.source.adapter == AdapterSource("hub", "org/lora", "c0ffee")
    assert without_hash(manifest) == raw
    raw["source"]["adapter"] = {"kind": "disk", "id": "org/lora"}
    wanted = ["source.adapter.kind: 'disk' is not one of 'hub', 'folder'", "source.adapter.revision: missing"]
    assert sorted(problems(raw)) == wanted
    del raw["source"]["revision"], raw["source"]["adapter"]
    assert problems(raw) == ["source.revision: missing", "source.adapter: missing"]


@pytest.mark.parametrize("version", [0, 1, 2, 4, "3", None, 1.5])
def test_another_format_version_is_refused_with_the_way_out(raw: dict[str, Any], version: Any) -> None:
    raw["format_version"] = version
    (problem,) = problems(raw)
    assert f"format version {version!r}; this edgegen reads version 3: export the model again" in problem
    assert "`edgegen export … --force`" in problem


@pytest.mark.parametrize("version", [3.0])
def test_what_only_equals_the_format_version_is_refused(raw: dict[str, Any], version: Any) -> None:
    raw["format_version"] = version
    assert problems(raw) == [f"format_version: int expected, found {type(version).__name__}"]


@pytest.mark.parametrize("text", ["", "{", "nonsense", '{"a": }', "[" * 100_000, '{"a": ' * 100_000])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ManifestError, match="is not valid JSON"):
        Manifest.from_json(text)


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"'])
def test_what_is_not_an_object_is_refused(text: str) -> None:
    with pytest.raises(ManifestError, match="must be a JSON object"):
        Manifest.from_json(text)


UNSAFE = [
    "",
    ".",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "/etc/passwd",
    "a//b",
    "a/",
    "./a",
    "a\\b",
    "..\\x",
    "C:x",
    "C:/x",
    "a\0b",
    "a\nb",
    "\ud800",
    "NUL",
    "a/com1.txt",
    "a.",
    "a /b",
    "a:b",
    "...",
]


@pytest.mark.parametrize("path", UNSAFE)
def test_a_path_out_of_the_bundle_or_of_a_doubtful_form_is_refused(raw: dict[str, Any], path: str) -> None:
    assert not is_portable(path)
    raw["files"][path] = raw["files"]["parity.json"]
    raw["folder"] = path
    assert problems(raw) == [f"files: unsafe path {path!r}", f"folder: unsafe path {path!r}"]


@pytest.mark.parametrize("path", ["a", "a.b", "a/b", "..a", "a..b", ".a", "é", "a b", "tokenizer.json"])
def test_plain_paths_are_fine(path: str) -> None:
    assert is_portable(path)


def test_names_that_are_one_file_on_some_systems_are_refused(raw: dict[str, Any]) -> None:
    raw["files"]["Parity.json"] = raw["files"]["parity.json"]
    assert problems(raw) == ["files: 'Parity.json' and 'parity.json' are one file where case makes no difference"]


def test_what_is_named_must_be_among_the_files(raw: dict[str, Any]) -> None:
    raw["tokenizer"] = "../../secret"
    raw["variants"][0]["weights"] = "elsewhere.data"
    raw["variants"][0]["decode"] = "/decode.onnx"
    raw["variants"][0]["kv"]["layers"][0]["cache_class"] = "windowed"
    assert sorted(problems(raw)) == [
        "tokenizer: '../../secret' is not among files",
        "variants[0].decode: '/decode.onnx' is not among files",
        "variants[0].kv.layers[0]: unknown cache class 'windowed'",
        "variants[0].weights: 'elsewhere.data' is not among files",
    ]


def shared(layer: int, source: int) -> dict[str, Any]:
    names = {name: f"{name}.{layer}" for name in ("past_key", "past_value", "present_key", "present_value")}
    return {"layer": layer, "source": source, **names}


def test_a_shared_layer_keeps_nothing_and_reads_anothers_cache(raw: dict[str, Any]) -> None:
    kv = raw["variants"][0]["kv"]
    kv["layers"][0]["layer"] = 2
    alone = Manifest.from_json(json.dumps(raw)).variants[0].kv
    kv["shared"] = [shared(3, 2), shared(5, 2)]
    read = Manifest.from_json(json.dumps(raw))
    found = read.variants[0].kv
    assert [(state.layer, state.kind, state.source) for state in found.states] == [
        (2, "growing", None),
        (3, "shared", 2),
        (5, "shared", 2),
    ]
    assert sum(state.bytes_per_token for state in found.states) == found.bytes_per_token == alone.bytes_per_token
    assert found.bytes_seen(7) == 3 * alone.bytes_seen(7)
    assert Manifest.from_json(read.to_json()) == read


def test_a_layer_may_read_anothers_cache_besides_its_own(raw: dict[str, Any]) -> None:
    kv = raw["variants"][0]["kv"]
    kv["layers"] = [{**kv["layers"][0], "layer": i} for i in (2, 3)]
    kv["shared"] = [shared(3, 2)]
    found = Manifest.from_json(json.dumps(raw)).variants[0].kv
    assert {(state.layer, state.kind, state.source) for state in found.states} == {
        (2, "growing", None),
        (3, "growing", None),
        (3, "shared", 2),
    }


def test_a_shared_layer_needs_the_cache_of_another_one(raw: dict[str, Any]) -> None:
    kv = raw["variants"][0]["kv"]
    kv["layers"][0]["layer"] = 2
    kv["shared"] = [shared(3, 1), shared(2, 2)]
    assert problems(raw) == [
        "variants[0].kv.shared[0].source: layer 1 has no cache of its own",
        "variants[0].kv.shared[1].layer: layer 2 reads its own cache",
    ]
    kv |= {"kind": "concat", "shared": [shared(3, 2)]}
    kv["classes"]["full"] |= {"seqlens": None, "total": None}
    assert problems(raw) == ["variants[0].kv.shared: none expected for a cache of kind 'concat'"]


CLASSES = "variants[0].kv.classes.full"


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("in_place", {}, []),
        ("concat", {"seqlens": None, "total": None}, []),
        ("in_place", {"window": 8}, []),
        ("in_place", {"total": None}, [f"{CLASSES}.total: str expected for a cache of kind 'in_place'"]),
        (
            "concat",
            {"window": 8},
            [
                f"{CLASSES}.seqlens: null expected for a cache of kind 'concat'",
                f"{CLASSES}.total: null expected for a cache of kind 'concat'",
                f"{CLASSES}.window: null expected for a cache of kind 'concat'",
            ],
        ),
        ("merged", {}, ["variants[0].kv.kind: 'merged' is not one of 'in_place', 'concat'"]),
        ("concat", {"seqlens": 5}, [f"{CLASSES}.seqlens: str expected, found int"]),
    ],
)
def test_a_cache_class_fits_the_kind_of_its_cache(
    raw: dict[str, Any], kind: str, fields: dict[str, Any], expected: list[str]
) -> None:
    kv = raw["variants"][0]["kv"]
    kv["kind"] = kind
    kv["classes"]["full"] |= fields
    if not expected:
        assert Manifest.from_json(json.dumps(raw)).variants[0].kv.kind == kind
    else:
        assert problems(raw) == expected


@pytest.mark.parametrize(
    ("dtype", "kind", "expected"),
    [
        ("int8", "in_place", []),
        ("int8", "concat", ["variants[0].kv.dtype: 'float32' expected for a cache of kind 'concat'"]),
        ("int4", "in_place", ["variants[0].kv.dtype: 'int4' is not one of 'float32', 'int8'"]),
    ],
)
def test_only_a_cache_in_place_is_rounded(raw: dict[str, Any], dtype: str, kind: str, expected: list[str]) -> None:
    kv = raw["variants"][0]["kv"]
    kv |= {"dtype": dtype, "kind": kind}
    if kind == "concat":
        kv["classes"]["full"] |= {"seqlens": None, "total": None}
    if not expected:
        assert Manifest.from_json(json.dumps(raw)).variants[0].kv.dtype == dtype
    else:
        assert problems(raw) == expected


def test_variants_have_names_of_their_own(raw: dict[str, Any]) -> None:
    raw["variants"] *= 2
    assert problems(raw) == ["variants: two have the same name"]


def test_a_bundle_without_a_variant_is_none(raw: dict[str, Any]) -> None:
    raw["variants"] = []
    assert problems(raw) == ["variants: at least one is needed"]


def test_a_bundle_needs_no_tokenizer(raw: dict[str, Any]) -> None:
    raw["tokenizer"] = None
    assert Manifest.from_json(json.dumps(raw)).tokenizer is None


def test_a_manifest_that_is_no_text_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "edgegen.json").write_bytes(b'{"name": "\xff"}')
    with pytest.raises(ManifestError, match="not UTF-8 text"):
        Bundle.open(tmp_path)


def test_the_memory_of_a_token_is_two_vectors_per_layer(raw: dict[str, Any]) -> None:
    layer = raw["variants"][0]["kv"]["layers"][0]
    raw["variants"][0]["kv"]["layers"] = [layer, layer | {"kv_heads": 3, "head_dim": 5}]
    kv = Manifest.from_json(json.dumps(raw)).variants[0].kv
    assert kv.bytes_per_token == 2 * 1 * 1 * 4 + 2 * 3 * 5 * 4
    assert replace(kv, dtype="int8").bytes_per_token == 2 * 1 * 1 + 2 * 3 * 5


def test_a_latent_is_kept_once(raw: dict[str, Any]) -> None:
    layer = raw["variants"][0]["kv"]["layers"][0]
    raw["variants"][0]["kv"]["layers"] = [layer, layer | {"head_dim": 5, "latent": True}]
    read = Manifest.from_json(json.dumps(raw))
    kv = read.variants[0].kv
    assert kv.bytes_per_token == 2 * 1 * 4 + 5 * 4
    assert [one.head_dim for one in kv.arrays] == [1, 1, 5]
    assert Manifest.from_json(read.to_json()) == read
    assert [sorted(one.keys() & {"latent"}) for one in json.loads(read.to_json())["variants"][0]["kv"]["layers"]] == [
        [],
        ["latent"],
    ]


def test_traced_graphs_have_no_latents(raw: dict[str, Any]) -> None:
    kv = raw["variants"][0]["kv"]
    kv["kind"], kv["layers"][0]["latent"] = "concat", True
    kv["classes"]["full"] |= {"seqlens": None, "total": None}
    assert problems(raw) == ["variants[0].kv.layers[0].latent: false expected for a cache of kind 'concat'"]


def test_hidden_states_may_be_left_out(raw: dict[str, Any]) -> None:
    """And then nothing is written of them: such bundles are what they were before there were any."""
    (variant,) = raw["variants"]
    assert "hidden_states" not in variant
    variant["hidden_states"] = {"name": "hidden", "size": 4}
    text = json.dumps(raw)
    manifest = Manifest.from_json(text)
    assert manifest.variants[0].hidden_states == HiddenStates("hidden", 4)
    assert without_hash(manifest) == raw


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        ({"name": "hidden", "size": 0}, ["variants[0].hidden_states.size: at least 1 expected"]),
        ({"name": "hidden"}, ["variants[0].hidden_states.size: missing"]),
        ("hidden", ["variants[0].hidden_states: object expected, found str"]),
    ],
)
def test_hidden_states_have_a_name_and_a_size(raw: dict[str, Any], hidden: Any, expected: list[str]) -> None:
    raw["variants"][0]["hidden_states"] = hidden
    assert problems(raw) == expected


def test_traced_graphs_have_no_hidden_states(raw: dict[str, Any]) -> None:
    (variant,) = raw["variants"]
    variant["hidden_states"] = {"name": "hidden", "size": 4}
    variant["kv"]["kind"] = "concat"
    for one in variant["kv"]["classes"].values():
        one |= {"seqlens": None, "total": None}
    assert problems(raw) == ["variants[0].hidden_states: null expected for a cache of kind 'concat'"]


FIXED = {"layer": 0, "past": "past.0.conv", "present": "present.0.conv", "shape": [2, 6]}


def with_fixed(raw: dict[str, Any], *states: dict[str, Any]) -> dict[str, Any]:
    """The manifest with fixed states in its first layer, and its keys and values in the second."""
    kv = raw["variants"][0]["kv"]
    kv["fixed"] = list(states)
    kv["layers"][0]["layer"] = 1
    return raw


def test_a_bundle_without_fixed_states_does_not_speak_of_them(raw: dict[str, Any]) -> None:
    kv = raw["variants"][0]["kv"]
    assert "fixed" not in kv
    assert all("layer" not in layer for layer in kv["layers"])
    states = Manifest.from_json(json.dumps(raw)).variants[0].kv.states
    assert [(state.layer, state.kind, state.bytes_per_row) for state in states] == [(0, "growing", 0)]


def test_what_each_layer_keeps_is_data(raw: dict[str, Any]) -> None:
    second = {**FIXED, "past": "past.0.more", "present": "present.0.more", "shape": [3]}
    manifest = Manifest.from_json(json.dumps(with_fixed(raw, FIXED, second)))
    kv = manifest.variants[0].kv
    assert [(s.layer, s.kind, s.bytes_per_token, s.bytes_per_row) for s in kv.states] == [
        (0, "fixed", 0, 2 * 6 * 4),
        (0, "fixed", 0, 3 * 4),
        (1, "growing", kv.bytes_per_token, 0),
    ]
    assert kv.bytes_per_row == 2 * 6 * 4 + 3 * 4
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_a_windowed_state_says_its_window(raw: dict[str, Any]) -> None:
    raw["variants"][0]["kv"]["classes"]["full"]["window"] = 7
    (state,) = Manifest.from_json(json.dumps(raw)).variants[0].kv.states
    assert (state.kind, state.window) == ("windowed", 7)


def test_a_fixed_state_has_sizes(raw: dict[str, Any]) -> None:
    assert problems(with_fixed(raw, {**FIXED, "shape": [2, 0]}, {**FIXED, "shape": []})) == [
        "variants[0].kv.fixed[0].shape: positive sizes expected, found [2, 0]",
        "variants[0].kv.fixed[1].shape: positive sizes expected, found []",
    ]


def test_traced_graphs_have_no_fixed_states(raw: dict[str, Any]) -> None:
    kv = with_fixed(raw, FIXED)["variants"][0]["kv"]
    kv["kind"] = "concat"
    assert any("kv.fixed: none expected" in problem for problem in problems(raw))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"hidden_input": None}, ["mtp.hidden_input: str expected"]),
        ({"hidden_states": {"name": "hidden", "size": 6}}, ["mtp.hidden_states.size: that of every variant expected"]),
        ({"prefill": "other.onnx"}, ["mtp.prefill: 'other.onnx' is not among files"]),
        ({"kv": "none"}, ["mtp.kv: object expected, found str"]),
    ],
)
def test_a_multi_token_prediction_head_takes_the_models_states(
    raw: dict[str, Any], changed: dict[str, Any], expected: list[str]
) -> None:
    variant = raw["variants"][0]
    variant["hidden_states"] = {"name": "hidden", "size": 4}
    raw["mtp"] = {**variant, "name": "mtp", "hidden_input": "previous"}
    read = Manifest.from_json(json.dumps(raw))
    assert read.mtp is not None
    assert read.mtp.hidden_input == "previous"
    assert without_hash(read) == raw
    raw["mtp"] = {key: value for key, value in {**raw["mtp"], **changed}.items() if value is not None}
    assert problems(raw) == expected


def test_only_heads_take_hidden_states(raw: dict[str, Any]) -> None:
    raw["variants"][0]["hidden_input"] = "previous"
    assert problems(raw) == ["variants[0].hidden_input: null expected"]


def _reading(raw: dict[str, Any], **cache: Any) -> dict[str, Any]:
    """With a head that reads what all layers of the model keep; ``cache``: otherwise."""
    variant = raw["variants"][0]
    variant["hidden_states"] = {"name": "wanted_states", "size": 4}
    read = {"layers": list(range(len(variant["kv"]["layers"]))), "int8": None, **cache}
    return {**raw, "mtp": {**variant, "name": "mtp", "hidden_input": "previous", "model_cache": read}}


def test_a_head_may_read_the_models_cache(raw: dict[str, Any]) -> None:
    whole = _reading(raw)
    read = Manifest.from_json(json.dumps(whole))
    assert without_hash(read) == whole
    assert read.mtp
    assert read.mtp.kept_bytes_per_token == 0
    assert read.mtp.over("int4").kv.dtype == "int4"
    assert read.variants[0].hidden_states
    assert read.variants[0].hidden_states.embedding_size is None


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        ({"layers": [7]}, ["mtp.model_cache.layers: layer 7 of variants[0] has no such cache"]),
        ({"layers": [0, 0]}, ["mtp.model_cache.layers: 1 expected, found 2"]),
        ({"int8": "other.onnx"}, ["mtp.model_cache.int8: 'other.onnx' is not among files"]),
    ],
)
def test_what_a_head_reads_is_there(raw: dict[str, Any], cache: dict[str, Any], expected: list[str]) -> None:
    assert problems(_reading(raw, **cache)) == expected


def test_a_head_has_a_graph_for_an_int8_cache(raw: dict[str, Any]) -> None:
    whole = _reading(raw)
    variant = whole["variants"][0]
    int8 = {**variant, "name": "int8", "kv": {**variant["kv"], "dtype": "int8"}}
    whole["variants"] = [variant, int8]
    assert problems(whole) == ["mtp.model_cache.int8: str expected, for variants[1] has an int8 KV cache"]
    whole["variants"] = [{**variant, "model_cache": {"layers": [0], "int8": None}}]
    assert "variants[0].model_cache: null expected" in problems(whole)
