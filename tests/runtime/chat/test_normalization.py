"""Whatever a client says reaches the model, in every template: texts of their own in every field are found again."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.chat.capabilities import TemplateCapabilities
from edgegen.chat.conversation import Conversation
from edgegen.chat.normalization import SYSTEM_ROLES, canonical
from edgegen.chat.partial_json import completed_json
from edgegen.chat.template import ChatTemplate
from edgegen.chat.tools import Tools
from edgegen.errors import ConversationError, EdgegenError
from edgegen.server.messages.api import MESSAGE_WIRE
from edgegen.server.openai.chat_completions import CHAT_WIRE
from edgegen.server.responses.api import RESPONSES_WIRE
from edgegen.server.wire.wire import ChatPrompt
from tests.root import ROOT
from tests.runtime.chat.material import CHATML, GIGACHAT, SPECIAL, template_sources

Said = dict[str, Any]

_UNION = "of an argument of several types, its name is shown, and not what its types say"
_LIST = "of a list of texts, not which texts there may be"
NOT_SHOWN = {
    ("Apertus-8B-Instruct", "a union"): _UNION,
    ("ByteDance-Seed-OSS", "a union"): _UNION,
    ("GigaChat3-10B-A1.8B", "a union"): _UNION,
    ("GigaChat3.1-10B-A1.8B", "a union"): _UNION,
    ("google-gemma-4-31B-it", "a union"): _UNION,
    ("google-gemma-4-31B-it-interleaved", "a union"): _UNION,
    ("meetkai-functionary-medium-v3.2", "a union"): _UNION,
    ("openai-gpt-oss-120b", "a union"): _UNION,
    ("ByteDance-Seed-OSS", "a nested schema"): "of an argument that is an object or a list, its type is shown",
    ("Apertus-8B-Instruct", "a nested schema"): _LIST,
    ("openai-gpt-oss-120b", "a nested schema"): _LIST,
}
"""Parts of a tool's schema that a template of a model's maker leaves out: docs/chat-templates.md lists them."""

_numbers = itertools.count()


def mark() -> str:
    """A text that occurs once."""
    return f"mark{next(_numbers)}zq"


def user() -> Said:
    return {"role": "user", "content": mark()}


def assistant(**more: Any) -> Said:
    return {"role": "assistant", "content": mark(), **more}


def system(role: str = "system") -> Said:
    return {"role": role, "content": mark()}


def parts() -> list[Said]:
    return [{"type": "text", "text": mark()}, {"type": "text", "text": mark()}]


def call(call_id: str, name: str = "get_weather", arguments: Any = ...) -> Said:
    arguments = json.dumps({"city": mark()}) if arguments is ... else arguments
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Said, content: Any = None) -> Said:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(call_id: str) -> Said:
    return {"role": "tool", "tool_call_id": call_id, "content": mark()}


def tool(name: str, **function: Any) -> Said:
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "description": mark()}},
        "required": ["city"],
    }
    return {"type": "function", "function": {"name": name, "description": mark(), "parameters": parameters, **function}}


def scenarios() -> Iterator[tuple[str, list[Said]]]:
    """Conversations as chat completions have them."""
    yield "a user", [user()]
    yield "a system message", [system(), user()]
    yield "a system message alone", [system()]
    yield "a developer", [system("developer"), user()]
    yield "a system message and a developer", [system(), system("developer"), user()]
    yield "two system messages", [system(), system(), user(), assistant(), user()]
    yield "a system message amid", [system(), user(), assistant(), system(), user()]
    yield "a developer amid", [user(), assistant(), system("developer"), user()]
    yield "a system message at the end", [user(), assistant(), user(), system()]
    yield "two users", [user(), user()]
    yield "two assistants", [user(), assistant(), assistant(), user()]
    yield "an assistant first", [assistant(), user()]
    yield "parts", [{"role": role, "content": parts()} for role in ("system", "user", "assistant", "user")]
    yield "a refusal", [user(), {"role": "assistant", "content": None, "refusal": mark()}, user()]
    for name, content in {"null": None, "empty": "", "text": mark(), "parts": parts()}.items():
        yield (
            f"{name} beside a call",
            [user(), calling(call("call_abcdefghij"), content=content), result("call_abcdefghij")],
        )
        goes_on = [calling(call("chatcmpl-tool-1"), content=content), result("chatcmpl-tool-1"), assistant(), user()]
        yield f"{name} beside an earlier call", [user(), *goes_on]
    without = {"role": "assistant", "tool_calls": [call("1")]}
    yield "no content beside a call", [user(), without, result("1")]
    for name, arguments in {"an empty text": "", "null": None, "{}": "{}", "a mapping": {"city": mark()}}.items():
        yield f"arguments that are {name}", [user(), calling(call("x", arguments=arguments)), result("x"), user()]
    yield "arguments cut off", [user(), calling(call("x", arguments='{"city": "' + mark())), result("x"), user()]
    three = [call("a"), call("b", "look_up"), call("c")]
    yield "parallel calls", [user(), calling(*three, content=mark()), *map(result, "abc"), assistant(), user()]
    yield "results in another order", [system(), user(), calling(call("a"), call("b")), result("b"), result("a")]
    yield "calls without results", [user(), calling(call("a"), call("b")), user()]
    yield "a user after a result", [user(), calling(call("a")), result("a"), user()]
    yield "a system message before a result", [user(), calling(call("a")), system(), result("a")]
    rounds = [calling(call("a")), result("a"), calling(call("b", "look_up"), content=mark()), result("b"), assistant()]
    yield "several rounds", [system(), user(), *rounds, user(), calling(call("c")), result("c")]
    older = {"role": "assistant", "content": None, "function_call": call("")["function"]}
    yield "a function call", [user(), older, {"role": "function", "name": "get_weather", "content": mark()}, user()]
    answer = [calling(call("a")), {**result("a"), "content": parts()}]
    yield "a result in parts", [user(), *answer]
    ours: Said = {
        **calling(call("Ab3dE6gH9")),
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
    }
    yield "an answer sent back as it was", [user(), ours, result("Ab3dE6gH9")]


def tool_scenarios() -> Iterator[tuple[str, list[Said]]]:
    """Tools as clients define them."""
    yield "two tools", [tool("get_weather"), tool("look_up")]
    yield "no parameters", [{"type": "function", "function": {"name": "list_agents", "description": mark()}}]
    yield "null parameters", [tool("list_agents", parameters=None)]
    yield "null description", [tool("list_agents", description=None)]
    yield "a name alone", [{"type": "function", "function": {"name": "list_agents"}}]
    yield "no properties", [tool("list_agents", parameters={"type": "object", "properties": {}})]
    union = {"anyOf": [{"type": "string", "description": mark()}, {"type": "null"}]}
    yield "a union", [tool("look_up", parameters={"type": "object", "properties": {"city": union}})]
    kinds = {"count": {"type": ["integer", "null"], "description": mark()}}
    yield "several types", [tool("look_up", parameters={"type": "object", "properties": kinds})]
    inner = {"type": "object", "properties": {mark(): {"type": "number"}}}
    listed = {"type": "array", "items": {"type": "string", "enum": [mark()]}}
    nested = {"type": "object", "properties": {"place": inner, "words": listed}}
    yield "a nested schema", [tool("look_up", parameters=nested)]


CONVERSATIONS = dict(scenarios())
TOOLS = dict(tool_scenarios())
_MARKS = re.compile(r"mark\d+zq|get_weather|look_up|list_agents")


def marks(*values: Any) -> set[str]:
    """The texts of their own in some data."""
    return set(_MARKS.findall(json.dumps(values)))


# ---------------------------------------------------------------- wires


def as_responses(messages: Sequence[Said], tools: Sequence[Said] | None) -> Said:
    """The body of ``/v1/responses`` that says the same."""
    items = list[Said]()
    for message in messages:
        content: Any = message.get("content") or message.get("refusal")
        if isinstance(content, list):
            kind = "output_text" if message["role"] == "assistant" else "input_text"
            content = [{"type": kind, "text": part["text"]} for part in cast(list[Said], content)]
        if message["role"] == "tool":
            items.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": content})
            continue
        if content:
            items.append({"role": message["role"], "content": content})
        calls: list[Said] = message.get("tool_calls") or []
        for entry in calls:
            items.append({"type": "function_call", "call_id": entry["id"], **entry["function"]})
    body: Said = {"model": "m", "input": items}
    if tools:
        body["tools"] = [{"type": "function", **entry["function"]} for entry in tools]
    return body


def as_messages(messages: Sequence[Said], tools: Sequence[Said] | None) -> Said:
    """The body of ``/v1/messages`` that says the same."""
    made = list[Said]()
    for message in messages:
        content: Any = message.get("content") or message.get("refusal")
        blocks: list[Said] = [{"type": "text", "text": content}] if content else []
        if isinstance(content, list):
            blocks = cast(list[Said], content)
        role = message["role"]
        if role == "tool":
            blocks = [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": blocks}]
            role = "user"
        calls: list[Said] = message.get("tool_calls") or []
        for entry in calls:
            given: Any = entry["function"]["arguments"]
            arguments: Any = completed_json(given) if isinstance(given, str) and given else given or {}
            blocks = [
                *blocks,
                {"type": "tool_use", "id": entry["id"], "name": entry["function"]["name"], "input": arguments},
            ]
        made.append({"role": "system" if role in SYSTEM_ROLES else role, "content": blocks})
    body: Said = {"model": "m", "max_tokens": 8, "messages": made}
    if tools:
        body["tools"] = [
            {"name": entry["function"]["name"], "description": entry["function"].get("description")}
            | {"input_schema": entry["function"].get("parameters") or {"type": "object"}}
            for entry in tools
        ]
    return body


@dataclass(frozen=True)
class Wire:
    """How a conversation gets to a template."""

    name: str
    older: bool = True
    """Whether it has calls in OpenAI's older form."""

    def conversation(self, messages: Sequence[Said], tools: Sequence[Said] | None) -> tuple[Conversation, Any]:
        match self.name:
            case "python":
                return Conversation(messages), tools
            case "chat completions":
                body: Said = {"model": "m", "messages": list(messages), **({"tools": list(tools)} if tools else {})}
                return self._prompt(CHAT_WIRE.read(body).prompts)
            case "responses":
                return self._prompt(RESPONSES_WIRE.read(as_responses(messages, tools)).prompts)
            case _:
                return self._prompt(MESSAGE_WIRE.read(as_messages(messages, tools)).prompts)

    @staticmethod
    def _prompt(prompts: Sequence[Any]) -> tuple[Conversation, Any]:
        (prompt,) = prompts
        assert isinstance(prompt, ChatPrompt)
        return prompt.conversation, prompt.tools


