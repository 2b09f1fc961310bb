"""Tokenizer: text to token ids and back, whole or streamed one token at a time.

``Tokenizer`` wraps the ``tokenizers`` library around one ``tokenizer.json``. ``StreamingDetokenizer`` gives
out text while ids arrive: whole characters only, nothing that a later token could change, and put together
exactly what ``Tokenizer.decode`` says of all the ids.

Most vocabularies spell bytes: byte-level BPE (GPT-2, Llama 3, Qwen) writes each byte as a letter of its own,
and SentencePiece with byte fallback (Llama 2, Mistral, Phi-3) writes ``<0xE2>`` for a byte that no token
covers. There a token has the same bytes whatever stands around it, and streaming is incremental UTF-8 decoding.
Tokens of other vocabularies are whole text that depends at most on its neighbours, and are decoded after a
few of these.
"""

import codecs
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Protocol, Self

from edgegen.errors import EdgegenError, PromptTooLongError, UsageError
from edgegen.tokenizer.backend import Backend, Encoding, RespelledTokenizer
from edgegen.tokenizer.library import LibraryBackend, raise_unless_the_librarys
from edgegen.tokenizer.spelling import Spelling, spelling_of

_NEIGHBOURS = 4
"""Tokens to look back at: no UTF-8 character has more bytes, and no decoder's influence reaches further."""

_LOOKS_LIKE_CONTROL = re.compile(r"<[|｜].*[|｜]>", re.DOTALL)

_SHORT = 100_000
"""Characters of a text that takes a tenth of a second or so: its tokens are simply counted."""


