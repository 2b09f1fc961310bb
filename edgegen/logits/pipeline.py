"""Processors in a row."""

from collections.abc import Sequence
from typing import Self

from edgegen.logits.candidates import Candidates
from edgegen.logits.processor import LogitsContext, LogitsProcessor
from edgegen.logits.repetition_penalty import RepetitionPenalty
from edgegen.logits.temperature import Temperature
from edgegen.logits.top_k import TopK
from edgegen.logits.top_p import TopP


class LogitsPipeline:
    """Applies its processors one after the other; itself a processor."""

    def __init__(self, processors: Sequence[LogitsProcessor] = ()) -> None:
        self.processors = tuple(processors)

    @classmethod
    def compose(
        cls,
        *,
        repetition_penalty: float = 1.0,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> Self:
        """The processors these options ask for, in transformers' order; the defaults ask for none.

        Raises:
            OptionError: a value is out of its range.
        """
        processors: list[LogitsProcessor] = []
        if repetition_penalty != 1.0:
            processors.append(RepetitionPenalty(repetition_penalty))
        if temperature != 1.0:
            processors.append(Temperature(temperature))
        if top_k != 0:
            processors.append(TopK(top_k))
        if top_p != 1.0:
            processors.append(TopP(top_p))
        return cls(processors)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        """The candidates that are left, with the logits they got.

        Raises:
            EdgegenError: a logit is NaN or plus infinity, or all are minus infinity.
        """
        if self.processors:
            candidates.best()  # processors compare, and comparing would hide a NaN
        for process in self.processors:
            candidates = process(candidates, context)
        return candidates
