"""Opening a bundle: its runner, its ONNX Runtime sessions and its tokenizer, and a thread to do one beside another."""

from collections.abc import Callable
from threading import Thread
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import GraphVariant
from edgegen.model.interfaces import Runner, make_runner
from edgegen.model.ort_session import GraphPair, OneSession, TwoSessions, require_version
from edgegen.model.packed_weights import packed_graph
from edgegen.options.engine import EngineOptions
from edgegen.tokenizer import Tokenizer

_T = TypeVar("_T")


class Background(Generic[_T]):
    """Calls ``make`` in a thread of its own, which the end of a ``with`` block waits for.

    ``concurrent.futures`` does as much, but loading would wait for its import, and that of ``logging`` with it.
    """

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._made: list[_T] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="edgegen background")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join()

    def wait(self, seconds: float) -> None:
        """Wait until it is made, but no longer than so."""
        self._thread.join(seconds)

    def result(self) -> _T:
        """What was made; waits for it, and raises what ``make`` raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _run(self) -> None:
        try:
            self._made.append(self._make())
        except BaseException as error:  # raised where the result is wanted
            self._error = error


def open_runner(bundle: Bundle, options: EngineOptions) -> Runner[Any]:
    """The runner of the variant that ``options`` ask for, its weights loaded."""
    variant = bundle.variant_with(options.kv, fast_prefill=options.fast_prefill)
    model = bundle.manifest.model
    return make_runner(open_graphs(bundle, variant, options), variant, model.vocab_size, model.max_context)


def open_graphs(bundle: Bundle, variant: GraphVariant, options: EngineOptions) -> GraphPair:
    """The graphs of ``variant``, in as many sessions as ``options`` ask for, their weights loaded."""
    require_version(variant.minimum_onnxruntime, f"the variant {variant.name!r} of this bundle")
    if options.sessions == "two" or variant.fast_prefill:
        return TwoSessions(bundle.file(variant.prefill), bundle.file(variant.decode), options.threads)
    graph = packed_graph(bundle, variant) if options.packed_weights else bundle.file(variant.prefill)
    return OneSession(graph, options.threads, keep_spinning=options.draft is None)


def open_tokenizer(bundle: Bundle) -> Tokenizer | None:
    """The tokenizer of ``bundle``; None if it has none."""
    name = bundle.manifest.tokenizer
    return Tokenizer.from_file(bundle.file(name)) if name else None
