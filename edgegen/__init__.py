"""edgegen: run a causal language model well on the machine you have.

>>> from edgegen import LLM
>>> llm = LLM.load()                                    # the embedded default model; or a bundle's name or path
>>> llm.generate("Once upon a time", max_new_tokens=40).text

The public names are those of ``dir(edgegen)``; all else in this package is private and may change at any time. Names
are imported when they are first used, so that ``import edgegen`` costs nothing by itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the names of _HOME; a name that is imported as itself is public
    from edgegen.bundle.bundle import Bundle as Bundle
    from edgegen.bundle.store import BundleStore as BundleStore
    from edgegen.chat import ChatTemplate as ChatTemplate
    from edgegen.chat import Conversation as Conversation
    from edgegen.chat import ToolCall as ToolCall
    from edgegen.chat import ToolCallDelta as ToolCallDelta
    from edgegen.errors import BundleError as BundleError
    from edgegen.errors import BundleNotFoundError as BundleNotFoundError
    from edgegen.errors import ChatTemplateError as ChatTemplateError
    from edgegen.errors import CheckpointError as CheckpointError
    from edgegen.errors import ConstraintError as ConstraintError
    from edgegen.errors import ConversationError as ConversationError
    from edgegen.errors import EdgegenError as EdgegenError
    from edgegen.errors import ExportError as ExportError
    from edgegen.errors import HubError as HubError
    from edgegen.errors import LogitsError as LogitsError
    from edgegen.errors import ManifestError as ManifestError
    from edgegen.errors import MemoryBudgetError as MemoryBudgetError
    from edgegen.errors import OptionError as OptionError
    from edgegen.errors import OptionLogitsError as OptionLogitsError
    from edgegen.errors import PromptTooLongError as PromptTooLongError
    from edgegen.errors import SessionError as SessionError
    from edgegen.errors import TensorError as TensorError
    from edgegen.errors import UnsupportedModelError as UnsupportedModelError
    from edgegen.errors import UsageError as UsageError
    from edgegen.errors import VerificationError as VerificationError
    from edgegen.generation.cancellation import CancelToken as CancelToken
    from edgegen.generation.results import GenerationChunk as GenerationChunk
    from edgegen.generation.results import GenerationResult as GenerationResult
    from edgegen.generation.results import PromptProgress as PromptProgress
    from edgegen.generation.results import Timings as Timings
    from edgegen.generation.session import Session as Session
    from edgegen.generation.stream import TextStream as TextStream
    from edgegen.llm import LLM as LLM
    from edgegen.model.loading import LoadProgress as LoadProgress
    from edgegen.options.engine import EngineOptions as EngineOptions
    from edgegen.options.generation import GenerationOptions as GenerationOptions
    from edgegen.sampling.logprobs import TokenLogprob as TokenLogprob
    from edgegen.scoring.embeddings import Embeddings as Embeddings
    from edgegen.scoring.scores import Perplexity as Perplexity
    from edgegen.scoring.scores import Score as Score
    from edgegen.speculation.stats import Speculation as Speculation

__version__ = "0.1.0"

_HOME = {
    name: f"edgegen.{module}"
    for module, names in {
        "bundle.bundle": "Bundle",
        "bundle.store": "BundleStore",
        "chat": "ChatTemplate Conversation ToolCall ToolCallDelta",
        "errors": """
            BundleError BundleNotFoundError ChatTemplateError CheckpointError
            ConstraintError ConversationError EdgegenError ExportError HubError
            LogitsError ManifestError MemoryBudgetError OptionError OptionLogitsError
            PromptTooLongError SessionError TensorError UnsupportedModelError UsageError
            VerificationError
        """,
        "generation.cancellation": "CancelToken",
        "generation.results": "GenerationChunk GenerationResult PromptProgress Timings",
        "generation.session": "Session",
        "generation.stream": "TextStream",
        "llm": "LLM",
        "model.loading": "LoadProgress",
        "options.engine": "EngineOptions",
        "options.generation": "GenerationOptions",
        "sampling.logprobs": "TokenLogprob",
        "scoring.embeddings": "Embeddings",
        "scoring.scores": "Perplexity Score",
        "speculation.stats": "Speculation",
    }.items()
    for name in names.split()
}
"""The modules of the public names."""


def __dir__() -> list[str]:
    return [*_HOME, "__version__"]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others
    __all__ = [*_HOME]

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'edgegen' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value
