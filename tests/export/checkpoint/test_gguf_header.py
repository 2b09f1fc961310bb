"""The header of a GGUF file: what is read, and how every damage is refused."""

import struct
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint.gguf import header
from edgegen_export.checkpoint.gguf.file import open_gguf
from edgegen_export.checkpoint.gguf.formats import FORMATS
from edgegen_export.tensors.mapped_file import MappedFile
from tests.export.checkpoint.gguf_bytes import ARRAY, STRING, U32, Raw, gguf_bytes, text

KNOWN = {"general.architecture": "llama"}
MATRIX = [Raw("a", (4, 2))]
DATA = bytes(32)


def read(path: Path, content: bytes) -> header.GgufHeader:
    path.write_bytes(content)
    return header.read_header(MappedFile(path))


def refusal(path: Path, content: bytes) -> str:
    with pytest.raises(CheckpointError) as caught:
        read(path, content)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


def test_the_formats_are_the_librarys() -> None:
    theirs = {int(kind): (kind.name, *GGML_QUANT_SIZES[kind]) for kind in GGMLQuantizationType}
    ours = {number: (known.name, known.block, known.nbytes) for number, known in FORMATS.items()}
    assert {number: theirs.get(number, known) for number, known in ours.items()} == ours
    assert theirs.keys() <= ours.keys()


def test_values_become_plain_python(tmp_path: Path) -> None:
    metadata: dict[str, Any] = {
        "int": 7,
        "float": 1e-5,  # the float32, said as a config.json would
        "true": True,
        "text": "süß",
        "texts": ["a", "", "▁b"],
        "ints": [1, 2],
        "nothing": [],
        "nested": [[1], [2, 3]],
        "not text": struct.pack("<I", STRING) + text(b"a\xff"),
    }
    found = read(tmp_path / "x", gguf_bytes(metadata)).metadata
    assert found == {**metadata, "not text": "a\N{REPLACEMENT CHARACTER}"}
    assert [type(value) for value in found.values()][:5] == [int, float, bool, str, list]


@pytest.mark.parametrize("version", [2, 3])
def test_tensors_have_rows_first(tmp_path: Path, version: int) -> None:
    found = read(tmp_path / "x", gguf_bytes(KNOWN, [Raw("a", (32, 3, 2), 8)], bytes(204), version=version)).tensors["a"]
    assert (found.format.name, found.shape, found.nbytes) == ("Q8_0", (2, 3, 32), 6 * 34)


def test_the_alignment_may_be_another(tmp_path: Path) -> None:
    tensors = [Raw("a", (4,)), Raw("b", (4,), offset=64)]
    content = gguf_bytes({**KNOWN, "general.alignment": 64}, tensors, bytes(80), alignment=64)
    assert read(tmp_path / "x", content).tensors["b"].offset == len(content) - 16


