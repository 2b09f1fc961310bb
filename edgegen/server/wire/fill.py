"""FillPrompt: a prompt for the text between a prefix and a suffix, which the model's tokens write (FIM)."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgegen.errors import UsageError
from edgegen.generation.fill import fill_prompt
from edgegen.llm import LLM
from edgegen.server.http.api_error import ApiError


@dataclass(frozen=True, slots=True)
class FillPrompt:
    """A text between a prefix and a suffix, after other files.

    Attributes:
        extra: name and text of each file.
        param: the parameter without which nothing would be filled in; None where the whole request is for it.
    """

    prefix: str
    suffix: str
    extra: Sequence[tuple[str, str]] = ()
    param: str | None = "suffix"

    def resolve(self, llm: LLM) -> list[int]:
        try:
            return fill_prompt(llm.tokenizer, self.prefix, self.suffix, self.extra)
        except UsageError as error:
            if self.param is None:
                raise ApiError(400, f"{error}", code="not_supported") from None
            raise ApiError(400, f"{self.param}: {error}", param=self.param) from None
