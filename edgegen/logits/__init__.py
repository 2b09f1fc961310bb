"""From a model's logits to the tokens that may come next: one processor per idea, composed by a pipeline."""

from edgegen.logits.bad_words import BadWords
from edgegen.logits.candidates import Candidates
from edgegen.logits.custom import CustomProcessor, LogitsFunction
from edgegen.logits.dry import Dry
from edgegen.logits.epsilon_cutoff import EpsilonCutoff
from edgegen.logits.eta_cutoff import EtaCutoff
from edgegen.logits.forced_tokens import ForcedBos, ForcedEos
from edgegen.logits.frequency_penalty import FrequencyPenalty
from edgegen.logits.guidance import Guidance, guide
from edgegen.logits.length_penalty import ExponentialDecayLengthPenalty
from edgegen.logits.min_length import MinLength, MinNewTokens
from edgegen.logits.min_p import MinP
from edgegen.logits.mirostat import Mirostat
from edgegen.logits.no_repeat_ngram import NoRepeatNGram
from edgegen.logits.normalization import Renormalization, log_softmax
from edgegen.logits.pipeline import LogitsPipeline
from edgegen.logits.processor import LogitsContext, LogitsProcessor
from edgegen.logits.remove_invalid_values import RemoveInvalidValues
from edgegen.logits.repetition_penalty import RepetitionPenalty
from edgegen.logits.sequence_bias import SequenceBias
from edgegen.logits.suppress_tokens import SuppressTokens, SuppressTokensAtBegin
from edgegen.logits.temperature import Temperature
from edgegen.logits.top_k import TopK
from edgegen.logits.top_n_sigma import TopNSigma
from edgegen.logits.top_p import TopP
from edgegen.logits.typical_p import TypicalP
from edgegen.logits.xtc import Xtc
from edgegen.logits_settings import LogitsSettings

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