BROKEN: dict[str, tuple[bytes, str]] = {
    "magic": (gguf_bytes(KNOWN, magic=b"GGML"), "not a GGUF file: it begins with b'GGML'"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer, not the model"),
    "big endian": (gguf_bytes(KNOWN, version=3 << 24), "a big-endian GGUF file"),
    "version 1": (gguf_bytes(KNOWN, version=1), "GGUF version 1, only 2 and 3 are read"),
    "version 4": (gguf_bytes(KNOWN, version=4), "GGUF version 4"),
    "many tensors": (gguf_bytes(KNOWN, counts=(1 << 60, 1)), "it would have 1152921504606846976 tensors"),
    "many keys": (gguf_bytes(KNOWN, counts=(0, 1 << 40)), "it would have 1099511627776 metadata keys"),
    "one key more": (gguf_bytes(KNOWN, counts=(0, 2)), "a metadata key is empty"),
    "long text": (gguf_bytes({"a": struct.pack("<IQ", STRING, 1 << 62)}), "truncated: it ends at byte"),
    "long array": (
        gguf_bytes({"a": struct.pack("<IIQ", ARRAY, U32, 1 << 62)}),
        "metadata key 'a' would have 4611686018427387904 items",
    ),
    "array of strange things": (
        gguf_bytes({"a": struct.pack("<IIQ", ARRAY, 77, 1)}),
        "an array of the unknown type 77",
    ),
    "deep array": (
        gguf_bytes({"a": struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 9}),
        "the unknown type 9",
    ),
    "strange type": (gguf_bytes({"a": struct.pack("<I", 13)}), "metadata key 'a' has the unknown type 13"),
    "key twice": (gguf_bytes([("a", 1), ("a", 1)]), "metadata key 'a' occurs twice"),
    "key not text": (gguf_bytes([(b"\xff", 1)]), "a metadata key is not readable text: b'\\xff'"),
    "name with a bell": (gguf_bytes(KNOWN, [Raw("a\x1b]0;", (4,))], DATA), "a tensor's name is not readable text"),
    "alignment": (gguf_bytes({"general.alignment": 33}), "general.alignment is 33, not a power of two"),
    "no alignment": (gguf_bytes({"general.alignment": "x"}), "general.alignment is 'x'"),
    "tensor twice": (gguf_bytes(KNOWN, [*MATRIX, Raw("a", (4,), offset=32)], bytes(64)), "tensor 'a' occurs twice"),
    "many axes": (gguf_bytes(KNOWN, [Raw("a", (1,) * 5)], DATA), "tensor 'a' has 5 axes"),
    "boundless": (gguf_bytes(KNOWN, [Raw("a", (1 << 40, 1 << 40))], DATA), "is beyond all bounds"),
    "boundless with zero": (gguf_bytes(KNOWN, [Raw("a", (1 << 62, 0))], DATA), "is beyond all bounds"),
    "strange format": (gguf_bytes(KNOWN, [Raw("a", (4,), 99)], DATA), "is stored in format 99, which is not known"),
    "part of a block": (
        gguf_bytes(KNOWN, [Raw("a", (33,), 8)], DATA),
        "rows of 33 values are no whole blocks of 32 (Q8_0)",
    ),
    "not aligned": (gguf_bytes(KNOWN, [Raw("a", (4,), offset=4)], DATA), "begins at byte 4 of the data, which is not"),
    "overlap": (
        gguf_bytes(KNOWN, [Raw("a", (16,)), Raw("b", (4,), offset=32)], bytes(64)),
        "tensor 'b' overlaps the tensor before it",
    ),
    "outside": (
        gguf_bytes(KNOWN, [Raw("a", (4,), offset=1 << 40)], DATA),
        "the file is truncated: its tensors end at byte",
    ),
    "one byte short": (gguf_bytes(KNOWN, MATRIX, DATA[:-1]), "the file is truncated"),
}


@pytest.mark.parametrize("kind", list(BROKEN))
def test_damage_has_its_sentence(tmp_path: Path, kind: str) -> None:
    content, said = BROKEN[kind]
    assert said in refusal(tmp_path / "x", content)


def test_all_faults_of_the_tensors_are_listed(tmp_path: Path) -> None:
    tensors = [Raw("a", (4,), 99), Raw("b", (4,), offset=1), Raw("c", (1 << 30,))]
    assert refusal(tmp_path / "x", gguf_bytes([*KNOWN.items(), *KNOWN.items()], tensors, DATA)).count("\n  - ") == 4


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = gguf_bytes({**KNOWN, "texts": ["a", "b"], "n": 1.5}, MATRIX, DATA)
    for length in range(1, len(whole)):
        refusal(tmp_path / "x", whole[:length])
    read(tmp_path / "x", whole)


@given(data=st.data())
@settings(deadline=None, max_examples=300)
def test_no_damage_gets_past(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any bytes changed: the header is read, and then every tensor lies in the file, or it is refused."""
    whole = bytearray(
        gguf_bytes({**KNOWN, "texts": ["a", "b"], "n": [1, 2]}, [*MATRIX, Raw("b", (2,), offset=32)], bytes(40))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    try:
        found = read(path, bytes(whole))
    except CheckpointError:
        return
    for entry in found.tensors.values():
        assert 0 <= entry.offset <= entry.offset + entry.nbytes <= len(whole)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"

    def said(content: bytes) -> str:
        path.write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            open_gguf(path)
        return str(caught.value)

    assert "too few for a GGUF file" in said(b"GGUF")
    assert "too few for a GGUF file" in said(b"")
    assert "it holds no tensors, a vocabulary at most" in said(gguf_bytes(KNOWN))
    assert "a GGUF of type 'adapter', not a model" in said(
        gguf_bytes({**KNOWN, "general.type": "adapter"}, MATRIX, DATA)
    )
    assert "it has no general.architecture" in said(gguf_bytes({"a": 1}, MATRIX, DATA))
    assert "it has no general.architecture" in said(gguf_bytes({"general.architecture": 1}, MATRIX, DATA))
    assert "split.count is 'x', not a number" in said(gguf_bytes({**KNOWN, "split.count": "x"}, MATRIX, DATA))
    assert "one of 2 parts" in said(gguf_bytes({**KNOWN, "split.count": 2}, MATRIX, DATA))
    with pytest.raises(CheckpointError, match="cannot be read: No such file"):
        open_gguf(tmp_path / "absent.gguf")
