"""edgegen: run a causal language model well on the machine you have.

>>> from edgegen import LLM
>>> llm = LLM.load()                                    # the embedded default model; or a bundle's name or path
>>> llm.generate("Once upon a time", max_new_tokens=40).text

Names are imported when they are first used, so that ``import edgegen`` costs nothing by itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgegen.bundle import Bundle
    from edgegen.cancellation import CancelToken
    from edgegen.chat import ChatTemplate, Conversation
    from edgegen.errors import (
        BundleError,
        BundleNotFoundError,
        ChatTemplateError,
        CheckpointError,
        ConstraintError,
        ConversationError,
        EdgegenError,
        ExportError,
        HubError,
        LogitsError,
        ManifestError,
        MemoryBudgetError,
        OptionError,
        PromptTooLongError,
        SessionError,
        TensorError,
        UnsupportedModelError,
        UsageError,
        VerificationError,
    )
    from edgegen.llm import LLM
    from edgegen.logprobs import TokenLogprob
    from edgegen.options import EngineOptions, GenerationOptions
    from edgegen.results import GenerationChunk, GenerationResult, Timings
    from edgegen.scores import Perplexity, Score
    from edgegen.session import Session
    from edgegen.speculation import Speculation
    from edgegen.store import BundleStore
    from edgegen.stream import TextStream

__version__ = "0.1.0"

_HOME = {
    "Bundle": "bundle",
    "BundleStore": "store",
    "CancelToken": "cancellation",
    "ChatTemplate": "chat",
    "Conversation": "chat",
    "EngineOptions": "options",
    "GenerationChunk": "results",
    "GenerationOptions": "options",
    "GenerationResult": "results",
    "LLM": "llm",
    "Perplexity": "scores",
    "Score": "scores",
    "Session": "session",
    "Speculation": "speculation",
    "TextStream": "stream",
    "Timings": "results",
    "TokenLogprob": "logprobs",
}

__all__ = [
    "LLM",
    "Bundle",
    "BundleError",
    "BundleNotFoundError",
    "BundleStore",
    "CancelToken",
    "ChatTemplate",
    "ChatTemplateError",
    "CheckpointError",
    "ConstraintError",
    "Conversation",
    "ConversationError",
    "EdgegenError",
    "EngineOptions",
    "ExportError",
    "GenerationChunk",
    "GenerationOptions",
    "GenerationResult",
    "HubError",
    "LogitsError",
    "ManifestError",
    "MemoryBudgetError",
    "OptionError",
    "Perplexity",
    "PromptTooLongError",
    "Score",
    "Session",
    "SessionError",
    "Speculation",
    "TensorError",
    "TextStream",
    "Timings",
    "TokenLogprob",
    "UnsupportedModelError",
    "UsageError",
    "VerificationError",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'edgegen' has no attribute {name!r}")
    value = getattr(import_module(f"edgegen.{_HOME.get(name, 'errors')}"), name)
    globals()[name] = value
    return value
