"""The compiled form of a ``tokenizer.json``, which the runtime maps instead of reading that.

Byte-level BPE only, as GPT-2, Llama 3 and Qwen have it. What the runtime's code would do otherwise than the tokenizers
library is refused by name, and such a tokenizer has no compiled form.
"""

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.model.kernels import kernel_library
from edgegen.tokenizer import AddedToken, LibraryBackend
from edgegen.tokenizer.compiled import CompiledBackend
from edgegen.tokenizer.compiled_format import (
    COMPILED,
    IGNORE_MERGES,
    LITERAL,
    MOST_SPLITS,
    NONE,
    PAGES,
    STRIPS_LEFT,
    STRIPS_RIGHT,
    file_of,
)
from edgegen.tokenizer.spelling import byte_level_letters, byte_level_speller
from edgegen_export.tokenizer.character_classes import digits
from edgegen_export.tokenizer.opened_tokenizer import OpenedTokenizer
from edgegen_export.tokenizer.pre_tokenizers import GPT2_WORDS
from edgegen_export.tokenizer.split_automaton import Alphabet, moves_of
from edgegen_export.tokenizer.split_pattern import SplitPattern, UnsupportedPatternError

_LETTERS = byte_level_letters()
_ALPHABET = frozenset(_LETTERS)
_spell = byte_level_speller(_LETTERS)
_SLOTS_PER_TOKEN = 1.5
_TEXTS = (
    "The quick brown fox's 12,345 jumps: he'LL say \"WE'RE done\"...\r\n\r\n\tdef f(x):\n        return x_1 ** 2\n\n\n",
    "Größe, naïve café, ΑΒΓ ελληνικά, Привет мир, שלום עולם, مرحبا بالعالم, नमस्ते दुनिया, สวัสดี",
    "你好，世界。こんにちは 한국어",
    "😀👩‍👩‍👧🏽 \u00a0\u2003\u3000 ½²Ⅷ٣४ \u0000\u001f\u007f\u0085\u2028 a\u0301 'ſ K",
)
_FLAGS = ("content", "special", "single_word", "lstrip", "rstrip", "normalized")

Component = Mapping[str, Any]


class UncompiledError(Exception):
    """The tokenizer has no compiled form; the text says why."""


def compiled_form(tokenizer: OpenedTokenizer) -> dict[str, bytes]:
    """The compiled form of a ``tokenizer.json`` by the name of its file; nothing where it has none.

    Where this machine has the runtime's code, that has to return the ids of the library for some texts.
    """
    try:
        made = compiled(tokenizer)
    except UncompiledError:
        return {}
    library = kernel_library()
    return {COMPILED: made} if library is None or _agrees(made, tokenizer, library) else {}


def compiled(tokenizer: OpenedTokenizer) -> bytes:
    """The compiled form of a ``tokenizer.json``.

    Raises:
        UncompiledError: there is none.
    """
    content, library = tokenizer.content, tokenizer.backend
    try:
        composed = _composes(content.get("normalizer"))
        alphabet, automata = _automata(json.dumps(content.get("pre_tokenizer")))
        frame = _Frame.of(content.get("post_processor"))
        vocabulary = _Vocabulary.of(content["model"], library)
    except UnsupportedPatternError as error:
        raise UncompiledError(str(error)) from error
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UncompiledError(f"a file of an unusual form: {error!r}") from error
    if library.decoder.get("type") != "ByteLevel":
        raise UncompiledError("a decoder other than ByteLevel")
    _check_added(library, composed=composed)
    details = {
        "added_tokens": [
            {"id": i, **{flag: getattr(token, flag) for flag in _FLAGS}} for i, token in library.added_tokens.items()
        ],
        "before": frame.before,
        "after": frame.after,
        "vocab_size": library.vocab_size,
        "longest": library.longest_token(_LETTERS),
        "composed": composed,
        "trims_spans": frame.trims_spans,
        "keeps_first_space": frame.keeps_first_space,
    }
    rows = [row.tobytes() for row in alphabet.class_of.reshape(PAGES, 256)]
    pages = {row: number for number, row in enumerate(sorted({*rows}))}
    trees = (
        _tree({i: token for i, token in library.added_tokens.items() if token.normalized == normalized})
        for normalized in (False, True)
    )
    sections = {
        "details": json.dumps(details, separators=(",", ":")).encode(),
        **vocabulary.sections(),
        "page_numbers": _bytes_of([pages[row] for row in rows], "<u2"),
        "classes": b"".join(pages),
        "states": _bytes_of([len(moves) for moves in automata], "<u4"),
        "moves": b"".join(_bytes_of(moves, "<u2") for moves in automata),
        **dict(zip(("raw_tokens", "normalized_tokens"), trees, strict=True)),
    }
    flags = IGNORE_MERGES if content["model"].get("ignore_merges") else 0
    return file_of(flags, hashlib.sha256(tokenizer.data).digest(), alphabet.size, sections)


