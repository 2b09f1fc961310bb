"""Conversion of BPE files (``vocab.json`` and ``merges.txt``) to ``tokenizer.json``, by kind of tokenizer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from edgegen.errors import CheckpointError, refuse_any
from edgegen_export.tokenizer.components import Component, bpe, byte_level, chain, isolated
from edgegen_export.tokenizer.pre_tokenizers import NFC, QWEN2_WORDS
from edgegen_export.tokenizer.settings import TokenizerSettings
from edgegen_export.tokenizer.tokenizer_json import TokenizerJson

VOCABULARY = "vocab.json"
MERGES = "merges.txt"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token ids by text, and the merges by priority."""

    ids: Mapping[str, int]
    merges: tuple[tuple[str, str], ...]


def read_vocabulary(vocabulary: bytes, merges: bytes) -> Vocabulary:
    """Parse the files' contents.

    Raises:
        CheckpointError: they are malformed or do not fit each other; every problem is listed.
    """
    try:
        ids: object = json.loads(vocabulary)
        lines = merges.decode().split("\n")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{VOCABULARY} and {MERGES} do not make a tokenizer: {error}") from error
    if not isinstance(ids, dict) or not all(
        isinstance(i, int) and i >= 0 for i in cast(dict[str, object], ids).values()
    ):
        raise CheckpointError(f"{VOCABULARY} and {MERGES} do not make a tokenizer: {VOCABULARY} is not ids by token")
    ids = cast(dict[str, int], ids)
    if lines[0].startswith("#version"):
        del lines[0]
    found = [(number, tuple(line.split())) for number, line in enumerate(lines, 1) if line.strip()]
    problems = [f"line {number} is not two tokens" for number, parts in found if len(parts) != 2]
    pairs = [parts for _, parts in found if len(parts) == 2]
    problems += merge_problems(ids, pairs)
    if len(set(ids.values())) < len(ids):
        problems.append(f"{VOCABULARY} gives two tokens the same id")
    refuse_any(problems, CheckpointError, f"{VOCABULARY} and {MERGES} do not make a tokenizer: ")
    return Vocabulary(ids, tuple(pairs))


def merge_problems(ids: Mapping[str, int], merges: list[tuple[str, str]]) -> list[str]:
    """Problems: the first few tokens that merges name and the vocabulary lacks."""
    absent = {text for left, right in merges for text in (left, right, left + right) if text not in ids}
    shown = [f"the merges name {text!r}, which the vocabulary lacks" for text in sorted(absent)[:_SHOWN]]
    return shown + ([f"… and {len(absent) - _SHOWN} more like this"] if len(absent) > _SHOWN else [])


def gpt2_tokenizer(vocabulary: Vocabulary, settings: TokenizerSettings) -> TokenizerJson:
    """GPT-2, OPT, CodeGen, StarCoder (with single digits): byte-level BPE with GPT-2's word splitting."""
    return _byte_level(vocabulary, byte_level(add_prefix_space=bool(settings.add_prefix_space)))


def neox_tokenizer(vocabulary: Vocabulary, settings: TokenizerSettings) -> TokenizerJson:
    """GPT-NeoX: GPT-2's with NFC normalization."""
    return _byte_level(vocabulary, byte_level(add_prefix_space=bool(settings.add_prefix_space)), normalizer=NFC)


def qwen2_tokenizer(vocabulary: Vocabulary, settings: TokenizerSettings) -> TokenizerJson:
    """Qwen2: NFC normalization, single digits, punctuation joined with line ends."""
    letters = byte_level(add_prefix_space=bool(settings.add_prefix_space), use_regex=False)
    return _byte_level(vocabulary, chain("pretokenizers", [isolated(QWEN2_WORDS), letters]), normalizer=NFC)


def openai_gpt_tokenizer(vocabulary: Vocabulary, settings: TokenizerSettings) -> TokenizerJson:
    """The first GPT: lower case, accents removed, a suffix at the end of each word."""
    unknown = settings.special("unk_token", "<unk>")
    suffix = "</w>"
    return TokenizerJson.of(
        bpe(
            vocabulary.ids,
            vocabulary.merges,
            unk_token=unknown.content if unknown else None,
            end_of_word_suffix=suffix,
        ),
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "BPEDecoder", "suffix": suffix},
    )


def _byte_level(
    vocabulary: Vocabulary, pre_tokenizer: Component | None, normalizer: Component | None = None
) -> TokenizerJson:
    return TokenizerJson.of(
        bpe(vocabulary.ids, vocabulary.merges),
        normalizer=normalizer,
        pre_tokenizer=pre_tokenizer,
        decoder=byte_level(),
    )