class Tokenizer:
    """One ``tokenizer.json``, ready to encode and decode; may be shared between threads.

    ``added_tokens``: those looked for in a text before all others, control tokens among them, by id.

    Padding and truncation that the file asks for are switched off: lengths are the runtime's business, which
    says so when a prompt is too long.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.added_tokens = backend.added_tokens
        self._special_ids = frozenset(i for i, token in self.added_tokens.items() if token.special)
        self._spelling = spelling_of(backend.decoder)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a ``tokenizer.json``.

        Raises:
            BundleError: the file cannot be read, or is not a tokenizer.
        """
        return cls(LibraryBackend.from_file(path))

    @classmethod
    def from_compiled(cls, path: Path, source: Path, sha256: str, library: Path) -> Self | None:
        """The tokenizer of the ``tokenizer.json`` at ``source``, whose hash is ``sha256``, by its compiled form.

        None where there is none at ``path``, it is damaged or was made of another file, or ``library``, edgegen's
        compiled code, cannot read it.
        """
        from edgegen.tokenizer.compiled import CompiledBackend

        backend = CompiledBackend.open(path, source, sha256, library)
        return None if backend is None else cls(backend)

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size:,} tokens, {len(self._special_ids)} special)"

    @cached_property
    def vocab_size(self) -> int:
        """How many tokens there are, added ones included; a model may have padded its logits beyond them."""
        return self._backend.vocab_size

    @property
    def is_compiled(self) -> bool:
        """Whether edgegen's own code reads texts, which takes a tenth of the memory that the library takes."""
        return not isinstance(self._backend, LibraryBackend)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of ``text``, by default between the tokens the file puts around a text (``<s>``).

        Raises:
            UsageError: the vocabulary has no token for some of the text, nor one for the unknown.
        """
        return self._encoding(text, add_special_tokens=add_special_tokens).ids

    def encode_as_text(self, text: str, control: Collection[str] = ()) -> list[int]:
        """The ids of ``text`` alone, in which no control token is one: it is spelled by other tokens.

        Control tokens are those that the file calls special, that look like ``<|…|>``, and those of ``control``.

        Raises:
            UsageError: the vocabulary has no token for some of the text, nor one for the unknown.
        """
        control_ids = {i for i, token in self.added_tokens.items() if token.content in control} | self._control_ids
        if not any(self.added_tokens[i].content.strip("\u2581 ") in text for i in control_ids):
            return self.encode(text, add_special_tokens=False)
        return self.respelled(secret_spelling(control_ids)).encode(text)

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of ``text`` alone, and the characters of it that each stands for, as (start, end).

        Raises:
            UsageError: the vocabulary has no token for some of the text, nor one for the unknown.
        """
        encoding = self._encoding(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def frame(self, ids: Sequence[int]) -> list[int]:
        """The ids of a text, between the tokens that :meth:`encode` puts around one."""
        before, after = self._frame
        return [*before, *ids, *after]

    @property
    def ids_after(self) -> int:
        """How many ids :meth:`encode` puts after those of a text."""
        return len(self._frame[1])

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The ids that :meth:`encode` puts before and after those of a text."""
        alone, framed = self.encode("a", add_special_tokens=False), self.encode("a")
        before = next(n for n in range(len(framed)) if framed[n : n + len(alone)] == alone)
        return framed[:before], framed[before + len(alone) :]

    def refuse_longer(self, text: str, most: int) -> None:
        """Refuse a text that surely has more than ``most`` tokens, before it is tokenized.

        Tokenizing takes some 500 bytes of memory and 2 µs for each character.

        Raises:
            PromptTooLongError: it has.
        """
        if len(text) > _SHORT and (least := self.least_tokens(text)) > most:
            raise PromptTooLongError(
                f"the prompt has {len(text)} characters, at least {least} tokens, but this model's context is {most}: "
                "shorten it."
            )

    def least_tokens(self, text: str) -> int:
        """How many tokens ``text`` has at least, without tokenizing it; 0 where that is not known."""
        if self._longest is None:
            return 0
        # White space is not counted: normalizers may strip it, and so may control tokens beside it.
        parts = (text[begin : begin + _SHORT] for begin in range(0, len(text), _SHORT))
        return -(-sum(sum(map(len, part.split())) for part in parts) // self._longest)

    @cached_property
    def _longest(self) -> int | None:
        """Characters of a text that one token stands for at most; None where there is no such limit."""
        return None if self._spelling is None else self._backend.longest_token(self._spelling.letters)

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        """The ids of added tokens that are special, or look like ``<|…|>``."""
        added = self.added_tokens.items()
        return frozenset(i for i, token in added if token.special or looks_like_control(token.content))

    def respelled(self, spelling: Mapping[int, str]) -> RespelledTokenizer:
        """This tokenizer, sharing its vocabulary, in which some added tokens are written otherwise."""
        return self._backend.respelled(spelling)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ``ids``; ids outside the vocabulary have none, broken characters become U+FFFD."""
        text = self._backend.decode(ids, skip_special_tokens=skip_special_tokens)
        if "\ufffd" not in text or self._spelling is None:
            return text
        # The library's byte fallback gives up every character beside a bad byte; the stream keeps the good ones.
        stream = StreamingDetokenizer(self, skip_special_tokens=skip_special_tokens)
        return "".join([stream.push(i) for i in ids]) + stream.finish()

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Return the bytes that each of ``ids`` adds to a text that goes on, control tokens included, as UTF-8.

        Joined they are the text of ``ids``, with the first space, which :meth:`decode` drops for some
        vocabularies. Where tokens spell bytes, a piece may be part of a character.
        """
        if self._spelling is not None:
            spelled = dict[int, bytes]()  # a long text has few tokens that differ
            for i in set(ids):
                token = self.visible_token(i, skip_special_tokens=False)
                spelled[i] = b"" if token is None else self._spelling.spell(token)
            return [spelled[i] for i in ids]
        stream = self.open_stream([(i, "") for i in ids[:1]])  # after any token, the first one keeps its space
        texts = [stream.push(i, "") for i in ids]
        return [text.encode() for text in [*texts[:-1], "".join([*texts[-1:], stream.finish()])][: len(ids)]]

    def first_difference(self, other: "Tokenizer") -> int | None:
        """The lowest id that stands for another token in ``other``, or for none; None if all are the same."""
        ids = range(max(self.vocab_size, other.vocab_size))
        mine, others = self._backend.id_to_token, other._backend.id_to_token
        return next((i for i in ids if mine(i) != others(i)), None)

    def token_to_id(self, token: str) -> int | None:
        """The id of ``token`` as the vocabulary spells it, or None."""
        return self._backend.token_to_id(token)

    @property
    def spells_bytes(self) -> bool:
        """Whether each token stands for the same bytes wherever it is: byte-level and byte-fallback vocabularies."""
        return self._spelling is not None

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes that a token adds to a text; None for special tokens and unknown ids, which add none.

        Raises:
            UsageError: the tokens of this vocabulary do not spell bytes.
        """
        if self._spelling is None:
            raise UsageError("the tokens of this vocabulary are not so many bytes each.")
        token = self.visible_token(token_id, skip_special_tokens=True)
        return None if token is None else self._spelling.spell(token)

    def visible_token(self, token_id: int, *, skip_special_tokens: bool) -> str | None:
        """The token as the vocabulary spells it; None when it has no part in the text."""
        if skip_special_tokens and token_id in self._special_ids:
            return None
        return self._backend.id_to_token(token_id)

    def open_stream(self, prompt: Sequence[tuple[int, str]]) -> "_TextStream":
        """A stream that continues the last tokens of a prompt, given as ids and spellings."""
        if self._spelling is None:
            return _WindowedText(self._backend, [token_id for token_id, _ in prompt])
        return _SpelledText(self._spelling, [token for _, token in prompt])

    def _encoding(self, text: str, *, add_special_tokens: bool) -> Encoding:
        try:
            return self._backend.encode(text, add_special_tokens=add_special_tokens)
        except EdgegenError:
            raise  # a file that is read only now, and cannot be
        except BaseException as error:
            raise_unless_the_librarys(error)
            raise UsageError(f"this model's vocabulary cannot spell the prompt: {error}.") from error


def looks_like_control(token: str) -> bool:
    """Whether an added token has the form ``<|…|>``, which some files do not call special."""
    return _LOOKS_LIKE_CONTROL.fullmatch(token) is not None


def secret_spelling(token_ids: Iterable[int]) -> dict[int, str]:
    """A spelling of each token that occurs in no text: a noncharacter and 64 random bits."""
    import secrets  # not for every text

    salt = secrets.token_hex(8)
    return {token_id: f"\U0010ffff{salt}{token_id}\U0010ffff" for token_id in token_ids}


class StreamingDetokenizer:
    """Text of one sequence, given out as its ids arrive.

    ``"".join(push(i) for i in ids) + finish()`` equals ``tokenizer.decode(ids)``. After ``prompt_ids`` it
    equals what ``tokenizer.decode(prompt_ids + ids)`` has beyond ``tokenizer.decode(prompt_ids)``: the
    vocabularies which drop the space before the first word keep it here. A token costs the same however many
    came before.

    tokenizers' own ``DecodeStream`` will not do: with byte fallback it raises "Invalid prefix encountered" on
    runs of bytes, it never gives out an incomplete last character, and slows down for as long as bytes stay
    invalid.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        prompt_ids: Sequence[int] = (),
        shown_ids: Collection[int] = (),
    ) -> None:
        """``shown_ids``: special tokens that are shown all the same."""
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._shown_ids = frozenset(shown_ids)
        visible = ((i, token) for i in reversed(prompt_ids) if (token := self._visible_token(i)) is not None)
        self._stream = tokenizer.open_stream([*islice(visible, _NEIGHBOURS)][::-1])
        self._pieces: list[str] = []

    def push(self, token_id: int) -> str:
        """The text that became certain with this token; empty while a character is incomplete."""
        token = self._visible_token(token_id)
        return "" if token is None else self._give_out(self._stream.push(token_id, token))

    def finish(self) -> str:
        """Return the text that was held back, an incomplete character as U+FFFD. Nothing may be pushed after this."""
        return self._give_out(self._stream.finish())

    def fork(self) -> Self:
        """For another sequence that has the same ids so far."""
        fork = copy(self)
        fork._stream, fork._pieces = self._stream.fork(), [*self._pieces]
        return fork

    @property
    def text(self) -> str:
        """All text given out so far."""
        return "".join(self._pieces)

    def _visible_token(self, token_id: int) -> str | None:
        skip = self._skip_special_tokens and token_id not in self._shown_ids
        return self._tokenizer.visible_token(token_id, skip_special_tokens=skip)

    def _give_out(self, text: str) -> str:
        if text:
            self._pieces.append(text)
        return text


class _TextStream(Protocol):
    def push(self, token_id: int, token: str) -> str: ...
    def finish(self) -> str: ...
    def fork(self) -> Self: ...


class _SpelledText:
    """Tokens as bytes, bytes as characters."""

    def __init__(self, spelling: Spelling, prompt: Iterable[str]) -> None:
        self._spell = spelling.spell
        self._utf8 = _utf8_decoder()
        self._at_start = spelling.drops_first_space
        self._overlap = 0
        for token in prompt:
            self._settle(self._utf8.decode(self._spell(token)))
        # A prompt that ends inside a character has shown it as U+FFFD; what becomes of it is not shown again.
        self._overlap = len(self._utf8.getstate()[0].decode("utf-8", "replace"))

    def push(self, token_id: int, token: str) -> str:
        return self._settle(self._utf8.decode(self._spell(token)))

    def finish(self) -> str:
        return self._settle(self._utf8.decode(b"", final=True))

    def fork(self) -> Self:
        fork = copy(self)
        fork._utf8 = _utf8_decoder()
        fork._utf8.setstate(self._utf8.getstate())
        return fork

    def _settle(self, text: str) -> str:
        if self._at_start and text:
            self._at_start = False
            text = text.removeprefix(" ")
        if self._overlap and text:
            text, self._overlap = text[self._overlap :], max(0, self._overlap - len(text))
        return text


class _WindowedText:
    """Tokens as whole text, each decoded after its last few neighbours."""

    def __init__(self, backend: Backend, prompt: Sequence[int]) -> None:
        self._backend = backend
        self._before = list(prompt)
        self._pending: list[int] = []

    def push(self, token_id: int, token: str) -> str:
        self._pending.append(token_id)
        text = self._pending_text()
        if text.endswith("\ufffd") and len(self._pending) < _NEIGHBOURS:
            return ""  # an unusual decoder that splits characters after all: wait for the rest of this one
        self._before = [*self._before, *self._pending][-_NEIGHBOURS:]
        self._pending.clear()
        return text

    def finish(self) -> str:
        return self._pending_text() if self._pending else ""

    def fork(self) -> Self:
        fork = copy(self)
        fork._before, fork._pending = [*self._before], [*self._pending]
        return fork

    def _pending_text(self) -> str:
        before = self._backend.decode(self._before, skip_special_tokens=False)
        whole = self._backend.decode([*self._before, *self._pending], skip_special_tokens=False)
        return whole[len(before) :]


def _utf8_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