WIRES = (Wire("python"), Wire("chat completions"), Wire("responses", older=False), Wire("messages", older=False))


@pytest.fixture(scope="module")
def templates(test_data: Path) -> dict[str, ChatTemplate]:
    sources = template_sources(test_data)
    return {name: ChatTemplate({"default": source}, SPECIAL | GIGACHAT) for name, source in sources.items()}


def shown(template: ChatTemplate, conversation: Conversation, tools: Sequence[Said] | None) -> str:
    """The prompt, as ``LLM.chat`` makes it."""
    said, _ = template.with_tools(conversation, Tools.read(tools) if tools else None)
    return template.render(said)


def ends_open(messages: Sequence[Said]) -> bool:
    """Whether the last message is what the model is to say, so that a wire has no place for it."""
    return messages[-1]["role"] == "assistant"


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("with_tools", [False, True], ids=["no tools", "tools"])
def test_what_a_client_says_is_in_every_prompt(
    templates: dict[str, ChatTemplate], wire: Wire, with_tools: bool
) -> None:
    tools = TOOLS["two tools"] if with_tools else None
    held, lost = 0, list[tuple[str, str, str]]()
    for name, messages in CONVERSATIONS.items():
        if name == "a function call" and not wire.older:
            continue
        if name == "a system message alone" and wire.name == "messages":
            continue  # Anthropic's API has it beside the messages
        conversation, given = wire.conversation(messages, tools)
        for of, template in templates.items():
            try:
                text = shown(template, conversation, given)
            except EdgegenError as error:
                lost.append((of, name, str(error)))
                continue
            lost += [(of, name, word) for word in marks(messages, tools) if word not in text]
            held += 1
    assert not [entry for entry in lost if "is left out by" not in entry[2]]
    # A template that has no place for the last message of the assistant says so.
    assert {of for of, _, _ in lost} <= {"yandex/YandexGPT-5-Lite-8B-instruct"}
    assert held > 3100


