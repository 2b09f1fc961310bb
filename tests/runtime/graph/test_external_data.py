"""Bytes that a run reads of the tensors beside a graph; sums that one can do by hand."""

from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.graph.external_data import bytes_of_tables, bytes_read
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.checkpoint.layouts import write_llama

VOCAB, WIDTH, HEADS, INNER = 1024, 128, 2 * 64, 192
PADDING = 16 * 4096
"""Tensors begin at pages; and some are no matrices."""


@pytest.fixture(params=["fp32", "int8"])
def bytes_of_a_weight(request: pytest.FixtureRequest) -> float:
    return 4 if request.param == "fp32" else 1 + 2 / 64  # a code, and a scale of two bytes for 64 of them


def bundle_of(folder: Path, bytes_of_a_weight: float, *, tied: bool) -> Bundle:
    config: dict[str, Any] = {"hidden_size": WIDTH, "head_dim": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    config |= {"intermediate_size": INNER, "vocab_size": VOCAB, "tie_word_embeddings": tied}
    write_llama(folder / "checkpoint", **config)
    scheme = "fp32" if bytes_of_a_weight == 4 else "int8"
    # Plain rounding: what calibration chooses has blocks of other sizes.
    return export(str(folder / "checkpoint"), folder / "bundle", ExportOptions(scheme=scheme, fast=scheme == "int8"))[0]


@pytest.mark.parametrize("tied", [True, False])
def test_a_table_is_not_read_unless_it_is_the_heads_too(tmp_path: Path, bytes_of_a_weight: float, tied: bool) -> None:
    bundle = bundle_of(tmp_path, bytes_of_a_weight, tied=tied)
    layer = WIDTH * 3 * HEADS + HEADS * WIDTH + 3 * WIDTH * INNER
    matrices = (2 * layer + VOCAB * WIDTH) * bytes_of_a_weight
    graph = bundle.file(bundle.variant.decode).read_bytes()
    read = bytes_read(graph)
    assert matrices <= read < matrices + PADDING
    table = 0 if tied else VOCAB * WIDTH * bytes_of_a_weight
    assert bytes_of_tables(graph) == table
    assert table <= bundle.manifest.files[bundle.variant.weights].size - read < table + PADDING


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="ends too early"):
        bytes_read(b"\x3a\x7f\x00")
    with pytest.raises(ValueError, match="ends too early"):
        bytes_of_tables(b"\x3a\x7f\x00")
