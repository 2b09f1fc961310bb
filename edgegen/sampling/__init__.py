"""Sampling: logits processors, composed by a pipeline, and the sampler that chooses the next token."""

from edgegen.options.sampling import LogitsSettings
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.pipeline import LogitsPipeline
from edgegen.sampling.processor import LogitsContext, LogitsProcessor
from edgegen.sampling.processors.distribution import log_softmax

__all__ = ["Candidates", "LogitsContext", "LogitsPipeline", "LogitsProcessor", "LogitsSettings", "log_softmax"]
