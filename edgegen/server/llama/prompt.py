"""Prompts of llama-server's requests that depend on the model: texts beside token ids, and what is to be filled in."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgegen.errors import UsageError
from edgegen.generation.fill import fill_prompt
from edgegen.llm import LLM
from edgegen.server.http.api_error import ApiError


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


@dataclass(frozen=True, slots=True)
class InfillPrompt:
    """A text between a prefix and a suffix, after other files.

    Attributes:
        extra: name and text of each file.
    """

    prefix: str
    suffix: str
    extra: Sequence[tuple[str, str]] = ()

    def resolve(self, llm: LLM) -> list[int]:
        try:
            return fill_prompt(llm.tokenizer, self.prefix, self.suffix, self.extra)
        except UsageError as error:
            raise ApiError(400, f"{error}", code="not_supported") from None
