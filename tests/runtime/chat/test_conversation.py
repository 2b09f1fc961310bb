"""Problems of a conversation: all of them are reported at once."""

from typing import Any, cast

import pytest

from edgegen.chat.conversation import Conversation, text_of
from edgegen.errors import ConversationError, UsageError

USER = {"role": "user", "content": "Hello"}


SOUND: list[Any] = [
    [USER],
    (USER,),
    [{"role": "user", "content": ""}],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}],
    [{"role": "assistant", "content": None, "reasoning_content": "hm"}],
    [{"role": "tool", "content": "4", "tool_call_id": "1", "name": "f"}],
    [{"role": "available_tools", "content": "x"}],
]


@pytest.mark.parametrize("messages", SOUND)
def test_sound_conversations(messages: Any) -> None:
    assert Conversation(messages).messages is messages


MALFORMED: list[tuple[Any, str]] = [
    ([], "messages is empty: give a list of messages such as {'role': 'user', 'content': 'Hello'}."),
    ("Hello", "messages must be a list of messages such as {'role': 'user', 'content': 'Hello'}, not a text."),
    (None, "messages must be a list of messages such as {'role': 'user', 'content': 'Hello'}, not None."),
    (USER, "messages must be a list of messages such as {'role': 'user', 'content': 'Hello'}, not a dict."),
    (["Hello"], "messages[0] must be a dict of role and content, not a text."),
    ([{"content": "x"}], "messages[0] has no role."),
    ([{"rôle": "user", "content": "x"}], "messages[0] has no role (is 'rôle' meant to be it?)."),
    ([{"role": 1, "content": "x"}], "messages[0].role must be a text, not an int."),
    ([{"role": "", "content": "x"}], "messages[0].role is '', which is no name."),
    ([{"role": "<|im_end|>", "content": "x"}], "messages[0].role is '<|im_end|>', which is no name."),
    (
        [{"role": "user\n", "content": "x"}],
        "messages[0].role is 'user\\n', which is no name (did you mean 'user'?).",
    ),
    ([{"role": "user"}], "messages[0] has no content."),
    ([{"role": "user", "contents": "x"}], "messages[0] has no content (is 'contents' meant to be it?)."),
    ([{"role": "assistant", "content": None}], "messages[0] has no content."),
    ([{"role": "tool", "tool_call_id": "1"}], "messages[0] has no content."),
    ([{"role": "user", "content": 3}], "messages[0].content must be a text or a list of text parts, not an int."),
    ([{"role": "user", "content": b"x"}], "messages[0].content must be a text or a list of text parts, not bytes."),
    (
        [{"role": "user", "content": ["x"]}],
        "messages[0].content[0] must be a dict such as {'type': 'text', 'text': 'Hello'}, not a text.",
    ),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
        "messages[0].content[0] is of type 'image_url': only text parts are understood.",
    ),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text must be a text, not None."),
    (
        [{"role": "user", "content": "a\ud800"}],
        "messages[0].content is no Unicode text: character 1 is half of one.",
    ),
    (
        [{"role": "assistant", "tool_calls": [{"function": {"name": "\udfff"}}]}],
        "messages[0].tool_calls[0].function.name is no Unicode text: character 0 is half of one.",
    ),
]


@pytest.mark.parametrize(("messages", "message"), MALFORMED)
def test_malformed_messages(messages: Any, message: str) -> None:
    with pytest.raises(ConversationError) as caught:
        Conversation(messages)
    assert str(caught.value) == message
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tools": {"type": "function"}}, "tools must be a list of dicts, not a dict."),
        ({"tools": [len]}, "tools must be a list of dicts, not a list."),
        ({"documents": "x"}, "documents must be a list of dicts, not a text."),
        ({"documents": [{"text": "\ud800"}]}, "the documents[0].text is no Unicode text: character 0 is half of one."),
        ({"variables": ["x"]}, "variables must be a dict of names, not a list."),
        ({"variables": {1: 2}}, "variables must be a dict of names, not a dict."),
        ({"variables": {"tools": []}}, "'tools' is no template variable of its own: pass it as an argument."),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message and add_generation_prompt exclude each other.",
        ),
    ],
)
def test_malformed_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConversationError) as caught:
        Conversation([USER], **arguments)
    assert str(caught.value) == message


def test_everything_is_said_at_once() -> None:
    messages: list[Any] = [{"role": "", "content": 3}, USER, {"content": [{"type": "audio"}]}]
    with pytest.raises(ConversationError) as caught:
        Conversation(messages, tools=cast(Any, 1))
    assert str(caught.value).splitlines() == [
        "5 problems:",
        "  - messages[0].role is '', which is no name",
        "  - messages[0].content must be a text or a list of text parts, not an int",
        "  - messages[2] has no role",
        "  - messages[2].content[0] is of type 'audio': only text parts are understood",
        "  - tools must be a list of dicts, not an int",
    ]


def test_the_generation_prompt_is_there_unless_the_last_message_goes_on() -> None:
    assert Conversation([USER]).generation_prompt
    assert not Conversation([USER], add_generation_prompt=False).generation_prompt
    assert not Conversation([USER], continue_final_message=True).generation_prompt


def test_texts_are_mapped_with_their_speakers() -> None:
    conversation = Conversation(
        [
            {"role": "user", "content": [{"type": "text", "text": "a"}], "n": 1},
            {"role": "assistant", "content": None, "tool_calls": [{"arguments": {"k": ("v", 2)}}]},
        ],
        tools=[{"t": None}],
        documents=[{"a document": "e", "role": "f"}],
        variables={"name": "w", "flag": True},
    )
    mapped = conversation.map_texts(lambda text, role: "text" if text == "text" else f"{role}:{text}")
    assert mapped.messages == [
        {"role": "user", "content": [{"type": "text", "text": "user:a"}], "n": 1},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"arguments": {"k": ["assistant:v", 2]}}],
        },
    ]
    assert mapped.tools == [{"t": None}]
    assert mapped.documents == [{":a document": ":e", "role": ":f"}]
    assert mapped.variables == {"name": ":w", "flag": True}


def test_the_text_of_parts_is_their_lines() -> None:
    assert text_of("a") == "a"
    assert text_of([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) == "a\nb"
    assert text_of(None) == ""
