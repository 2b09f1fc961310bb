"""Mutations of ``tokenizer.json``: hostile steps, and values of other kinds at random places."""

import base64
import json
import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, cast

Spec = dict[str, Any]


def replace(old: Mapping[str, str], new: str) -> Spec:
    return {"type": "Replace", "pattern": dict(old), "content": new}


def split(regex: str) -> Spec:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def template(ids: list[int], *, texts: int = 1) -> Spec:
    text, token = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}}
    special = {"<s>": {"id": "<s>", "ids": ids, "tokens": ["<s>"] * len(ids)}}
    pair = [text, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": [token, *[text] * texts], "pair": pair, "special_tokens": special}


def charsmap(data: bytes) -> Spec:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def added(token_id: int, content: str, *, normalized: bool = False) -> Spec:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    return {"id": token_id, "content": content, "normalized": normalized, "special": True, **flags}


STEPS: Mapping[str, tuple[Spec, ...]] = {
    "normalizer": (
        *({"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")),
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Prepend", "prepend": "x" * 300},
        replace({"String": "a"}, "aa"),
        replace({"String": " "}, "▁"),
        replace({"String": ""}, "x"),
        replace({"Regex": " {2,}"}, " "),
        replace({"Regex": "b*"}, "x"),
        replace({"Regex": "(a+)+$"}, "x"),
        charsmap(b""),
        charsmap(b"\x04\0\0\0\0\0\0\0"),
        charsmap(b"\x04\0\0\0\0\xff\xff\xff"),
    ),
    "pre_tokenizer": (
        *({"type": kind} for kind in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")),
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        {"type": "Digits", "individual_digits": True},
        {"type": "Punctuation", "behavior": "Isolated"},
        {"type": "FixedLength", "length": 0},
        {"type": "FixedLength", "length": 3},
        split(r"\p{L}+"),
        split(r"(a|a)*b"),
        split("a?" * 30 + "a" * 30),
        split(""),
    ),
    "decoder": (
        *({"type": kind} for kind in ("ByteLevel", "ByteFallback", "Fuse")),
        {"type": "Strip", "content": "a", "start": 1, "stop": 0},
        {"type": "Strip", "content": "a", "start": 0, "stop": 2},
        replace({"String": "▁"}, " "),
        replace({"String": ""}, "x"),
        {"type": "WordPiece", "prefix": "", "cleanup": True},
        {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True},
        {"type": "BPEDecoder", "suffix": ""},
    ),
    "post_processor": (
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        template([1]),
        template([5] * 5_000),
        template([99_999_999]),
        template([1], texts=2),
        template([1], texts=0),
        {"type": "BertProcessing", "sep": ["x", 99_999_999], "cls": ["y", 1]},
        {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "?", "type_id": 0}}], "pair": []},
    ),
}
_SEQUENCES = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "decoder": "decoders",
    "post_processor": "processors",
}
_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**32,
    10**30,
    0.5,
    1e308,
    "",
    "a",
    "▁",
    "\ud800",
    [],
    {},
    [[]],
)


def mutated(spec: Mapping[str, Any], random_: random.Random) -> bytes:
    """A file of ``spec`` with one to three mutations."""
    content: Spec = json.loads(json.dumps(spec))
    for _ in range(random_.choice([1, 1, 2, 3])):
        random_.choice(_MUTATIONS)(content, random_)
    data = json.dumps(content, ensure_ascii=random_.random() < 0.9).encode("utf-8", "surrogatepass")
    if random_.random() < 0.05:
        at = random_.randrange(len(data))
        data = data[:at] + bytes([random_.randrange(256)]) + data[at + 1 :]
    return data


def _step(content: Spec, random_: random.Random) -> None:
    part = random_.choice(list(STEPS))
    steps = random_.choices(STEPS[part], k=random_.choice([1, 1, 2, 3, 8]))
    if random_.random() < 0.2:
        steps = [steps[0]] * random_.choice([2, 20, 200])
    steps = deepcopy(steps)
    content[part] = {"type": "Sequence", _SEQUENCES[part]: steps} if random_.random() < 0.7 else steps[0]
    for _ in range(random_.choice([0, 0, 0, 0, 3, 40, 150])):
        content[part] = {"type": "Sequence", _SEQUENCES[part]: [content[part]]}


def _value(content: Spec, random_: random.Random) -> None:
    """Another value at a random place."""
    place: Any = content
    while True:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))  # type: ignore[arg-type]
        if not keys:
            return
        key = random_.choice(keys)
        inner = cast(object, place[key])
        if isinstance(inner, dict | list) and inner and random_.random() < 0.8:
            place = cast(Any, inner)
            continue
        if isinstance(place, dict) and random_.random() < 0.2:
            del place[key]
        else:
            place[key] = deepcopy(random_.choice(_VALUES))
        return


def _model(content: Spec, random_: random.Random) -> None:
    keys = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback")
    values = (None, 0.5, 1.0, 2.0, "", "<unk>", "é", "##", True, False)
    if isinstance(content.get("model"), dict):
        content["model"][random_.choice(keys)] = random_.choice(values)


def _added(content: Spec, random_: random.Random) -> None:
    token = added(random_.choice([0, 1, 5, 300, 2**31]), random_.choice(["<s>", "a", "", "<zz>", " ", "aaa"]))
    token["normalized"] = random_.random() < 0.5
    if isinstance(content.get("added_tokens"), list):
        content["added_tokens"].append(token)


_MUTATIONS: tuple[Callable[[Spec, random.Random], None], ...] = (_step, _step, _value, _value, _model, _added)
