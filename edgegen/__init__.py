"""edgegen: run a causal language model well on the machine you have.

>>> from edgegen import LLM
>>> llm = LLM.load()                                    # the embedded default model; or a bundle's name or path
>>> llm.generate("Once upon a time", max_new_tokens=40).text

The public names are those of ``dir(edgegen)``; all else in this package is private and may change at any time. Names
are imported when they are first used, so that ``import edgegen`` costs nothing by itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgegen.bundle.bundle import Bundle
    from edgegen.bundle.store import BundleStore
    from edgegen.chat import ChatTemplate, Conversation, ToolCall, ToolCallDelta
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
        OptionLogitsError,
        PromptTooLongError,
        SessionError,
        TensorError,
        UnsupportedModelError,
        UsageError,
        VerificationError,
    )
    from edgegen.generation.cancellation import CancelToken
    from edgegen.generation.results import GenerationChunk, GenerationResult, Timings
    from edgegen.generation.session import Session
    from edgegen.generation.stream import TextStream
    from edgegen.llm import LLM
    from edgegen.model.loading import LoadProgress
    from edgegen.options.engine import EngineOptions
    from edgegen.options.generation import GenerationOptions
    from edgegen.sampling.logprobs import TokenLogprob
    from edgegen.scoring.embeddings import Embeddings
    from edgegen.scoring.scores import Perplexity, Score
    from edgegen.speculation.stats import Speculation

__version__ = "0.1.0"

_HOME = {
    "Bundle": "bundle.bundle",
    "BundleStore": "bundle.store",
    "CancelToken": "generation.cancellation",
    "ChatTemplate": "chat",
    "Conversation": "chat",
    "Embeddings": "scoring.embeddings",
    "EngineOptions": "options.engine",
    "GenerationChunk": "generation.results",
    "GenerationOptions": "options.generation",
    "GenerationResult": "generation.results",
    "LLM": "llm",
    "LoadProgress": "model.loading",
    "Perplexity": "scoring.scores",
    "Score": "scoring.scores",
    "Session": "generation.session",
    "Speculation": "speculation.stats",
    "TextStream": "generation.stream",
    "Timings": "generation.results",
    "TokenLogprob": "sampling.logprobs",
    "ToolCall": "chat",
    "ToolCallDelta": "chat",
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
    "Embeddings",
    "EngineOptions",
    "ExportError",
    "GenerationChunk",
    "GenerationOptions",
    "GenerationResult",
    "HubError",
    "LoadProgress",
    "LogitsError",
    "ManifestError",
    "MemoryBudgetError",
    "OptionError",
    "OptionLogitsError",
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
    "ToolCall",
    "ToolCallDelta",
    "UnsupportedModelError",
    "UsageError",
    "VerificationError",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'edgegen' has no attribute {name!r}")
    value = getattr(import_module(f"edgegen.{_HOME.get(name, 'errors')}"), name)
    globals()[name] = value
    return value
