"""llama-server's requests: what parameters of ``/completion`` and ``/infill``, which fit their schemas, ask for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from edgegen.errors import refuse_any
from edgegen.llm import LLM
from edgegen.server.http.api_error import ApiError
from edgegen.server.llama.options import RENAMED, read_options
from edgegen.server.llama.schema import COMPLETION_REQUEST, INFILL_REQUEST
from edgegen.server.wire.fill import FillPrompt
from edgegen.server.wire.request_settings import RequestSettings
from edgegen.server.wire.wire import ModelPrompt, WireRequest

Prompt = str | list[int] | ModelPrompt


def read_completion(body: Mapping[str, Any]) -> WireRequest:
    """The request to continue one prompt or several.

    Raises:
        ApiError: lists everything that is wrong with the body.
    """
    given = COMPLETION_REQUEST.read(body)
    return _wire_request(_prompts(given["prompt"]), given)


def read_infill(body: Mapping[str, Any]) -> WireRequest:
    """The request to fill in what stands between ``input_prefix`` and ``input_suffix``.

    Raises:
        ApiError: lists everything that is wrong with the body.
    """
    given = INFILL_REQUEST.read(body)
    files = cast(list[dict[str, str]], given.get("input_extra", []))
    extra = [(one.get("filename") or "tmp", one["text"]) for one in files]
    prefix = given.get("input_prefix", "") + given.get("prompt", "")
    return _wire_request((FillPrompt(prefix, given.get("input_suffix", ""), extra, param=None),), given)


def _prompts(given: Any) -> tuple[Prompt, ...]:
    """A list is one prompt where a token id is in it, and else a list of prompts."""
    if isinstance(given, str):
        return (given,)
    items = cast(list[Any], given)
    if any(isinstance(one, int) for one in items):
        return (_prompt(items),)
    return tuple(one if isinstance(one, str) else _prompt(one) for one in items)


def _prompt(items: list[Any]) -> Prompt:
    return cast(list[int], items) if all(isinstance(one, int) for one in items) else MixedPrompt(items)


def _wire_request(prompts: tuple[Prompt, ...], params: Mapping[str, Any]) -> WireRequest:
    problems = list[str]()
    values = read_options(params, problems)
    settings = RequestSettings(values, params, RENAMED)
    refuse_any(problems, settings.error)
    settings.check_limits()
    return WireRequest(
        prompts, settings, params.get("stream", False), reports_progress=params.get("return_progress", False)
    )


@dataclass(frozen=True, slots=True)
class MixedPrompt:
    """Texts and token ids, one after the other; a text at the begin has the tokens that the model puts before one."""

    parts: Sequence[str | int]

    def resolve(self, llm: LLM) -> list[int]:
        tokenizer, ids = llm.tokenizer, list[int]()
        if tokenizer is None:
            raise ApiError(400, "prompt: this model has no tokenizer: give token ids only.", param="prompt")
        for at, part in enumerate(self.parts):
            if isinstance(part, int):
                ids.append(part)
            elif part:
                ids += tokenizer.encode(part, add_special_tokens=at == 0)
        return ids
