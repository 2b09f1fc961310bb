"""Tokenizer files of a stranger at export: merges left out at random are made, and what grows is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from edgegen.errors import CheckpointError
from edgegen_export.tokenizer.gguf_tokenizer import tokenizer_from_gguf
from edgegen_export.tokenizer.opened_tokenizer import OpenedTokenizer
from tests.export.tokenizer.material import files_of, load, write_folder
from tests.runtime.tokenizer_mutations import replace, template

DOUBLED = {"type": "Sequence", "normalizers": [replace({"String": "a"}, "aa")] * 20}


@pytest.fixture(scope="module")
def source(test_data: Path) -> Path:
    return test_data / "models" / "qwen2-stories-0.9m"


def model_of(source: Path) -> dict[str, Any]:
    return json.loads((source / "tokenizer.json").read_bytes())["model"]


def changed(folder: Path, source: Path, **parts: Any) -> Path:
    return write_folder(folder, source, ("tokenizer.json",), {"tokenizer.json": parts})


def test_merges_that_are_left_out_at_random_are_made(tmp_path: Path, source: Path) -> None:
    """transformers leaves them out in each encoding, until its user sets the dropout to None."""
    folder = changed(tmp_path / "changed", source, model=model_of(source) | {"dropout": 0.5})
    warnings = list[str]()
    files = files_of(folder, warnings.append)
    assert json.loads(files["tokenizer.json"])["model"] == model_of(source) | {"dropout": None}
    assert warnings == [
        "tokenizer.json leaves out merges at random (dropout = 0.5), which is of the training: left out"
    ]
    text = "Once upon a time there was a little girl."
    plain = load(files_of(changed(tmp_path / "plain", source)), tmp_path).encode(text)
    tokenizer = load(files, tmp_path)
    assert all(tokenizer.encode(text) == plain for _ in range(5))


@pytest.mark.parametrize(
    ("part", "value", "fault"),
    [
        ("normalizer", DOUBLED, "normalizers and pre-tokenizers can make .* bytes of each byte of a text"),
        ("post_processor", template([5] * 5000), "puts 5000 ids around each text"),
        ("normalizer", replace({"String": ""}, "x"), "it looks for nothing at all"),
    ],
)
def test_what_grows_is_refused(
    part: str, value: dict[str, Any], fault: str, tmp_path: Path, source: Path, capfd: Any
) -> None:
    folder = changed(tmp_path / "changed", source, **{part: value})
    with pytest.raises(CheckpointError, match=rf"^tokenizer\.json is not a readable tokenizer: .*{fault}"):
        files_of(folder)
    whole = (folder / "tokenizer.json").read_text("utf-8")
    with pytest.raises(CheckpointError, match=fault):
        tokenizer_from_gguf({"tokenizer.huggingface.json": whole})
    assert capfd.readouterr().err == ""


def test_a_gguf_file_with_a_whole_tokenizer_makes_all_merges(source: Path) -> None:
    content = json.loads((source / "tokenizer.json").read_bytes())
    content["model"]["dropout"] = 0.5
    files = tokenizer_from_gguf({"tokenizer.huggingface.json": json.dumps(content)})
    assert json.loads(files["tokenizer.json"])["model"]["dropout"] is None


def test_a_damaged_map_of_characters_is_refused() -> None:
    """Of a GGUF file; one of a SentencePiece model goes the same way."""
    metadata = {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": ["<pad>", "</s>", "<unk>", "a"],
        "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0],
        "tokenizer.ggml.token_type": [3, 3, 2, 1],
        "tokenizer.ggml.precompiled_charsmap": [4, 0, 0, 0, 0, 255, 255, 255],
    }
    with pytest.raises(CheckpointError, match="its normalizer Precompiled: its trie leads out of itself"):
        OpenedTokenizer.quick_to_read(tokenizer_from_gguf(metadata)["tokenizer.json"])
