"""One line of a batch: what it asks for, in edgegen's own format and in OpenAI's, and everything that can be wrong."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.batch.input import LONGEST_LINE, InputLine, read_lines
from edgegen.batch.line import BatchLine, parse_line
from edgegen.chat import Conversation
from edgegen.options.generation import GenerationOptions

DEFAULTS = GenerationOptions(max_new_tokens=7)
CHAT = [{"role": "user", "content": "Hello"}]

# The request input object of OpenAI's API reference, word for word.
REFERENCE = (
    '{"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt-4o-mini", '
    '"messages": [{"role": "system", "content": "You are a helpful assistant."}, '
    '{"role": "user", "content": "What is 2+2?"}]}}'
)

texts = st.text("a1-. é\ud800", max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    [
        *(name for name in GenerationOptions.__dataclass_fields__),
        *("prompt", "messages", "id", "custom_id", "url", "body", "method", "n", "stop", "max_tokens", "stream"),
    ]
)


def parse(content: Any, defaults: GenerationOptions = DEFAULTS) -> BatchLine:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return parse_line(InputLine(1, 0, data), defaults)


def request(url: str = "/v1/completions", **body: Any) -> dict[str, Any]:
    return {"custom_id": "a", "method": "POST", "url": url, "body": body}


class TestOwnFormat:
    def test_a_prompt_with_options_beside_it(self) -> None:
        found = parse({"prompt": "Once", "temperature": 0.5, "stop_strings": ["."], "id": 3, "custom_id": "c"})
        assert found.problems == ()
        assert (found.form, found.prompt) == ("own", "Once")
        assert found.names == {"id": 3, "custom_id": "c"}
        assert found.options == DEFAULTS.override({"temperature": 0.5, "stop_strings": ["."]})

    def test_ids_are_a_prompt_too(self) -> None:
        assert parse({"prompt": [1, 2]}).prompt == [1, 2]
        assert parse({"prompt": [1, True]}).problems == (
            "prompt: one text or one list of token ids expected, found [1, True]",
        )

    def test_messages_are_a_conversation(self) -> None:
        assert parse({"messages": CHAT}).prompt == Conversation(CHAT)

    def test_null_is_as_if_left_out(self) -> None:
        found = parse({"prompt": "a", "temperature": None, "id": None})
        assert (found.options, found.names, found.problems) == (DEFAULTS, {}, ())

    def test_options_that_json_cannot_write_as_they_are(self) -> None:
        found = parse({"prompt": "a", "logit_bias": {"5": "-inf", "7": 1.5}, "sequence_bias": [[[1, 2], "-inf"]]})
        assert found.problems == ()
        assert found.options.logit_bias == {5: float("-inf"), 7: 1.5}
        assert found.options.sequence_bias == {(1, 2): float("-inf")}

    def test_options_in_effect_can_be_given_back(self) -> None:
        options = GenerationOptions(temperature=0.5, logit_bias={5: float("-inf")}, sequence_bias={(1, 2): -1.0})
        found = parse({"prompt": "a", **options.to_json()})
        assert (found.problems, found.options) == ((), options)

    def test_the_form_of_a_line_takes_the_place_of_everyones(self) -> None:
        defaults = DEFAULTS.override({"grammar": "start: /a+/"})
        found = parse({"prompt": "a", "response_format": {"type": "json_object"}}, defaults)
        assert found.problems == ()
        assert (found.options.grammar, found.options.response_format) == (None, {"type": "json_object"})
        assert parse({"prompt": "a"}, defaults).options == defaults

    @pytest.mark.parametrize(
        ("content", "problems"),
        [
            (b"{", ["not JSON: Expecting property name enclosed in double quotes at character 2"]),
            (b"[1]", ["a JSON object expected, found [1]"]),
            (b'{"prompt": "\xff"}', ["not UTF-8 text: byte 12 is 0xff"]),
            (b'{"prompt": ' + b"[" * 100_000, ["too many brackets in one another"]),
            (b'{"prompt": ' + b"1" * 5000 + b"}", ["not JSON: Exceeds the limit"]),
            ({"promt": "a"}, ["no prompt or messages (is 'promt' meant to be it?)", "'promt' is not an option"]),
            ({"prompt": "a", "messages": CHAT}, ["prompt and messages cannot both be answered: keep one of them"]),
            ({"prompt": 5}, ["prompt: one text or one list of token ids expected, found 5"]),
            ({"messages": []}, ["messages is empty: give a list of messages"]),
            ({"prompt": "a", "n": 2}, ["n: several answers are num_return_sequences here"]),
            (
                {"prompt": "a", "temprature": 1, "top_p": 2, "min_p": -1, "id": []},
                [
                    "id: a text or a number expected, found []",
                    "'temprature' is not an option (did you mean 'temperature'?)",
                    "top_p: must be between 0 and 1, found 2",
                    "min_p: must be between 0 and 1, found -1",
                ],
            ),
            (
                {"messages": [{"role": "usr"}, {"content": "a"}], "top_k": "x"},
                ["messages[0] has no content", "messages[1] has no role", "top_k: int expected, found 'x'"],
            ),
        ],
    )
    def test_faults_come_all_at_once(self, content: Any, problems: list[str]) -> None:
        found = parse(content).problems
        assert len(found) == len(problems), found
        for problem, expected in zip(found, problems, strict=True):
            assert problem.startswith(expected)

    def test_a_line_that_is_too_long(self) -> None:
        found = parse(b'{"prompt": "' + b"a" * LONGEST_LINE + b'"}')
        assert found.problems == (f"longer than {LONGEST_LINE} bytes, which is the most that a line may have",)


class TestOpenAIsFormat:
    def test_the_references_example(self) -> None:
        found = parse(REFERENCE.encode())
        assert found.problems == ()
        assert (found.form, found.names, found.options) == ("chat", {"custom_id": "request-1"}, DEFAULTS)
        assert isinstance(found.prompt, Conversation)
        assert [message["content"] for message in found.prompt.messages] == [
            "You are a helpful assistant.",
            "What is 2+2?",
        ]

    def test_what_is_wrong_is_told_in_its_words(self) -> None:
        body = {"prompt": "a", "max_tokens": 0, "n": "two", "stop": [""]}
        line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
        assert [problem.partition(":")[0] for problem in parse(line).problems] == ["max_tokens", "stop", "n"]

    def test_its_settings_are_options(self) -> None:
        body = {
            "max_completion_tokens": 5,
            "temperature": 0.5,
            "top_p": 0.9,
            "stop": "x",
            "n": 2,
            "logit_bias": {"5": -100},
            "seed": 4,
            "presence_penalty": 1,
            "user": "me",
            "stream": False,
            "tools": None,
            "top_k": 3,
        }
        found = parse(request("/v1/chat/completions", messages=CHAT, **body))
        assert found.problems == ()
        assert found.seeded
        assert found.options == DEFAULTS.override(
            {
                "max_new_tokens": 5,
                "temperature": 0.5,
                "top_p": 0.9,
                "stop_strings": "x",
                "num_return_sequences": 2,
                "logit_bias": {5: -100},
                "seed": 4,
                "presence_penalty": 1,
                "top_k": 3,
            }
        )

    @pytest.mark.parametrize(("value", "expected"), [(2, (True, 2)), (0, (True, 0)), (None, (False, 0))])
    def test_logprobs_of_a_completion_are_a_number(self, value: int | None, expected: tuple[bool, int]) -> None:
        found = parse(request(prompt="a", logprobs=value))
        assert (found.options.logprobs, found.options.top_logprobs) == expected

    @pytest.mark.parametrize(
        ("content", "problems"),
        [
            (
                {"custom_id": 5, "method": "GET", "url": "/v1/completion", "body": {}, "bdy": 1},
                [
                    "'bdy' is no key of a request (did you mean 'body'?)",
                    "custom_id: a text expected, found 5",
                    "method: 'POST' expected, found 'GET'",
                    "url: '/v1/chat/completions' or '/v1/completions' expected, found '/v1/completion' (did you mean",
                    "no prompt",
                ],
            ),
            (
                {"custom_id": "a", "method": "POST", "url": ["x"], "body": "a"},
                ["url: '/v1/chat/completions' or '/v1/completions' expected", "body: an object expected, found 'a'"],
            ),
            (
                request(prompt=["a", "b"], stream=True, max_tokens=0, best_of=3),
                [
                    "stream: True is not supported: leave it out",
                    "best_of: 3 is not supported: leave it out",
                    "prompt: one text or one list of token ids expected, found ['a', 'b']",
                    "max_tokens: must be at least 1, found 0",
                ],
            ),
            (
                request("/v1/chat/completions", prompt="a", max_tokens=1, max_completion_tokens=2),
                ["no messages", "max_tokens and max_completion_tokens would say the same: keep one of them"],
            ),
        ],
    )
    def test_faults_come_all_at_once(self, content: Any, problems: list[str]) -> None:
        found = parse(content).problems
        assert len(found) == len(problems), found
        for problem, expected in zip(found, problems, strict=True):
            assert problem.startswith(expected)


@given(st.dictionaries(names, json_values, max_size=5))
def test_whatever_is_json_is_read_or_has_a_fault(content: dict[str, Any]) -> None:
    found = parse(json.dumps(content).encode())
    assert found.problems or found.prompt is not None


@given(st.binary(max_size=40))
def test_whatever_bytes_are_read_or_have_a_fault(data: bytes) -> None:
    found = parse(data)
    assert found.problems or found.prompt is not None


class TestLines:
    @given(st.lists(st.sampled_from([b"a\n", b"\n", b"b\r\n", b" \t\n", "x\u2028y\n".encode(), b"\x0b\x0c\n"])))
    def test_each_that_is_not_blank_with_its_place(self, pieces: list[bytes]) -> None:
        found = [*read_lines(io.BytesIO(b"".join(pieces)))]
        expected = [(n, piece.rstrip(b"\r\n")) for n, piece in enumerate(pieces, 1) if piece.strip()]
        assert [(line.number, line.data) for line in found] == expected
        for line in found:
            file = io.BytesIO(b"".join(pieces))
            file.seek(line.start)
            assert next(read_lines(file, line.number - 1, line.start)) == line

    def test_the_last_needs_no_newline(self) -> None:
        whole, cut = [*read_lines(io.BytesIO(b"a\nb\n"))], [*read_lines(io.BytesIO(b"a\nb"))]
        assert whole == cut
        assert [line.digest for line in whole] == [line.digest for line in cut]

    def test_the_same_text_in_another_place_has_another_digest(self) -> None:
        assert len({line.digest for line in read_lines(io.BytesIO(b"a\na\n\na\n"))}) == 3

    @pytest.mark.parametrize("more", [0, 1, 2, 3, LONGEST_LINE, LONGEST_LINE + 2, LONGEST_LINE + 3])
    @pytest.mark.parametrize("end", [b"\n", b"\r\n"])
    def test_of_one_that_is_too_long_the_beginning_is_held(self, more: int, end: bytes) -> None:
        long = b"a" * (LONGEST_LINE + more)
        first, second = read_lines(io.BytesIO(long + end + b"b\n"))
        assert first.too_long == (more > 0)
        assert len(first.data) <= LONGEST_LINE + 2
        assert (second.number, second.start, second.data) == (2, len(long + end), b"b")


class TestThinking:
    def test_a_chat_has_the_parameters_of_chat_completions(self) -> None:
        found = parse(request("/v1/chat/completions", messages=CHAT, reasoning={"effort": "low", "max_tokens": 9}))
        assert found.problems == ()
        assert (found.options.reasoning_effort, found.options.max_thinking_tokens) == ("low", 9)
        found = parse(request("/v1/chat/completions", messages=CHAT, chat_template_kwargs={"enable_thinking": False}))
        assert found.problems == ()
        assert isinstance(found.prompt, Conversation)
        assert found.prompt.variables == {"enable_thinking": False}

    def test_an_own_line_has_the_options_by_their_names(self) -> None:
        found = parse({"messages": CHAT, "thinking": False, "chat_template_kwargs": {"x": 1}})
        assert (found.problems, found.options.thinking) == ((), False)
        assert isinstance(found.prompt, Conversation)
        assert found.prompt.variables == {"x": 1}

    def test_what_all_chats_are_told_is_not_for_prompts(self) -> None:
        defaults = DEFAULTS.override({"thinking": False, "max_thinking_tokens": 5})
        assert parse({"prompt": "Once"}, defaults).options == DEFAULTS
        assert parse({"messages": CHAT}, defaults).options == defaults

    def test_a_prompt_that_is_to_be_thought_about_is_refused(self) -> None:
        said = "thinking is for chats: give messages, or leave it out"
        assert parse({"prompt": "Once", "thinking": True}).problems == (said,)

    def test_variables_that_are_none(self) -> None:
        found = parse(request("/v1/chat/completions", messages=CHAT, chat_template_kwargs={"tools": [], "x": 1}))
        (problem,) = found.problems
        assert problem.startswith(
            "a key of chat_template_kwargs: 'tools' is not supported: it is not a variable of its own"
        )
