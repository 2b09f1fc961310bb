"""CompiledBackend: byte-level BPE over a compiled ``tokenizer.json``, which is mapped and takes no private memory.

``kernels/tokenizer/tokenizer.c`` encodes. What the compiled form cannot do for certain (a text that is not in Unicode's
composed form where the tokenizer composes, or is no Unicode at all) goes to the tokenizers library, which reads
``tokenizer.json`` then.
"""

import ctypes
import json
import mmap
import re
import unicodedata
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from edgegen.system import open_regular
from edgegen.tokenizer.backend import AddedToken, Encoding, RespelledTokenizer
from edgegen.tokenizer.compiled_format import LITERAL, WHITE_SPACE, Header
from edgegen.tokenizer.library import LibraryBackend
from edgegen.tokenizer.spelling import byte_level_letters, byte_level_speller

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t


@dataclass(frozen=True, slots=True)
class _AddedToken:
    content: str
    special: bool
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool


@dataclass(frozen=True, slots=True)
class _Details:
    """Contents of the file that Python needs.

    Attributes:
        before: the ids before a text that is encoded with special tokens.
        after: the ids after it.
        vocab_size: how many tokens there are.
        longest: characters that a token stands for at most; None where there is no such limit.
        composed: whether a text is brought into Unicode's composed form, NFC.
        trims_spans: whether a token's span has no white space at its ends.
        keeps_first_space: whether the first token keeps the one space that it begins with.
    """

    added_tokens: Mapping[int, AddedToken]
    before: list[int]
    after: list[int]
    vocab_size: int
    longest: int | None
    composed: bool
    trims_spans: bool
    keeps_first_space: bool

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Raises ``ValueError`` or ``TypeError`` where it is damaged."""
        content: dict[str, Any] = json.loads(data)
        added = {token.pop("id"): _AddedToken(**token) for token in content.pop("added_tokens")}
        details = cls(added, **content)
        longest = () if details.longest is None else (details.longest,)
        numbers: list[object] = [*added, *details.before, *details.after, details.vocab_size, *longest]
        texts: list[object] = [token.content for token in added.values()]
        if not all(isinstance(number, int) for number in numbers) or 0 in longest:
            raise ValueError("a number is expected")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a text is expected")
        return details


class CompiledBackend:
    """A mapped file beside the ``tokenizer.json`` that it was made of; see :meth:`open`."""

    def __init__(
        self, data: mmap.mmap | bytes, sha256: str, library: Path, fall_back: Callable[[], LibraryBackend]
    ) -> None:
        """``fall_back`` makes the library's form, when a text needs it first.

        Raises ``ValueError``, or what Python raises of a damaged file, where :meth:`open` returns None.
        """
        whole = memoryview(data)
        header = Header.read(whole)
        if header is None or header.source.hex() != sha256:
            raise ValueError("not the compiled form of this file")

        def section(name: str) -> memoryview:
            offset, size = header.sections[name]
            return whole[offset : offset + size]

        self._details = details = _Details.read(section("details").tobytes())
        self._code = _code_of(library)
        self._fall_back = fall_back
        self._file = np.frombuffer(data, np.uint8)
        self._start, self._size = self._file.ctypes.data, len(data)
        self._starts = section("token_starts").cast("I")
        self._bytes = section("token_bytes")
        self.count = len(self._starts) - 1
        self.added_tokens, self.vocab_size = details.added_tokens, details.vocab_size
        self.decoder: Mapping[str, Any] = {"type": "ByteLevel"}
        self._added_ids = {token.content: i for i, token in self.added_tokens.items()}
        self._special = frozenset(i for i, token in self.added_tokens.items() if token.special)
        self._loaded: LibraryBackend | None = None
        self._loading = Lock()
        if self.encode_utf8(b"") is None:
            raise ValueError("damaged")

    @classmethod
    def open(cls, path: Path, source: Path, sha256: str, library: Path) -> Self | None:
        """The compiled form at ``path`` of the ``tokenizer.json`` at ``source``, whose hash is ``sha256``.

        None where there is none, it is damaged or was made of another file, or ``library``, edgegen's compiled code,
        cannot read it. ``source`` stays open: a folder that is moved or removed later takes nothing away.
        """
        try:
            with open_regular(path) as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return cls(data, sha256, library, _reader_of(source))
        except (OSError, AttributeError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def encode(self, text: str, *, add_special_tokens: bool) -> Encoding:
        data = self.utf8(text)
        encoded = None if data is None else self.encode_utf8(data)
        if data is None or encoded is None:
            return self.library.encode(text, add_special_tokens=add_special_tokens)
        before, after = (self._details.before, self._details.after) if add_special_tokens else ([], [])
        return _CompiledEncoding(self, data, *encoded, before, after)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        hidden = self._special if skip_special_tokens else frozenset[int]()
        return b"".join([self._bytes_of(i) for i in ids if i not in hidden]).decode("utf-8", "replace")

    def id_to_token(self, token_id: int) -> str | None:
        spelled = self._bytes_of(token_id)
        if not spelled:
            return None
        if self._starts[token_id] & LITERAL:
            return spelled.decode("utf-8", "replace")
        return spelled.decode("latin-1").translate(_LETTERS)

    def token_to_id(self, token: str) -> int | None:
        if (added := self._added_ids.get(token)) is not None:
            return added
        try:
            spelled = _spell(token)
        except UnicodeEncodeError:  # half of a character
            return None
        literal = not _BYTES.issuperset(token)
        found = self._code.edgegen_tokenizer_find(self._start, self._size, spelled, len(spelled), literal)
        return found if found >= 0 else None

    def longest_token(self, letters: Sequence[str]) -> int | None:
        return self._details.longest

    def respelled(self, spelling: Mapping[int, str]) -> RespelledTokenizer:
        return _Respelled(self, spelling)

    @property
    def library(self) -> LibraryBackend:
        """The tokenizers library with ``tokenizer.json``, which is read when it is needed first."""
        with self._loading:
            if self._loaded is None:
                self._loaded = self._fall_back()
            return self._loaded

    def utf8(self, text: str) -> bytes | None:
        """``text`` in UTF-8; None where the compiled form may say something else of it than the library does."""
        if self._details.composed and not text.isascii() and not _is_composed(text):
            return None
        try:
            return text.encode()
        except UnicodeEncodeError:
            return None

    def encode_utf8(
        self, text: bytes, plain: bytes | None = None
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]] | None:
        """The ids, and where each one's part of ``text`` ends; None where the file is damaged.

        ``plain``: a bit for each id, set for the added tokens that are text like any other.
        """
        ids, ends = np.empty(len(text), np.uint32), np.empty(len(text), np.uint32)
        count = self._code.edgegen_tokenizer_encode(
            self._start, self._size, text, len(text), plain, ids.ctypes.data, ends.ctypes.data
        )
        return None if count < 0 else (ids[:count], ends[:count])

    def _bytes_of(self, token_id: int) -> bytes:
        """The bytes that a token adds to a text; none where there is no such token."""
        if not 0 <= token_id < self.count:
            return b""
        start, end = self._starts[token_id] & ~LITERAL, self._starts[token_id + 1] & ~LITERAL
        return bytes(self._bytes[start:end])

    def spans(self, text: bytes, ids: NDArray[np.uint32], ends: NDArray[np.uint32]) -> list[tuple[int, int]]:
        """The characters that each part stands for, a whole one where it is a part of one."""
        starts = np.concatenate([np.zeros(1, np.uint32), ends[:-1]]) if len(ends) else ends
        if not text.isascii():
            begins = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
            characters = np.cumsum(begins, dtype=np.uint32) - 1
            starts, ends = characters[starts], characters[ends - 1] + 1
        spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
        return self._trimmed(ids.tolist(), spans) if self._details.trims_spans else spans

    def _trimmed(self, ids: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """As the library's byte-level post-processor leaves white space out, letter by letter of a token."""
        trimmed: list[tuple[int, int]] = []
        for place, (token_id, (start, end)) in enumerate(zip(ids, spans, strict=True)):
            before, after = self._white_space_of(token_id)
            if before:
                kept = self._details.keeps_first_space and before == 1 and (place == 0 or start == 0)
                start = min(start + before - kept, end)
            if after and end >= after:
                end = max(end - after, start)
            trimmed.append((start, end))
        return trimmed

    def _white_space_of(self, token_id: int) -> tuple[int, int]:
        """How many letters of white space a token begins and ends with."""
        token = (self.id_to_token(token_id) or "").replace(_LETTERS[ord(" ")], " ")
        return len(token) - len(token.lstrip()), len(token) - len(token.rstrip())


