"""docs/bundle-format.md against the manifest's types and a real export."""

import re
from dataclasses import fields

import onnx
import pytest

from edgegen import manifest
from edgegen.bundle import Bundle
from edgegen.store import DEFAULT_MODEL, BundleStore
from edgegen_export.parity import ParityReport
from edgegen_export.pipeline import export
from tests.checkpoint.layouts import write_gpt2
from tests.docs.markdown import ROOT, blocks, code_spans

PAGE = ROOT / "docs" / "bundle-format.md"
TYPES = (
    manifest.Manifest,
    manifest.FileEntry,
    manifest.Source,
    manifest.AdapterSource,
    manifest.Model,
    manifest.Quantization,
    manifest.GraphVariant,
    manifest.KVSpec,
    manifest.CacheClass,
    manifest.KVLayer,
    manifest.GraphContract,
    manifest.RotaryTable,
    ParityReport,
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle")
    tokenizer = Bundle.open(BundleStore().resolve(DEFAULT_MODEL)).file("tokenizer.json")
    write_gpt2(folder / "tiny", layout="untied", vocab_size=2048, tokenizer=tokenizer)
    written, _ = export(str(folder / "tiny"), folder / "tiny-int8")
    return written


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_every_field_is_described(kind: type) -> None:
    said = {word for span in code_spans(PAGE) for word in span.split(".")}
    assert {field.name for field in fields(kind)} - said == set()


def test_layout_is_that_of_a_bundle(bundle: Bundle) -> None:
    (layout,) = (block for block in blocks(PAGE) if block.kind == "bundle")
    names = [line.split()[0] for line in layout.code.split("\n")]
    version = names.index(f"{bundle.manifest.folder}/")
    assert names[:version] == [manifest.MANIFEST_NAME]
    assert set(names[version + 1 :]) == {file.name for file in bundle.content.iterdir()}


@pytest.mark.parametrize("graph", ["prefill", "decode", "pair"])
def test_tensors_are_those_of_the_graphs(bundle: Bundle, graph: str) -> None:
    model = onnx.ModelProto.FromString(bundle.file(f"{graph}.onnx").read_bytes())
    inputs = {_template(value.name) for value in model.graph.input}
    outputs = {_template(value.name) for value in model.graph.output}
    assert _described(graph, "in") == inputs
    assert _described(graph, "out") == outputs


def test_weights_are_laid_out_as_described(bundle: Bundle) -> None:
    model = onnx.ModelProto.FromString(bundle.file("pair.onnx").read_bytes())
    places = {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in model.graph.initializer
    }
    for place in places.values():
        assert place["location"] == "weights.data"
        assert int(place["offset"]) % (4096 if int(place["length"]) >= 4096 else 64) == 0
    shapes = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    assert shapes["layers.0.attn.q+k+v.weight"] == [192, 1, 64]
    assert shapes["layers.0.attn.q+k+v.weight.scales"] == [192, 1]
    assert shapes["embed.weight.table"] == [2048, 64]


def _described(graph: str, direction: str) -> set[str]:
    """The tensors that the page's table gives a graph; ``.value`` beside a key stands for the same name."""
    lines = PAGE.read_text("utf-8").split("\n")
    begin = lines.index("| tensor | dtype and shape | prefill | decode | pair |")
    column = [cell.strip() for cell in lines[begin].strip("|").split("|")].index(graph)
    found: set[str] = set()
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[column] == direction:
            first, *others = re.findall(r"`([^`]+)`", cells[0])
            found |= {first, *(first.rpartition(".")[0] + other for other in others)}
    return found


def _template(name: str) -> str:
    return re.sub(r"\.\d+\.", ".{i}.", name)
