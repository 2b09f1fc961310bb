"""Sampling: logits processors, composed by a pipeline, and the sampler that chooses the next token."""

from edgegen.options.sampling import LogitsSettings
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.pipeline import LogitsPipeline
from edgegen.sampling.processor import LogitsContext, LogitsProcessor
from edgegen.sampling.processors.bad_words import BadWords
from edgegen.sampling.processors.custom import CustomProcessor, LogitsFunction
from edgegen.sampling.processors.dry import Dry
from edgegen.sampling.processors.epsilon_cutoff import EpsilonCutoff
from edgegen.sampling.processors.eta_cutoff import EtaCutoff
from edgegen.sampling.processors.forced_tokens import ForcedBos, ForcedEos
from edgegen.sampling.processors.frequency_penalty import FrequencyPenalty
from edgegen.sampling.processors.guidance import Guidance, guide
from edgegen.sampling.processors.length_penalty import ExponentialDecayLengthPenalty
from edgegen.sampling.processors.min_length import MinLength, MinNewTokens
from edgegen.sampling.processors.min_p import MinP
from edgegen.sampling.processors.mirostat import Mirostat
from edgegen.sampling.processors.no_repeat_ngram import NoRepeatNGram
from edgegen.sampling.processors.normalization import Renormalization, log_softmax
from edgegen.sampling.processors.remove_invalid_values import RemoveInvalidValues
from edgegen.sampling.processors.repetition_penalty import RepetitionPenalty
from edgegen.sampling.processors.sequence_bias import SequenceBias
from edgegen.sampling.processors.suppress_tokens import SuppressTokens, SuppressTokensAtBegin
from edgegen.sampling.processors.temperature import Temperature
from edgegen.sampling.processors.top_k import TopK
from edgegen.sampling.processors.top_n_sigma import TopNSigma
from edgegen.sampling.processors.top_p import TopP
from edgegen.sampling.processors.typical_p import TypicalP
from edgegen.sampling.processors.xtc import Xtc

__all__ = [
    "BadWords",
    "Candidates",
    "CustomProcessor",
    "Dry",
    "EpsilonCutoff",
    "EtaCutoff",
    "ExponentialDecayLengthPenalty",
    "ForcedBos",
    "ForcedEos",
    "FrequencyPenalty",
    "Guidance",
    "LogitsContext",
    "LogitsFunction",
    "LogitsPipeline",
    "LogitsProcessor",
    "LogitsSettings",
    "MinLength",
    "MinNewTokens",
    "MinP",
    "Mirostat",
    "NoRepeatNGram",
    "RemoveInvalidValues",
    "Renormalization",
    "RepetitionPenalty",
    "SequenceBias",
    "SuppressTokens",
    "SuppressTokensAtBegin",
    "Temperature",
    "TopK",
    "TopNSigma",
    "TopP",
    "TypicalP",
    "Xtc",
    "guide",
    "log_softmax",
]