@pytest.mark.parametrize("name", TOOLS)
def test_what_a_tool_says_is_in_every_prompt(templates: dict[str, ChatTemplate], name: str) -> None:
    lost = dict[str, set[str]]()
    for of, template in templates.items():
        text = shown(template, Conversation([user()]), TOOLS[name])
        if missing := {word for word in marks(TOOLS[name]) if word not in text}:
            lost[of] = missing
    assert set(lost) == {of for of, scenario in NOT_SHOWN if scenario == name}


def test_the_docs_list_what_is_not_shown() -> None:
    page = (ROOT / "docs" / "chat-templates.md").read_text("utf-8")
    for (template, scenario), shows in NOT_SHOWN.items():
        assert f"| {template} | {scenario} | {shows} |" in page


@st.composite
def conversations(draw: st.DrawFn) -> list[Said]:
    """Conversations of any shape: roles in any order, calls with and without results."""
    messages, open_calls = list[Said](), list[str]()
    for n in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(["system", "developer", "user", "assistant", "calls", "result"]))
        if kind == "calls":
            ids = [f"call_{n}_{m}" for m in range(draw(st.integers(1, 3)))]
            content = draw(st.sampled_from([None, "", f"said{n}zq"]))
            messages.append(
                calling(*(call(i, arguments=json.dumps({"city": f"of{i}zq"})) for i in ids), content=content)
            )
            open_calls += ids
        elif kind == "result" and open_calls:
            taken = open_calls.pop(draw(st.integers(0, len(open_calls) - 1)))
            messages.append({"role": "tool", "tool_call_id": taken, "content": f"result{n}zq"})
        elif kind != "result":
            messages.append({"role": kind, "content": f"{kind}{n}zq"})
    return messages or [{"role": "user", "content": "userzq"}]


