"""ReasoningMarkers: the texts between which the models of a template family think aloud."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """Texts that begin and end the thoughts of a model.

    Attributes:
        again: thoughts may begin anywhere in an answer, not only before all else.
        sign: a text that a template with these markers has; the empty one: one of the markers.
        cut: what ends thoughts that must end now; empty where that is ``closing`` between line breaks.
    """

    opening: str
    closing: str
    again: bool = False
    sign: str = ""
    cut: str = ""

    @property
    def forced_end(self) -> str:
        """The text that ends thoughts which have reached their limit."""
        return self.cut or f"\n{self.closing}\n\n"

    def left_open(self, prompt_end: str) -> bool:
        """Whether a prompt that ends with this text has begun the thoughts already."""
        before, opening, after = prompt_end.rpartition(self.opening)
        return bool(opening) and not after.strip() and not before.endswith("`")

    def stand_in(self, template: str) -> bool:
        """Whether these are the markers of a template."""
        if self.sign:
            return self.sign in template
        return self.opening in template or self.closing in template


_KNOWN = (
    ReasoningMarkers(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        again=True,
        sign="<|channel|>analysis",
        cut="<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    ReasoningMarkers(
        "<|think|>",
        "<|end|>",
        again=True,
        sign="<|begin|>assistant<|think|>",
        cut="<|end|><|begin|>assistant<|content|>",
    ),
    ReasoningMarkers("<|channel>thought", "<channel|>", again=True, cut="<channel|>"),
    ReasoningMarkers("<|inner_prefix|>", "<|inner_suffix|>", again=True, cut="<|inner_suffix|>"),
    ReasoningMarkers("<|START_THINKING|>", "<|END_THINKING|>", again=True, cut="<|END_THINKING|>"),
    ReasoningMarkers("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    ReasoningMarkers("<seed:think>", "</seed:think>"),
    ReasoningMarkers("[THINK]", "[/THINK]"),
    ReasoningMarkers("<think>", "</think>"),
)


def reasoning_markers(template: str) -> ReasoningMarkers | None:
    """Return the markers that a template has; None for a model that does not reason."""
    return next((known for known in _KNOWN if known.stand_in(template)), None)
