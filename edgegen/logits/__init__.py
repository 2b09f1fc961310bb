"""From a model's logits to the tokens that may come next: one processor per idea, composed by a pipeline."""

from edgegen.logits.candidates import Candidates
from edgegen.logits.pipeline import LogitsPipeline
from edgegen.logits.processor import LogitsContext, LogitsProcessor
from edgegen.logits.repetition_penalty import RepetitionPenalty
from edgegen.logits.temperature import Temperature
from edgegen.logits.top_k import TopK
from edgegen.logits.top_p import TopP

__all__ = [
    "Candidates",
    "LogitsContext",
    "LogitsPipeline",
    "LogitsProcessor",
    "RepetitionPenalty",
    "Temperature",
    "TopK",
    "TopP",
]
