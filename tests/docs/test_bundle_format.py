"""docs/bundle-format.md against the manifest's types and a real export."""

import re
from dataclasses import fields
from pathlib import Path

import onnx
import pytest

from edgegen.bundle import manifest
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.evaluation.parity.reference import ParityReference
from edgegen.evaluation.parity.report import ParityReport, VariantParity
from edgegen_export.pipeline import export
from edgegen_export.source.optimum.traced_graph import TracedGraph
from tests.docs.markdown import ROOT, blocks, code_spans
from tests.export.checkpoint.layouts import write_gpt2
from tests.toy_decoder import optimum_graph, toy_weights, write_graphs, write_model

PAGE = ROOT / "docs" / "bundle-format.md"
TYPES = (
    manifest.Manifest,
    manifest.FileEntry,
    manifest.Source,
    manifest.AdapterSource,
    manifest.BaseBundle,
    manifest.Model,
    manifest.Quantization,
    manifest.MatrixFormat,
    manifest.GraphVariant,
    manifest.HiddenStates,
    manifest.KVSpec,
    manifest.CacheClass,
    manifest.KVLayer,
    manifest.SharedLayer,
    manifest.GraphContract,
    manifest.RotaryTable,
    ParityReport,
    VariantParity,
    ParityReference,
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


@pytest.mark.parametrize("kv", ["", ".kv-int8"])
@pytest.mark.parametrize("graph", ["prefill", "decode"])
def test_tensors_are_those_of_the_graphs(bundle: Bundle, graph: str, kv: str) -> None:
    model = onnx.ModelProto.FromString(bundle.file(f"{graph}{kv}.onnx").read_bytes())
    rotary = {(f"rotary.{{i}}.{name}", "in") for name in ("cos", "sin")}
    assert _tensors_of(model) | rotary == _described("tensor", graph)  # this model has none


@pytest.mark.parametrize("graph", ["prefill", "decode"])
@pytest.mark.parametrize("positions", [True, False])
def test_tensors_are_those_of_traced_graphs(tmp_path: Path, graph: str, positions: bool) -> None:
    path = write_model(optimum_graph(toy_weights(), positions=positions), tmp_path / "model.onnx")
    models = write_graphs(TracedGraph.read(path), tmp_path, "int8")
    assert _tensors_of(models[graph]) == _described("traced tensor", graph)


def test_weights_are_laid_out_as_described(bundle: Bundle) -> None:
    model = onnx.ModelProto.FromString(bundle.file("prefill.onnx").read_bytes())
    stored = [tensor for tensor in model.graph.initializer if tensor.external_data]
    for tensor in stored:
        place = {entry.key: entry.value for entry in tensor.external_data}
        assert place["location"] == "weights.data"
        assert int(place["offset"]) % (4096 if int(place["length"]) >= 4096 else 64) == 0
    shapes = {tensor.name: list(tensor.dims) for tensor in stored}
    assert shapes["layers.0.attn.q+k+v.weight"] == [192, 1, 64]
    assert shapes["layers.0.attn.q+k+v.weight.scales"] == [192, 1]
    assert shapes["embed.weight.table"] == [2048, 64]


def _tensors_of(model: onnx.ModelProto) -> set[tuple[str, str]]:
    inputs = {(_template(value.name), "in") for value in model.graph.input}
    return inputs | {(_template(value.name), "out") for value in model.graph.output}


def _described(table: str, graph: str) -> set[tuple[str, str]]:
    """Inputs and outputs that a table of the page gives a graph; ``.value`` beside a key stands for the same name."""
    lines = PAGE.read_text("utf-8").split("\n")
    begin = lines.index(f"| {table} | dtype and shape | prefill | decode |")
    column = [cell.strip() for cell in lines[begin].strip("|").split("|")].index(graph)
    found: set[tuple[str, str]] = set()
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[column] in ("in", "out"):
            first, *others = re.findall(r"`([^`]+)`", cells[0])
            names = [first, *(first.rpartition(".")[0] + other for other in others)]
            found |= {(name, cells[column]) for name in names}
    return found


def _template(name: str) -> str:
    return re.sub(r"\.\d+\.", ".{i}.", name)
