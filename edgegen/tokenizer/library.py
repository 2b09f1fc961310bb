"""LibraryBackend: a ``tokenizer.json`` that the tokenizers library reads."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self, cast

from edgegen.errors import BundleError, PromptTooLongError
from edgegen.system import read_regular
from edgegen.tokenizer.backend import AddedToken, Encoding

_KEPT = {"ByteLevel", "Digits", "Lowercase", "Metaspace", "NFC", "NFD", "NFKC", "NFKD", "Prepend"}
"""Normalizers and pre-tokenizers that leave out white space at most, and put at most four characters in one's place."""
_COMPOSED = 4

_MOST_WRITTEN = 256 << 20
"""Bytes that normalizers and pre-tokenizers may make of one text; each takes some 40 bytes of memory."""

_TRIED = ("", "a", " Ae\u0301 \u00e9\u00a0\u4e2d\U0001f600 12\n\n\t!?", "  " * 20 + "ab" * 20)
"""Texts that show whether the library panics."""


class _Library(Protocol):
    """Part of ``tokenizers.Tokenizer`` that is used here; the library's own stubs carry no types."""

    model: Any
    normalizer: Any
    pre_tokenizer: Any
    decoder: Any

    def add_tokens(self, tokens: Sequence[Any]) -> int: ...
    def encode(self, sequence: str, *, add_special_tokens: bool) -> Encoding: ...
    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...
    def get_vocab_size(self) -> int: ...
    def get_vocab(self) -> dict[str, int]: ...
    def get_added_tokens_decoder(self) -> dict[int, AddedToken]: ...
    def id_to_token(self, id: int) -> str | None: ...  # noqa: A002 (the library's own name)
    def token_to_id(self, token: str) -> int | None: ...
    def to_str(self) -> str: ...
    def no_padding(self) -> None: ...
    def no_truncation(self) -> None: ...


