"""ChatBuilder: turns a conversation and options into a request, by the rules of the model's chat template."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from dataclasses import replace
from typing import Any

from edgegen.chat import ChatTemplate, Conversation, Message
from edgegen.chat.context_window import drop_oldest
from edgegen.chat.reply import ReplyFormat
from edgegen.chat.tools import ToolChoice, Tools
from edgegen.errors import UsageError
from edgegen.generation.request import Request
from edgegen.generation.request_builder import RequestBuilder
from edgegen.generation.session import Session
from edgegen.options.generation import GenerationOptions, ReasoningEffort
from edgegen.tokenizer import Tokenizer

Messages = Ids[Message] | Conversation
"""A conversation: messages with a ``role`` and a ``content``."""

Tool = Mapping[str, Any] | Callable[..., Any]
"""A function that a model may call: in OpenAI's form, or a Python function with type hints and a docstring."""

_PROMPT_END = 32
"""Tokens of a prompt's end, in which the template may have begun the model's thoughts."""


class ChatBuilder:
    """Turns conversations into requests of one model."""

    def __init__(self, requests: RequestBuilder, template: ChatTemplate, own_options: GenerationOptions) -> None:
        """``own_options``: the model's own, whose ends of text a chat adds to.

        Raises:
            UsageError: there is no tokenizer.
        """
        if requests.encoder.tokenizer is None:
            raise UsageError("a conversation needs a tokenizer, and this bundle has none.")
        self._tokenizer: Tokenizer = requests.encoder.tokenizer
        self._requests = requests
        self._template = template
        self._own_options = own_options

    def build(
        self,
        messages: Messages,
        options: GenerationOptions,
        session: Session | None,
        tools: Ids[Tool] | None,
        choice: ToolChoice | None,
        parallel: bool | None,
    ) -> Request:
        """The request for the assistant's answer; ``parallel``: whether one may have several calls of tools.

        Raises:
            ConversationError: the messages or tools are malformed, or the template refuses them; or this model cannot
                be asked for this thinking or effort.
            SessionError, OptionError, ConstraintError, PromptTooLongError: as :meth:`RequestBuilder.build`.
        """
        template, tokenizer, max_context = self._template, self._tokenizer, self._requests.max_context
        conversation = _conversation(messages)
        shown, form = self._reply_format(conversation, tools, choice, parallel)
        options = self._with_ends(options, form)
        shown = template.asked_to_think(shown, options.thinking, options.reasoning_effort, options.max_thinking_tokens)
        dropped = 0
        if options.context_overflow == "drop_oldest":
            ids, dropped = drop_oldest(
                shown, lambda part: template.encode(part, tokenizer), max_context, options.max_new_tokens
            )
        else:
            ids = template.encode(shown, tokenizer, max_context)
        if form is not None and shown.generation_prompt:
            form = form.following(tokenizer.decode(ids[-_PROMPT_END:], skip_special_tokens=False))
        request = self._requests.build(ids, options, session, conversation.messages, form)
        request.dropped_messages = dropped
        return request

    def encode(
        self,
        messages: Messages,
        tools: Ids[Tool] | None,
        choice: ToolChoice | None,
        thinking: bool | None,
        reasoning_effort: ReasoningEffort | None,
        max_thinking_tokens: int | None,
    ) -> list[int]:
        """The ids of a conversation, as :meth:`build` passes them to the model; it may be longer than the context.

        Raises:
            ConversationError: the messages or tools are malformed, or the template refuses them.
        """
        shown, _ = self._reply_format(_conversation(messages), tools, choice, parallel=None)
        shown = self._template.asked_to_think(shown, thinking, reasoning_effort, max_thinking_tokens)
        return self._template.encode(shown, self._tokenizer)

    def _with_ends(self, options: GenerationOptions, form: ReplyFormat | None) -> GenerationOptions:
        """The options, with the ends of an answer that the template has; the caller's own end-of-sequence ids stay."""
        own = self._own_options.eos_token_id
        if options.eos_token_id is None or options.eos_token_id == own:
            layout, style = (None, None) if form is None else (form.layout, form.style)
            ends = self._template.ends_of_answer(self._tokenizer, own or (), layout, style)
            options = replace(options, eos_token_id=ends)
        return replace(options, stop_strings=(*options.stop_strings, *self._template.stop_strings))

    def _reply_format(
        self, conversation: Conversation, tools: Ids[Tool] | None, choice: ToolChoice | None, parallel: bool | None
    ) -> tuple[Conversation, ReplyFormat | None]:
        """The conversation as the model is to read it, and what to read in its answer."""
        template = self._template
        if tools is not None and conversation.tools is not None:
            raise UsageError("tools are given twice, in the conversation and beside it: leave one out.")
        given = conversation.tools if tools is None else tools
        if given is None and choice not in (None, "auto", "none"):
            raise UsageError("tool_choice is for tools, and there are none: give tools with it, or leave it out.")
        several = parallel is None or parallel
        read = None if given is None else Tools.read(given, "auto" if choice is None else choice, parallel=several)
        shown, style = template.with_tools(conversation, read)  # earlier calls are shown where there are no tools too
        if read is not None and parallel is None and not template.capabilities(shown).parallel_calls:
            read = replace(read, parallel=False)
        reasoning, layout = template.reasoning(shown), template.layout(shown)
        if reasoning is None and style is None and layout is None:
            return shown, None
        return shown, ReplyFormat(reasoning, style=style, tools=read, layout=layout)


def _conversation(messages: Messages) -> Conversation:
    return messages if isinstance(messages, Conversation) else Conversation(messages)
