"""Weights kept as they are packed: the same bits, made once, never trusted unseen, never required."""

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.external_data import move_to_pages
from edgegen.errors import OptionError
from edgegen.llm import LLM
from edgegen.model.loading import open_runner
from edgegen.model.packed_weights import (
    _same_results,  # pyright: ignore[reportPrivateUsage]
    packed_graph,
    remove_packed,
)
from edgegen.options.engine import EngineOptions
from tests.export.bundles import export_to
from tests.export.checkpoint.layouts import write_gpt2

PACKED = EngineOptions(threads=1, packed_weights=True)
IDS = [5, 9, 200, 7, 1, 33, 250, 12, 90] * 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("packed")
    write_gpt2(folder / "checkpoint", layout="tied_with_head", n_layer=2, n_embd=128, vocab_size=300, n_positions=96)
    return export_to(folder / "checkpoint", folder / "bundle", "int8")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEGEN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def logits(bundle: Bundle, options: EngineOptions) -> Iterator[NDArray[np.float32]]:
    runner = open_runner(bundle, options)
    cache = runner.new_cache()
    yield runner.prefill(cache, 0, IDS).copy()
    for token in (4, 8, 15):
        yield runner.decode(cache, np.array([[token]]))[0, 0].copy()


@pytest.mark.parametrize("kv", ["float32", "int8"])
def test_give_the_same_bits_the_first_time_and_ever_after(model: Bundle, home: Path, kv: str) -> None:
    plain = EngineOptions(threads=1, kv=kv)  # pyright: ignore[reportArgumentType]
    packed = EngineOptions(threads=1, kv=kv, packed_weights=True)  # pyright: ignore[reportArgumentType]
    expected = [*logits(model, plain)]
    assert not (home / "packed").exists()
    for _ in range(2):
        for found, wanted in zip(logits(model, packed), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_are_made_once(model: Bundle) -> None:
    graph = packed_graph(model, model.variant)
    made = graph.stat().st_ino
    assert graph != model.file(model.variant.prefill)
    assert packed_graph(model, model.variant) == graph
    assert graph.stat().st_ino == made


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a bit of the weights": ("packed.data", flip),
    "a bit of the graph": ("graph.onnx", flip),
    "no weights": ("packed.data", empty),
    "no file of weights": ("packed.data", Path.unlink),
    "a record of nothing": ("packed.json", lambda path: path.write_text("[]")),
    "half a record": ("packed.json", lambda path: path.write_text('{"graph.onnx": {"size": 1}}')),
    "no record": ("packed.json", Path.unlink),
}


@pytest.mark.parametrize(("file", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_that_are_damaged_are_made_again(model: Bundle, file: str, damage: Callable[[Path], object]) -> None:
    graph = packed_graph(model, model.variant)
    whole = {path.name: path.read_bytes() for path in graph.parent.iterdir()}
    damage(graph.parent / file)
    assert packed_graph(model, model.variant) == graph
    assert {path.name: path.read_bytes() for path in graph.parent.iterdir()}.keys() == whole.keys()
    assert (graph.parent / "packed.data").read_bytes() == whole["packed.data"]


def test_of_another_processor_or_version_make_room(model: Bundle) -> None:
    graph = packed_graph(model, model.variant)
    other = graph.parent.with_name("another")
    graph.parent.rename(other)
    assert packed_graph(model, model.variant) == graph
    assert not other.exists()


def test_that_cannot_be_kept_are_done_without(model: Bundle, home: Path) -> None:
    home.write_text("a file where a folder should be")
    with pytest.warns(UserWarning, match="packed weights cannot be kept"):
        llm = LLM.load(model.path, options=PACKED)
    assert len(llm.generate(IDS, max_new_tokens=3).token_ids) == 3


def test_go_with_their_bundle(model: Bundle, home: Path) -> None:
    packed_graph(model, model.variant)
    remove_packed(model)
    assert [*(home / "packed").iterdir()] == []


def test_are_those_of_one_session() -> None:
    with pytest.raises(OptionError, match="packed_weights are those of sessions='one'"):
        EngineOptions(packed_weights=True, sessions="two")


def test_that_give_other_results_are_not_kept(model: Bundle, tmp_path: Path) -> None:
    write_gpt2(
        tmp_path / "other", layout="tied_with_head", n_layer=2, n_embd=128, vocab_size=300, n_positions=96, seed=9
    )
    other = packed_graph(export_to(tmp_path / "other", tmp_path / "bundle", "int8"), model.variant)
    own = packed_graph(model, model.variant)
    assert _same_results(model, model.variant, own)
    assert not _same_results(model, model.variant, other)


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="ends too early"):
        move_to_pages(b"\x3a\x7f\x00", BytesIO(), BytesIO(), "packed.data")
