"""MemoryForecast: what a process that runs a bundle will take, part by part, before anything is loaded.

The parts that are no sizes of files were measured (``docs/benchmarking.md``): on Linux x86-64 with Python 3.11.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import GraphVariant, KVSpec
from edgegen.errors import BundleNotFoundError
from edgegen.graph.attention_bias import AttentionBias, attention_bias
from edgegen.graph.external_data import bytes_beside, bytes_of_tables, bytes_read
from edgegen.graph.pending_tokens import pending_bytes
from edgegen.model.kernels import runs_kernels
from edgegen.model.sliding_window import bytes_needed, windows_of
from edgegen.model.state_checkpoints import most_checkpoints
from edgegen.options.engine import EngineOptions
from edgegen.options.speculation import LEAST_READ, uses_mtp_head
from edgegen.system import LOCAL, Source, proportional_memory, read_regular, second_level_cache
from edgegen.tokenizer import COMPILED

_Found = TypeVar("_Found")

PYTHON = 60_000_000
"""Python, NumPy, ONNX Runtime, tokenizers and edgegen, before a model is loaded; as measured on Linux."""

_SESSION = 19_000_000
"""A session with its threads, the C library's arenas, the engine, and what sampling needs."""

TOKENIZER = 8
"""Memory of a tokenizer over the size of its file."""

_HEAD_SESSION = 8_000_000
"""A second session, of a prediction head."""

_UNREAD = 4096
"""Positions of each sequence whose hidden states are kept for a prediction head, at most; half of them are a copy."""

_STATES = 13
"""Activations of a token in states of the hidden size: those of the MLP and of attention that live at once."""

_LOGITS = 4
"""Arrays of the vocabulary for each sequence: logits, candidates, probabilities, order."""

_STOCK = {2: 4.1, 4: 1.87, 8: 1.46}
"""Memory of weights, packed by ONNX Runtime's operators, over their size on disk, by bits. Ours read them
where they are mapped."""


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """Bytes of each part.

    Attributes:
        python: the interpreter and its libraries.
        weights: mapped by our kernels; with ONNX Runtime's operators, their packed copies too; without tables whose
            rows are looked up.
        tokenizer: of the vocabulary and the merges; mapped where the bundle has them compiled.
        kv: the KV cache, with fixed states and their checkpoints, and a prediction head's KV cache.
        activations: of a prefill chunk, logits, the sessions and the engine.
        draft: a draft model with its KV cache.
        head: a prediction head, beside its weights, which are in the bundle's, and its KV cache.
    """

    python: int
    weights: int
    tokenizer: int
    kv: int
    activations: int
    draft: int = 0
    head: int = 0

    @property
    def total(self) -> int:
        """Bytes of the process."""
        return sum(getattr(self, field.name) for field in fields(self))

    @property
    def of_model(self) -> int:
        """Bytes beside Python and the KV cache: what loading another model adds."""
        return self.total - self.python - self.kv


def forecast_memory(
    bundle: Bundle,
    options: EngineOptions,
    *,
    context: int | None = None,
    batch: int = 1,
    kv: int | None = None,
    draft: Bundle | None = None,
) -> MemoryForecast:
    """Forecast the memory of a process with ``batch`` sequences of ``context`` tokens (by default the model's most), or
    with ``kv`` bytes of KV cache.

    Raises:
        UsageError: the bundle has no variant as ``options`` ask for.
    """
    model = bundle.manifest.model
    context = model.max_context if context is None else context
    if kv is None:
        kv = batch * kv_bytes(bundle, options)(context)
    of_draft = 0
    if draft is not None:
        alone = forecast_memory(draft, EngineOptions(kernels=options.kernels, speculate="off"))
        of_draft = alone.of_model - alone.tokenizer + alone.kv
    working = activation_bytes(model.hidden_size, model.vocab_size, chunk=options.prefill_chunk, batch=batch)
    return MemoryForecast(
        python=PYTHON,
        weights=_weights(bundle, options),
        tokenizer=_tokenizer(bundle, options),
        kv=kv,
        activations=working + bias_bytes(bundle, options)(context),
        draft=of_draft,
        head=_head_bytes(bundle, options, batch),
    )


def load_libraries() -> None:
    """Import what runs models."""
    import edgegen.llm  # noqa: F401  # pyright: ignore[reportUnusedImport]


def uncounted_memory(source: Source = LOCAL, load: Callable[[], object] = load_libraries) -> int:
    """Bytes of Python and its libraries beyond those that forecasts count: this process is measured after ``load``.

    None on Linux, where forecasts were measured; other systems map libraries in other ways, and take more or less.
    """
    if source.system == "linux":
        return 0
    load()
    return max(0, (proportional_memory(source) or 0) - PYTHON)


def activation_bytes(hidden_size: int, vocab_size: int, *, chunk: int, batch: int = 1) -> int:
    """Bytes of the sessions, the engine, the activations of a prefill chunk and the logits of ``batch`` sequences."""
    return _SESSION + 4 * (chunk * hidden_size * _STATES + batch * _LOGITS * vocab_size)


def head_activation_bytes(hidden_size: int, *, chunk: int, batch: int = 1) -> int:
    """Bytes of the session of a prediction head, its activations of a prefill chunk, and the hidden states of ``batch``
    sequences that it has not read."""
    return _HEAD_SESSION + 4 * hidden_size * (chunk * _STATES + batch * _UNREAD)


