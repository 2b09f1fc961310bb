"""A tokenizer.json as a bundle has it: read sooner, and the very same tokenizer."""

import json
from typing import Any

import pytest
import tokenizers

from edgegen.errors import CheckpointError
from edgegen.tokenizer import LibraryBackend
from edgegen_export.tokenizer.opened_tokenizer import OpenedTokenizer


def bpe(merges: list[Any], *pieces: str) -> bytes:
    model = {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": merges}
    return json.dumps({"version": "1.0", "model": model}, indent=2).encode()


def quick_to_read(data: bytes) -> bytes:
    """The contents that a bundle has, which the library has read."""
    opened = OpenedTokenizer.quick_to_read(data)
    assert opened.content == json.loads(opened.data)
    assert opened.backend.same_as(LibraryBackend.of(data))
    return opened.data


def merges_of(data: bytes) -> list[Any]:
    return json.loads(data)["model"]["merges"]


def same(data: bytes, other: bytes) -> bool:
    read: Any = tokenizers.Tokenizer
    return read.from_buffer(data).to_str() == read.from_buffer(other).to_str()


def test_merges_of_two_become_one_string_each_without_white_space() -> None:
    data = bpe([["a", "b"], ["ab", "c"]], "a", "b", "c", "ab", "abc")
    quick = quick_to_read(data)
    assert merges_of(quick) == ["a b", "ab c"]
    assert b"\n" not in quick
    assert same(quick, data)


@pytest.mark.parametrize(
    "merge",
    [(" ", "b"), ("a b", "c"), ("#version", ":")],
    ids=["a space", "a space within", "what begins like a header"],
)
def test_a_merge_that_a_string_could_not_hold_leaves_the_file_alone(merge: tuple[str, str]) -> None:
    data = bpe([list(merge)], *merge, "".join(merge))
    assert quick_to_read(data) == data


def test_other_models_lose_white_space_only() -> None:
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0.0], ["a", -1.2345678901234567], ["b", -3e-7]]}
    data = json.dumps({"version": "1.0", "model": model}, indent=1).encode()
    quick = quick_to_read(data)
    assert json.loads(quick) == json.loads(data)
    assert len(quick) < len(data)
    assert same(quick, data)


def test_ids_far_beyond_the_others_leave_the_file_alone() -> None:
    """The library would list all that are left out: gigabytes, which a file of some bytes asks for."""
    content = json.loads(bpe([["a", "b"]], "a", "b"))
    content["model"]["vocab"]["ab"] = 5000
    data = json.dumps(content, indent=2).encode()
    assert quick_to_read(data) == data


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocab": {"a": 0, "b": 1, "ab": 2**31}}, "has the id 2147483648"),
        ({"merges": [["a", "c"]]}, "c"),
        ({"merges": [["a", 1]]}, "merges|untagged"),
    ],
    ids=["an id beyond all", "a merge of what is no token", "a merge that is no text"],
)
def test_what_is_no_tokenizer_is_refused(change: dict[str, Any], said: str) -> None:
    content = json.loads(bpe([["a", "b"]], "a", "b", "ab"))
    content["model"] |= change
    with pytest.raises(CheckpointError, match=rf"tokenizer\.json is not a readable tokenizer: .*({said})"):
        OpenedTokenizer.quick_to_read(json.dumps(content).encode())
