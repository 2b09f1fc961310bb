"""ReasoningMarkers: the texts between which the models of a template family think aloud."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """What begins and what ends the thoughts of a model."""

    opening: str
    closing: str

    def left_open(self, prompt_end: str) -> bool:
        """Whether a prompt that ends with this text has begun the thoughts already."""
        before, opening, after = prompt_end.rpartition(self.opening)
        return bool(opening) and not after.strip() and not before.endswith("`")


_KNOWN = (
    ReasoningMarkers("<think>", "</think>"),
    ReasoningMarkers("<seed:think>", "</seed:think>"),
    ReasoningMarkers("[THINK]", "[/THINK]"),
    ReasoningMarkers("<|START_THINKING|>", "<|END_THINKING|>"),
)


def reasoning_markers(template: str) -> ReasoningMarkers | None:
    """Those that a template has; None for a model that does not think aloud."""
    return next((known for known in _KNOWN if known.opening in template or known.closing in template), None)
