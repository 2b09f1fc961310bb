"""FillPrompt: a prompt for the text between a prefix and a suffix, which the model's tokens write (FIM)."""

from dataclasses import dataclass

from edgegen.errors import UsageError
from edgegen.generation.fill import fill_prompt
from edgegen.llm import LLM
from edgegen.server.http.api_error import ApiError


@dataclass(frozen=True, slots=True)
class FillPrompt:
    """A text between a prefix and a suffix."""

    prefix: str
    suffix: str

    def resolve(self, llm: LLM) -> list[int]:
        try:
            return fill_prompt(llm.tokenizer, self.prefix, self.suffix)
        except UsageError as error:
            raise ApiError(400, f"suffix: {error}", param="suffix") from None
