"""Chat templates of a checkpoint: where they may lie, and how a bundle has them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from edgegen.chat.template import templates_by_name
from edgegen.errors import ChatTemplateError, CheckpointError
from edgegen_export.tokenizer.settings import CONFIG, read_object

TEMPLATE = "chat_template.jinja"
PROCESSORS = "chat_template.json"
"""File that transformers' processors wrote before ``chat_template.jinja``."""


def settle_templates(
    files: Mapping[str, bytes], more: Mapping[str, bytes], warn: Callable[[str], None]
) -> dict[str, bytes]:
    """The files as a bundle has them: the templates in ``chat_template.jinja`` or ``tokenizer_config.json``.

    ``more``: further templates by name. ``chat_template.jinja`` and these prevail over ``tokenizer_config.json``, as
    in transformers' tokenizers; ``chat_template.json`` serves where neither has a template. ``warn`` hears of one
    that does not.

    Raises:
        CheckpointError: a file does not hold templates as it should.
    """
    settled = {name: data for name, data in files.items() if name != PROCESSORS}
    separate = {"default": _text(files[TEMPLATE], TEMPLATE)} if TEMPLATE in files else {}
    separate |= {name: _text(data, f"{name}.jinja") for name, data in more.items()}
    config = read_object(files, CONFIG)
    if more:  # a bundle has several in one file
        settled.pop(TEMPLATE, None)
        settled[CONFIG] = _with_templates(config, separate)
    used = separate or _templates(config.get("chat_template"), CONFIG)
    if PROCESSORS not in files:
        return settled
    found = _templates(read_object(files, PROCESSORS).get("chat_template"), PROCESSORS)
    if not found:
        raise CheckpointError(f"{PROCESSORS}: there is no chat_template in it")
    if used:
        if used != found:
            place = TEMPLATE if separate else CONFIG
            warn(f"{PROCESSORS} is left out: the chat template is that of {place}, which differs from it")
    elif found.keys() == {"default"}:
        settled[TEMPLATE] = found["default"].encode("utf-8", "replace")  # JSON can contain lone surrogates
    else:
        settled[CONFIG] = _with_templates(config, found)
    return settled


def templates_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """The templates of a bundle's files by name, the main one ``default``.

    Raises:
        CheckpointError: a file does not hold templates as it should.
    """
    if TEMPLATE in files:
        return {"default": _text(files[TEMPLATE], TEMPLATE)}
    return _templates(read_object(files, CONFIG).get("chat_template"), CONFIG)


def _templates(value: Any, file: str) -> dict[str, str]:
    """A text, or a list of names and texts, or texts by name; empty if absent."""
    try:
        return templates_by_name(value)
    except ChatTemplateError:
        raise CheckpointError(f"{file}: chat_template is neither a text nor a list of names and texts") from None


def _with_templates(config: Mapping[str, Any], templates: Mapping[str, str]) -> bytes:
    named = [{"name": name, "template": text} for name, text in templates.items()]
    return (json.dumps({**config, "chat_template": named}, indent=2) + "\n").encode()


def _text(data: bytes, file: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file} is not UTF-8: {error}") from error
