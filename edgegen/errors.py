"""The error tree: every error that edgegen raises by intention is an :class:`EdgegenError`.

    EdgegenError
    ├── UsageError               invalid arguments: an argument, an option, a combination of them
    │   ├── OptionError          a generation or engine option is unknown, ill-typed or contradictory
    │   │   └── ConstraintError  a schema, grammar or regular expression is broken or cannot be enforced
    │   ├── PromptTooLongError   the prompt does not fit the model's context
    │   ├── MemoryBudgetError    the KV cache of a request can never fit the budget
    │   └── ConversationError    the messages of a chat are malformed, or the model's template refuses them
    ├── LogitsError              a step's logits leave no token to choose: NaN, infinite, or all masked
    │   └── OptionLogitsError    … because of the options of the request
    ├── CheckpointError          the source checkpoint cannot be read
    │   ├── UnsupportedModelError  the architecture, or something its config asks for, has no exporter
    │   ├── TensorError          tensors are missing, extra, misshapen or not finite
    │   └── HubError             the model hub refused, is unreachable, or lacks the files
    ├── ExportError              the bundle could not be written
    ├── SessionError             a saved session cannot be written or read, is damaged, or of another model
    └── BundleError              the bundle cannot be used
        ├── BundleNotFoundError  no bundle under that name or path
        ├── ManifestError        edgegen.json is malformed or of another format version
        ├── VerificationError    a file is missing, of another size, or of another hash
        └── ChatTemplateError    the chat template cannot be compiled, or was stopped at its limits

Every message is one sentence a user can act on: what is wrong, where, what to do. Only the command line turns
errors into exit codes (``UsageError`` 2, any other 1).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

LISTED = 100
"""How many problems one message lists."""


LONGEST_WORD = 200
"""Characters of a word that is compared with the known ones; no name is longer."""

LONGEST_PROBLEM = 2_000
"""Characters that a message shows of one problem, which may quote a stranger's file."""


class EdgegenError(Exception):
    """Base of every error that edgegen raises on purpose."""


class UsageError(EdgegenError, ValueError):
    """Invalid arguments, whatever the bundle holds."""


class OptionError(UsageError):
    """A generation or engine option is unknown, ill-typed or contradicts another."""


class ConstraintError(OptionError):
    """A schema, grammar or regular expression is broken, asks for what cannot be enforced, or got too complex."""


class PromptTooLongError(UsageError):
    """The prompt has more tokens than the model's context."""


class MemoryBudgetError(UsageError):
    """The KV cache of a request would take more memory than the engine may ever use for it."""


class LogitsError(EdgegenError):
    """A step's logits leave no token to choose: one is NaN or infinite, or all are masked."""


class OptionLogitsError(LogitsError):
    """The options of a request leave no token to choose: they mask all, or make a logit infinite."""


class ConversationError(UsageError):
    """The messages of a chat are malformed, or the model's chat template refuses them."""


class CheckpointError(EdgegenError):
    """The source checkpoint cannot be read."""


class UnsupportedModelError(CheckpointError):
    """The architecture, or something its config asks for, cannot be exported."""


class TensorError(CheckpointError):
    """Tensors are missing, extra, misshapen or not finite; the message lists them all."""


class HubError(CheckpointError):
    """The model hub refused, is unreachable, or lacks the files."""


class ExportError(EdgegenError):
    """The bundle could not be written."""


class SessionError(EdgegenError):
    """A session cannot be written or read, is damaged, or was begun with another model."""


class BundleError(EdgegenError):
    """The bundle cannot be used."""


class BundleNotFoundError(BundleError):
    """No bundle under that name or path."""


class DeviceError(BundleError):
    """The bundle cannot run on the device that was asked for, or the device cannot be used."""


class ManifestError(BundleError):
    """``edgegen.json`` is malformed or of another format version."""


class VerificationError(BundleError):
    """A bundle file is missing, of another size, or of another hash."""


class ChatTemplateError(BundleError):
    """The bundle's chat template cannot be compiled, or was stopped at the sandbox's limits."""


def quoted(name: str) -> str:
    """A name or path in quotation marks, as ``repr`` writes it, but for backslashes, which are not doubled."""
    return repr(name).replace("\\\\", "\\")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the nearest of ``known``, or an empty string when none is near."""
    from difflib import get_close_matches

    names = list(known)
    comparable = names and len(word) <= LONGEST_WORD  # what a client sends may be of any length
    near = get_close_matches(word, names, n=1, cutoff=0.6) if comparable else []
    return f" (did you mean {near[0]!r}?)" if near else ""


def suggestions(words: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    """:func:`did_you_mean` of each word; empty after the first ``LISTED``, which no message shows."""
    names = list(known)
    return (did_you_mean(word, names) if n < LISTED else "" for n, word in enumerate(words))


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, without the advice that follows for users of that library."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def one_or_list(problems: Sequence[str]) -> str:
    """One problem as it is; several as an indented list, each on its line, ``LISTED`` at most; long ones are cut."""
    shown = [p if len(p) <= LONGEST_PROBLEM else f"{p[:LONGEST_PROBLEM]} …" for p in problems[:LISTED]]
    if len(problems) == 1:
        return shown[0]
    rest = [f"and {len(problems) - LISTED} more"] if len(problems) > LISTED else []
    return f"{len(problems)} problems:" + "".join(f"\n  - {p}" for p in [*shown, *rest])


def sentence_or_list(problems: Sequence[str]) -> str:
    """:func:`one_or_list`, where one problem ends with a full stop."""
    return one_or_list(problems) + ("." if len(problems) == 1 else "")


def refuse_any(problems: Sequence[str], error: Callable[[str], Exception], before: str = "") -> None:
    """Raise ``error`` with the problems, after the words ``before``, if there are any."""
    if problems:
        raise error(before + one_or_list(problems))
