"""AnswerLayout: what stands in the answers of a template family beside thoughts and calls, and what ends them."""

import re
from dataclasses import dataclass

from edgegen.chat.tool_formats import control_texts


@dataclass(frozen=True, slots=True)
class MessageHeaders:
    """An answer is messages, each with a header that names its channel and its recipient.

    Attributes:
        begin: begins a header; the first message's is in the prompt.
        channel: stands before the name of the channel.
        message: ends a header.
        ends: tokens that end a message.
        thoughts: the channel of thoughts; what other channels have is content.
        said: the channels of content.
        calls: the channel of calls.
        kind: stands before the end of a call's header: its arguments are JSON.
        recipient: stands before the recipient of a message.
        namespace: stands before the name of a tool that is the recipient, unless the model leaves it out.
    """

    begin: str
    channel: str
    message: str
    ends: tuple[str, ...]
    thoughts: str
    said: tuple[str, ...]
    calls: str
    kind: str
    recipient: str
    namespace: str

    @property
    def starts(self) -> tuple[str, ...]:
        """Texts that a header may begin with, where one may stand."""
        return (self.begin, self.channel, self.message, self.recipient)

    def read(self, header: str) -> tuple[str, str]:
        """The channel, and the name of the tool that the message calls; each may be empty."""
        channel = re.search(rf"{re.escape(self.channel)}\s*(\w+)", header)
        called = re.search(rf"{re.escape(self.recipient.strip())}([^\s<]+)", header)
        return channel[1] if channel else "", called[1].removeprefix(self.namespace) if called else ""


@dataclass(frozen=True, slots=True)
class AnswerLayout:
    """Parts of the answers of a template family beside thoughts and calls.

    Attributes:
        signs: texts that all stand in a template of the family.
        skipped: control texts that say nothing, wherever they stand.
        around: texts that begin and end what is said.
        between: stands between the thoughts and what follows.
        begun: a prompt ends with it, and the answer's text begins with it.
        ends: tokens that end an answer, beside the one that the template shows.
        goes_on: tokens that end a part of an answer, though the template ends a turn with them.
        headers: the answer is messages with headers.
    """

    signs: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    around: tuple[str, str] = ("", "")
    between: str = ""
    begun: str = ""
    ends: tuple[str, ...] = ()
    goes_on: tuple[str, ...] = ()
    headers: MessageHeaders | None = None

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that may be control tokens of the model."""
        header = self.headers
        texts = (header.begin, header.channel, header.message, *header.ends) if header else ()
        return control_texts(*self.skipped, *filter(None, self.around), *texts)


_KNOWN = (
    AnswerLayout(
        ("<|start|>", "<|channel|>", "<|message|>"),
        ends=("<|return|>", "<|call|>"),
        goes_on=("<|end|>",),
        headers=MessageHeaders(
            "<|start|>assistant",
            "<|channel|>",
            "<|message|>",
            ("<|end|>", "<|call|>", "<|return|>"),
            "analysis",
            ("final", "commentary"),
            "commentary",
            " <|constrain|>json",
            " to=",
            "functions.",
        ),
    ),
    AnswerLayout(
        ("<|begin|>assistant", "<|content|>"),
        skipped=("<|begin|>assistant", "<|content|>", "<|end|>"),
        between="<|begin|>assistant",
        ends=("<|flush|>", "<|calls|>"),
        goes_on=("<|end|>",),
    ),
    AnswerLayout(("<|START_RESPONSE|>",), skipped=("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    AnswerLayout(("[BEGIN FINAL RESPONSE]",), around=("", "[END FINAL RESPONSE]")),
    AnswerLayout(("<think></think>", "<response></response>"), around=("<response>", "</response>")),
    AnswerLayout((">>>all",), skipped=(">>>all\n",), begun=">>>"),
    AnswerLayout(("<|tool_call>", "<|tool_response>"), ends=("<|tool_response>",)),
    AnswerLayout(("<|eot_id|>", "<|eom_id|>"), ends=("<|eom_id|>",)),
    AnswerLayout(("<|user|>", "<|observation|>"), ends=("<|user|>", "<|observation|>")),
)


def answer_layout(template: str) -> AnswerLayout | None:
    """Return the layout of a template's family; None if it is unknown, or answers have only thoughts and calls."""
    return next((known for known in _KNOWN if all(sign in template for sign in known.signs)), None)
