"""ChatTemplate: renders a conversation to the text and the token ids that a model was trained on.

The rendering is that of transformers' ``apply_chat_template``, with three differences that are meant:

- a system message that the template refuses or leaves out is put before the user message that follows it, as
  llama.cpp does;
- content in parts is joined in lines for a template that reads texts only, and a text is made a part for one that
  reads parts only;
- text in messages never becomes a control token (``control_text``).

A model without a template is a base model, which only continues texts. It gets a transcript to continue: the system
message as a paragraph, then lines ``User: …`` and ``Assistant: …``. Names before a colon are what such models have
read most of, the transcript needs no token of its own, and ``"\\nUser:"`` tells where an answer ends.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

from edgegen.bundle.bundle import Bundle
from edgegen.chat.control_text import ControlText
from edgegen.chat.conversation import ROLES, Conversation, Message, text_of
from edgegen.chat.reasoning import ReasoningMarkers, reasoning_markers
from edgegen.chat.tool_formats import HERMES, ToolFormat, tool_format
from edgegen.chat.tool_prompt import describe_tools, parsed_arguments
from edgegen.chat.tools import Tools
from edgegen.errors import ChatTemplateError, ConversationError, did_you_mean, one_or_list
from edgegen.tokenizer import Tokenizer

TRANSCRIPT = """\
{%- for message in messages -%}
    {%- set content = message.content | default('', true) | trim -%}
    {%- if message.role in ('system', 'developer') -%}
        {{- content + '\\n\\n' -}}
    {%- else -%}
        {{- {'user': 'User', 'assistant': 'Assistant'}.get(message.role, message.role | capitalize) + ':' -}}
        {{- (' ' + content if content else '') -}}
        {{- '' if loop.last and not add_generation_prompt else '\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}Assistant:{% endif -%}
"""
"""What a base model gets."""

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_MORE_TEMPLATES = "additional_chat_templates/"
_CONTINUED = "CONTINUE_FINAL_MESSAGE_TAG "  # transformers' mark
_PROBE = "Xyzzy plugh"
"""A text that no template has, to see whether a template shows it."""


class ChatTemplate:
    """The chat template of a model; compiled when first used, may be shared between threads.

    ``is_fallback``: the model has none and gets a transcript. ``stop_strings``: texts that end an answer beside the
    end-of-turn token; only a transcript has one.
    """

    def __init__(self, templates: Mapping[str, str], special_tokens: Mapping[str, Any] | None = None) -> None:
        """``templates`` by name, the main one ``default``; none for a base model. ``special_tokens``: ``bos_token``…"""
        self.is_fallback = not templates
        self.stop_strings: tuple[str, ...] = ("\nUser:",) if self.is_fallback else ()
        self._sources = {"default": TRANSCRIPT} if self.is_fallback else dict(templates)
        self._special_tokens = dict(special_tokens or {})
        self._compiled: dict[str, _Program] = {}
        self._lock = Lock()

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """The template of ``chat_template.jinja``, or else of ``tokenizer_config.json``.

        Raises:
            ChatTemplateError: the files do not hold templates as they should.
            VerificationError: a JSON file is damaged.
        """
        files = bundle.manifest.files
        config = _settings(bundle, "tokenizer_config.json")
        names = {"chat_template.jinja": "default"} | {
            file: file.removeprefix(_MORE_TEMPLATES).removesuffix(".jinja")
            for file in files
            if file.startswith(_MORE_TEMPLATES) and file.endswith(".jinja")
        }
        try:
            own = {name: bundle.file(file).read_text("utf-8") for file, name in names.items() if file in files}
        except (OSError, UnicodeDecodeError) as error:
            raise ChatTemplateError(f"the chat template of the bundle {bundle.path} cannot be read: {error}.") from None
        special_tokens = _special_tokens(config, _settings(bundle, "special_tokens_map.json"))
        return cls(own or _templates(config.get("chat_template")), special_tokens)

    def __repr__(self) -> str:
        return f"ChatTemplate({'fallback transcript' if self.is_fallback else ', '.join(self.names)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The templates there are."""
        return tuple(self._sources)

    def with_tools(self, conversation: Conversation, tools: Tools | None) -> tuple[Conversation, ToolFormat | None]:
        """The conversation with these tools, as this model is to read it, and how it writes calls of them.

        For a model whose template knows no tools, or a family whose format is not known, the system message describes
        them.
        """
        named = replace(conversation, tools=tools.definitions if tools else None)
        called = any(message.get("tool_calls") or message["role"] == "tool" for message in conversation.messages)
        if tools is None and not called:
            return named, None
        style = tool_format(self._source(replace(named, tools=named.tools or ())))
        if style is None:
            plain = replace(named, tools=None)
            return plain.with_messages(describe_tools(plain, tools)), HERMES if tools else None
        return named, style if tools else None

    def reasoning(self, conversation: Conversation) -> ReasoningMarkers | None:
        """The markers of thoughts, if this model thinks aloud."""
        return reasoning_markers(self._source(conversation))

    def reads(self, conversation: Conversation, variable: str) -> bool:
        """Whether the template reads a variable of that name, such as ``enable_thinking``."""
        return variable in self._program(conversation).names

    def render(self, conversation: Conversation) -> str:
        """The text of the conversation.

        Raises:
            ConversationError: a role the template does not know, or it refuses the conversation or fails on it.
            ChatTemplateError: the template is malformed, or was stopped at its limits.
        """
        program = self._program(conversation)
        return program.render(program.adapt(conversation))

    def encode(self, conversation: Conversation, tokenizer: Tokenizer, most: int | None = None) -> list[int]:
        """The ids of the conversation; no text of a message is a control token in them.

        Raises:
            ConversationError, ChatTemplateError: as :meth:`render`.
            PromptTooLongError: they would surely be more than ``most``.
        """
        program = self._program(conversation)
        control = program.control_text(tokenizer)
        veiled = control.veil(program.adapt(conversation))
        text, under_veils = veiled.lift(program.render(veiled.conversation))
        if most is not None:
            tokenizer.refuse_longer(text, most)
        ids = control.encode(text, under_veils)
        return tokenizer.frame(ids) if self.is_fallback else ids  # a transcript is a text like any other

    def end_of_turn(self, tokenizer: Tokenizer) -> int | None:
        """The token that ends what an assistant says, as the template shows it; None where it is no token.

        ``generation_config.json`` often knows only the end of a text (``<|endoftext|>``): stop at this one too.
        """
        user, assistant = {"role": "user", "content": "Hello"}, {"role": "assistant", "content": _PROBE}
        # Some templates end a turn only by starting the next (GLM: <|user|>).
        for messages in ([user, assistant], [user, assistant, user]):
            conversation = Conversation(messages, add_generation_prompt=False)
            try:
                program = self._program(conversation)
                _, said, after = program.render(program.adapt(conversation)).rpartition(_PROBE)
            except (ConversationError, ChatTemplateError):
                continue
            control = program.control_text(tokenizer)
            ids, spans = tokenizer.encode_with_spans(after if said else "")
            for token_id, (start, _) in zip(ids, spans, strict=True):
                if token_id in control.ids and not after[:start].strip():
                    return token_id
        return None

    def _source(self, conversation: Conversation) -> str:
        return self._sources.get(conversation.template or self._default_name(conversation), "")

    def _program(self, conversation: Conversation) -> "_Program":
        name = conversation.template or self._default_name(conversation)
        if name not in self._sources:
            raise ConversationError(
                f"this model has no chat template named {name!r}{did_you_mean(name, self._sources)}: "
                f"it has {', '.join(self._sources)}."
            )
        with self._lock:
            if name not in self._compiled:
                self._compiled[name] = _Program(self._sources[name], self._special_tokens)
            return self._compiled[name]

    def _default_name(self, conversation: Conversation) -> str:
        if conversation.tools is not None and "tool_use" in self._sources:
            return "tool_use"
        if "default" in self._sources or len(self._sources) > 1:
            return "default"
        return next(iter(self._sources))


@dataclass(frozen=True, slots=True)
class _Abilities:
    """What a template can read."""

    system: bool
    parts: bool
    texts: bool


class _Program:
    """One template, compiled, with the model's special tokens."""

    def __init__(self, source: str, special_tokens: Mapping[str, Any]) -> None:
        from edgegen.chat.sandbox import SandboxedTemplate  # jinja2, which only a chat needs

        self._source = source
        self._template = SandboxedTemplate(source)
        self.names = self._template.names
        self._special_tokens = special_tokens
        self._control: WeakKeyDictionary[Tokenizer, ControlText] = WeakKeyDictionary()

    def control_text(self, tokenizer: Tokenizer) -> ControlText:
        if tokenizer not in self._control:
            self._control[tokenizer] = ControlText(tokenizer, self._source, self._template.constants)
        return self._control[tokenizer]

    def render(self, conversation: Conversation) -> str:
        messages = list(conversation.messages)
        if conversation.continue_final_message:
            messages[-1] = _left_open(messages[-1])
        text = self._template.render(
            {
                **self._special_tokens,
                **conversation.variables,
                "messages": messages,
                "tools": conversation.tools,
                "documents": conversation.documents,
                "add_generation_prompt": conversation.generation_prompt,
            }
        )
        return _cut(text, conversation.messages[-1]) if conversation.continue_final_message else text

    def adapt(self, conversation: Conversation) -> Conversation:
        """The conversation as this template can read it.

        Raises:
            ConversationError: a role is misspelt.
        """
        problems = [
            f"messages[{n}].role is {role!r}, which this model's chat template does not know{near}"
            for n, role in enumerate(message["role"] for message in conversation.messages)
            if role not in ROLES and role not in self._template.constants and (near := did_you_mean(role, ROLES))
        ]
        if problems:
            raise ConversationError(one_or_list(problems))
        messages = list(conversation.messages)
        if any(message["role"] == "system" for message in messages) and not self._abilities.system:
            messages = _fold_system(messages)
        return conversation.with_messages([self._readable(message) for message in messages])

    def _readable(self, message: Message) -> Message:
        calls: Any = message.get("tool_calls")
        if isinstance(calls, Sequence) and any(isinstance(_arguments(call), str) for call in cast(Any, calls)):
            message = self._with_arguments(message, cast(Sequence[Any], calls))
        content = message.get("content")
        if isinstance(content, str):
            return message if self._abilities.texts else {**message, "content": [{"type": "text", "text": content}]}
        return message if content is None or self._abilities.parts else {**message, "content": text_of(content)}

    def _with_arguments(self, message: Message, calls: Sequence[Any]) -> Message:
        """Arguments that are JSON text, as in OpenAI's API, as the dicts that most templates read."""
        if not self._reads_objects:
            return message
        changed = [
            {**call, "function": {**call["function"], "arguments": parsed_arguments(_arguments(call))}}
            if _arguments(call) is not None
            else call
            for call in calls
        ]
        return {**message, "tool_calls": changed}

    @cached_property
    def _reads_objects(self) -> bool:
        """Whether the arguments of calls may be dicts; a few templates join them to texts."""
        function = {"name": "call", "arguments": {_PROBE: _PROBE}}
        call = {"id": "abcdefghi", "type": "function", "function": function}
        user = {"role": "user", "content": "Hello"}
        messages = [user, {"role": "assistant", "content": "", "tool_calls": [call]}]
        try:
            text = self.render(Conversation(messages, add_generation_prompt=False))
        except (ConversationError, ChatTemplateError):
            return False
        return _PROBE in text

    @cached_property
    def _abilities(self) -> _Abilities:
        """Found out by trying; a template that fails on the simplest conversation is taken to read everything."""
        user = {"role": "user", "content": "Hello"}
        parts = {"role": "user", "content": [{"type": "text", "text": _PROBE}]}
        texts = self._shows([{"role": "user", "content": _PROBE}])
        reads_parts = self._shows([parts])
        return _Abilities(
            system=self._shows([{"role": "system", "content": _PROBE}, user]) or not self._shows([user], "Hello"),
            parts=reads_parts or not texts,
            texts=texts or not reads_parts,
        )

    def _shows(self, messages: Sequence[Message], words: str = _PROBE) -> bool:
        try:
            text = self.render(Conversation(messages))
        except (ConversationError, ChatTemplateError):
            return False
        # In quotes behind its key it is Python's or JSON's idea of a list of parts.
        return words in text and not re.search(f"text['\"]: *['\"]{words}", text)


def _arguments(call: Any) -> Any:
    """Those of one entry of ``tool_calls``; None where there are none."""
    function: Any = cast(Any, call).get("function") if isinstance(call, Mapping) else None
    return cast(Any, function).get("arguments") if isinstance(function, Mapping) else None


def _fold_system(messages: Sequence[Message]) -> list[Message]:
    """Each system message put before the next user message, on a line of its own; after the last, a user message."""
    folded: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "system":
            waiting.append(text_of(message.get("content")))
        elif message["role"] == "user" and waiting:
            folded.append({**message, "content": "\n".join([*waiting, text_of(message.get("content"))])})
            waiting.clear()
        else:
            folded.append(message)
    if waiting:
        folded.append({"role": "user", "content": "\n".join(waiting)})
    return folded


def _left_open(message: Message) -> Message:
    """The message with transformers' mark behind its last words."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content + _CONTINUED}
    if not content:
        raise ConversationError("continue_final_message is set, but the last message has no text to continue.")
    return {**message, "content": [*content[:-1], {**content[-1], "text": content[-1]["text"] + _CONTINUED}]}


def _cut(text: str, last: Message) -> str:
    """The rendering up to the mark, as transformers truncates it."""
    content = last.get("content")
    said: str = content if isinstance(content, str) else content[-1]["text"] if content else ""
    mark = _CONTINUED.strip()
    if said.strip() not in text or mark not in text:
        raise ConversationError(
            "continue_final_message is set, but this model's chat template does not show the last message as it is."
        )
    end = text.rindex(mark)
    kept_spaces = text.startswith(_CONTINUED, end)
    return text[:end] if kept_spaces else text[:end].rstrip()


def _settings(bundle: Bundle, name: str) -> dict[str, Any]:
    if name not in bundle.manifest.files:
        return {}
    settings = cast(object, bundle.json(name))
    if not isinstance(settings, dict):
        raise ChatTemplateError(f"{bundle.file(name)} is not a JSON object.")
    return cast(dict[str, Any], settings)


def _templates(value: Any) -> dict[str, str]:
    """``chat_template`` of ``tokenizer_config.json``: a text, or a list of names and texts."""
    if not value:
        return {}
    if isinstance(value, str):
        return {"default": value}
    try:
        named = cast(Any, value if isinstance(value, dict) else {entry["name"]: entry["template"] for entry in value})
        if all(isinstance(text, str) for pair in named.items() for text in pair):
            return dict(named)
    except (TypeError, KeyError, IndexError):
        pass
    raise ChatTemplateError(
        "chat_template in the bundle's tokenizer_config.json is neither a text nor a list of names and texts."
    )


def _special_tokens(config: Mapping[str, Any], tokens_map: Mapping[str, Any]) -> dict[str, Any]:
    """The names that templates know special tokens by; ``tokenizer_config.json`` prevails."""
    found: dict[str, Any] = {}
    for source in (tokens_map, config):
        named: Any = {name: source.get(name) for name in _SPECIAL_TOKENS}
        if isinstance(own := source.get("extra_special_tokens"), dict):
            named |= own
        found |= {name: text for name, token in named.items() if (text := _token_text(token))}
        several: Any = source.get("additional_special_tokens")
        if isinstance(several, list) and several:
            found["additional_special_tokens"] = [_token_text(token) for token in cast(list[Any], several)]
    return found


def _token_text(token: Any) -> str:
    text: Any = cast(Any, token).get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""
