"""BatchLine: what one line of a batch's input asks for.

Either ``{"prompt": …}`` or ``{"messages": […]}`` with generation options beside it, or a request in OpenAI's batch
format.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from reprlib import repr as shortened
from typing import Any, Literal, cast

from edgegen.batch.input import LONGEST_LINE, InputLine
from edgegen.chat import Conversation
from edgegen.errors import OptionError, did_you_mean
from edgegen.openai.request import (
    RENAMED,
    RENAMED_THINKING,
    each_problem,
    from_json,
    in_words_of,
    read_chat,
    settings_of,
    whole,
)
from edgegen.openai.schema import CHAT, CHAT_OWN, COMPLETION, URLS, fitting
from edgegen.options.generation import THINKING_OPTIONS, GenerationOptions
from edgegen.strict_json import json_object

Form = Literal["own", "chat", "completion", "none"]
"""How the answer is to be written: in edgegen's own way, in OpenAI's two, or in a way that suits all."""

_OPTIONS = frozenset(f.name for f in fields(GenerationOptions))
_NAMES = ("id", "custom_id")
_REQUEST = ("custom_id", "method", "url", "body")


@dataclass(frozen=True, slots=True)
class BatchLine:
    """
    Attributes:
        names: ``id`` and ``custom_id``, as far as the line has them.
        prompt: None where there is none that can be used, which ``problems`` then say.
        options: those in effect.
        seeded: whether the line has a seed of its own.
        problems: everything that is wrong with the line.
    """

    form: Form
    options: GenerationOptions
    names: Mapping[str, str | int] = field(default_factory=dict[str, str | int])
    prompt: str | list[int] | Conversation | None = None
    seeded: bool = False
    problems: tuple[str, ...] = ()


def parse_line(line: InputLine, defaults: GenerationOptions) -> BatchLine:
    """Read a request from ``line``; ``defaults`` fill in what it leaves out. Never raises: problems are part of it."""
    problems = list[str]()
    try:
        content = _object(line, problems)
        if content is None:
            return BatchLine("none", defaults, problems=tuple(problems))
        if content.keys() & {"method", "url", "body"}:
            return _Reader(content, defaults, problems).request()
        return _Reader(content, defaults, problems).own()
    except RecursionError:
        return BatchLine("none", defaults, problems=("too many brackets in one another",))


def _object(line: InputLine, problems: list[str]) -> dict[str, Any] | None:
    if line.too_long:
        problems.append(f"longer than {LONGEST_LINE} bytes, which is the most that a line may have")
        return None
    try:
        text = line.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.append(f"not UTF-8 text: byte {error.start} is {line.data[error.start]:#04x}")
        return None
    return json_object(text, problems)


class _Reader:
    """The object of one line, read key by key; what is wrong with it goes to ``problems``."""

    def __init__(self, content: dict[str, Any], defaults: GenerationOptions, problems: list[str]) -> None:
        self._content = content
        self._defaults = defaults
        self._problems = problems

    def own(self) -> BatchLine:
        names, content = self._names(), self._content
        if "messages" in content:
            content = fitting(content, "", self._problems)
        prompt = self._prompt(content, ("prompt", "messages"))
        beside = (*_NAMES, "prompt", "messages", *(CHAT_OWN if "messages" in content else ()))
        given = {key: value for key, value in content.items() if key not in beside}
        return self._line("own", names, prompt, given)

    def request(self) -> BatchLine:
        """In OpenAI's batch format."""
        content, problems = self._content, self._problems
        problems += [
            f"{key!r} is no key of a request{did_you_mean(key, _REQUEST)}" for key in content if key not in _REQUEST
        ]
        names = self._names()
        if not isinstance(content.get("custom_id"), str):
            problems.append(f"custom_id: a text expected, found {shortened(content.get('custom_id'))}")
        if content.get("method") != "POST":
            problems.append(f"method: 'POST' expected, found {shortened(content.get('method'))}")
        url, body = content.get("url"), content.get("body")
        if url not in URLS:
            near = did_you_mean(url, URLS) if isinstance(url, str) else ""
            problems.append(f"url: {' or '.join(map(repr, URLS))} expected, found {shortened(url)}{near}")
        if not isinstance(body, dict):
            problems.append(f"body: an object expected, found {shortened(body)}")
            body = dict[str, Any]()
        body = cast(dict[str, Any], body)
        asked = url if url in URLS else CHAT if "messages" in body else COMPLETION
        body = fitting(body, asked, problems)
        prompt = (
            self._prompt(body, ("messages",) if asked == CHAT else ("prompt",))
            if isinstance(content.get("body"), dict)
            else None
        )
        form: Form = "chat" if asked == CHAT else "completion"
        said, renamed = len(problems), {**RENAMED, **RENAMED_THINKING}
        line = self._line(form, names, prompt, settings_of(body, asked, problems))
        problems[said:] = [in_words_of(body, renamed, problem) for problem in problems[said:]]
        return replace(line, problems=tuple(problems))

    def _line(
        self,
        form: Form,
        names: dict[str, str | int],
        prompt: str | list[int] | Conversation | None,
        given: Mapping[str, Any],
    ) -> BatchLine:
        asked = {name: from_json(name, value) for name, value in given.items() if value is not None}
        if not isinstance(prompt, Conversation):
            self._defaults = self._defaults.without_thinking()  # what all chats are told
            for name in asked.keys() & {*THINKING_OPTIONS} if prompt is not None else ():
                self._problems.append(f"{name} is for chats: give messages, or leave it out")
        options = self._options(asked)
        return BatchLine(form, options, names, prompt, "seed" in asked, tuple(self._problems))

    def _names(self) -> dict[str, str | int]:
        names = dict[str, str | int]()
        for name in _NAMES:
            value = self._content.get(name)
            if isinstance(value, str | int) and not isinstance(value, bool):
                names[name] = value
            elif value is not None:
                self._problems.append(f"{name}: a text or a number expected, found {shortened(value)}")
        return names

    def _prompt(self, content: Mapping[str, Any], wanted: tuple[str, ...]) -> str | list[int] | Conversation | None:
        """The prompt or the conversation, whichever of ``wanted`` there is."""
        there = [name for name in wanted if name in content]
        if len(there) != 1:
            if there:
                self._problems.append("prompt and messages cannot both be answered: keep one of them")
            else:
                near = get_close_matches(wanted[0], content, n=1)
                meant = f" (is {near[0]!r} meant to be it?)" if near else ""
                self._problems.append(f"no {' or '.join(wanted)}{meant}")
            return None
        if there == ["messages"]:
            return read_chat(content, self._problems)
        prompt = whole(content["prompt"])
        if isinstance(prompt, str) or _are_ids(prompt):
            return prompt
        self._problems.append(f"prompt: one text or one list of token ids expected, found {shortened(prompt)}")
        return None

    def _options(self, asked: Mapping[str, Any]) -> GenerationOptions:
        options, defaults = self._defaults, self._defaults
        # Of what a text must be, the line's word takes the place of everyone's.
        if ("grammar" in asked) != ("response_format" in asked):
            defaults = replace(defaults, grammar=None, response_format=None)
        known = {name: value for name, value in asked.items() if name in _OPTIONS}
        for part in ({name: value for name, value in asked.items() if name not in _OPTIONS}, known):
            try:
                options = defaults.override(part) if part else defaults
            except OptionError as error:
                self._problems += each_problem(error)
        return options


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(token) is int for token in cast(list[object], value))
