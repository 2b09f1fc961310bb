"""Option: what a field of a class of options carries beside its default: group, type, range and help."""

from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar, cast

from edgegen.options.kinds import Kind

T = TypeVar("T")

JsonWhitespace = Literal["compact", "flexible", "any"]
"""Space between the tokens of JSON that a constraint makes."""

Group = Literal[
    "Server",
    "Export",
    "Prompt",
    "Sampling",
    "Penalties",
    "Stopping",
    "Constrained output",
    "Several answers",
    "Speed and memory",
    "Output",
]
"""The groups of a help text."""

DEFAULT_NGRAM_SIZE = 5
"""More change nothing, fewer make copied texts come later (``python -m bench.studies.speculation --replay``)."""

DEFAULT_ASSISTANT_TOKENS = 8

DEFAULT_MTP_TOKENS = 4

DEFAULT_LOOKUP_TOKENS = 10

MOST_PROPOSED = 32
"""Most tokens of a proposal. The cache of a layer with a sliding window keeps as many positions to go back to."""

MOST_TOP_LOGPROBS = 20
"""Alternatives that may be asked for at each position, as in OpenAI's API."""

MOST_SEQUENCES = 64
"""Beams, and answers to one prompt: each is a sequence with a KV cache of its own."""

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Every level of ``reasoning_effort`` that a client may ask for, the least first."""

ANSWERING = ("generate", "chat", "batch")
RUNNING = ("generate", "chat", "batch", "score", "eval", "bench", "serve")
OPENING = ("generate", "chat", "batch", "score", "eval", "serve")


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """
    Attributes:
        name: in Python, in files and in JSON; the flag has dashes in place of underscores.
        help: one sentence.
        verbs: those of the command line that have it as a flag.
        note: what else is to know, for the documentation.
        default: what holds without it, where the default value does not say so itself.
        metavar: what stands for the value in a help text.
        flag: its flag, where that is not the name with dashes.
        short: the flag's one-letter name.
        common: whether the short help text has it.
        draws: whether it only matters for sampling, and so asks for it.
        caller_only: whether only Python can give it: no file may, and it is no plain value.
    """

    name: str
    group: Group
    kind: Kind
    help: str
    verbs: tuple[str, ...]
    _: KW_ONLY
    note: str = ""
    default: str = ""
    metavar: str = ""
    flag: str = ""
    short: str = ""
    common: bool = False
    draws: bool = False
    caller_only: bool = False


def option(
    value: T,
    /,
    group: Group,
    kind: Kind,
    about: str,
    verbs: tuple[str, ...] = ANSWERING,
    *,
    note: str = "",
    default: str = "",
    metavar: str = "",
    flag: str = "",
    short: str = "",
    common: bool = False,
    draws: bool = False,
    caller_only: bool = False,
) -> T:
    """A dataclass's field with the default ``value``, and what the attributes of :class:`Option` say about it."""
    described = Option(
        "",
        group,
        kind,
        about,
        verbs,
        note=note,
        default=default,
        metavar=metavar,
        flag=flag,
        short=short,
        common=common,
        draws=draws,
        caller_only=caller_only,
    )
    metadata = {"option": described}
    if isinstance(value, dict):
        return cast(T, field(default_factory=cast(dict[Any, Any], value).copy, metadata=metadata))
    return field(default=value, repr=not kind.secret, metadata=metadata)


server_option = partial(option, group="Server", verbs=("serve",))
"""As :func:`option`, of the server: ``edgegen serve`` has the flag."""
