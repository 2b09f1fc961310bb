"""check_tokenizer(): what a ``tokenizer.json`` may ask for, judged before the tokenizers library reads it.

The library does what a file says: normalizers that each double a text, a template of a hundred million ids, a regular
expression that never ends. Nor does it check all that it reads, and panics later. So each step has a bound, those of
what they make together are multiplied, and what is not known is refused.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from edgegen.errors import did_you_mean
from edgegen.tokenizer.charsmap import charsmap_growth
from edgegen.tokenizer.regex_cost import check_regex

MOST_BYTES = 256 << 20
"""Size of a file that is read."""
MOST_GROWTH = 256
"""Bytes that normalizers and pre-tokenizers may make of each byte of a text, and decoders of each byte of a token."""
MOST_STEPS = 100
MOST_FRAME = 1_000
"""Ids that may be put around a text."""
MOST_ID = (1 << 24) - 1
_LONGEST_WORD = 10_000
"""Characters of a word that WordPiece tries all parts of."""
_DEEPEST = 16
"""Sequences within one another."""

_Step = Mapping[str, Any]
_NORMALIZERS: Mapping[str, float] = {
    "BertNormalizer": 8.0,
    "ByteLevel": 2.0,
    "Lowercase": 1.5,
    "NFC": 3.0,
    "NFD": 3.0,
    "NFKC": 11.0,
    "NFKD": 11.0,
    "Nmt": 1.0,
    "Strip": 1.0,
    "StripAccents": 1.0,
}
"""Growth by what Unicode says of its longest forms: of U+FDFA three bytes become 33."""
_PRE_TOKENIZERS = (
    "BertPreTokenizer",
    "CharDelimiterSplit",
    "Digits",
    "Punctuation",
    "UnicodeScripts",
    "Whitespace",
    "WhitespaceSplit",
)
_DECODERS = ("ByteFallback", "ByteLevel", "Fuse", "Metaspace")


@dataclass(frozen=True, slots=True)
class TokenizerBounds:
    """``growth``: bytes that a byte of a text becomes at most before it is cut into tokens."""

    growth: float


def read_tokenizer_json(data: bytes) -> dict[str, Any]:
    """The contents of a ``tokenizer.json``, as JSON.

    Raises ``ValueError``, which says why it is not one.
    """
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has {len(data)} bytes, at most {MOST_BYTES} are read")
    try:
        content = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("an object is expected")
    return cast(dict[str, Any], content)


def check_tokenizer(content: Mapping[str, Any]) -> TokenizerBounds:
    """The bounds of a tokenizer that may be given to the library.

    Raises ``ValueError``: something of it costs more than it may, or would end the library; it says what.
    """
    size = _check_vocabulary(content)
    growth, steps = 1.0, 0
    for part, of in (("normalizer", _normalizer_growth), ("pre_tokenizer", _pre_tokenizer_growth)):
        for step in _steps(content.get(part), part, f"{part}s".replace("_", "")):
            growth, steps = growth * _said(of, step, part), steps + 1
    _check_growth(growth, "normalizers and pre-tokenizers", "a text")
    spelled = 1.0
    for step in _steps(content.get("decoder"), "decoder", "decoders"):
        spelled, steps = spelled * _said(_decoder_growth, step, "decoder"), steps + 1
    _check_growth(spelled, "decoders", "a token")
    if steps > MOST_STEPS:
        raise ValueError(f"its normalizers, pre-tokenizers and decoders are {steps}, at most {MOST_STEPS} are allowed")
    framed = 0
    for step in _steps(content.get("post_processor"), "post-processor", "processors"):
        framed += _frame(step, size)
    if framed > MOST_FRAME:
        raise ValueError(f"its post-processor puts {framed} ids around each text, at most {MOST_FRAME} are allowed")
    return TokenizerBounds(growth)


def _check_growth(growth: float, what: str, of: str) -> None:
    if growth > MOST_GROWTH:
        raise ValueError(
            f"its {what} can make {growth:.4g} bytes of each byte of {of}, at most {MOST_GROWTH} are allowed"
        )


def _steps(component: object, part: str, key: str, depth: int = 0) -> Iterator[_Step]:
    """The steps of a sequence in their order, or the one."""
    if component is None:
        return
    if depth > _DEEPEST:
        raise ValueError(f"its {part} is nested more than {_DEEPEST} deep")
    if not isinstance(component, Mapping) or not isinstance(cast(_Step, component).get("type"), str):
        raise ValueError(f"a step of its {part} has no type")
    step = cast(_Step, component)
    if step["type"] != "Sequence":
        yield step
        return
    inner = step.get(key)
    if not isinstance(inner, list):
        raise ValueError(f"a sequence of its {part} has no list of {key}")
    if len(cast(list[object], inner)) > MOST_STEPS:
        raise ValueError(f"its {part} has {len(cast(list[object], inner))} steps, at most {MOST_STEPS} are allowed")
    for each in cast(list[object], inner):
        yield from _steps(each, part, key, depth + 1)


def _said(growth: Callable[[_Step], float], step: _Step, part: str) -> float:
    """``growth`` of ``step``; what is wrong is said of it by name."""
    try:
        return growth(step)
    except ValueError as error:
        raise ValueError(f"its {part} {step['type']}: {error}") from error


# Normalizers, pre-tokenizers and decoders.


def _normalizer_growth(step: _Step) -> float:
    match step["type"]:
        case "Replace":
            return _replace_growth(step, empty=False)
        case "Prepend":
            return 1.0 + _bytes_of(_text(step, "prepend"))
        case "Precompiled":
            return charsmap_growth(_text(step, "precompiled_charsmap"))
        case str(name) if name in _NORMALIZERS:
            return _NORMALIZERS[name]
        case name:
            raise _unknown(name, (*_NORMALIZERS, "Precompiled", "Prepend", "Replace", "Sequence"))


def _pre_tokenizer_growth(step: _Step) -> float:
    match step["type"]:
        case "ByteLevel":
            return 2.0 if step.get("add_prefix_space") is False else 4.0
        case "Metaspace":
            return 1.0 + _bytes_of(_text(step, "replacement"))
        case "Split":
            _pattern(step, empty=True)
            return 1.0
        case "FixedLength":
            if step.get("length") in (0, False):
                raise ValueError("pieces of the length 0 have no end")
            return 1.0
        case str(name) if name in _PRE_TOKENIZERS:
            return 1.0
        case name:
            raise _unknown(name, (*_PRE_TOKENIZERS, "ByteLevel", "FixedLength", "Metaspace", "Sequence", "Split"))


def _decoder_growth(step: _Step) -> float:
    match step["type"]:
        case "Replace":
            return _replace_growth(step, empty=True)
        case "Strip":
            if step.get("stop") not in (0, None):
                raise ValueError("it takes characters off the end of a token, which may have fewer: stop must be 0")
            return 1.0
        case "WordPiece":  # a space before each token
            return 2.0
        case "BPEDecoder" | "CTC":  # an empty mark stands between all letters
            marks = (step.get("suffix"), step.get("word_delimiter_token"))
            return 2.0 if "" in marks else 1.0
        case str(name) if name in _DECODERS:
            return 1.0
        case name:
            raise _unknown(name, (*_DECODERS, "BPEDecoder", "CTC", "Replace", "Sequence", "Strip", "WordPiece"))


def _unknown(name: str, known: tuple[str, ...]) -> ValueError:
    return ValueError(f"there is no such type{did_you_mean(name, known)}")


def _replace_growth(step: _Step, *, empty: bool) -> float:
    old, is_regex = _pattern(step, empty=empty)
    new = _bytes_of(_text(step, "content"))
    if is_regex or not old:
        return 1.0 + new if empty else max(1.0, float(new))
    return max(1.0, new / _bytes_of(old))


def _pattern(step: _Step, *, empty: bool) -> tuple[str, bool]:
    """Return the pattern to look for, and whether it is a regular expression; ``empty``: whether it may be empty."""
    match step.get("pattern"):
        case {"String": str(text)}:
            if not text and not empty:
                raise ValueError("it looks for nothing at all")
            return text, False
        case {"Regex": str(regex)}:
            try:
                can_be_empty = check_regex(regex)
            except (ValueError, RecursionError) as error:
                shown = regex if len(regex) <= 80 else f"{regex[:77]}..."
                raise ValueError(f"the regular expression {shown!r} may take too long: {error}") from error
            if can_be_empty and not empty:
                raise ValueError(f"the regular expression {regex!r} may match nothing at all")
            return regex, True
        case _:
            raise ValueError("a pattern is expected, a String or a Regex")


def _text(step: _Step, key: str) -> str:
    value = step.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a text")
    return value


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


# Ids.


def _check_vocabulary(content: Mapping[str, Any]) -> int:
    """One more than the highest id that there is or may be."""
    model = content.get("model")
    if not isinstance(model, Mapping):
        raise ValueError("it has no model")
    model = cast(_Step, model)
    vocab = model.get("vocab")
    ids = dict[object, object]()
    if isinstance(vocab, Mapping):
        ids = dict(cast(Mapping[object, object], vocab))
        if wrong := next((t for t, i in ids.items() if type(i) is not int or not 0 <= i <= MOST_ID), None):
            raise ValueError(f"the token {wrong!r} has the id {ids[wrong]!r}, not one from 0 to {MOST_ID}")
        size = max(cast("list[int]", list(ids.values())), default=-1) + 1
    elif isinstance(vocab, list):
        pieces = cast("list[Any]", vocab)
        for i, piece in enumerate(pieces):
            if not isinstance(piece, list) or not piece or not isinstance(piece[0], str):
                raise ValueError(f"the token {i} has no text")
            ids[piece[0]] = i
        size = len(pieces)
    else:
        raise ValueError("its model has no vocabulary")
    longest = model.get("max_input_chars_per_word")
    if isinstance(longest, int) and longest > _LONGEST_WORD:
        raise ValueError(f"max_input_chars_per_word is {longest}, at most {_LONGEST_WORD} are allowed")
    _check_prefix(model)
    return size + _check_added(content.get("added_tokens"), ids)


def _check_prefix(model: _Step) -> None:
    """The library cuts the prefix off the second part of each merge, and looks at it no further."""
    prefix = model.get("continuing_subword_prefix")
    merges = model.get("merges")
    if not isinstance(prefix, str) or not prefix or not isinstance(merges, list):
        return
    for merge in cast("list[Any]", merges):
        pair: Any = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or not pair or not str(cast("list[object]", pair)[-1]).startswith(prefix):
            raise ValueError(f"the merge {merge!r} is of a part without the continuing_subword_prefix {prefix!r}")


def _check_added(added: object, ids: Mapping[object, object]) -> int:
    """How many added tokens there are."""
    if added is None:
        return 0
    if not isinstance(added, list):
        raise ValueError("its added_tokens are no list")
    by_id = dict[int, object]()
    of_vocabulary = {i: text for text, i in ids.items()}
    for token in cast("list[object]", added):
        content: _Step = cast(_Step, token) if isinstance(token, Mapping) else {}
        token_id, text = content.get("id"), content.get("content")
        if type(token_id) is not int or not 0 <= token_id <= MOST_ID or not isinstance(text, str):
            raise ValueError(f"the added token {text!r} has the id {token_id!r}, not one from 0 to {MOST_ID}")
        if ids.get(text, token_id) != token_id:
            raise ValueError(f"the token {text!r} has two ids, {ids[text]} and {token_id}")
        other = by_id.setdefault(token_id, text)
        if other == text and text not in ids:
            other = of_vocabulary.get(token_id, text)
        if other != text:
            raise ValueError(f"the tokens {other!r} and {text!r} have the same id, {token_id}")
    return len(by_id)


def _frame(step: _Step, size: int) -> int:
    """The ids that a post-processor puts around a text, all of which must be below ``size``."""
    match step:
        case {"type": "ByteLevel"}:
            return 0
        case {"type": "BertProcessing" | "RobertaProcessing", "sep": [_, sep], "cls": [_, cls]}:
            return _count([sep, cls], size)
        case {"type": "TemplateProcessing", "single": list(), "special_tokens": dict()}:
            return _template(step["single"], step["special_tokens"], size)
        case _:
            raise ValueError(f"its post-processor {step['type']} is not known, or is not whole")


def _template(pieces: list[object], special: _Step, size: int) -> int:
    if len(pieces) > MOST_FRAME:
        raise ValueError(
            f"the template of its post-processor has {len(pieces)} parts, at most {MOST_FRAME} are allowed"
        )
    count, texts = 0, 0
    for piece in pieces:
        match piece:
            case {"Sequence": {"id": "A"}}:
                texts += 1
            case {"SpecialToken": {"id": str(name)}}:
                token = special.get(name)
                ids = cast(_Step, token).get("ids") if isinstance(token, Mapping) else None
                if not isinstance(ids, list):
                    raise ValueError(f"the template of its post-processor has {name!r}, and no ids for it")
                count += _count(cast("list[object]", ids), size)
            case _:
                raise ValueError("the template of its post-processor has a part that is neither a token nor the text")
    if texts != 1:
        raise ValueError(f"the template of its post-processor has the text {texts} times")
    return count


def _count(ids: list[object], size: int) -> int:
    if (wrong := next((i for i in ids if type(i) is not int or not 0 <= i < size), None)) is not None:
        raise ValueError(f"its post-processor puts the id {wrong!r} around a text, and there are {size} ids")
    return len(ids)
