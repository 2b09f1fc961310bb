"""A model that says what a test wants, with a chat template that has tools and thoughts."""

from pathlib import Path
from typing import Any, Literal

from edgegen.llm import LLM
from tests.runtime.models import EOS, FakeGraphs, fake_llm

TEMPLATE = (
    "{% for t in tools or [] %}{{ t | tojson }}<tool_call>\n{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}\n"
    "{% endfor %}<assistant>"
)
THINKING = TEMPLATE + "{{ '<think>\\n' }}"
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "Weather?"}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def get_weather(city: str, unit: Literal["C", "F"] = "C") -> str:
    """The weather of a city.

    Args:
        city: its name
    """
    return f"rain in {city}, in {unit}"


class Saying(FakeGraphs):
    """Says ``answer`` after the prompt's last ``assistant>`` (and ``<think>``), then ends; keeps the prompts."""

    def __init__(self, answer: str) -> None:
        super().__init__(self._next)
        self.answer = answer.encode()
        self.prompt = ""

    def _next(self, ids: list[int]) -> int:
        text = bytes(token if token < 256 else 0 for token in ids)
        ends = (b"<assistant>", b"<assistant><think>\n", b"\nAssistant:", b"<|start|>assistant")
        begun = max((at + len(end) for end in ends if (at := text.rfind(end)) >= 0), default=len(text))
        said = text[begun:]
        if not said:
            self.prompt = text.decode("utf-8", "replace")
        return self.answer[len(said)] if len(said) < len(self.answer) else EOS


def saying(
    folder: Path, answer: str, template: str | None = TEMPLATE, *, max_context: int = 2048
) -> tuple[LLM, Saying]:
    graphs = Saying(answer)
    config = {"eos_token_id": EOS}
    return fake_llm(folder, graphs, config=config, template=template, max_context=max_context), graphs
