"""RequestSettings: the generation options of a request, checked against limits and against its model."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from edgegen.errors import OptionError
from edgegen.llm import LLM
from edgegen.openai.request import UNLIMITED, in_words_of
from edgegen.options.generation import SAMPLING_OPTIONS, GenerationOptions
from edgegen.options.kinds import Functions
from edgegen.options.table import GENERATION_OPTIONS
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.options import MOST_BIASES, MOST_STOP_CHARACTERS, MOST_STOPS

OPTION_NAMES = frozenset(option.name for option in GENERATION_OPTIONS if not isinstance(option.kind, Functions))
"""Generation options that a request may have under their own names."""

_OTHER_LIMITS = ("stop_strings", "negative_prompt", "response_format")
"""Lists and objects whose entries are not counted: these are limited elsewhere, by the context or the body's size."""


def named_options(
    params: Mapping[str, Any], renamed: Mapping[str, str], problems: list[str]
) -> Iterator[tuple[str, str, Any]]:
    """Yield the name, the option and the value of each of ``params`` that is an option, under whatever name.

    Two that say the same are appended to ``problems``.
    """
    said_by = dict[str, str]()
    for name, value in params.items():
        option = renamed.get(name, name)
        if option in OPTION_NAMES:
            if option in said_by:
                problems.append(f"{said_by[option]} and {name} would say the same: keep one of them")
            said_by[option] = name
            yield name, option, value


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """
    Attributes:
        values: generation options by name, without what the model's own say.
        body: as the client sent it; errors speak of its names.
        renamed: names of the body, and the option that each is, where that has another name.
        default_tokens: most tokens of an answer where the body says nothing; None is the context.
        wishes: of the options of thinking, those that give way where the model cannot be told so.
    """

    values: Mapping[str, Any]
    body: Mapping[str, Any]
    renamed: Mapping[str, str]
    default_tokens: int | None = None
    wishes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def check_limits(self) -> None:
        """Hold the request to the limits of the server.

        Raises:
            ApiError: more stops or biases than may be.
        """
        stops = self.values.get("stop_strings")
        if isinstance(stops, list):
            texts = cast(list[object], stops)
            if len(texts) > MOST_STOPS:
                raise self.error(f"stop_strings: at most {MOST_STOPS} texts, found {len(texts)}")
        else:
            texts = [stops]
        if any(isinstance(text, str) and len(text) > MOST_STOP_CHARACTERS for text in texts):
            raise self.error(f"stop_strings: a text of at most {MOST_STOP_CHARACTERS} characters expected")
        for name, value in self.values.items():
            if name in _OTHER_LIMITS or not isinstance(value, dict | list):
                continue
            if len(cast(list[Any] | dict[str, Any], value)) > MOST_BIASES:
                raise self.error(f"{name}: at most {MOST_BIASES} entries expected")

    def options(self, llm: LLM, most: int | None, *, any_priority: bool = False) -> GenerationOptions:
        """The options in effect for ``llm``; ``most`` tokens of an answer at most, ``any_priority`` or none before
        others.

        Raises:
            ApiError: a value is wrong or contradicts another.
        """
        settings, most = {**self._possible_wishes(llm), **self.values}, most or llm.max_context
        asked = settings.get("max_new_tokens")
        if asked is None and "max_length" not in settings:
            if self.default_tokens is not None:
                settings["max_new_tokens"] = min(most, self.default_tokens)
            elif llm.generation_options.max_length is None:
                settings["max_new_tokens"] = most
            else:
                settings["max_length"] = llm.generation_options.max_length  # the model's own, and the only limit
        elif asked == UNLIMITED:
            settings["max_new_tokens"] = most
        elif type(asked) is int and asked > most and most < llm.max_context:
            raise self.error(f"max_new_tokens: this server gives at most {most} tokens, found {asked}")
        if settings.get("num_return_sequences", 1) != 1 and not settings.keys() & {
            *SAMPLING_OPTIONS,
            "do_sample",
            "num_beams",
        }:
            settings["do_sample"] = True  # several answers by OpenAI's default, which is to sample
        try:
            options = llm.generation_options.override(settings)
            if self.warning(llm):
                options = replace(options, reasoning_effort=None)
        except OptionError as error:
            raise self.error(str(error)) from None
        if options.priority < 0 and not any_priority:
            raise self.error(
                f"priority: 0 or more expected, found {options.priority}: this server lets no request go before "
                "others, unless it is started with --allow-priority."
            )
        return replace(options, max_new_tokens=min(options.max_new_tokens, most))

    def warning(self, llm: LLM) -> str | None:
        """Return the warning, told in a header, of parts of the request that have no effect with this model; None
        without any.

        ollama refuses ``think`` at such a model.
        """
        template, effort = llm.chat_template, self.values.get("reasoning_effort")
        if effort in (None, "none") or "think" in self.body:
            return None
        switch = template.thinking_switch()
        thinks = switch.is_there or template.reasoning() is not None
        return None if thinks else "reasoning_effort changes nothing: this model does not think"

    def _possible_wishes(self, llm: LLM) -> dict[str, Any]:
        """Of ``wishes``, those that the model's chat template can be told."""
        if not self.wishes:
            return {}
        switch = llm.chat_template.thinking_switch()
        possible = {
            "thinking": switch.can_switch,
            "reasoning_effort": bool(switch.efforts),
            "max_thinking_tokens": not switch.can_switch and llm.chat_template.reasoning() is not None,
        }
        return {name: value for name, value in self.wishes.items() if possible[name]}

    def error(self, message: str) -> ApiError:
        """The error of a message that begins with an option's name, under the name that the body has for it."""
        message = in_words_of(self.body, self.renamed, message)
        found = re.search(r"\w+", message.partition("\n  - ")[2] or message)
        named = found is not None and found[0] in self.body
        return ApiError(400, message, param=found[0] if found and named else None)
