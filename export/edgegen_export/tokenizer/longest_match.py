"""Tokenizers that take the longest token at each place, such as RWKV's, as a ``tokenizer.json``.

RWKV's own code walks a trie of bytes. Here a regular expression with the shape of that trie splits a text into its
tokens, which are then looked up whole. That is exact, since tokens that are not whole characters lie within one: they
are taken only in a character without a token, where merges of bytes, from left to right, make them.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from edgegen.errors import CheckpointError, refuse_any
from edgegen.tokenizer.spelling import byte_level_letters
from edgegen_export.tokenizer.components import bpe, byte_level, chain, isolated
from edgegen_export.tokenizer.settings import TokenizerSettings
from edgegen_export.tokenizer.tokenizer_json import TokenizerJson

END_OF_TEXT = "<|rwkv_tokenizer_end_of_text|>"
"""Name of the token with id 0 in RWKV's code; the file does not have it."""

_SHOWN = 5
_MOST_ALTERNATIVES = 16
"""Most alternatives that are tried one by one; of more, groups of neighbours are tried by their first character."""


_LETTERS = byte_level_letters()


def read_world(data: bytes, name: str) -> dict[int, bytes]:
    """The tokens of RWKV's file by id; a line has the id, a literal of Python, and the number of bytes.

    Raises:
        CheckpointError: a line is not of its form.
    """
    found: dict[int, bytes] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").rstrip().split("\n"), 1):
        token_id, _, rest = line.partition(" ")
        literal, _, size = rest.rstrip("\r").rpartition(" ")
        try:
            value: object = ast.literal_eval(literal)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            value = None
        token = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        if not isinstance(token, bytes) or not token_id.isdecimal() or size != str(len(token)):
            raise CheckpointError(f"{name}: line {number} is not an id, a token, and how many bytes it has")
        found[int(token_id)] = token
    return found


def world_tokenizer(tokens: Mapping[int, bytes], settings: TokenizerSettings) -> TokenizerJson:
    """RWKV's tokenizer of its file's tokens, with the end of a text, whose id is 0.

    Raises:
        CheckpointError: see :func:`longest_match`.
    """
    named = settings.added.get(0) or settings.special("eos_token", END_OF_TEXT)
    end = named.content if named else END_OF_TEXT
    words = set(tokens.values())
    specials = [token.content for token in settings.specials.values() if token and token.content.encode() in words]
    problems = [f"the special token {text!r} is a word of the vocabulary, too" for text in dict.fromkeys(specials)]
    return longest_match(tokens, {} if 0 in tokens else {0: end}, problems)


def longest_match(
    tokens: Mapping[int, bytes], others: Mapping[int, str], problems: Sequence[str] = ()
) -> TokenizerJson:
    """The tokenizer of ``tokens`` by id; ``others``: ids of tokens that no text is made of.

    Raises:
        CheckpointError: it cannot be said as a ``tokenizer.json``, or there are ``problems``; all of them are listed.
    """
    problems = [*problems, *_problems(tokens)]
    parts = [token for token in tokens.values() if len(token) == 2 and not _is_text(token)]
    try:
        merges = _merges(parts)
    except CycleError:
        merges = []
        problems.append("tokens of two bytes that follow each other in a circle")
    refuse_any(problems, CheckpointError, "the vocabulary of longest tokens does not make a tokenizer: ")
    split = isolated(_pattern(token.decode() for token in tokens.values() if _is_text(token)))
    vocab = {text: i for i, text in others.items()} | {_as_letters(token): i for i, token in tokens.items()}
    return TokenizerJson.of(
        bpe(vocab, [(_as_letters(one[:1]), _as_letters(one[1:])) for one in merges], ignore_merges=True),
        pre_tokenizer=chain("pretokenizers", [split, byte_level(use_regex=False)]),
        decoder=byte_level(),
    )


def _problems(tokens: Mapping[int, bytes]) -> list[str]:
    first: dict[bytes, int] = {}
    again = [(i, token) for i, token in tokens.items() if first.setdefault(token, i) != i]
    found = [f"token {i} is {token!r} again, as token {first[token]}" for i, token in again[:_SHOWN]]
    absent = [byte for byte in range(256) if bytes([byte]) not in first]
    found += [f"the byte {byte:#04x} has no token" for byte in absent[:_SHOWN]]
    wrong = [(i, token) for i, token in tokens.items() if not _is_text(token) and not _is_within(token)]
    found += [f"token {i}, {token!r}, is neither text nor two bytes of a character" for i, token in wrong[:_SHOWN]]
    return found


def _is_text(token: bytes) -> bool:
    try:
        return bool(token.decode())
    except UnicodeDecodeError:
        return False


def _is_within(token: bytes) -> bool:
    """Whether it is one byte or two of a longer character: in text, a byte from 0x80 to 0xBF continues one."""
    return len(token) == 1 or (len(token) == 2 and token[0] >= 0x80 and 0x80 <= token[1] < 0xC0)


def _merges(parts: Sequence[bytes]) -> list[bytes]:
    """``parts``, two bytes each, in the order in which merging them takes the longest from left to right: first those
    at the start of a character, and then each before those that begin with its second byte."""
    inside = [part for part in parts if part[0] < 0xC0]
    after = {part: {other for other in inside if other[1] == part[0]} for part in sorted(inside)}
    return [*sorted(part for part in parts if part[0] >= 0xC0), *TopologicalSorter(after).static_order()]


def _as_letters(token: bytes) -> str:
    return "".join(_LETTERS[byte] for byte in token)


@dataclass(slots=True)
class _Node:
    """A place in the trie: whether a token ends here, and what may follow."""

    ends: bool = False
    following: "dict[str, _Node]" = field(default_factory=dict[str, "_Node"])


def _pattern(texts: Iterable[str]) -> str:
    """Return a regular expression that matches the longest of ``texts`` at a place."""
    root = _Node()
    for text in texts:
        node = root
        for character in text:
            node = node.following.setdefault(character, _Node())
        node.ends = True
    return _after(root)


def _after(node: _Node) -> str:
    """Return a regular expression of the longest continuation of a place; longer ones are tried before the end."""
    last = [character for character, one in sorted(node.following.items()) if not one.following]
    longer = [(character, one) for character, one in sorted(node.following.items()) if one.following]
    groups = [longer[k : k + _MOST_ALTERNATIVES] for k in range(0, len(longer), _MOST_ALTERNATIVES)]
    found = [[f"{_literal(character)}{_after(one)}" for character, one in group] for group in groups]
    alternatives = [each for group in found for each in group]
    if len(groups) > 1:
        alternatives = [
            f"(?=[{_in_class(group[0][0])}-{_in_class(group[-1][0])}])(?:{'|'.join(each)})"
            for group, each in zip(groups, found, strict=True)
        ]
    alternatives += [_class(last)] if last else []
    if not alternatives:
        return ""
    either = f"(?:{'|'.join(alternatives)})"
    return f"{either}?" if node.ends else either


def _class(characters: Sequence[str]) -> str:
    """One of ``characters``, which are sorted."""
    runs: list[list[str]] = []
    for character in characters:
        if runs and ord(character) == ord(runs[-1][-1]) + 1:
            runs[-1].append(character)
        else:
            runs.append([character])
    ranges = (_in_class(run[0]) + (f"-{_in_class(run[-1])}" if run[1:] else "") for run in runs)
    return f"[{''.join(ranges)}]"


def _literal(character: str) -> str:
    return f"\\{character}" if character in r"\^$.*+?()[]{}|/" else character


def _in_class(character: str) -> str:
    return f"\\{character}" if character in r"\[]^-" else character
