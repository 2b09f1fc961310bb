"""ChatTemplate: renders a conversation to the text and the token ids that a model was trained on.

The rendering is that of transformers' ``apply_chat_template``, with two differences that are meant:

- what the template would refuse or leave out is written as it can read it (``normalization``), and what it leaves
  out all the same is an error that names it;
- text in messages never becomes a control token (``control_text``).

A model without a template is a base model, which only continues texts. It gets a transcript to continue: the system
message as a paragraph, then lines ``User: …`` and ``Assistant: …``. Names before a colon are what such models have
read most of, the transcript needs no token of its own, and ``"\\nUser:"`` tells where an answer ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from threading import Lock
from time import thread_time
from typing import TYPE_CHECKING, Any, Self, cast
from weakref import WeakKeyDictionary

from edgegen.bundle.bundle import Bundle
from edgegen.chat.capabilities import TemplateCapabilities, probe
from edgegen.chat.conversation import ROLES, Conversation, Message
from edgegen.chat.layout import AnswerLayout, answer_layout
from edgegen.chat.normalization import canonical, fitted, left_out
from edgegen.chat.reasoning import ReasoningMarkers, reasoning_markers
from edgegen.chat.thinking import SWITCHES, ThinkingSwitch, probe_messages, with_word
from edgegen.chat.tool_formats import HERMES, ToolFormat, tool_format
from edgegen.chat.tool_prompt import described
from edgegen.chat.tools import Tools
from edgegen.errors import ChatTemplateError, ConversationError, did_you_mean, one_or_list, refuse_any
from edgegen.system import read_regular_text

if TYPE_CHECKING:  # templates are described where no text is tokenized
    from edgegen.chat.control_text import ControlText
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
"""Chat template of base models."""

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_MORE_TEMPLATES = "additional_chat_templates/"
_CONTINUED = "CONTINUE_FINAL_MESSAGE_TAG "  # transformers' mark
_PROBE = "Xyzzy plugh"
"""A text that no template has, to see whether a template shows it."""

_SHORTEST = Conversation([{"role": "user", "content": _PROBE}])

_PROBE_SECONDS = 5.0
"""Processor time of all probes of a template together, each of which is stopped at its own limit besides."""


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
            own = {name: read_regular_text(bundle.file(file)) for file, name in names.items() if file in files}
        except (OSError, UnicodeDecodeError) as error:
            raise ChatTemplateError(f"the chat template of the bundle {bundle.path} cannot be read: {error}.") from None
        special_tokens = _special_tokens(config, _settings(bundle, "special_tokens_map.json"))
        return cls(own or templates_by_name(config.get("chat_template")), special_tokens)

    def __repr__(self) -> str:
        return f"ChatTemplate({'fallback transcript' if self.is_fallback else ', '.join(self.names)})"

    @property
    def special_tokens(self) -> dict[str, str]:
        """``bos_token``, ``eos_token`` and others, as templates read them."""
        return {name: token for name, token in self._special_tokens.items() if isinstance(token, str)}

    @property
    def names(self) -> tuple[str, ...]:
        """The templates there are."""
        return tuple(self._sources)

    @property
    def source(self) -> str:
        """The text of the main template; without any, the text of the transcript."""
        return self._source(_SHORTEST)

    def with_tools(self, conversation: Conversation, tools: Tools | None) -> tuple[Conversation, ToolFormat | None]:
        """The conversation with these tools, as this model is to read it, and how it writes calls of them.

        For a model whose template knows no tools, or a family whose format is not known, the system message describes
        them.
        """
        named = replace(conversation, tools=tools.definitions if tools else None)
        if tools is None:
            return named, None
        style = tool_format(self._source(named))
        if style is not None and self.capabilities(named).tools and self._program(named).writes(tools.definitions):
            return named, style
        plain = self._program(named).canonical(replace(named, tools=None))
        return plain.with_messages(described(plain, tools)), HERMES

    def capabilities(self, conversation: Conversation | None = None) -> TemplateCapabilities:
        """Return the parts of a conversation that the template reads, with tools if ``conversation`` has them; found
        once."""
        asked = conversation or Conversation([{"role": "user", "content": ""}])
        return self._program(asked).capabilities(with_tools=bool(asked.tools))

    def describe(self) -> dict[str, Any]:
        """Describe what each template reads, without and with tools, as ``edgegen info --json`` and ``/props`` show
        it."""
        hello = [{"role": "user", "content": "Hello"}]
        described = dict[str, Any]()
        for name in self.names:
            asked = Conversation(hello, template=name)
            try:
                plain, with_tools = self.capabilities(asked), self.capabilities(replace(asked, tools=({},)))
            except ChatTemplateError as error:
                described[name] = {"error": str(error)}
                continue
            described[name] = {"without_tools": plain.to_json(), "with_tools": with_tools.to_json()}
        return described

    def reasoning(self, conversation: Conversation | None = None) -> ReasoningMarkers | None:
        """The markers of thoughts, if this model thinks aloud; by default in a conversation without tools."""
        return reasoning_markers(self._source(conversation or _SHORTEST))

    def reads(self, conversation: Conversation, variable: str) -> bool:
        """Whether the template reads a variable of that name, such as ``enable_thinking``."""
        return variable in self._program(conversation).names

    def thinking_switch(self, conversation: Conversation | None = None) -> ThinkingSwitch:
        """How this model is told whether to think, and how hard; by default in a conversation without tools."""
        return self._program(conversation or _SHORTEST).thinking_switch

    def check_thinking(self, thinking: bool | None, effort: str | None) -> None:
        """Check that the template can be told to think as asked.

        Raises:
            ConversationError: as :meth:`asked_to_think`.
        """
        self.asked_to_think(_SHORTEST, thinking, effort)

    def asked_to_think(
        self, conversation: Conversation, thinking: bool | None, effort: str | None, budget: int | None = None
    ) -> Conversation:
        """The conversation that asks for thoughts, for none, or for an ``effort``; ``budget``: most tokens of them.

        A switch among its variables that this template knows by another name is what ``thinking`` says.

        Raises:
            ConversationError: this model cannot be asked for it; or the template reads no variable of some name.
        """
        if not conversation.variables and thinking is None and effort is None and budget is None:
            return conversation
        names, variables = self._program(conversation).names, dict(conversation.variables)
        for name in [name for name in SWITCHES if name in variables and name not in names]:
            value = variables.pop(name)
            if not isinstance(value, bool) or thinking not in (None, value):
                said = f"true or false expected, found {value!r}" if thinking is None else "thinking says otherwise"
                raise ConversationError(f"variables: {name}: {said}.")
            thinking = value
        unread = [f"{name!r} is not read by this model's chat template" for name in variables if name not in names]
        if unread:
            near = [did_you_mean(name, names) for name in variables if name not in names]
            raise ConversationError("variables: " + "; ".join(map("".join, zip(unread, near, strict=True))) + ".")
        switch = self.thinking_switch(conversation)
        told, word = switch.tell(thinking, effort, thinks=self.reasoning(conversation) is not None)
        if switch.budget is not None and budget is not None and thinking is not False and effort != "none":
            told[switch.budget] = budget
        if twice := [name for name, value in told.items() if variables.get(name, value) != value]:
            raise ConversationError(f"variables: {twice[0]} says otherwise than the request does: keep one of them.")
        asked = replace(conversation, variables=variables | told)
        return asked.with_messages(with_word(list(asked.messages), word)) if word else asked

    def render(self, conversation: Conversation) -> str:
        """The text of the conversation.

        Raises:
            ConversationError: a role the template does not know, or it refuses the conversation or fails on it.
            ChatTemplateError: the template is malformed, or was stopped at its limits.
        """
        program = self._program(conversation)
        said = program.canonical(conversation)
        text = program.render(program.fit(said))
        program.check_shown(said, text)
        return text

    def encode(self, conversation: Conversation, tokenizer: Tokenizer, most: int | None = None) -> list[int]:
        """The ids of the conversation; no text of a message is a control token in them.

        Raises:
            ConversationError, ChatTemplateError: as :meth:`render`.
            PromptTooLongError: they would surely be more than ``most``.
        """
        program = self._program(conversation)
        control = program.control_text(tokenizer)
        said = program.canonical(conversation)
        veiled = control.veil(program.fit(said))
        text, under_veils = veiled.lift(program.render(veiled.conversation))
        program.check_shown(said, text)
        if most is not None:
            tokenizer.refuse_longer(text, most)
        ids = control.encode(text, under_veils)
        return tokenizer.frame(ids) if self.is_fallback else ids  # a transcript is a text like any other

    def layout(self, conversation: Conversation) -> AnswerLayout | None:
        """Return the parts of this model's answers beside thoughts and calls; None where there are no others."""
        return answer_layout(self._source(conversation))

    def ends_of_answer(
        self, tokenizer: Tokenizer, known: Iterable[int], layout: AnswerLayout | None, style: ToolFormat | None
    ) -> tuple[int, ...]:
        """The tokens that end an answer: those ``known``, and those of the template's family.

        A family's tokens that end a part of an answer only, such as a thought, are not among them.
        """
        goes_on = [*(layout.goes_on if layout else ()), *([style.turn_end] if style and style.turn_end else ())]
        ends = [tokenizer.token_to_id(token) for token in (layout.ends if layout else ())]
        found = dict.fromkeys((*known, self.end_of_turn(tokenizer), *ends))
        parts = {tokenizer.token_to_id(token) for token in goes_on}
        return tuple(token_id for token_id in found if token_id is not None and token_id not in parts)

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

    def _program(self, conversation: Conversation) -> _Program:
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


