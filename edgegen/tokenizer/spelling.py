"""Spelling: how the tokens of a vocabulary spell bytes."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_DROP_FIRST_SPACE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


class Spelling(NamedTuple):
    """How the tokens of a vocabulary spell bytes, which token is each byte, and whether a text loses the space it
    begins with."""

    spell: Callable[[str], bytes]
    letters: tuple[str, ...]
    drops_first_space: bool = False


def spelling_of(decoder: Mapping[str, Any]) -> Spelling | None:
    """How tokens with this decoder spell bytes; None when they do not, each by itself."""
    match decoder.get("decoders", [decoder]):
        case [{"type": "ByteLevel"}]:
            letters = byte_level_letters()
            return Spelling(byte_level_speller(letters), letters)
        case [
            {"type": "Replace", "pattern": {"String": str(mark)}, "content": str(space)},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            *rest,
        ] if rest in ([], [_DROP_FIRST_SPACE]):
            letters = tuple(f"<0x{byte:02X}>" for byte in range(256))
            return Spelling(_byte_fallback_speller(mark, space), letters, drops_first_space=bool(rest))
        case _:
            return None


def byte_level_letters() -> tuple[str, ...]:
    """GPT-2's alphabet: visible Latin-1 letters for themselves, the other bytes from U+0100 on, in order."""
    visible = [b for b in range(256) if ord("!") <= b <= ord("~") or (b >= ord("¡") and b != 0xAD)]
    hidden = [b for b in range(256) if b not in visible]
    letter_of = {b: chr(b) for b in visible} | {b: chr(0x100 + n) for n, b in enumerate(hidden)}
    return tuple(letter_of[b] for b in range(256))


def byte_level_speller(letters: Sequence[str]) -> Callable[[str], bytes]:
    alphabet, bytes_of = frozenset(letters), str.maketrans({letter: chr(byte) for byte, letter in enumerate(letters)})

    def spell(token: str) -> bytes:
        if alphabet.issuperset(token):
            return token.translate(bytes_of).encode("latin-1")
        return token.encode()  # an added token, written as plain text

    return spell


def _byte_fallback_speller(mark: str, space: str) -> Callable[[str], bytes]:
    """SentencePiece: ``mark`` (U+2581) stands for a space, ``<0xNN>`` for a byte, all else for itself."""
    byte_token = re.compile("<0x([0-9A-Fa-f]{2})>")

    def spell(token: str) -> bytes:
        token = token.replace(mark, space)
        byte = byte_token.fullmatch(token)
        return bytes.fromhex(byte[1]) if byte else token.encode()

    return spell