def test_a_call_that_a_template_leaves_out_is_refused_by_its_arguments(templates: dict[str, ChatTemplate]) -> None:
    """Llama 3.1's puts the first message, whatever it is, into the turn that lists the tools."""
    template = templates["meta-llama-Llama-3.1-8B-Instruct"]
    first = calling(call("call_0", arguments=json.dumps({"city": "Montevideo"})), content=None)
    with pytest.raises(ConversationError, match=r"messages\[0\]\.tool_calls\[0\]\.function\.arguments is left out by"):
        shown(template, Conversation([first]), TOOLS["two tools"])


def test_arguments_that_differ_by_a_number_are_told_apart(templates: dict[str, ChatTemplate]) -> None:
    """The second call is shown by the same template, and its words are those of the first but for a digit."""
    template = templates["meta-llama-Llama-3.1-8B-Instruct"]
    calls = [
        calling(call(f"call_{n}", arguments=json.dumps({"path": f"logs/day_{n}.txt"})), content=None) for n in "12"
    ]
    with pytest.raises(ConversationError, match=r"^messages\[0\]\.tool_calls\[0\]\.function\.arguments is left out by"):
        shown(template, Conversation(calls), TOOLS["two tools"])


@settings(max_examples=25, deadline=None)
@given(messages=conversations(), with_tools=st.booleans(), data=st.data())
def test_any_conversation_is_shown_or_refused(
    templates: dict[str, ChatTemplate], messages: list[Said], with_tools: bool, data: st.DataObject
) -> None:
    """Nothing is dropped in silence, whatever the order of roles."""
    name = data.draw(st.sampled_from(sorted(templates)))
    try:
        text = shown(templates[name], Conversation(messages), TOOLS["two tools"] if with_tools else None)
    except ConversationError as error:
        refused = str(error)
        assert "messages[" in refused or "chat template" in refused
        return
    said = json.dumps(messages)
    assert [word for word in re.findall(r"\w+zq", said) if word not in text] == []


# ---------------------------------------------------------------- rules


def rendered(source: str, messages: list[Said], tools: list[Said] | None = None) -> str:
    return shown(ChatTemplate({"default": source}, SPECIAL), Conversation(messages), tools)


