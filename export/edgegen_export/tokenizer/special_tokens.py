"""Special tokens of an exported tokenizer: each is its own id wherever it stands, in a rendered chat too."""

import re
from collections.abc import Mapping
from typing import Any, cast

from edgegen.chat.conversation import Conversation
from edgegen.chat.template import ChatTemplate
from edgegen.errors import ChatTemplateError, CheckpointError, ConversationError, UsageError, one_or_list
from edgegen.tokenizer import LibraryBackend, Tokenizer
from edgegen_export.tokenizer.chat_templates import templates_of
from edgegen_export.tokenizer.settings import CONFIG, EXTRA_SPECIAL, MORE_SPECIAL, TokenizerSettings, read_object

_CONTROL = re.compile(r"<\|[^\s|<>]+\|>")
_MARKUP = re.compile(r"<[^\s<>]+>|\[[^\s\[\]]+\]")
_TWO_TURNS = (
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Good day"},
    {"role": "user", "content": "How are you"},
)
_SHOWN = 8
_REMEDY = (
    'give it "normalized": false and "single_word": false, in tokenizer.json (added_tokens) or, where there is none, '
    "in tokenizer_config.json (added_tokens_decoder)"
)


def read_tokenizer(data: bytes) -> Tokenizer:
    """The runtime's tokenizer of a ``tokenizer.json``.

    Raises:
        CheckpointError: it is not a tokenizer.
    """
    try:
        return Tokenizer(LibraryBackend.of(data))
    except ValueError as error:
        raise CheckpointError(f"tokenizer.json is not a readable tokenizer: {error}") from error


def misread(tokenizer: Tokenizer, tokens: Mapping[str, int]) -> dict[str, str]:
    """The tokens (ids by text) that are not their own id alone, after text, after a space or between two others.

    With each, what it is read as.
    """
    wrong = dict[str, str]()
    for text, token_id in tokens.items():
        other = next((another for another in tokens if another != text and another not in wrong), text)
        around = tokens[other]
        places = {
            "alone": (text, [token_id]),
            "after text": (f"hi{text}", None),
            "after a space": (f"hi {text}", None),
            f"between two {other}": (other + text + other, [around, token_id, around]),
        }
        for place, (written, expected) in places.items():
            try:
                ids = tokenizer.encode(written, add_special_tokens=False)
            except UsageError:
                continue  # a vocabulary without these letters
            if ids != expected if expected else ids[-1:] != [token_id]:
                wrong[text] = f"{place} it becomes {ids[:_SHOWN]}"
                break
    return wrong


def check_special_tokens(files: Mapping[str, bytes], tokenizer: Tokenizer) -> list[str]:
    """Check the tokenizer files of a bundle: each special token by itself, and those of a rendered chat of two turns.

    ``tokenizer``: that of the files. Returns warnings: of special tokens that are not their own id wherever they stand,
    and of a chat template that cannot be rendered.

    Raises:
        CheckpointError: the chat template uses such a token, where a chat of two turns does not show it to be found.
    """
    templates = templates_of(files)
    settings = TokenizerSettings.read(files)
    source = "".join(templates.values())
    special = _special(tokenizer, settings)
    marked = set(_MARKUP.findall(source)) - special.keys()
    tokens = special | {t.content: i for i, t in tokenizer.added_tokens.items() if t.content in marked}
    renderings, warnings = _rendered(templates, _names(files, settings))
    wrong = misread(tokenizer, tokens)
    lost = {text for rendering in renderings for text in _lost(tokenizer, rendering, tokens)}
    roles = {token.content: role for role, token in settings.specials.items() if token}
    problems, unused = list[str](), list[str]()
    for text in dict.fromkeys([*wrong, *sorted(lost)]):
        problem = f"{text!r} is not one token everywhere: {wrong.get(text, 'in a chat it is read as text')}"
        named = text in source or (text in roles and roles[text] in source)
        shown = any(text in rendering for rendering in renderings)
        (problems if text in lost or (named and not shown) else unused).append(problem)
    if problems:
        raise CheckpointError(
            f"the chat template uses special tokens that the tokenizer does not find ({_REMEDY}): "
            f"{one_or_list(problems)}"
        )
    if unused:
        warnings.append(f"special tokens are not found in all places ({_REMEDY}): {one_or_list(unused)}")
    return warnings


def _special(tokenizer: Tokenizer, settings: TokenizerSettings) -> dict[str, int]:
    """The special tokens of the files and of the tokenizer, with the ids that the files give them."""
    named = [token.content for token in (*settings.specials.values(), *settings.more_special) if token]
    stated = {token.content: i for i, token in settings.added.items()}
    special = {text for text in [*named, *(t.content for t in settings.added.values() if t.special)] if text}
    special |= {token.content for token in tokenizer.added_tokens.values() if token.special}
    ids = {text: stated.get(text, tokenizer.token_to_id(text)) for text in sorted(special)}
    return {text: i for text, i in ids.items() if i is not None}


def _names(files: Mapping[str, bytes], settings: TokenizerSettings) -> dict[str, Any]:
    """The special tokens by the names that templates know."""
    names: dict[str, Any] = {role: token.content for role, token in settings.specials.items() if token}
    extra = read_object(files, CONFIG).get(EXTRA_SPECIAL)
    if isinstance(extra, dict):
        names |= {name: text for name, text in cast(dict[str, object], extra).items() if isinstance(text, str)}
    return names | {MORE_SPECIAL: [token.content for token in settings.more_special]}


def _rendered(templates: Mapping[str, str], names: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The chat of two turns as each template writes it, and a warning where the main one does not."""
    renderings, warnings = list[str](), list[str]()
    for name in templates:
        try:
            chat = ChatTemplate(templates, names)
            renderings.append(chat.render(Conversation(_TWO_TURNS, template=name)))
        except (ConversationError, ChatTemplateError) as error:
            if name == "default":
                warnings.append(f"the chat template does not render a chat of two turns: {str(error).rstrip('.')}")
    return renderings, warnings


def _lost(tokenizer: Tokenizer, rendering: str, tokens: Mapping[str, int]) -> list[str]:
    """The tokens that stand in a rendering and are not all found in it."""
    others = {text: tokenizer.token_to_id(text) for text in set(_CONTROL.findall(rendering)) - tokens.keys()}
    known = {**tokens, **{text: i for text, i in others.items() if i is not None}}
    if not known:
        return []
    pattern = "|".join(re.escape(text) for text in sorted(known, key=lambda text: (-len(text), text)))
    found = re.findall(pattern, rendering)
    try:
        ids = tokenizer.encode(rendering, add_special_tokens=False)
    except UsageError:
        return []
    return [text for text in dict.fromkeys(found) if ids.count(known[text]) < found.count(text)]
