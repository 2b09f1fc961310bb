"""TokenizerSettings: special tokens and flags from ``tokenizer_config.json`` and the files beside it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from edgegen.errors import CheckpointError, refuse_any
from edgegen_export.tokenizer.added_token import AddedToken

CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"
DESCRIBED = "added_tokens_decoder"
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
MORE_SPECIAL = "additional_special_tokens"
EXTRA_SPECIAL = "extra_special_tokens"


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """``specials``: special tokens by role; None if the role is null, absent if no file names it.

    ``added``: added tokens by id, which may be part of the vocabulary. ``described``: whether the config says what they
    are (``added_tokens_decoder``); else they are of ``added_tokens.json``, and ``unflagged`` are those whose flags no
    file states. ``flagged``: those of ``more_special`` that are given with flags, by text.
    ``null_prefix_space``: whether the config has ``add_prefix_space`` as null.
    """

    tokenizer_class: str | None
    specials: Mapping[str, AddedToken | None]
    more_special: tuple[AddedToken, ...]
    added: Mapping[int, AddedToken]
    described: bool
    unflagged: frozenset[int]
    flagged: Mapping[str, AddedToken]
    add_bos: bool | None
    add_eos: bool | None
    add_prefix_space: bool | None
    null_prefix_space: bool
    legacy: bool | None
    extra_ids: int

    @classmethod
    def read(cls, files: Mapping[str, bytes]) -> "TokenizerSettings":
        """Read the files' contents, given by name, as transformers does.

        If ``tokenizer_config.json`` describes the added tokens, the two older files are ignored.

        Raises:
            CheckpointError: a file is malformed; every problem is listed.
        """
        problems: list[str] = []
        config, named, listed = (_object(files, name, problems) for name in (CONFIG, SPECIAL_TOKENS, ADDED_TOKENS))
        described = config.get(DESCRIBED)
        if described is None:
            config = _updated(config, named)
        specials: dict[str, AddedToken | None] = {}
        for role in ROLES:
            if role in config:
                specials[role] = _token(config[role], f"{CONFIG}: {role}", problems, special=True)
        more = [*_listed(config, MORE_SPECIAL, problems), *_listed(config, EXTRA_SPECIAL, problems)]
        tokens = [_token(value, f"{CONFIG}: {MORE_SPECIAL}", problems, special=True) for value in more]
        more_special = tuple(token for token in tokens if token is not None)
        flagged = {token.content: token for v, token in zip(more, tokens, strict=True) if token and isinstance(v, dict)}
        special_texts = {token.content for token in (*specials.values(), *more_special) if token is not None}
        unflagged = frozenset[int]()
        if described is None:
            ids = {text: _id(token_id, f"{ADDED_TOKENS}: {text!r}", problems) for text, token_id in listed.items()}
            given = {
                token.content: token for role, token in specials.items() if isinstance(config.get(role), dict) and token
            }
            given |= flagged
            plain = {i: AddedToken.plain(text, special=text in special_texts) for text, i in ids.items()}
            added = {
                i: given[token.content].found_as(token) if token.content in given else token
                for i, token in plain.items()
            }
            unflagged = frozenset(i for text, i in ids.items() if text not in special_texts)
        elif isinstance(described, dict):
            by_id = cast(dict[str, object], described)
            found = ((_id(i, f"{CONFIG}: {DESCRIBED}", problems), i, token) for i, token in by_id.items())
            read = ((i, _token(token, f"{CONFIG}: {DESCRIBED}: {key}", problems)) for i, key, token in found)
            added = {i: token for i, token in read if token is not None}
        else:
            problems.append(f"{CONFIG}: {DESCRIBED} is not an object")
            added = {}
        by_text = {token.content: token for token in added.values()}
        # Where the config has one of the first two as null, it is false: only a flag that is not named has a default.
        add_bos, add_eos = (_flag(config, name, problems, null=False) for name in ("add_bos_token", "add_eos_token"))
        add_prefix_space, legacy = (_flag(config, name, problems) for name in ("add_prefix_space", "legacy"))
        tokenizer_class = config.get("tokenizer_class")
        if tokenizer_class is not None and not isinstance(tokenizer_class, str):
            problems.append(f"{CONFIG}: tokenizer_class is not a name")
            tokenizer_class = None
        extra_ids = config.get("extra_ids", 100)
        if not isinstance(extra_ids, int) or not 0 <= extra_ids <= 10_000:
            problems.append(f"{CONFIG}: extra_ids is not a number of tokens")
            extra_ids = 0
        refuse_any(problems, CheckpointError)
        return cls(
            tokenizer_class,
            {role: token and by_text.get(token.content, token) for role, token in specials.items()},
            tuple(by_text.get(token.content, token) for token in more_special),
            dict(sorted(added.items())),
            described=described is not None,
            unflagged=unflagged,
            flagged=flagged,
            add_bos=add_bos,
            add_eos=add_eos,
            add_prefix_space=add_prefix_space,
            null_prefix_space=add_prefix_space is None and "add_prefix_space" in config,
            legacy=legacy,
            extra_ids=extra_ids,
        )

    def special(self, role: str, default: str | None = None) -> AddedToken | None:
        """The special token of a role; ``default`` if no file names the role."""
        if role in self.specials:
            return self.specials[role]
        return AddedToken.literal(default, special=True) if default is not None else None


def read_object(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """The object in a JSON file, given with others by name; empty where there is no such file.

    Raises:
        CheckpointError: the file is malformed.
    """
    problems: list[str] = []
    value = _object(files, name, problems)
    refuse_any(problems, CheckpointError)
    return value


def text_of(token: object) -> object:
    """The text of a token as a config has it, a string or an object; anything else as it is."""
    return cast(dict[str, object], token).get("content") if isinstance(token, dict) else token


def _updated(config: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """The config with what ``special_tokens_map.json`` names; further special tokens are those of both."""
    first, second = cast(object, config.get(MORE_SPECIAL)), cast(object, named.get(MORE_SPECIAL))
    if not isinstance(first, list) or not isinstance(second, list):
        return {**config, **named}
    more, others = cast(list[object], first), cast(list[object], second)
    return {**config, **named, MORE_SPECIAL: [*more, *(token for token in others if token not in more)]}


def _listed(config: Mapping[str, object], name: str, problems: list[str]) -> list[object]:
    """Special tokens without a role: a list, or those of a model's own roles by name."""
    value = config.get(name) or ()
    if isinstance(value, dict):
        return list(cast(dict[str, object], value).values())
    if not isinstance(value, list | tuple):
        problems.append(f"{CONFIG}: {name} is not a list")
        return []
    return list(cast(list[object], value))


