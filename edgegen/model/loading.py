"""Loading a bundle: verify its files, open its ONNX Runtime sessions and its tokenizer, and report progress."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.graph_tensors import tensor_problems
from edgegen.bundle.kv_cost import kv_warning
from edgegen.bundle.manifest import MANIFEST_NAME, GraphVariant
from edgegen.bundle.store import BundleStore
from edgegen.errors import DeviceError, ManifestError, OptionError, one_or_list
from edgegen.model.interfaces import Runner, make_runner
from edgegen.model.kernels import kernel_library
from edgegen.model.ort_session import CUDA_PROVIDER, GraphPair, OneSession, require_version, runtime_providers
from edgegen.options.engine import EngineOptions
from edgegen.options.speculation import uses_mtp_head
from edgegen.system import available_gpu_memory, available_memory, read_regular
from edgegen.tokenizer import COMPILED, Tokenizer

if TYPE_CHECKING:
    from edgegen.model.device import Device
    from edgegen.model.device_runner import DeviceRunner

_T = TypeVar("_T")

_HEAD_START = 0.004
"""Seconds in which ONNX Runtime, given a graph, comes to where it no longer holds Python's lock. Reading a tokenizer
does hold it, and would be waited for if it started sooner."""

_LEAST_KV_BUDGET = 1 << 26
"""Bytes of KV cache that a short text takes in models of the size that small machines run."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far loading is.

    Attributes:
        stage: ``verify`` (hashing the files of the bundle, then those of a draft model), ``draft`` (loading one),
            ``weights`` and ``tokenizer``, which are loaded at the same time.
        done: bytes of the stage that are done.
        total: bytes of the stage.
    """

    stage: Literal["verify", "draft", "weights", "tokenizer"]
    done: int
    total: int

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        return self.done / self.total if self.total else 1.0


OnProgress = Callable[[LoadProgress], object]
"""Called in the thread that loads; what it raises ends loading."""


def ignore_progress(progress: LoadProgress) -> None:
    """The default: nothing is reported."""


class Background(Generic[_T]):
    """Calls ``make`` in a thread of its own, which the end of a ``with`` block waits for.

    ``concurrent.futures`` does as much, but its import, with that of ``logging``, would make loading slower.
    """

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._made: list[_T] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="edgegen background")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.join()

    def wait(self, seconds: float) -> None:
        """Wait until it is made, at most ``seconds``."""
        self._thread.join(seconds)

    def result(self) -> _T:
        """Wait for the result and return it; raise what ``make`` raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _run(self) -> None:
        try:
            self._made.append(self._make())
        except BaseException as error:  # raised where the result is wanted
            self._error = error


_NOT_DETERMINISTIC = (
    "deterministic: {} runs experts or 4-bit matrices on ONNX Runtime's operators, whose bits depend on the "
    "rest of the batch: run it on edgegen's kernels (kernels='auto'), or leave deterministic out."
)


def open_bundle(model: str | Path, options: EngineOptions, on_progress: OnProgress = ignore_progress) -> Bundle:
    """The bundle of that name or path, its files verified as ``options`` say."""
    bundle = Bundle.open(BundleStore().resolve(model))
    if options.verify != "never":
        quiet = on_progress is ignore_progress
        total = bundle.nbytes
        check = bundle.verify if options.verify == "always" else bundle.verify_once
        check(None if quiet else lambda done: on_progress(LoadProgress("verify", done, total)))
        on_progress(LoadProgress("verify", total, total))
    return bundle


def open_model(bundle: Bundle, options: EngineOptions, on_progress: OnProgress) -> tuple[Runner[Any], Tokenizer | None]:
    """The runner and the tokenizer of ``bundle``, opened at the same time.

    A ``UserWarning`` says where ``options`` ask for a KV cache that costs this model much.
    """
    tell, size = on_progress, bundle.weights_size
    tell(LoadProgress("weights", 0, size))
    handed_over = Event()

    def open_it() -> Runner[Any]:
        try:
            return open_runner(bundle, options, handed_over.set)
        finally:
            handed_over.set()

    with Background(open_it) as opening:
        handed_over.wait()
        opening.wait(_HEAD_START)
        tokenizer = open_tokenizer(bundle, options)
        if name := bundle.manifest.tokenizer:
            read = bundle.manifest.files[name].size
            tell(LoadProgress("tokenizer", read, read))
    runner = opening.result()
    if runner.device == "cpu" and (warning := kv_warning(bundle, options.kv)):  # a GPU's cache is float16
        warnings.warn(warning, stacklevel=3)
    tell(LoadProgress("weights", size, size))
    return runner, tokenizer


