"""Completion of a ``tokenizer.json`` with what transformers adds when it loads one: special tokens, BOS and EOS."""

from dataclasses import replace

from edgegen.errors import CheckpointError, refuse_any
from edgegen_export.tokenizer.added_token import AddedToken
from edgegen_export.tokenizer.classes import TokenizerClass
from edgegen_export.tokenizer.components import template
from edgegen_export.tokenizer.settings import TokenizerSettings
from edgegen_export.tokenizer.tokenizer_json import TokenizerJson


def complete(tokenizer: TokenizerJson, settings: TokenizerSettings, kind: TokenizerClass, *, made: bool) -> bool:
    """Apply the class ``kind`` and the settings to the tokenizer; return whether anything changed.

    ``made``: the tokenizer was just converted from other files.

    Raises:
        CheckpointError: the settings name tokens or ids that the tokenizer cannot have; every problem is listed.
    """
    problems: list[str] = []
    before = tokenizer.added, tokenizer.pre_tokenizer, tokenizer.post_processor
    for token_id, token in settings.added.items():
        if not settings.described and (token_id in before[0] or tokenizer.id_of(token.content) in before[0]):
            continue  # its flags are those of tokenizer.json
        try:
            tokenizer.add(token, token_id)
        except ValueError as error:
            problems.append(str(error))
    for token in _special_tokens(tokenizer, settings, kind, made=made):
        known = tokenizer.id_of(token.content)
        if known is not None and (present := tokenizer.added.get(known)) is not None:
            flagged = settings.flagged.get(token.content)
            tokenizer.add(replace(present, special=True) if flagged is None else flagged.found_as(present))
        else:
            tokenizer.add(token)
    pre_tokenizer = tokenizer.pre_tokenizer
    if pre_tokenizer and pre_tokenizer["type"] == "ByteLevel":
        tokenizer.pre_tokenizer = {**pre_tokenizer, "add_prefix_space": bool(settings.add_prefix_space)}
    if kind.ends == "always" or (made and kind.ends == "when made"):
        add_bos = kind.add_bos if settings.add_bos is None else settings.add_bos
        add_eos = kind.ends == "always" and bool(settings.add_eos)
        first = _end(tokenizer, settings, kind, "bos_token", problems) if add_bos else None
        last = _end(tokenizer, settings, kind, "eos_token", problems) if add_eos else None
        if first or last or _adds_tokens(tokenizer):
            tokenizer.post_processor = template(first, last)
    refuse_any(problems, CheckpointError, "the tokenizer's files do not fit each other: ")
    return (tokenizer.added, tokenizer.pre_tokenizer, tokenizer.post_processor) != before


def _special_tokens(
    tokenizer: TokenizerJson, settings: TokenizerSettings, kind: TokenizerClass, *, made: bool
) -> list[AddedToken]:
    """The special tokens. Those that only the class names are not added to an existing vocabulary."""
    named = [token for token in (*settings.specials.values(), *settings.more_special) if token is not None]
    assumed = [text for role, text in kind.specials.items() if role not in settings.specials]
    known = [text for text in (*assumed, *kind.more_special) if made or tokenizer.id_of(text) is not None]
    return named + [AddedToken.literal(text, special=True) for text in known]


def _end(
    tokenizer: TokenizerJson, settings: TokenizerSettings, kind: TokenizerClass, role: str, problems: list[str]
) -> tuple[str, int] | None:
    token = settings.special(role, kind.specials.get(role))
    token_id = tokenizer.id_of(token.content) if token else None
    if token is None or token_id is None:
        what = f"the vocabulary has no {token.content!r}" if token else "there is none"
        problems.append(f"every text is to have the {role}, and {what}")
        return None
    return token.content, token_id


def _adds_tokens(tokenizer: TokenizerJson) -> bool:
    """Whether the post-processor adds tokens around a text."""
    post_processor = tokenizer.post_processor
    return post_processor is not None and post_processor["type"] != "ByteLevel"
