"""Tokenizer files as checkpoints have them: the same ids as transformers' fast tokenizer, layout by layout."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edgegen_export.tokenizer.gguf_tokenizer import tokenizer_from_gguf
from tests.export.tokenizer.gguf_vocabulary import GGML, sentencepiece_metadata
from tests.export.tokenizer.material import files_of, load, write_folder
from tests.export.tokenizer.sentencepieces import import_sentencepiece
from tests.oracle import import_transformers

MODEL, JSON, CONFIG = "tokenizer.model", "tokenizer.json", "tokenizer_config.json"
MAP, ADDED, VOCAB, MERGES = "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt"
START, END = "<|im_start|>", "<|im_end|>"
TEXTS = [
    f"{START}hi{END}",
    f"{START}user\nhi there{END}\n{START}assistant\n",
    f"hi {END} x",
    f"hi{END}",
    START,
    START * 3,
    f"a {START}  b",
    f"{END}\n\n{START}",
    f"<s>hi</s> x{END}",
    "a<|endoftext|>b",
    f"the lighthouse {END}",
    "<|new|>x [PAD]<pad> <|unk|>",
    "Once upon a time",
    " two  spaces ",
    "Größe 東京",
    "",
]


def token(content: str, **flags: Any) -> dict[str, Any]:
    """A special token with flags, matched literally."""
    plain = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    return {"content": content, **plain, "special": True, **flags}


def saved(content: str, **flags: Any) -> dict[str, Any]:
    """A token of a role as older versions of transformers write it."""
    return {"__type": "AddedToken", **token(content, **flags)}


@dataclass(frozen=True)
class Layout:
    """``files`` of a checkpoint with changed keys, by file; ``added``: the contents of ``added_tokens.json``."""

    config: dict[str, Any] = field(default_factory=dict[str, Any])
    named: dict[str, Any] = field(default_factory=dict[str, Any])
    added: dict[str, int] | None = None
    json: dict[str, Any] = field(default_factory=dict[str, Any])
    files: tuple[str, ...] = (MODEL, CONFIG, MAP)
    model_type: str = "llama"

    def write(self, folder: Path, source: Path) -> Path:
        described = {} if "added_tokens_decoder" in self.config else {"added_tokens_decoder": ...}
        edits: dict[str, dict[str, Any]] = {CONFIG: {**described, **self.config}, MAP: self.named, JSON: self.json}
        edits = {name: changes for name, changes in edits.items() if name in self.files}
        if self.added is not None:
            edits[ADDED] = self.added
        return write_folder(folder, source, self.files, edits, model_type=self.model_type)


TURNS = {START: 512, END: 513}
BOTH = {"additional_special_tokens": [START, END]}
NO_SPACE: dict[str, Any] = {"add_prefix_space": ...}
DECODER = {"512": token(START), "513": token(END)}
OF_JSON = [{"id": i, **token(text)} for text, i in {"<unk>": 0, "<s>": 1, "</s>": 2, **TURNS}.items()]
AS_JSON = (JSON, CONFIG, MAP)


def spm(
    config: dict[str, Any] | None = None, named: dict[str, Any] | None = None, *, added: Any = TURNS, **rest: Any
) -> Layout:
    return Layout({**NO_SPACE, **(config or {})}, named or {}, added, **rest)


SENTENCEPIECE = {
    "the space is null": Layout({}, {}, TURNS),
    "the space is null, not legacy": Layout({"legacy": False}, {}, TURNS),
    "the space is null, the map has them": Layout({}, BOTH, TURNS),
    "nothing is special": spm(),
    "no space": spm({"add_prefix_space": False}),
    "a space": spm({"add_prefix_space": True}),
    "not legacy": spm({"legacy": False}),
    "legacy is null": spm({"legacy": None}, BOTH),
    "the map has the end": spm(None, {"eos_token": END}),
    "the map has both": spm(None, BOTH),
    "the config has both": spm(BOTH),
    "the config has one, the map the other": spm(
        {"additional_special_tokens": [START]}, {"additional_special_tokens": [END]}
    ),
    "the map has flags": spm(None, {"additional_special_tokens": [token(START), token(END, rstrip=True)]}),
    "the map has an end with flags": spm(
        None, {"eos_token": token(END, rstrip=True), "additional_special_tokens": [START]}
    ),
    "the map has an end with flags, no other": spm(None, {"eos_token": token(END, rstrip=True)}),
    "the map has a normalized end": spm(
        None, {"eos_token": token(END, normalized=True), "additional_special_tokens": [START]}
    ),
    "the config's list is null": spm({"additional_special_tokens": None}, BOTH),
    "no begin": spm({"add_bos_token": False, "add_eos_token": True}, BOTH),
    "the begin is null": spm({"add_bos_token": None}, BOTH),
    "Mistral": spm(None, {"eos_token": END, "additional_special_tokens": [START]}, model_type="mistral"),
    "no config": Layout({}, {"eos_token": END, **BOTH}, TURNS, files=(MODEL, MAP), model_type="mistral"),
    "the model and added tokens alone": Layout({}, {}, TURNS, files=(MODEL,), model_type="mistral"),
    "special, not in the vocabulary": spm(None, {"additional_special_tokens": [START, END, "<|new|>"]}),
    "padding, not in the vocabulary": spm({"pad_token": "[PAD]"}, BOTH),
    "padding, an added token": spm(None, {"pad_token": "<pad>", **BOTH}, added={**TURNS, "<pad>": 514}),
    "the unknown, an added token": spm(
        {"unk_token": "<|unk|>"}, {"unk_token": "<|unk|>", **BOTH}, added={**TURNS, "<|unk|>": 514}
    ),
    "the vocabulary's own are added": spm(None, BOTH, added={"<unk>": 0, "<s>": 1, "</s>": 2, **TURNS}),
    "added in another order": spm(None, BOTH, added={END: 513, START: 512}),
    "an added word": spm(None, BOTH, added={**TURNS, "lighthouse": 514}),
    "roles with types": spm(
        {"bos_token": saved("<s>", normalized=True), "eos_token": saved(END)}, {"eos_token": END, **BOTH}
    ),
    "a piece is the end": spm({"eos_token": "Once"}, {"eos_token": "Once", **BOTH}),
    "described": spm({"added_tokens_decoder": DECODER}, added=None),
    "described as text": spm(
        {"added_tokens_decoder": {"512": token(START, special=False), "513": token(END, special=False)}}, added=None
    ),
    "described as normalized": spm(
        {
            "add_prefix_space": False,
            "added_tokens_decoder": {i: {**t, "special": False, "normalized": True} for i, t in DECODER.items()},
        },
        added=None,
    ),
    "described, with spaces": spm(
        {"added_tokens_decoder": {"512": token(START, lstrip=True), "513": token(END, lstrip=True, rstrip=True)}},
        added=None,
    ),
    "described, as words": spm(
        {"added_tokens_decoder": {i: {**t, "single_word": True} for i, t in DECODER.items()}}, added=None
    ),
    "described, and added tokens beside": spm({"added_tokens_decoder": DECODER}, added={**TURNS, "<|new|>": 514}),
    "described, the map says otherwise": spm(
        {"added_tokens_decoder": DECODER}, {"eos_token": token(END, rstrip=True)}, added=None
    ),
    "described, an end with flags": spm(
        {"added_tokens_decoder": DECODER, "eos_token": saved(END, rstrip=True)}, added=None
    ),
    "described, another special one with flags": spm(
        {"added_tokens_decoder": DECODER, "additional_special_tokens": [saved(END, rstrip=True)]}, added=None
    ),
    "described as none": spm({"added_tokens_decoder": {}}, BOTH),
    "the fast class": spm({"tokenizer_class": "LlamaTokenizerFast"}, BOTH),
    "Code Llama": spm({"tokenizer_class": "CodeLlamaTokenizer"}, BOTH),
    "tokenizer.json lacks them": spm(None, BOTH, files=AS_JSON),
    "tokenizer.json lacks them, nothing is special": spm(files=AS_JSON),
    "tokenizer.json has flags, the list has none": spm(files=AS_JSON, json={"added_tokens": OF_JSON}),
    "tokenizer.json and the config differ": spm(
        {"added_tokens_decoder": {"512": token(START, special=False, rstrip=True), "513": token(END)}},
        added=None,
        files=AS_JSON,
        json={"added_tokens": OF_JSON},
    ),
    "tokenizer.json alone has them": spm(added=None, files=(JSON, CONFIG), json={"added_tokens": OF_JSON}),
    "tokenizer.json, an end with flags in the map": spm(
        None, {"eos_token": token(END, rstrip=True)}, added=None, files=AS_JSON, json={"added_tokens": OF_JSON}
    ),
    "tokenizer.json, a special one with flags in the config": spm(
        {"additional_special_tokens": [saved(END, rstrip=True)]},
        added=None,
        files=(JSON, CONFIG),
        json={"added_tokens": OF_JSON},
    ),
    "both files, the space is null": Layout({}, {}, TURNS, files=(MODEL, *AS_JSON)),
    "both files, the space is not mentioned": spm(None, BOTH, files=(MODEL, *AS_JSON)),
    "both files, a space": spm({"add_prefix_space": True}, BOTH, files=(MODEL, *AS_JSON)),
    "both files, no space": spm({"add_prefix_space": False}, files=(MODEL, *AS_JSON)),
    "both files differ": spm(added=None, files=(MODEL, *AS_JSON), json={"added_tokens": OF_JSON}),
}

FIRST = 1024
"""The id after the small byte-level vocabulary."""
AFTER = {START: FIRST, END: FIRST + 1}
AS_VOCABULARY = (VOCAB, MERGES, CONFIG, MAP)
CLASSES: list[tuple[str, str, tuple[str, ...]]] = [
    ("Qwen2Tokenizer", "qwen2", AS_JSON),
    ("Qwen2Tokenizer", "qwen2", AS_VOCABULARY),
    ("GPT2Tokenizer", "gpt2", AS_JSON),
    ("GPT2Tokenizer", "gpt2", AS_VOCABULARY),
    ("PreTrainedTokenizerFast", "llama", AS_JSON),
]
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, int] | None]] = {
    "nothing is special": ({}, {}, AFTER),
    "the map has the end": ({}, {"eos_token": END}, AFTER),
    "the map has flags": ({}, {"additional_special_tokens": [token(END, lstrip=True)]}, AFTER),
    "described": (
        {"added_tokens_decoder": {str(FIRST): token(START), str(FIRST + 1): token(END, special=False)}},
        {},
        None,
    ),
    "special, not in the vocabulary": (BOTH, {}, None),
    "begin and end": ({"add_bos_token": True, "add_eos_token": True}, {}, AFTER),
}
BYTE_LEVEL = {
    f"{kind}, {files[0]}, {what}": Layout(
        {"tokenizer_class": kind, **config}, named, added, files=files, model_type=model_type
    )
    for kind, model_type, files in CLASSES
    for what, (config, named, added) in CASES.items()
}


def assert_same_ids(folder: Path) -> None:
    """The ids of every text are those of the tokenizer that transformers makes of the folder."""
    import_sentencepiece()
    oracle: Any = import_transformers().AutoTokenizer.from_pretrained(str(folder))
    assert oracle.is_fast
    made = load(files_of(folder), folder)
    for text in TEXTS:
        for special in (True, False):
            expected = oracle.encode(text, add_special_tokens=special)
            assert made.encode(text, add_special_tokens=special) == expected, text


@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_a_sentencepiece_layout_has_the_ids_of_transformers(test_data: Path, tmp_path: Path, name: str) -> None:
    assert_same_ids(SENTENCEPIECE[name].write(tmp_path / "x", test_data / "models" / "stories260K"))


@pytest.fixture(scope="session")
def byte_level(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small byte-level tokenizer, as ``tokenizer.json`` and as ``vocab.json`` and ``merges.txt``."""
    folder, source = tmp_path_factory.mktemp("byte-level"), test_data / "models" / "qwen2-stories-0.9m"
    for name in AS_JSON:
        (folder / name).write_bytes((source / name).read_bytes())
    model = json.loads((source / JSON).read_bytes())["model"]
    assert len(model["vocab"]) == FIRST
    write_vocabulary(folder, model["vocab"], model["merges"])
    return folder


