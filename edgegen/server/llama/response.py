"""llama-server's answers to ``/completion`` and ``/infill``: whole, or as events, with timings in milliseconds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from edgegen.generation.cancellation import CancelToken
from edgegen.generation.results import GenerationChunk, GenerationResult, PromptProgress
from edgegen.llm import LLM
from edgegen.openai.answer import bounded
from edgegen.options.generation import GenerationOptions
from edgegen.sampling.logprobs import TokenLogprob
from edgegen.server.wire.llama_fields import RunningTimings, generation_settings, prompt_progress, result_timings
from edgegen.server.wire.wire import ChatPrompt, Event, PromptInfo, ResponseWriter, WireRequest

_BY_TEXT = ("stop_strings", "stop_regex")
"""Options whose match ends an answer as a stop word does."""


class LlamaWriter(ResponseWriter):
    """Writes answers by prompt; the last event of a stream, or the body, has everything of one."""

    def __init__(self, model: str, asked: WireRequest) -> None:
        self._model = model
        self._asked = asked
        self._body = asked.settings.body
        self._reads_only = 0 in (self._body.get("n_predict"), self._body.get("max_tokens"))
        self._prompts = list[str]()
        self._settings: dict[str, Any] = {}
        self._running = [RunningTimings(asked.begin) for _ in asked.prompts]
        self._prompt_tokens = 0

    def prepare(self, llm: LLM, options: GenerationOptions, cancel: CancelToken) -> None:
        self._settings = generation_settings(options) | {"stream": self._asked.stream}
        if self._reads_only:
            self._settings |= {"n_predict": 0, "max_tokens": 0}
        for prompt in self._asked.prompts:
            assert not isinstance(prompt, ChatPrompt), "these prompts are texts"
            found = prompt if isinstance(prompt, str | list) else prompt.resolve(llm)
            assert not isinstance(found, ChatPrompt)
            self._prompts.append(found if isinstance(found, str) else llm.decode(found, skip_special_tokens=False))

    def begin(self, facts: PromptInfo) -> list[Event]:
        self._prompt_tokens = facts.prompt_tokens
        for running in self._running:
            running.prompt_tokens = facts.prompt_tokens
        return []

    def chunk(self, piece: GenerationChunk, prompt: int) -> list[Event]:
        running = self._running[prompt]
        running.add(len(piece.token_ids))
        if self._reads_only or not (piece.text or piece.token_ids):
            return []
        fields: dict[str, Any] = {
            "index": prompt,
            "content": piece.text,
            "tokens": [*piece.token_ids],
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": running.tokens,
            "tokens_evaluated": self._prompt_tokens,
        }
        if self._body.get("timings_per_token"):
            fields["timings"] = running.told()
        return [Event.of(fields | _probabilities(piece.logprobs))]

    def progress(self, told: PromptProgress, prompt: int) -> list[Event]:
        piece = {"index": prompt, "content": "", "tokens": list[int](), "stop": False, "id_slot": -1}
        counts = {"tokens_predicted": 0, "tokens_evaluated": self._prompt_tokens}
        return [Event.of({**piece, **counts, "prompt_progress": prompt_progress(told)})]

    def end(self, results: Sequence[GenerationResult]) -> list[Event]:
        return [Event.of(self._cut(self._last(at, result, ""))) for at, result in enumerate(results)]

    def body(self, results: Sequence[GenerationResult]) -> Any:
        made = [self._cut(self._whole(at, result)) for at, result in enumerate(results)]
        return made if len(made) > 1 else made[0]

    def _whole(self, at: int, result: GenerationResult) -> dict[str, Any]:
        if self._reads_only:
            return self._last(at, result, "")
        ids = [*result.token_ids] if self._body.get("return_tokens") else []
        return self._last(at, result, result.text, ids) | _probabilities(result.logprobs)

    def _last(self, at: int, result: GenerationResult, text: str, ids: Iterable[int] = ()) -> dict[str, Any]:
        kind, word = "eos", ""
        if result.finish_reason == "length" or result.finish_reason not in ("stop", "tool_calls"):
            kind = "limit"
        elif result.stopped_by in _BY_TEXT:
            kind, word = "word", str(result.matched)
        count = 0 if self._reads_only else len(result.token_ids)
        times = result_timings(result)
        return {
            "index": at,
            "content": text,
            "tokens": [*ids],
            "id_slot": -1,
            "stop": True,
            "model": self._model,
            "tokens_predicted": count,
            "tokens_evaluated": result.timings.prompt_tokens,
            "generation_settings": self._settings,
            "prompt": self._prompts[at],
            "has_new_line": "\n" in result.text and not self._reads_only,
            "truncated": False,
            "stop_type": "limit" if self._reads_only else kind,
            "stopping_word": word,
            "tokens_cached": result.timings.cached_tokens,
            "timings": times | {"predicted_n": count},
        }

    def _cut(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields that ``response_fields`` name, each under its path."""
        paths: list[str] | None = self._body.get("response_fields")
        if not paths:
            return fields
        chosen = dict[str, Any]()
        for path in paths:
            value: Any = fields
            for name in path.split("/"):
                value = cast(Mapping[str, Any], value).get(name) if isinstance(value, Mapping) else None
            if value is not None:
                chosen[path] = value
        return chosen


def _probabilities(entries: Sequence[TokenLogprob]) -> dict[str, Any]:
    if not entries:
        return {}
    told = [_spelled(one) | {"top_logprobs": [_spelled(top) for top in one.top_logprobs]} for one in entries]
    return {"completion_probabilities": told}


def _spelled(entry: TokenLogprob) -> dict[str, Any]:
    return {
        "id": entry.token_id,
        "token": entry.token,
        "bytes": [*entry.utf8],
        "logprob": bounded(entry.logprob),
    }