def _reader_of(path: Path) -> Callable[[], LibraryBackend]:
    """Reads the tokenizer of a ``tokenizer.json``, which stays open: it may be read long after.

    Raises ``OSError`` where it cannot be opened.
    """
    file = open_regular(path)

    def read() -> LibraryBackend:
        file.seek(0)
        return LibraryBackend.from_bytes(file.read, path)

    weakref.finalize(read, file.close)
    return read


@dataclass(frozen=True)
class _CompiledEncoding:
    _backend: CompiledBackend
    _text: bytes
    _ids: NDArray[np.uint32]
    _ends: NDArray[np.uint32]
    _before: list[int]
    _after: list[int]

    @property
    def ids(self) -> list[int]:
        return [*self._before, *self._ids.tolist(), *self._after]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        none = (0, 0)
        spans = self._backend.spans(self._text, self._ids, self._ends)
        return [*[none] * len(self._before), *spans, *[none] * len(self._after)]


class _Respelled:
    """The parts between the tokens that are written otherwise are encoded without these."""

    def __init__(self, backend: CompiledBackend, spelling: Mapping[int, str]) -> None:
        self._backend = backend
        self._spelling = spelling
        self._ids = {text: i for i, text in spelling.items()}
        texts = sorted(self._ids, key=lambda text: (-len(text), text))
        self._written = re.compile(f"({'|'.join(map(re.escape, texts))})") if texts else None
        plain = bytearray(backend.count // 8 + 1)
        for token_id in spelling:
            if token_id < backend.count:
                plain[token_id // 8] |= 1 << token_id % 8
        self._plain = bytes(plain)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        pieces = self._written.split(text) if self._written else [text]
        for place, piece in enumerate(pieces):
            if place % 2:
                ids.append(self._ids[piece])
                continue
            # Tokens that take in the white space beside them do so as well where they are written otherwise.
            if place > 0 and self._added(pieces[place - 1]).rstrip:
                piece = piece.lstrip(WHITE_SPACE)
            if place + 1 < len(pieces) and self._added(pieces[place + 1]).lstrip:
                piece = piece.rstrip(WHITE_SPACE)
            data = self._backend.utf8(piece)
            encoded = None if data is None else self._backend.encode_utf8(data, self._plain)
            if encoded is None:
                return self._backend.library.respelled(self._spelling).encode(text)
            ids += encoded[0].tolist()
        return ids

    def _added(self, written: str) -> AddedToken:
        return self._backend.added_tokens[self._ids[written]]


_SPELLED = byte_level_letters()
_BYTES = frozenset(_SPELLED)
_LETTERS = dict(enumerate(_SPELLED))
_spell = byte_level_speller(_SPELLED)


def _is_composed(text: str) -> bool:
    """Whether ``text`` is in Unicode's composed form for certain, whichever version of Unicode the library knows.

    What is composed in this Python's version is so in others, but for characters that one of them does not have.
    """
    return unicodedata.is_normalized("NFC", text) and all(unicodedata.category(c) != "Cn" for c in set(text))


def _code_of(library: Path) -> ctypes.CDLL:
    """Edgegen's compiled code; ``AttributeError`` where it is from before there was this."""
    code = cast(Any, ctypes.CDLL(str(library)))
    file = (_POINTER, _SIZE)
    text = (ctypes.c_char_p, _SIZE)
    code.edgegen_tokenizer_encode.argtypes = (*file, *text, ctypes.c_char_p, _POINTER, _POINTER)
    code.edgegen_tokenizer_find.argtypes = (*file, *text, ctypes.c_int)
    code.edgegen_tokenizer_encode.restype = code.edgegen_tokenizer_find.restype = ctypes.c_int64
    return code