def _object(files: Mapping[str, bytes], name: str, problems: list[str]) -> dict[str, Any]:
    try:
        value: object = json.loads(files.get(name, b"{}"))
    except (ValueError, RecursionError) as error:
        problems.append(f"{name}: not JSON: {error}")
        return {}
    if not isinstance(value, dict):
        problems.append(f"{name}: a JSON object is expected, not {type(value).__name__}")
        return {}
    return cast(dict[str, Any], value)


def _token(value: object, where: str, problems: list[str], *, special: bool = False) -> AddedToken | None:
    if value is None:
        return None
    try:
        return AddedToken.read(value, special=special)
    except ValueError as error:
        problems.append(f"{where}: {error}")
        return None


def _id(value: object, where: str, problems: list[str]) -> int:
    try:
        number = int(cast(Any, value))
    except (ValueError, TypeError, OverflowError):
        number = -1
    if number < 0 or isinstance(value, bool):
        problems.append(f"{where}: {value!r} is not a token id")
    return number


def _flag(config: Mapping[str, object], name: str, problems: list[str], *, null: bool | None = None) -> bool | None:
    value = config.get(name)
    if value is None:
        return null if name in config else None
    if not isinstance(value, bool):
        problems.append(f"{CONFIG}: {name} is {value!r}, not true or false")
        return None
    return value