def write_vocabulary(folder: Path, vocab: dict[str, int], merges: Iterable[Any], line_end: str = "\n") -> None:
    lines = ["#version: 0.2", *(pair if isinstance(pair, str) else " ".join(pair) for pair in merges), ""]
    (folder / VOCAB).write_text(json.dumps(vocab), "utf-8")
    (folder / MERGES).write_bytes(line_end.join(lines).encode())


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_a_byte_level_layout_has_the_ids_of_transformers(byte_level: Path, tmp_path: Path, name: str) -> None:
    assert_same_ids(BYTE_LEVEL[name].write(tmp_path / "x", byte_level))


def test_merges_with_the_line_ends_of_windows(byte_level: Path, tmp_path: Path) -> None:
    folder = BYTE_LEVEL["Qwen2Tokenizer, vocab.json, nothing is special"].write(tmp_path / "x", byte_level)
    (folder / MERGES).write_bytes((folder / MERGES).read_bytes().replace(b"\n", b"\r\n"))
    assert_same_ids(folder)


@pytest.mark.parametrize(
    ("prefix", "name"), [(False, "the space is null"), (True, "the map has both"), (None, "the map has both")]
)
@pytest.mark.parametrize("special", [True, False])
def test_added_tokens_of_a_gguf_file_have_the_ids_of_transformers(
    test_data: Path, tmp_path: Path, prefix: bool | None, name: str, special: bool
) -> None:
    """Control tokens and user-defined ones, as llama.cpp's converter writes added tokens."""
    folder = SENTENCEPIECE[name].write(tmp_path / "x", test_data / "models" / "stories260K")
    import_sentencepiece()
    oracle: Any = import_transformers().AutoTokenizer.from_pretrained(str(folder))
    added = {i: token(text, special=special) for text, i in TURNS.items()}
    metadata = sentencepiece_metadata((folder / MODEL).read_bytes(), added, bos=1, eos=2, unknown=0)
    if prefix is not None:
        metadata[f"{GGML}.add_space_prefix"] = prefix
    made = load(tokenizer_from_gguf(metadata), tmp_path)
    for text in TEXTS:
        assert made.encode(text) == oracle.encode(text), text
    metadata[f"{GGML}.add_bos_token"] = False
    assert load(tokenizer_from_gguf(metadata), tmp_path).encode(TEXTS[0]) == oracle.encode(TEXTS[0])[1:]
