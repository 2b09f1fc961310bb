"""Bundles with hidden states beside the same ones without: what differs is one output of the prefill graphs."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import HiddenStates
from edgegen.cli.info import describe
from edgegen.errors import UsageError
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import random_ids, runner_of

pytestmark = pytest.mark.usefixtures("whole_parity")


@pytest.fixture(scope="module")
def bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("hidden") / "tiny-int8"
    return export(str(checkpoint), folder, ExportOptions(scheme="int8", with_hidden=True))[0]


def test_the_manifest_names_the_output(bundle: Bundle, int8_bundle: Bundle) -> None:
    size = bundle.manifest.model.hidden_size
    assert [one.hidden_states for one in bundle.manifest.variants] == [HiddenStates("hidden_states", size)] * 2
    assert [one["embedding_size"] for one in describe(bundle)["variants"]] == [size] * 2
    assert "hidden_states" not in (int8_bundle.path / "edgegen.json").read_text("utf-8")


def test_only_prefill_graphs_and_what_undoes_smoothing_are_added(bundle: Bundle, int8_bundle: Bundle) -> None:
    """GPT-2's head is its embedding, and so nothing is folded into its final norm."""
    with_hidden, without = bundle.manifest.files, int8_bundle.manifest.files
    changed = {name for name in without if with_hidden[name] != without[name]}
    assert changed == {"prefill.onnx", "prefill.kv-int8.onnx", "parity.json"}  # which has the size of the bundle
    for name in changed - {"parity.json"}:
        nodes, plain = ([*_graph(one, name).node] for one in (bundle, int8_bundle))
        assert [node.op_type for node in nodes] == [node.op_type for node in plain]
        assert {value.name for value in _graph(bundle, name).output} == {
            *(value.name for value in _graph(int8_bundle, name).output),
            "hidden_states",
        }
        (output,) = (value for value in _graph(bundle, name).output if value.name == "hidden_states")
        dims = [dim.dim_param or dim.dim_value for dim in output.type.tensor_type.shape.dim]
        assert dims == ["batch", "tokens", bundle.manifest.model.hidden_size]


def test_logits_have_the_same_bits_with_and_without(bundle: Bundle, int8_bundle: Bundle) -> None:
    ids = random_ids(bundle, 40)
    first, second = (runner_of(one) for one in (bundle, int8_bundle))
    caches = first.new_cache(), second.new_cache()
    seen = list[int]()
    asked = first.prefill(caches[0], 0, ids, lambda hidden: seen.append(len(hidden))).copy()
    np.testing.assert_array_equal(asked, second.prefill(caches[1], 0, ids))
    one_more = np.array([[7]], np.int64)
    np.testing.assert_array_equal(first.decode(caches[0], one_more).copy(), second.decode(caches[1], one_more))
    assert seen == [40]


def test_the_exported_manifest_can_be_read_again(bundle: Bundle) -> None:
    raw = json.loads((bundle.path / "edgegen.json").read_text("utf-8"))
    assert raw["variants"][0]["hidden_states"] == {"name": "hidden_states", "size": bundle.manifest.model.hidden_size}
    assert Bundle.open(bundle.path).manifest == bundle.manifest


def test_a_traced_model_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"2 problems:\n  - .*--adapter out\n  - .*--via optimum or --with-hidden out"):
        export("any", tmp_path / "bundle", ExportOptions(via="optimum", with_hidden=True, adapter="another"))
    with pytest.raises(UsageError, match=r"^optimum's graphs have no output of hidden states"):
        export("any", tmp_path / "bundle", ExportOptions(via="optimum", with_hidden=True))
    assert not (tmp_path / "bundle").exists()


def _graph(bundle: Bundle, name: str) -> onnx.GraphProto:
    return onnx.ModelProto.FromString(bundle.file(name).read_bytes()).graph