class LibraryBackend:
    """A tokenizer of the library; padding, truncation and the dropout of merges are switched off."""

    def __init__(self, library: _Library, growth: float = 1.0) -> None:
        """``growth``: bytes that normalizers and pre-tokenizers make of a byte of a text at most."""
        self._library = library
        self._growth = growth
        library.no_padding()
        library.no_truncation()
        if getattr(library.model, "dropout", None):
            library.model.dropout = None
        self.added_tokens: Mapping[int, AddedToken] = library.get_added_tokens_decoder()
        self.decoder: Mapping[str, Any] = _json(library.decoder)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a ``tokenizer.json``.

        Raises:
            BundleError: the file cannot be read, or is not a tokenizer.
        """
        return cls.from_bytes(partial(read_regular, path), path)

    @classmethod
    def from_bytes(cls, read: Callable[[], bytes], path: Path) -> Self:
        """The tokenizer of the bytes that ``read`` returns, of a file that was at ``path``.

        Raises:
            BundleError: they cannot be read, or are not a tokenizer.
        """
        try:
            return cls.of(read())
        except OSError as error:
            raise BundleError(f"cannot read the tokenizer {path}: {error.strerror}") from error
        except ValueError as error:
            raise BundleError(f"{path} is not a readable tokenizer.json: {error}") from error

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The tokenizer of a file's contents, which are checked before the library sees them.

        Raises ``ValueError``, which says why they cannot be read.
        """
        from edgegen.tokenizer.tokenizer_check import check_tokenizer, read_tokenizer_json

        return cls.of_checked(data, check_tokenizer(read_tokenizer_json(data)).growth)

    @classmethod
    def of_checked(cls, data: bytes, growth: float) -> Self:
        """The tokenizer of contents that ``check_tokenizer`` has let through; ``growth``: what it has said of them.

        Raises ``ValueError``, which says why the library does not read them.
        """
        import tokenizers  # not for a compiled one, nor the check

        from edgegen.tokenizer.panic import without_panic_text

        with without_panic_text():
            try:
                backend = cls(cast(Any, tokenizers.Tokenizer).from_buffer(data), growth)
            except BaseException as error:
                raise_unless_the_librarys(error)
                raise ValueError(str(error)) from error
            backend._try()
        return backend

    def _try(self) -> None:
        """Raise ``ValueError`` where the library panics over a short text."""
        for text in _TRIED:
            try:
                ids = self._library.encode(text, add_special_tokens=True).ids
                self._library.decode(ids, skip_special_tokens=False)
            except Exception:  # a vocabulary without these letters
                continue
            except BaseException as error:
                raise_unless_the_librarys(error)
                raise ValueError(f"the tokenizers library fails at the text {text[:10]!r} ({error})") from error

    @property
    def vocab_size(self) -> int:
        return self._library.get_vocab_size()

    def encode(self, text: str, *, add_special_tokens: bool) -> Encoding:
        """The ids of ``text``, and the spans that they stand for.

        Raises:
            PromptTooLongError: the normalizers could make more of it than fits the memory.
        """
        if len(text) * self._growth > _MOST_WRITTEN:
            raise PromptTooLongError(
                f"the text has {len(text)} characters, of each of which this model's tokenizer can make "
                f"{self._growth:.3g}: shorten it to {int(_MOST_WRITTEN / self._growth)}."
            )
        return self._library.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of ``ids``.

        Raises:
            BundleError: the library panics over them.
        """
        try:
            return self._library.decode(ids, skip_special_tokens=skip_special_tokens)
        except BaseException as error:
            raise_unless_the_librarys(error)
            raise BundleError(f"this model's tokenizer cannot decode its tokens: {error}") from error

    def id_to_token(self, token_id: int) -> str | None:
        return self._library.id_to_token(token_id)

    def token_to_id(self, token: str) -> int | None:
        return self._library.token_to_id(token)

    def vocabulary(self) -> dict[str, int]:
        """The ids of all tokens, added ones included."""
        return self._library.get_vocab()

    def same_as(self, other: "LibraryBackend") -> bool:
        """Whether the library would write the very same file of ``other``."""
        return self._library.to_str() == other._library.to_str()

    def longest_token(self, letters: Sequence[str]) -> int | None:
        normalizer, splitter = self._library.normalizer, self._library.pre_tokenizer
        if not (_keeps_text(normalizer) and _keeps_text(splitter)):
            return None
        falls_back = letters[0] != "<0x00>" or getattr(self._library.model, "byte_fallback", False)
        if not falls_back or any(self.token_to_id(letter) is None for letter in letters):
            return None  # any number of unknown characters may become one token
        longest = max(map(len, self.vocabulary()), default=1)
        return longest if normalizer is None else _COMPOSED * longest

    def respelled(self, spelling: Mapping[int, str]) -> "_Respelled":
        return _Respelled(self._library, spelling)


class _Respelled:
    def __init__(self, library: _Library, spelling: Mapping[int, str]) -> None:
        import tokenizers

        module = cast(Any, tokenizers)
        self._library: _Library = module.Tokenizer(library.model)  # the vocabulary itself is shared
        if library.normalizer is not None:
            self._library.normalizer = library.normalizer
        if library.pre_tokenizer is not None:
            self._library.pre_tokenizer = library.pre_tokenizer
        written = {i: spelling.get(i, token.content) for i, token in library.get_added_tokens_decoder().items()}
        self._library.add_tokens(
            [
                module.AddedToken(
                    written[i],
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=token.normalized,
                )
                for i, token in library.get_added_tokens_decoder().items()
            ]
        )
        self._own_ids = {self._library.token_to_id(text): i for i, text in written.items()}

    def encode(self, text: str) -> list[int]:
        ids = self._library.encode(text, add_special_tokens=False).ids
        return [self._own_ids.get(i, i) for i in ids]


def raise_unless_the_librarys(error: BaseException) -> None:
    """The library promises no narrower class than Exception; when its Rust code panics, not even that."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _json(part: Any) -> dict[str, Any]:
    """A normalizer, pre-tokenizer or decoder as its file has it; empty if it has none."""
    return {} if part is None else json.loads(part.__getstate__())


def _keeps_text(part: Any) -> bool:
    """Whether a normalizer or pre-tokenizer leaves all of a text, but for white space, to the model."""
    spec = _json(part)
    steps: list[dict[str, Any]] = spec.get("normalizers") or spec.get("pretokenizers") or ([spec] if spec else [])
    return all(_step_keeps_text(step) for step in steps)


def _step_keeps_text(step: Mapping[str, Any]) -> bool:
    match step:
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
            return len(new) >= len(old)
        case {"type": "Split" | "Punctuation", "behavior": str(behavior)}:
            return behavior != "Removed"
        case _:
            return step.get("type") in _KEPT
