"""Records that a batch writes for a line, compared with objects written by hand after OpenAI's documentation."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgegen.batch.input import InputLine
from edgegen.batch.line import BatchLine, parse_line
from edgegen.batch.record import RecordWriter
from edgegen.errors import LogitsError, OptionError, PromptTooLongError
from edgegen.generation.results import GenerationResult, Timings
from edgegen.options.generation import GenerationOptions
from edgegen.sampling.logprobs import TokenLogprob

WRITER = RecordWriter("model", 1724858089)
REQUEST = {"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions"}
CHAT = REQUEST | {"body": {"messages": [{"role": "user", "content": "What is 2+2?"}]}}
COMPLETION = REQUEST | {"url": "/v1/completions", "body": {"prompt": "2 + 2"}}
OTHER = TokenLogprob(8, " four", float("-inf"), is_best=False)
LOGPROBS = (
    TokenLogprob(5, "2 +", -0.25, is_best=True, top_logprobs=(TokenLogprob(5, "2 +", -0.25, is_best=True),)),
    TokenLogprob(7, " é", -0.5, is_best=True, top_logprobs=(TokenLogprob(7, " é", -0.5, is_best=True), OTHER)),
)
RESULT = GenerationResult(
    text="2 + 2 equals 4.",
    token_ids=(5, 7),
    finish_reason="stop",
    matched=0,
    stopped_by="eos_token_id",
    seed=3,
    timings=Timings(24, 0.1, 1, 0.1),
)


def asked(content: Any) -> tuple[InputLine, BatchLine]:
    line = InputLine(9, 0, json.dumps(content).encode())
    return line, parse_line(line, GenerationOptions())


def answer(content: Any, result: GenerationResult = RESULT) -> Any:
    entry = WRITER.answer(*asked(content), result)
    assert not entry.failed
    assert entry.tokens == sum(len(choice.token_ids) for choice in result.choices)
    return json.loads(entry.record)


class TestOpenAI:
    def test_a_chat_completion(self) -> None:
        """As in the documentation, where ids are random and the model has a fingerprint."""
        digest = asked(CHAT)[0].digest
        assert answer(CHAT) == {
            "id": f"batch_req_{digest}",
            "custom_id": "request-1",
            "response": {
                "status_code": 200,
                "request_id": digest,
                "body": {
                    "id": f"chatcmpl-{digest}",
                    "object": "chat.completion",
                    "created": 1724858089,
                    "model": "model",
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", "content": "2 + 2 equals 4.", "refusal": None},
                            "logprobs": None,
                            "finish_reason": "stop",
                        }
                    ],
                    "usage": {"prompt_tokens": 24, "completion_tokens": 2, "total_tokens": 26},
                },
            },
            "error": None,
        }

    def test_a_completion(self) -> None:
        digest = asked(COMPLETION)[0].digest
        assert answer(COMPLETION)["response"]["body"] == {
            "id": f"cmpl-{digest}",
            "object": "text_completion",
            "created": 1724858089,
            "model": "model",
            "choices": [{"text": "2 + 2 equals 4.", "index": 0, "logprobs": None, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 24, "completion_tokens": 2, "total_tokens": 26},
        }

    def test_several_answers(self) -> None:
        body = answer(CHAT, replace(RESULT, others=(replace(RESULT, text="4", finish_reason="time"),)))
        choices = body["response"]["body"]["choices"]
        assert [choice["index"] for choice in choices] == [0, 1]
        assert [choice["finish_reason"] for choice in choices] == ["stop", "length"]
        assert body["response"]["body"]["usage"]["completion_tokens"] == 4

    def test_log_probabilities_of_a_chat(self) -> None:
        body = answer(CHAT, replace(RESULT, logprobs=LOGPROBS))["response"]["body"]
        second = {"token": " é", "logprob": -0.5, "bytes": [32, 195, 169]}
        assert body["choices"][0]["logprobs"] == {
            "content": [
                {
                    "token": "2 +",
                    "logprob": -0.25,
                    "bytes": [50, 32, 43],
                    "top_logprobs": [{"token": "2 +", "logprob": -0.25, "bytes": [50, 32, 43]}],
                },
                second | {"top_logprobs": [second, {"token": " four", "logprob": -9999.0, "bytes": [*b" four"]}]},
            ],
            "refusal": None,
        }

    def test_log_probabilities_of_a_completion(self) -> None:
        body = answer(COMPLETION, replace(RESULT, logprobs=LOGPROBS))["response"]["body"]
        assert body["choices"][0]["logprobs"] == {
            "tokens": ["2 +", " é"],
            "token_logprobs": [-0.25, -0.5],
            "top_logprobs": [{"2 +": -0.25}, {" é": -0.5, " four": -9999.0}],
            "text_offset": [0, 3],
        }

    @pytest.mark.parametrize(
        ("error", "status", "kind", "code"),
        [
            (PromptTooLongError("too long."), 400, "invalid_request_error", "context_length_exceeded"),
            (OptionError("too much."), 400, "invalid_request_error", None),
            (LogitsError("all NaN."), 500, "server_error", None),
            (MemoryError(), 500, "server_error", None),
        ],
    )
    def test_errors(self, error: Exception, status: int, kind: str, code: str | None) -> None:
        entry = WRITER.error(*asked(CHAT), error)
        record = json.loads(entry.record)
        assert entry.failed
        assert (record["custom_id"], record["error"]) == ("request-1", None)
        assert record["response"]["status_code"] == status
        said = str(error) or "MemoryError"
        expected = {"message": f"line 9: {said}", "type": kind, "param": None, "code": code}
        assert record["response"]["body"] == {"error": expected}

    def test_bodies_are_as_openai_describes_them(self, test_data: Path) -> None:
        """Against the published description of the API."""
        jsonschema: Any = pytest.importorskip("jsonschema", reason="the check needs jsonschema")
        yaml: Any = pytest.importorskip("yaml", reason="the check needs PyYAML")
        text = (test_data / "suites" / "openai-openapi" / "openapi.yaml").read_text("utf-8")
        spec = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        results = [RESULT, replace(RESULT, logprobs=LOGPROBS, others=(RESULT,))]
        kinds = {"CreateChatCompletionResponse": CHAT, "CreateCompletionResponse": COMPLETION}
        for name, content in kinds.items():
            schema = {"$ref": f"#/components/schemas/{name}", "components": spec["components"]}
            for result in results:
                body = answer(content, result)["response"]["body"]
                errors = jsonschema.Draft202012Validator(schema).iter_errors(body)
                assert [error.message for error in errors] == []


class TestOwnFormat:
    def test_an_answer(self) -> None:
        assert answer({"prompt": "2 + 2", "id": 4}) == {
            "line": 9,
            "id": 4,
            "text": "2 + 2 equals 4.",
            "token_ids": [5, 7],
            "finish_reason": "stop",
            "stopped_by": "eos_token_id",
            "matched": 0,
            "seed": 3,
        }

    def test_what_was_asked_for_beside_it(self) -> None:
        found = answer({"prompt": "a"}, replace(RESULT, logprobs=LOGPROBS, score=-0.5, others=(RESULT,)))
        assert [choice["text"] for choice in found["choices"]] == [RESULT.text] * 2
        assert found["score"] == -0.5
        assert found["logprobs"][1]["top_logprobs"][1] == {"token": " four", "token_id": 8, "logprob": None}

    def test_faults(self) -> None:
        entry = WRITER.problems(*asked({"prompt": "a", "custom_id": "c", "top_p": 2, "min_p": 2}))
        assert entry.failed
        assert json.loads(entry.record) == {
            "line": 9,
            "custom_id": "c",
            "error": {
                "code": "invalid_request",
                "message": "line 9: 2 problems:\n  - top_p: must be between 0 and 1, found 2\n"
                "  - min_p: must be between 0 and 1, found 2",
            },
        }

    def test_what_is_no_object_is_answered_for_readers_of_either_format(self) -> None:
        line, found = asked(5)
        assert json.loads(WRITER.problems(line, found).record) == {
            "line": 9,
            "id": f"batch_req_{line.digest}",
            "custom_id": None,
            "response": None,
            "error": {"code": "invalid_json", "message": "line 9: a JSON object expected, found 5"},
        }

    def test_half_a_character_is_written_as_an_escape(self) -> None:
        entry = WRITER.problems(*asked({"prompt": "é", "id": "\ud800"}))
        assert b"\\ud800" in entry.record
        entry.record.decode()