SYSTEM = {"role": "system", "content": "Be brief."}
HELLO = {"role": "user", "content": "Hello"}
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Alternate.') }}"
    "{% endif %}{{ m.role[0] + ':' + m.content + ';' }}{% endfor %}"
)


def test_a_developer_is_a_system_where_the_template_does_not_know_one() -> None:
    developer = {"role": "developer", "content": "Be brief."}
    assert rendered(CHATML, [developer, HELLO]).startswith("<|im_start|>system\nBe brief.")
    knows = CHATML + "{# #}{% if messages[0].role == 'developer' %}{% endif %}"
    assert rendered(knows, [developer, HELLO]).startswith("<|im_start|>developer\nBe brief.")


def test_system_messages_at_the_front_become_one_where_only_the_first_is_shown() -> None:
    first_only = (
        "{% if messages[0].role == 'system' %}{{ 's:' + messages[0].content + ';' }}{% endif %}"
        "{% for m in messages if m.role != 'system' %}{{ m.role[0] + ':' + m.content + ';' }}{% endfor %}"
    )
    later = {"role": "system", "content": "Shout."}
    assert rendered(first_only, [SYSTEM, later, HELLO]) == "s:Be brief.\n\nShout.;u:Hello;"
    assert rendered(first_only, [SYSTEM, HELLO, later, HELLO]) == "s:Be brief.;u:Hello;u:Shout.\nHello;"
    assert rendered(first_only, [SYSTEM, HELLO, later]) == "s:Be brief.;u:Hello;u:Shout.;"


def test_roles_alternate_where_they_must() -> None:
    said = {"role": "assistant", "content": "Hi"}
    assert rendered(ALTERNATING, [HELLO, HELLO]) == "u:Hello\nHello;"
    assert rendered(ALTERNATING, [HELLO, said, said, HELLO]) == "u:Hello;a:Hi\nHi;u:Hello;"
    assert rendered(ALTERNATING, [said, HELLO]) == "u: ;a:Hi;u:Hello;"
    assert rendered(CHATML, [HELLO, HELLO]).count("<|im_start|>user") == 2


def test_the_rule_of_a_template_is_passed_on() -> None:
    source = "{% if messages | length > 2 %}{{ raise_exception('At most two messages.') }}{% endif %}" + CHATML
    with pytest.raises(ConversationError, match=r"chat template refuses this conversation: At most two messages\."):
        rendered(source, [HELLO, {"role": "assistant", "content": "Hi"}, HELLO])


def test_what_a_template_leaves_out_is_an_error_that_names_it() -> None:
    source = "{% for m in messages if m.role != 'narrator' %}{{ m.content }}{% endfor %}"
    with pytest.raises(ConversationError, match=r"messages\[1\]\.content is left out by this model's chat template"):
        rendered(source, [HELLO, {"role": "narrator", "content": "Meanwhile, elsewhere."}])


def test_calls_of_one_turn_become_several_where_a_template_takes_one() -> None:
    source = (
        "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('One.') }}"
        "{% endif %}{{ '[' + m.tool_calls[0].function.name + m.tool_calls[0].function.arguments | tojson + ']' }}"
        "{% else %}{{ m.role[0] + ':' + m.content + ';' }}{% endif %}{% endfor %}"
    )
    calls = [call("a", arguments='{"n": 1}'), call("b", "look_up", {"n": 2})]
    asked = [
        HELLO,
        calling(*calls, content="I look."),
        {**result("b"), "content": "B"},
        {**result("a"), "content": "A"},
    ]
    assert rendered(source, asked) == 'u:Hello;a:I look.;[get_weather{"n": 1}]t:A;[look_up{"n": 2}]t:B;'


@pytest.mark.parametrize("given", ["chatcmpl-tool-8a7b", "x", "", "abcdefghi"])
def test_call_ids_have_the_shape_that_a_template_wants(given: str) -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}"
        "{{ raise_exception('Nine characters.') }}{% endif %}"
        "{{ c.function.name }}{{ c.function.arguments | tojson }}{{ c.id }}"
        "{% endfor %}{{ m.content }}{{ m.tool_call_id }};{% endfor %}"
    )
    text = rendered(source, [HELLO, calling(call(given, arguments={})), {**result(given), "content": "rain"}])
    of_call, of_result = re.findall(r"(?:\{\}|rain)([A-Za-z0-9]{9});", text)
    assert of_call == of_result
    assert (given == "abcdefghi") == (of_call == given)