def open_runner(
    bundle: Bundle, options: EngineOptions, on_handed_over: Callable[[], object] = lambda: None
) -> Runner[Any]:
    """The runner of the variant that ``options`` ask for, its weights loaded.

    With ``device="auto"`` that is a GPU where ONNX Runtime was built for one; a ``UserWarning`` says why not, then.
    ``on_handed_over`` is called before ONNX Runtime takes over, which needs neither Python nor its lock.

    Raises:
        DeviceError: a GPU was asked for, and it or the bundle cannot be used so.
        OptionError: output is to be deterministic, which operators that this bundle is run by are not.
    """
    if wants_gpu(options):
        from edgegen.model.device import CUDA

        try:
            return open_on_device(bundle, options, CUDA, on_handed_over)
        except DeviceError as error:
            if options.device == "cuda":
                raise
            warnings.warn(f"running on the CPU: {error}", stacklevel=2)
    variant = bundle.variant_with(options.kv)
    model = bundle.manifest.model
    graphs = open_graphs(bundle, variant, options, on_handed_over)
    if options.deterministic and graphs.order == "batch":
        raise OptionError(_NOT_DETERMINISTIC.format(bundle.manifest.name))
    return make_runner(graphs, variant, model.vocab_size, model.max_context)


def wants_gpu(options: EngineOptions) -> bool:
    """Whether a bundle is to run on a GPU, as far as that is known before it is opened."""
    return options.device == "cuda" or (options.device == "auto" and CUDA_PROVIDER in runtime_providers())


def open_on_device(
    bundle: Bundle, options: EngineOptions, device: "Device", on_handed_over: Callable[[], object] = lambda: None
) -> "DeviceRunner":
    """A runner of ``bundle`` on ``device``: of its variant with a float32 KV cache, which is float16 there.

    Raises:
        DeviceError: the device cannot be used, or not for this model.
    """
    from edgegen.graph.float16_attention import obstacles
    from edgegen.model.device import DeviceSession
    from edgegen.model.device_runner import LARGEST_HEAD, DeviceRunner

    variant, model = bundle.variant_with("float32"), bundle.manifest.model
    graph = bundle.file(variant.prefill)
    reasons = ["its graphs were traced by optimum"] if variant.kv.kind != "in_place" else []
    reasons += ["it has fixed states"] if variant.kv.fixed else []
    reasons += ["it is an adapter beside its base"] if bundle.manifest.base else []
    sizes = sorted({layer.head_dim for layer in variant.kv.layers})
    reasons += [f"it has heads of size {size}" for size in sizes if size % 8 or size > LARGEST_HEAD]
    reasons += obstacles(read_regular(graph))
    if reasons:
        raise DeviceError(f"{bundle.manifest.name} cannot run on {device.name}: {', '.join(reasons)}.")
    require_version(variant.minimum_onnxruntime, f"the variant {variant.name!r} of this bundle")
    on_handed_over()
    return DeviceRunner(DeviceSession(graph, device, options.threads), variant, model.vocab_size, model.max_context)


def open_graphs(
    bundle: Bundle,
    variant: GraphVariant,
    options: EngineOptions,
    on_handed_over: Callable[[], object] = lambda: None,
) -> GraphPair:
    """The graphs of ``variant``, their weights loaded.

    Raises:
        ManifestError: the manifest describes other tensors than the graph has.
    """
    require_version(variant.minimum_onnxruntime, f"the variant {variant.name!r} of this bundle")
    graph, kernels = bundle.file(variant.prefill), options.kernels == "auto"
    spin = options.draft is None and not uses_mtp_head(bundle, options)
    adapter = bundle.low_rank()
    session = OneSession(
        graph,
        options.threads,
        keep_spinning=spin,
        kernels=kernels,
        adapter=adapter,
        states={state.past for state in variant.kv.fixed},
        conversion=bundle.conversion(variant),
        on_handed_over=on_handed_over,
    )
    if problems := tensor_problems(variant, bundle.manifest.model, session.inputs, session.outputs):
        raise ManifestError(f"{bundle.path / MANIFEST_NAME} is not that of {graph.name}: {one_or_list(problems)}")
    return session


def default_kv_budget(device: Literal["cpu", "cuda"]) -> int | None:
    """Bytes for the KV cache: half of what is free, and always enough for a short text; None where that is unknown."""
    free = available_memory() if device == "cpu" else available_gpu_memory()
    return None if free is None else max(_LEAST_KV_BUDGET, free // 2)


def open_tokenizer(bundle: Bundle, options: EngineOptions | None = None) -> Tokenizer | None:
    """The tokenizer of ``bundle``; None if it has none.

    Its compiled form, where the bundle has one and edgegen's compiled code is there and not switched off.
    """
    name, files = bundle.manifest.tokenizer, bundle.manifest.files
    if not name:
        return None
    library = kernel_library() if options is None or options.kernels == "auto" else None
    if library is not None and COMPILED in files:
        path, source = bundle.file(COMPILED), bundle.file(name)
        if (compiled := Tokenizer.from_compiled(path, source, files[name].sha256, library)) is not None:
            return compiled
    return Tokenizer.from_file(bundle.file(name))