class _Program:
    """One template, compiled, with the model's special tokens."""

    def __init__(self, source: str, special_tokens: Mapping[str, Any]) -> None:
        from edgegen.chat.sandbox import SandboxedTemplate  # jinja2, which only a chat needs

        self._source = source
        self._template = SandboxedTemplate(source)
        self.names = self._template.names
        self._special_tokens = special_tokens
        self._style = tool_format(source)
        self._reasoning = reasoning_markers(source)
        self._capabilities: dict[bool, TemplateCapabilities] = {}
        self._probed_seconds = 0.0
        self._lock = Lock()
        self._control: WeakKeyDictionary[Tokenizer, ControlText] = WeakKeyDictionary()

    def control_text(self, tokenizer: Tokenizer) -> ControlText:
        from edgegen.chat.control_text import ControlText

        if tokenizer not in self._control:
            self._control[tokenizer] = ControlText(tokenizer, self._source, self._template.constants)
        return self._control[tokenizer]

    def render(self, conversation: Conversation) -> str:
        """The text of a conversation as it is."""
        return self._render(conversation, self._no_tools if conversation.tools is None else conversation.tools)

    def _probe(self, conversation: Conversation) -> str:
        """As :meth:`render`, of a conversation that only finds out what the template reads.

        Raises:
            ChatTemplateError: it was stopped, or probes have taken all the time that they may take.
        """
        self._check_probing()
        begin = thread_time()
        try:
            return self.render(conversation)
        finally:
            self._probed_seconds += thread_time() - begin

    def _check_probing(self) -> None:
        """Check that there is time for another probe: a template that is too slow for them is not tried again.

        Raises:
            ChatTemplateError: there is none.
        """
        if self._probed_seconds > _PROBE_SECONDS:
            raise ChatTemplateError(
                "the model's chat template was stopped: short conversations, which find out what it reads, take it "
                f"more than {_PROBE_SECONDS:g} seconds: use another template, or send a prompt in place of messages."
            )

    def _render(self, conversation: Conversation, tools: Sequence[Mapping[str, Any]] | None) -> str:
        messages = list(conversation.messages)
        if conversation.continue_final_message:
            messages[-1] = _left_open(messages[-1])
        text = self._template.render(
            {
                **self._special_tokens,
                **self._tools_by_other_names(tools),
                **conversation.variables,
                "messages": messages,
                "tools": tools,
                "documents": conversation.documents,
                "add_generation_prompt": conversation.generation_prompt,
            }
        )
        return _cut(text, conversation.messages[-1]) if conversation.continue_final_message else text

    def _tools_by_other_names(self, tools: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
        """The tools for a template that does not read ``tools``: firefunction's, with the time, and SmolLM3's."""
        if "tools" in self.names:
            return {}
        if "functions" in self.names:
            now = datetime.now().strftime("%b %d %Y %H:%M:%S")  # noqa: DTZ005 (the user's own time, as strftime_now)
            return {"functions": json.dumps(list(tools or ()), ensure_ascii=False, indent=2), "datetime": now}
        return {"xml_tools": tools} if "xml_tools" in self.names and tools else {}

    def adapt(self, conversation: Conversation) -> Conversation:
        """The conversation as this template can read it.

        Raises:
            ConversationError: as :meth:`canonical`.
        """
        return self.fit(self.canonical(conversation))

    def fit(self, said: Conversation) -> Conversation:
        """A canonical conversation as this template can read it."""
        return fitted(said, self.capabilities(with_tools=bool(said.tools)), self._style)

    def canonical(self, conversation: Conversation) -> Conversation:
        """The conversation in the one form that templates are given, with its roles and fields checked.

        Raises:
            ConversationError: a role is misspelt, a message has a field that is not read, or malformed tool calls.
        """
        problems = [
            f"messages[{n}].role is {role!r}, which this model's chat template does not know{near}"
            for n, role in enumerate(message["role"] for message in conversation.messages)
            if role not in ROLES and role not in self._template.constants and (near := did_you_mean(role, ROLES))
        ]
        refuse_any(problems, ConversationError)
        return canonical(conversation, self._template.constants | self._template.attributes)

    def check_shown(self, conversation: Conversation, text: str) -> None:
        """Check the rendering of a canonical conversation.

        Raises:
            ConversationError: the template has left out something that was said.
        """
        if not self.capabilities(with_tools=bool(conversation.tools)).user:
            return
        closing = (self._reasoning.closing,) if self._reasoning else ()
        missing = left_out(conversation, text, self._source, closing)
        if missing:
            told = one_or_list([f"{place} is left out by this model's chat template" for place in missing])
            raise ConversationError(f"{told}: say it in a user's message.")

    def capabilities(self, *, with_tools: bool) -> TemplateCapabilities:
        with self._lock:
            if with_tools not in self._capabilities:
                found = probe(self._probe, self._template.constants, with_tools=with_tools)
                self._check_probing()
                self._capabilities[with_tools] = found
            return self._capabilities[with_tools]

    def writes(self, tools: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the template can write these tools; some fail on schemas that they do not expect."""
        hello = Conversation([{"role": "user", "content": "Hello"}], tools)
        try:
            text = self.render(self.adapt(hello))
        except (ConversationError, ChatTemplateError):
            return False
        return all(str(tool["function"]["name"]) in text for tool in tools)

    @cached_property
    def thinking_switch(self) -> ThinkingSwitch:
        """Found out by trying."""

        def probe(variables: Mapping[str, Any], system: str) -> str | None:
            conversation = Conversation(probe_messages(system), variables=variables)
            try:
                return self._probe(self.adapt(conversation))
            except (ConversationError, ChatTemplateError):
                return None

        return ThinkingSwitch.find(probe, self.names, self._template.constants)

    @cached_property
    def _no_tools(self) -> list[Any] | None:
        """Value of ``tools`` where there are none: None, or an empty list where the template fails on None."""
        hello = Conversation([{"role": "user", "content": "Hello"}])
        for tools in (None, list[Any]()):
            try:
                self._check_probing()
                self._render(hello, tools)
            except ConversationError:
                continue
            except ChatTemplateError:  # stopped, which other tools do not change
                return None
            return tools
        return None


def _left_open(message: Message) -> Message:
    """The message with transformers' mark after its last words."""
    content = message.get("content")
    if isinstance(content, str) and content:
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


def templates_by_name(value: Any) -> dict[str, str]:
    """``chat_template`` of a file: a text, or a list of names and texts, or texts by name; empty if absent.

    Raises:
        ChatTemplateError: it is something else.
    """
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
    tokens: dict[str, Any] = {}
    for source in (tokens_map, config):
        named: Any = {name: source.get(name) for name in _SPECIAL_TOKENS}
        if isinstance(own := source.get("extra_special_tokens"), dict):
            named |= own
        tokens |= {name: text for name, token in named.items() if (text := _token_text(token))}
        several: Any = source.get("additional_special_tokens")
        if isinstance(several, list) and several:
            tokens["additional_special_tokens"] = [_token_text(token) for token in cast(list[Any], several)]
    return tokens


def _token_text(token: Any) -> str:
    text: Any = cast(Any, token).get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""