def test_names_of_results_follow_their_calls() -> None:
    conversation = Conversation(
        [calling(call("a"), call("b", "look_up")), {"role": "tool", "content": "x"}, result("b")]
    )
    assert [message.get("name") for message in canonical(conversation).messages] == [None, "get_weather", "look_up"]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_are_told_in_the_field_that_a_template_reads(key: str) -> None:
    source = "{% for m in messages %}{{ m.thinking }}{{ m.content }};{% endfor %}"
    assert rendered(source, [HELLO, {"role": "assistant", "content": "Hi", key: "Hm."}, HELLO]) == "Hello;Hm.Hi;Hello;"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            {"role": "user", "contnt": "x", "content": "y"},
            r"messages\[0\] has no 'contnt' \(did you mean 'content'\?\)",
        ),
        ({"role": "user", "content": "y", "tool_call": []}, "did you mean 'tool_calls'"),
        ({"role": "assistant", "tool_calls": "x"}, r"messages\[0\]\.tool_calls must be a list of tool calls"),
        ({"role": "assistant", "tool_calls": [{"id": "x"}]}, r"messages\[0\]\.tool_calls\[0\] must be a call such as"),
        (
            {"role": "assistant", "tool_calls": [call("x", arguments=[1])]},
            "arguments must be an object or its JSON text",
        ),
    ],
)
def test_malformed_messages_are_named(message: Said, said: str) -> None:
    with pytest.raises(ConversationError, match=said):
        rendered(CHATML, [message])


def test_a_field_that_the_template_reads_is_taken() -> None:
    source = "{% for m in messages %}{{ m.content + m.mood }}{% endfor %}"
    assert rendered(source, [{"role": "user", "content": "Hello", "mood": "!"}]) == "Hello!"


# ---------------------------------------------------------------- capabilities


def test_capabilities_of_known_templates(test_data: Path) -> None:
    sources = template_sources(test_data)

    def of(name: str, tools: bool = True) -> TemplateCapabilities:
        asked = Conversation([HELLO], TOOLS["two tools"] if tools else None)
        return ChatTemplate({"default": sources[name]}, SPECIAL).capabilities(asked)

    assert not of("meta-llama-Llama-3.1-8B-Instruct").parallel_calls
    assert of("Qwen-Qwen3-0.6B").parallel_calls
    assert not of("Qwen-Qwen3-0.6B").null_content
    assert of("openai-gpt-oss-120b").developer
    assert of("openai-gpt-oss-120b").reasoning_key == "thinking"
    assert of("mistralai-Mistral-Nemo-Instruct-2407").call_ids == "short"
    assert not of("google-gemma-2-2b-it", tools=False).system
    assert not of("google-gemma-2-2b-it", tools=False).consecutive
    assert of("Qwen3.5-4B").arguments == ("mapping",)
    assert of("GLM-4.6").content_parts == ("system", "user", "assistant")
    assert of("microsoft-Phi-3.5-mini-instruct").to_json()["tools"] is False


# ---------------------------------------------------------------- JSON that was cut off


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1', {"a": 1}),
        ('{"a": "x', {"a": "x"}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "x\\u00', {"a": "x"}),
        ('{"a": {"b": [1, 2', {"a": {"b": [1, 2]}}),
        ('{"a": 1, "b', {"a": 1}),
        ('{"a": 1, "b":', {"a": 1}),
        ('{"a": 1, "b": tr', {"a": 1}),
        ("{", {}),
        ('{"a": "}"}', {"a": "}"}),
        ("nonsense", None),
        ("", None),
    ],
)
def test_json_that_was_cut_off(text: str, value: Any) -> None:
    assert completed_json(text) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=3), st.floats(0, 1), st.booleans())
def test_any_beginning_of_an_object_is_completed_to_an_object(
    value: Mapping[str, Any], cut: float, ascii_only: bool
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    read = completed_json(text[: max(1, round(cut * len(text)))])
    assert isinstance(read, dict)
    assert read.keys() <= {*value, *read.keys()}