def bytes_of_bias(bias: AttentionBias, *, chunk: int, context: int) -> int:
    """Bytes of what the attention of a prefill chunk adds to its scores; of what each layer makes there is another
    array as large, before it is transposed."""
    return 4 * bias.heads * min(chunk, context) * context * (2 if bias.by_layer else 1)


def bias_bytes(bundle: Bundle, options: EngineOptions) -> Callable[[int], int]:
    """A function that returns :func:`bytes_of_bias` of a bundle, by the tokens of the context."""
    bias = _found_in(bundle, bundle.variant_with(options.kv), attention_bias, AttentionBias(0, by_layer=False))
    return lambda context: bytes_of_bias(bias, chunk=options.prefill_chunk, context=context)


def kv_bytes(bundle: Bundle, options: EngineOptions) -> Callable[[int], int]:
    """A function that returns the bytes of KV cache of one sequence, by its tokens: what the engine reserves for it."""
    kv = bundle.variant_with(options.kv).kv
    windows = windows_of(kv, second_level_cache(), kernels=runs_kernels(options.kernels))
    checkpoints = checkpoint_bytes(kv)
    head = _head(bundle, options)
    of_head = 0 if head is None else head.kept_bytes_per_token
    return lambda tokens: bytes_needed(kv, windows, tokens) + checkpoints + of_head * tokens


def checkpoint_bytes(kv: KVSpec) -> int:
    """Bytes of the checkpoints of one sequence, and of its pending tokens, at most."""
    pending = sum(pending_bytes(state.shape) for state in kv.fixed)
    return most_checkpoints(kv.bytes_per_row) * kv.bytes_per_row + pending


def _tokenizer(bundle: Bundle, options: EngineOptions) -> int:
    """Of a compiled tokenizer the file, which is mapped."""
    name, entries = bundle.manifest.tokenizer, bundle.manifest.files
    if name is None:
        return 0
    if COMPILED in entries and runs_kernels(options.kernels):
        return entries[COMPILED].size
    return TOKENIZER * entries[name].size


def _weights(bundle: Bundle, options: EngineOptions) -> int:
    """Bytes of the weights as they are computed with."""
    model, linear = bundle.manifest.model, bundle.manifest.quantization.linear
    variant = bundle.variant_with(options.kv)
    # A table whose rows are looked up stays in the file, but for the rows of a text's tokens.
    size = bundle.size_of(variant.weights) - table_bytes(bundle, variant)
    with_kernels = runs_kernels(options.kernels)
    if bundle.manifest.mtp is not None and not (with_kernels and _head(bundle, options)):
        size -= _bytes_beside(bundle, bundle.manifest.mtp, variant)  # which no session reads, or one of its own
    logits = model.vocab_size * model.hidden_size
    adapter = bundle.manifest.base.adapter if bundle.manifest.base else None
    factors = bundle.size_of(adapter) if adapter else 0
    return factors + weights_in_memory(size, linear.bits, logits, with_kernels=with_kernels)


def _head(bundle: Bundle, options: EngineOptions) -> GraphVariant | None:
    """The prediction head that proposes tokens, where there is one."""
    head = bundle.manifest.mtp if uses_mtp_head(bundle, options) else None
    if head is None or options.speculate == "mtp":
        return head
    enough = _found_in(bundle, bundle.variant_with(options.kv), lambda graph: bytes_read(graph) >= LEAST_READ, True)
    return head if enough else None


def _head_bytes(bundle: Bundle, options: EngineOptions, batch: int) -> int:
    """Bytes of a prediction head beside its weights and its KV cache; with ONNX Runtime's operators, of its copies of
    the weights too."""
    head, model = _head(bundle, options), bundle.manifest.model
    if head is None:
        return 0
    working = head_activation_bytes(model.hidden_size, chunk=options.prefill_chunk, batch=batch)
    if runs_kernels(options.kernels):
        return working
    read = _found_in(bundle, head, bytes_read, 0)
    return working + weights_in_memory(read, bundle.manifest.quantization.linear.bits, 0, with_kernels=False)


def _bytes_beside(bundle: Bundle, head: GraphVariant, variant: GraphVariant) -> int:
    """Bytes of the weights that only the ``head`` has; none where the graphs cannot be read."""
    own = _found_in(bundle, head, lambda graph: graph, b"")
    return _found_in(bundle, variant, lambda graph: bytes_beside(own, graph), 0) if own else 0


def weights_in_memory(stored: int, bits: int, logits: int, *, with_kernels: bool) -> int:
    """Bytes that ``stored`` bytes of weights of ``bits`` are computed with; ``logits``: elements of the head."""
    if bits >= 16:
        # Stock operators in float32, with a packed copy of the matrix of logits, which is the embeddings' too.
        return stored * 32 // bits + 4 * logits
    return stored if with_kernels else int(stored * _STOCK.get(bits, 1))


def table_bytes(bundle: Bundle, variant: GraphVariant) -> int:
    """Bytes of the weights of which a token reads one row; none where the graph cannot be read."""
    return _found_in(bundle, variant, bytes_of_tables, 0)


def _found_in(bundle: Bundle, variant: GraphVariant, find: Callable[[bytes], _Found], otherwise: _Found) -> _Found:
    """Apply ``find`` to the prefill graph; return ``otherwise`` where it cannot be read, which loading will report."""
    try:
        return find(read_regular(bundle.file(variant.prefill)))
    except (OSError, ValueError, BundleNotFoundError):
        return otherwise
