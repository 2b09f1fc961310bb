"""OpenAIRequest: the body of a chat completion or a completion, checked before the model does anything."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.batch.openai import ASKS_NOTHING, CHAT, COMPLETION, RENAMED, UNSUPPORTED, from_json, settings_of
from edgegen.chat import Conversation
from edgegen.errors import OptionError, did_you_mean, one_or_list
from edgegen.llm import LLM
from edgegen.options.generation import SAMPLING_OPTIONS, GenerationOptions
from edgegen.options.kinds import Functions
from edgegen.options.table import GENERATION_OPTIONS
from edgegen.server.api_error import ApiError
from edgegen.server.options import MOST_BIASES, MOST_MESSAGES, MOST_PROMPTS, MOST_STOP_CHARACTERS, MOST_STOPS

_DEFAULT_COMPLETION_TOKENS = 16
"""What the API says of completions without ``max_tokens``."""

_OWN = ("model", "stream", "stream_options", "echo")
_OPTIONS = frozenset(option.name for option in GENERATION_OPTIONS if not isinstance(option.kind, Functions))
_KNOWN = frozenset({*_OWN, *RENAMED, *ASKS_NOTHING, *UNSUPPORTED, *_OPTIONS})


@dataclass(frozen=True, slots=True)
class OpenAIRequest:
    """
    Attributes:
        url: which of the two it is.
        prompts: one conversation, or the prompts of a completion.
        settings: generation options by name, without what the model's own say.
        echo: whether the prompt is part of the answer's text.
    """

    url: str
    prompts: tuple[str | list[int] | Conversation, ...]
    settings: Mapping[str, Any]
    stream: bool
    include_usage: bool
    echo: bool
    body: Mapping[str, Any]

    @property
    def generates(self) -> bool:
        """False for a completion that only asks for its prompt, with log-probabilities."""
        return not (self.echo and self.settings.get("max_new_tokens") == 0)

    @classmethod
    def read(cls, body: Mapping[str, Any], url: str) -> "OpenAIRequest":
        """
        Raises:
            ApiError: a parameter is unknown, not supported, of another type or beyond its limit.
        """
        wanted = "messages" if url == CHAT else "prompt"
        for name in body:
            if name not in _KNOWN and name != wanted:
                known = {*_KNOWN, wanted}
                raise ApiError(
                    400,
                    f"{name!r} is not a parameter of {url}{did_you_mean(name, known)}.",
                    param=name,
                    code="unknown_parameter",
                )
        given = {name: value for name, value in body.items() if value is not None}
        stream, echo = _switch(given, "stream"), _switch(given, "echo")
        if echo and url == CHAT:
            raise ApiError(400, f"'echo' is a parameter of {COMPLETION}: leave it out.", param="echo")
        include_usage = _include_usage(given, stream=stream)
        prompts = (_conversation(given),) if url == CHAT else _prompts(given)
        problems = list[str]()
        left = {name: value for name, value in given.items() if name not in _OWN}
        settings = settings_of(left, url, problems)
        if problems:
            raise _invalid(one_or_list(problems), given)
        settings = {name: from_json(name, value) for name, value in settings.items()}
        _check_limits(settings, given)
        return cls(url, prompts, settings, stream, include_usage, echo, given)

    def options(self, llm: LLM, most: int | None) -> GenerationOptions:
        """The options in effect for ``llm``; ``most`` tokens of an answer at most.

        Raises:
            ApiError: a value is wrong or contradicts another.
        """
        settings, most = dict(self.settings), most or llm.max_context
        asked = settings.get("max_new_tokens")
        if asked is None and "max_length" not in settings:
            settings["max_new_tokens"] = most if self.url == CHAT else min(most, _DEFAULT_COMPLETION_TOKENS)
        elif not self.generates:
            settings["max_new_tokens"] = 1  # checked, and not used
        elif type(asked) is int and asked > most and most < llm.max_context:
            raise _invalid(f"max_new_tokens: this server gives at most {most} tokens, found {asked}", self.body)
        if settings.get("num_return_sequences", 1) != 1 and not settings.keys() & {
            *SAMPLING_OPTIONS,
            "do_sample",
            "num_beams",
        }:
            settings["do_sample"] = True  # several answers by OpenAI's default, which is to sample
        try:
            options = llm.generation_options.override(settings)
        except OptionError as error:
            raise _invalid(str(error), self.body) from None
        return replace(options, max_new_tokens=min(options.max_new_tokens, most))


def _switch(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise ApiError(400, f"{name}: true or false expected, found {shortened(value)}", param=name)
    return value


def _include_usage(given: Mapping[str, Any], *, stream: bool) -> bool:
    options = given.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise ApiError(400, "stream_options: an object expected.", param="stream_options")
    if not stream:
        raise ApiError(400, "stream_options is for streams: add 'stream': true.", param="stream_options")
    known = ("include_usage", "include_obfuscation")
    for name in cast(dict[str, object], options):
        if name not in known:
            said = f"{name!r} is not a key of stream_options{did_you_mean(name, known)}."
            raise ApiError(400, said, param="stream_options", code="unknown_parameter")
    return _switch(cast(dict[str, Any], options), "include_usage")


def _conversation(given: Mapping[str, Any]) -> Conversation:
    messages: object = given.get("messages")
    if not isinstance(messages, list):
        raise ApiError(400, "messages: a list of messages expected.", param="messages")
    count = len(cast(list[object], messages))
    if count > MOST_MESSAGES:
        raise ApiError(400, f"messages: at most {MOST_MESSAGES}, found {count}.", param="messages")
    return Conversation(cast(list[Any], messages))


def _prompts(given: Mapping[str, Any]) -> tuple[str | list[int], ...]:
    prompt = given.get("prompt")
    if isinstance(prompt, str) or _are_ids(prompt):
        return (cast(str | list[int], prompt),)
    several = cast(list[Any], prompt) if isinstance(prompt, list) else []
    if not several or not all(isinstance(one, str) or (one and _are_ids(one)) for one in several):
        said = "prompt: a text, a list of token ids, or a list of such prompts expected."
        raise ApiError(400, said, param="prompt")
    if len(several) > MOST_PROMPTS:
        raise ApiError(400, f"prompt: at most {MOST_PROMPTS} prompts, found {len(several)}.", param="prompt")
    return tuple(several)


def _are_ids(value: object) -> bool:
    ids = cast(list[object], value) if isinstance(value, list) else []
    return bool(ids) and all(type(token) is int for token in ids)


def _check_limits(settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    stops = settings.get("stop_strings")
    if isinstance(stops, list):
        texts = cast(list[object], stops)
        if len(texts) > MOST_STOPS:
            raise _invalid(f"stop_strings: at most {MOST_STOPS} texts, found {len(texts)}", given)
    else:
        texts = [stops]
    if any(isinstance(text, str) and len(text) > MOST_STOP_CHARACTERS for text in texts):
        raise _invalid(f"stop_strings: a text of at most {MOST_STOP_CHARACTERS} characters expected", given)
    for name in ("logit_bias", "sequence_bias", "bad_words_ids", "suppress_tokens", "stop_token_ids"):
        value = settings.get(name)
        if isinstance(value, dict | list) and len(cast(list[Any] | dict[str, Any], value)) > MOST_BIASES:
            raise _invalid(f"{name}: at most {MOST_BIASES} entries expected", given)


def _invalid(message: str, given: Mapping[str, Any]) -> ApiError:
    """The error of a message that begins with an option's name, under the name that the body has for it."""
    aliases = {option: name for name, option in RENAMED.items() if name in given and option not in given}
    if "logprobs" in given and "top_logprobs" not in given:
        aliases["top_logprobs"] = "logprobs"
    for option, name in aliases.items():
        message = re.sub(rf"\b{option}\b", name, message)
    found = re.search(r"\w+", message.partition("\n  - ")[2] or message)
    named = found is not None and found[0] in given
    return ApiError(400, message, param=found[0] if found and named else None)
