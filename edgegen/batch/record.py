"""The output line of a batch for one input line: an answer or an error, in edgegen's own format or in OpenAI's.

OpenAI's is that of https://platform.openai.com/docs/api-reference/batch (the request output object), around the objects
of its chat completions and completions.
"""

import json
from dataclasses import dataclass
from typing import Any

from edgegen.batch.input import InputLine
from edgegen.batch.line import BatchLine
from edgegen.errors import PromptTooLongError, UsageError, one_or_list
from edgegen.generation.result_json import answer_record
from edgegen.generation.results import GenerationResult
from edgegen.openai.answer import chat_completion, text_completion, usage


@dataclass(frozen=True, slots=True)
class Entry:
    """A line's place in the output.

    Attributes:
        digest: of the line that is answered.
        record: a JSON object, UTF-8, without the end of the line.
        tokens: how many were generated.
    """

    digest: str
    record: bytes
    failed: bool
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class RecordWriter:
    """Knows what is the same in all answers: what the model is called, and when the batch was begun."""

    model: str
    created: int

    def answer(self, line: InputLine, asked: BatchLine, result: GenerationResult) -> Entry:
        tokens = sum(len(choice.token_ids) for choice in result.choices)
        if asked.form == "own":
            record = {"line": line.number, **asked.names, **answer_record(result)}
            if len(result.choices) > 1:
                record["choices"] = [answer_record(choice) for choice in result.choices]
        else:
            completion = chat_completion(result) if asked.form == "chat" else text_completion(result)
            kind = "chatcmpl" if asked.form == "chat" else "cmpl"
            body = {
                "id": f"{kind}-{line.digest}",
                "object": completion["object"],
                "created": self.created,
                "model": self.model,
                "choices": completion["choices"],
                "usage": usage(result, tokens),
            }
            record = _response(line, asked, 200, body)
        return Entry(line.digest, _encoded(record), False, tokens)

    def problems(self, line: InputLine, asked: BatchLine) -> Entry:
        """For a line that cannot be answered, by what ``asked`` says of it."""
        code = "invalid_json" if asked.form == "none" else "invalid_request"
        return self._failure(line, asked, code, one_or_list(asked.problems))

    def error(self, line: InputLine, asked: BatchLine, error: BaseException) -> Entry:
        """For a line that could not be answered."""
        if isinstance(error, PromptTooLongError):
            code = "context_length_exceeded"
        else:
            code = "invalid_request" if isinstance(error, UsageError) else "server_error"
        return self._failure(line, asked, code, str(error) or type(error).__name__)

    def _failure(self, line: InputLine, asked: BatchLine, code: str, said: str) -> Entry:
        error = {"code": code, "message": f"line {line.number}: {said}"}
        if asked.form == "own":
            record = {"line": line.number, **asked.names, "error": error}
        elif asked.form == "none":
            record = {
                "line": line.number,
                "id": f"batch_req_{line.digest}",
                "custom_id": None,
                "response": None,
                "error": error,
            }
        else:
            ours = code == "server_error"
            kind = "server_error" if ours else "invalid_request_error"
            special = code if code == "context_length_exceeded" else None
            body = {"error": {"message": error["message"], "type": kind, "param": None, "code": special}}
            record = _response(line, asked, 500 if ours else 400, body)
        return Entry(line.digest, _encoded(record), True)


def _response(line: InputLine, asked: BatchLine, status: int, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"batch_req_{line.digest}",
        "custom_id": asked.names.get("custom_id"),
        "response": {"status_code": status, "request_id": line.digest, "body": body},
        "error": None,
    }


def _encoded(record: dict[str, Any]) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a character, out of a name or a problem: JSON's escapes can say it
        return json.dumps(record).encode()
