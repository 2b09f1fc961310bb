"""Models of the chat REPL: the one that is talked with, and the others that ``/model`` may take its place by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from edgegen.cli.repl.dialogue import Model
from edgegen.options.generation import GenerationOptions


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A loaded model.

    ``about``: the model in a line. ``options``: its own. ``check`` raises a ``UsageError`` where it cannot do what the
    options of thinking say. ``completes``: texts are continued with it; ``is_base``: it has no chat template. ``note``:
    what its makers say of its use. ``close`` gives its memory back.
    """

    model: Model
    name: str
    about: str
    options: GenerationOptions
    check: Callable[[Mapping[str, Any]], None]
    completes: bool
    is_base: bool
    note: str | None
    close: Callable[[], None]


class Models(Protocol):
    """The models that there are."""

    def open(self, name: str) -> OpenModel:
        """Load one by a bundle's name or path.

        Raises:
            EdgegenError: it is not there, or cannot be loaded.
        """
        ...

    def names(self) -> Sequence[str]:
        """The names of all that can be opened."""
        ...