@lru_cache(maxsize=8)
def _automata(pre_tokenizer: str) -> tuple[Alphabet, tuple[NDArray[np.uint16], ...]]:
    """Of a pre-tokenizer, which is JSON: an automaton for each of its patterns. Exports in one process share them."""
    patterns = _splits(json.loads(pre_tokenizer))
    alphabet = Alphabet.of(patterns)
    return alphabet, tuple(moves_of(p, m, alphabet.size) for p, m in zip(patterns, alphabet.member, strict=True))


def _agrees(made: bytes, tokenizer: OpenedTokenizer, library: Path) -> bool:
    """Whether the runtime's code returns the library's ids."""
    theirs = tokenizer.backend
    ours = CompiledBackend(made, hashlib.sha256(tokenizer.data).hexdigest(), library, lambda: theirs)
    added = [token.content for token in theirs.added_tokens.values()]
    texts = [*_TEXTS, *(f"{text}{one}{text}" for text, one in zip(_TEXTS, added, strict=False)), "".join(added[:50])]
    return all(
        ours.encode(text, add_special_tokens=True).ids == theirs.encode(text, add_special_tokens=True).ids
        for text in texts
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    """Effects of the post-processor: the ids around a text, and whether spans lose their white space."""

    before: list[int]
    after: list[int]
    trims_spans: bool = False
    keeps_first_space: bool = False

    @classmethod
    def of(cls, component: Component | None) -> "_Frame":
        parts = _chain(component, "processors")
        byte_levels = [part for part in parts if part["type"] == "ByteLevel"]
        templates = [part for part in parts if part["type"] == "TemplateProcessing"]
        if len(byte_levels) + len(templates) < len(parts) or len(byte_levels) > 1 or len(templates) > 1:
            raise UncompiledError(f"the post-processor {', '.join(part['type'] for part in parts)}")
        ids: list[list[int]] = [[], []]
        if templates:
            seen = 0
            for piece in templates[0]["single"]:
                if "Sequence" in piece:
                    seen += 1
                else:
                    name = piece["SpecialToken"]["id"]
                    ids[min(seen, 1)] += templates[0]["special_tokens"][name]["ids"]
            if seen != 1:
                raise UncompiledError("a template without the text")
        trims = bool(byte_levels) and bool(byte_levels[0]["trim_offsets"])
        return cls(ids[0], ids[1], trims, trims and bool(byte_levels[0]["add_prefix_space"]))


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The tokens: ``spelled`` by id, None where there is none; those of the model by their bytes and whether they are
    literal; the merges by left id, right id, rank and merged id."""

    spelled: list[tuple[bytes, bool] | None]
    model: dict[tuple[bytes, bool], int]
    merges: NDArray[np.int64]

    @classmethod
    def of(cls, model: Component, library: LibraryBackend) -> "_Vocabulary":
        refused = [
            key
            for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
            if model.get(key) not in (None, "", 0)
        ]
        if model.get("type", "BPE") != "BPE" or refused:
            raise UncompiledError(f"the model {model.get('type', 'BPE')} {', '.join(refused)}".rstrip())
        vocab: dict[str, int] = model["vocab"]
        if missing := [letter for letter in _LETTERS if letter not in vocab]:
            raise UncompiledError(f"a vocabulary without the letter {missing[0]!r}")
        tokens = vocab | {token.content: i for i, token in library.added_tokens.items()}
        size = max(tokens.values()) + 1
        if len({*tokens.values()}) < len(tokens) or size > 4 * len(tokens) or "" in tokens:
            raise UncompiledError("a vocabulary with two tokens of one id, with an empty one, or with many gaps")
        if library.vocabulary() != tokens:
            raise UncompiledError("a token whose id the library does not say")
        spelling = {token: _spelled(token) for token in tokens}
        spelled: list[tuple[bytes, bool] | None] = [None] * size
        for token, token_id in tokens.items():
            spelled[token_id] = spelling[token]
        return cls(spelled, {spelling[token]: i for token, i in vocab.items()}, _merges(model["merges"], vocab))

    def sections(self) -> dict[str, bytes]:
        starts, place = list[int](), 0
        for token in self.spelled:
            starts.append(place | (LITERAL if token and token[1] else 0))
            place += len(token[0]) if token else 0
        slots = [NONE] * (int(len(self.model) * _SLOTS_PER_TOKEN) + 1)
        homes = _hashes([token for token, _ in self.model]) % len(slots)
        for at, token_id in zip(homes.tolist(), self.model.values(), strict=True):
            while slots[at] != NONE:
                at = (at + 1) % len(slots)
            slots[at] = token_id
        merges = self.merges[np.lexsort((self.merges[:, 1], self.merges[:, 0]))]
        rows = np.searchsorted(merges[:, 0], np.arange(len(self.spelled) + 1))
        letters = [self.model[_spelled(letter)] for letter in _LETTERS]
        return {
            "token_starts": _bytes_of([*starts, place], "<u4"),
            "token_bytes": b"".join(token[0] for token in self.spelled if token),
            "slots": _bytes_of(slots, "<u4"),
            "rows": _bytes_of(rows, "<u4"),
            "merges": _bytes_of(merges[:, 1:], "<u4"),
            "letters": _bytes_of(letters, "<u4"),
        }


def _merges(merges: Sequence[str | list[str]], vocab: Mapping[str, int]) -> NDArray[np.int64]:
    """Rows [n, 4] of left id, right id, rank and merged id; of a pair that is there twice, the last."""
    if not merges:
        return np.empty((0, 4), np.int64)
    parts = " ".join(merge if isinstance(merge, str) else " ".join(merge) for merge in merges).split(" ")
    if len(parts) != 2 * len(merges):
        raise ValueError("merges with spaces")
    ids = np.fromiter(map(vocab.__getitem__, parts), np.int64, len(parts)).reshape(-1, 2)
    merged = [vocab[left + right] for left, right in zip(parts[::2], parts[1::2], strict=True)]
    rows = np.column_stack([ids, np.arange(len(ids)), np.array(merged, np.int64)])[::-1]
    return rows[np.unique(rows[:, 0] << 32 | rows[:, 1], return_index=True)[1]]


def _composes(normalizer: Component | None) -> bool:
    """Whether texts are brought into NFC."""
    names = [part["type"] for part in _chain(normalizer, "normalizers")]
    if {*names} - {"NFC"}:
        raise UncompiledError(f"the normalizer {', '.join(names)}")
    return bool(names)


def _splits(pre_tokenizer: Component | None) -> list[SplitPattern]:
    """The expressions that a text is split by, one after the other; the last step writes bytes as letters."""
    *steps, last = _chain(pre_tokenizer, "pretokenizers") or [{"type": "None"}]
    if last["type"] != "ByteLevel" or last.get("add_prefix_space"):
        raise UncompiledError(f"a pre-tokenizer that ends with {last['type']}, or adds a space")
    patterns = [_split(step) for step in steps]
    if last.get("use_regex", True):
        patterns.append(SplitPattern.parse(GPT2_WORDS))
    if len(patterns) > MOST_SPLITS:
        raise UncompiledError("a pre-tokenizer of so many steps")
    return patterns


def _split(step: Component) -> SplitPattern:
    match step:
        case {"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Isolated", "invert": False}:
            return SplitPattern.parse(regex)
        case {"type": "Digits", "individual_digits": True}:
            return SplitPattern.one_of(digits())
        case _:
            raise UncompiledError(f"the pre-tokenizer {step['type']} as it is set")


def _check_added(library: LibraryBackend, *, composed: bool) -> None:
    for token in library.added_tokens.values():
        if token.single_word:
            raise UncompiledError(f"the added token {token.content!r}, which is a word by itself only")
        if token.content.strip() != token.content:
            raise UncompiledError(f"the added token {token.content!r}, which has white space at its ends")
        if composed and token.normalized and not unicodedata.is_normalized("NFC", token.content):
            raise UncompiledError(f"the added token {token.content!r}, which is normalized")


def _chain(component: Component | None, key: str) -> list[Component]:
    """The components of a sequence, or the one."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component]
    return [part for each in component[key] for part in _chain(each, key)]


def _spelled(token: str) -> tuple[bytes, bool]:
    """The bytes of a token, and whether these are its letters in UTF-8."""
    return _spell(token), not _ALPHABET.issuperset(token)


def _hashes(tokens: Sequence[bytes]) -> NDArray[np.uint32]:
    """FNV-1a of each token, by which its slot is found."""
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    starts, data = np.cumsum(lengths) - lengths, np.frombuffer(b"".join(tokens), np.uint8)
    longest_first = np.argsort(-lengths, kind="stable")
    values = np.full(len(tokens), 2166136261, np.uint32)
    for place in range(int(lengths.max(initial=0))):
        longer = longest_first[: np.count_nonzero(lengths > place)]
        values[longer] = (values[longer] ^ data[starts[longer] + place]) * np.uint32(16777619)
    return values


def _tree(tokens: Mapping[int, AddedToken]) -> bytes:
    """Nodes (first child, number of children, own byte, flags, token), the children of each one after the other."""
    if not tokens:
        return b""
    children: list[dict[int, int]] = [{}]
    ends, own, flags = [NONE], [0], {0: 0}
    for token_id, token in tokens.items():
        node = 0
        for byte in token.content.encode():
            if byte not in children[node]:
                children[node][byte] = len(children)
                children.append({})
                ends.append(NONE)
                own.append(byte)
            node = children[node][byte]
        ends[node] = token_id
        flags[node] = (STRIPS_LEFT if token.lstrip else 0) | (STRIPS_RIGHT if token.rstrip else 0)
    order, place = [0], {0: 0}
    firsts: list[int] = []
    for node in order:  # which grows
        firsts.append(len(order))
        for byte in sorted(children[node]):
            place[children[node][byte]] = len(order)
            order.append(children[node][byte])
    kind = np.dtype([("first", "<u4"), ("children", "<u2"), ("byte", "u1"), ("flags", "u1"), ("token", "<u4")])
    nodes = [
        (first, len(children[node]), own[node], flags.get(node, 0), ends[node])
        for first, node in zip(firsts, order, strict=True)
    ]
    return np.array(nodes, kind).tobytes()


def _bytes_of(numbers: Any, kind: str) -> bytes:
    return np.ascontiguousarray(numbers, kind).tobytes()
