"""Manifest: the typed contents of ``edgegen.json``, the one contract between the exporter and the runtime.

Reading is strict: an unknown key, a missing one or a value of the wrong type is a :class:`ManifestError` that lists
every problem at once. ``docs/bundle-format.md`` describes each field.
"""

import json
import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast

from edgegen.bundle.kv_format import KV_FORMATS, STORED, KVDtype, KVFormat
from edgegen.bundle.layer_state import FixedState, LayerState
from edgegen.bundle.manifest_digest import KEY, ManifestDigest, with_digest
from edgegen.errors import ManifestError, refuse_any
from edgegen.strict_json import OPTIONAL, decode
from edgegen.system import is_portable, name_clashes

MANIFEST_NAME = "edgegen.json"
FORMAT_VERSION = 3
MOST_BYTES = 1 << 22
"""Of a manifest; one of a hundred layers has some 100 kB."""

Phase = Literal["prefill", "decode"]
EMBEDDINGS = ("embed", "embed_in", "head_in", "head")
"""Modules of the token embedding and the head, and of projections between them and the layers."""

CacheKind = Literal["in_place", "concat"]

_TERNARY_BITS = 2

_LARGEST = 1 << 50
"""Of any size: bytes of a file, parameters, tokens."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Size in bytes and SHA-256 (hex) of one file of the bundle."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """Where an adapter came from that was merged into the weights, or is kept beside them: as :class:`Source`."""

    kind: Literal["hub", "folder"]
    id: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class BaseBundle:
    """The bundle that an adapter bundle needs beside it, and what it adds to that.

    ``name``: the base's when the adapter was exported; ``sha256``: what its ``edgegen.json`` hashes to, in hex;
    ``adapter``: the file of the factors.
    """

    name: str
    sha256: str
    adapter: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where the weights came from: a hub id or the name of a local folder, and the commit where known."""

    kind: Literal["hub", "folder"]
    id: str
    revision: str | None = None
    adapter: AdapterSource | None = None


@dataclass(frozen=True, slots=True)
class KVLayer:
    """One layer's cache: tensors [rows, kv_heads, capacity, head_dim] and their names in the graphs.

    ``layer``: which of the model's layers; absent where every layer has one, in order. ``latent``: keys and values are
    the same numbers, and all four names are bound to one memory; absent where they are not.
    """

    cache_class: str
    kv_heads: int
    head_dim: int
    past_key: str
    past_value: str
    present_key: str
    present_value: str
    layer: int | None = field(default=None, metadata=OPTIONAL, kw_only=True)
    latent: bool = field(default=False, metadata=OPTIONAL, kw_only=True)

    @property
    def arrays(self) -> int:
        """How many arrays it has: keys and values, or one for both."""
        return 1 if self.latent else 2


@dataclass(frozen=True, slots=True)
class SharedLayer:
    """A layer ``layer`` that attends to the cache of the layer ``source``, alone or beside its own, and the names of
    that cache in its attention: bound to the source's memory, to which it appends what the source has appended."""

    layer: int
    source: int
    past_key: str
    past_value: str
    present_key: str
    present_value: str


@dataclass(frozen=True, slots=True)
class CacheClass:
    """Layers that keep the same positions: all of them, or the last ``window``.

    ``seqlens``: name of the int32 [rows] input, valid length of the class's arrays after the step less one;
    ``total``: name of the int32 scalar input, the longest valid length after the step.
    A ``concat`` cache has no such inputs, for its arrays are as long as what they hold, and no window.
    """

    window: int | None
    seqlens: str | None
    total: str | None

    @property
    def length_inputs(self) -> tuple[str, str]:
        """``seqlens`` and ``total`` of a class of an ``in_place`` cache."""
        assert self.seqlens is not None
        assert self.total is not None
        return self.seqlens, self.total


@dataclass(frozen=True, slots=True)
class KVSpec:
    """The cache that a variant's graphs read and append to: what the layers keep of a sequence.

    ``in_place``: ``past`` and ``present`` of a layer are the same memory. ``concat``: ``past`` has the positions there
    are and no more, and ``present`` is a new array: the past with the new ones after it.
    ``dtype``: where it is not ``float32``, the graphs round keys and values as they append them; only a cache in place
    is kept so.
    ``fixed``: the states of a fixed size, float32 and in place; absent without such states.
    ``shared``: layers that read another's cache; absent without such layers.
    """

    dtype: KVDtype
    kind: CacheKind
    classes: dict[str, CacheClass]
    layers: tuple[KVLayer, ...]
    fixed: tuple[FixedState, ...] = field(default=(), metadata=OPTIONAL)
    shared: tuple[SharedLayer, ...] = field(default=(), metadata=OPTIONAL)

    @property
    def states(self) -> tuple[LayerState, ...]:
        """States that layers keep, in the order of layers; a layer may keep several."""
        states = [LayerState(state.layer, "fixed", 0, state.nbytes) for state in self.fixed]
        for n, one in enumerate(self.layers):
            window, layer = self.classes[one.cache_class].window, n if one.layer is None else one.layer
            kind = "growing" if window is None else "windowed"
            states.append(LayerState(layer, kind, self.layer_bytes(one), 0, window))
            readers = (reader.layer for reader in self.readers(one))
            states += [LayerState(reader, "shared", 0, 0, window, layer) for reader in readers]
        return tuple(sorted(states, key=lambda state: state.layer))

    def readers(self, layer: KVLayer) -> tuple[SharedLayer, ...]:
        """The layers that read the cache of ``layer``."""
        return tuple(one for one in self.shared if one.source == layer.layer)

    @property
    def arrays(self) -> tuple[KVLayer, ...]:
        """The layer of each array, in the order of layers: of its keys, and of its values unless they are the same."""
        return tuple(layer for layer in self.layers for _ in range(layer.arrays))

    @property
    def bytes_per_row(self) -> int:
        """Bytes of the fixed states of one sequence, however long it is."""
        return sum(state.nbytes for state in self.fixed)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of KV cache that one token adds: arrays · kv_heads · head_dim · itemsize."""
        return sum(map(self.layer_bytes, self.layers))

    @property
    def lasting_bytes_per_token(self) -> int:
        """As ``bytes_per_token``, of layers without a window: what a token adds to a context that fills the windows."""
        return sum(self.layer_bytes(layer) for layer in self.layers if self.classes[layer.cache_class].window is None)

    def bytes_seen(self, context: int) -> int:
        """Bytes of KV cache that a token attends to after ``context`` others: in windows, of their length; what layers
        share, once for each."""
        seen = {name: min(context, kv_class.window or context) for name, kv_class in self.classes.items()}
        return sum(
            self.layer_bytes(layer) * seen[layer.cache_class] * (1 + len(self.readers(layer))) for layer in self.layers
        )

    def layer_bytes(self, layer: KVLayer) -> int:
        """Bytes of KV cache of one token in one layer."""
        return layer.arrays * layer.kv_heads * self.format.row_width(layer.head_dim) * self.format.itemsize

    @property
    def format(self) -> KVFormat:
        return KV_FORMATS[self.dtype]


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """A rotary position embedding's cosines and sines, which the runtime computes and feeds to the graphs.

    ``cos``, ``sin``: names of the float32 [positions, len(inverse_frequencies)] inputs, row p being
    ``scale · cos(p · inverse_frequencies)`` and the same for sine; there are more rows than the highest position.
    """

    cos: str
    sin: str
    inverse_frequencies: tuple[float, ...]
    scale: float


@dataclass(frozen=True, slots=True)
class GraphContract:
    """Names of the graphs' tensors besides the cache's.

    ``input_ids``, ``position_ids``: int64 [rows, tokens]; ``logits_indices``: int64 [rows, wanted], for prefill, the
    positions in this step whose logits are wanted; ``logits``: float32, prefill [rows, wanted, vocab], decode
    [rows, tokens, vocab].
    """

    input_ids: str = "input_ids"
    position_ids: str = "position_ids"
    logits_indices: str = "logits_indices"
    logits: str = "logits"


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """An output of the prefill graph: the hidden states after the final norm, float32 [rows, tokens, size].

    As transformers has them in ``last_hidden_state``: where the model projects them before the head, projected. With an
    EAGLE-3 draft they are what that takes, and are called ``draft_states``. With an assistant of Gemma 4 they are those
    of the positions whose logits are wanted, [rows, wanted, size], and are called ``wanted_states``.
    """

    name: str
    size: int

    @property
    def embedding_size(self) -> int | None:
        """The size of embeddings of these; None where they are a draft's."""
        return None if self.name in (DRAFT_STATES, WANTED_STATES) else self.size

    @property
    def of_wanted(self) -> bool:
        """Whether they are those of the positions whose logits are wanted, and of no others."""
        return self.name == WANTED_STATES


DRAFT_STATES = "draft_states"
"""The output of hidden states for an EAGLE-3 draft, which are no embeddings."""

WANTED_STATES = "wanted_states"
"""The output of hidden states for a head that reads the model's KV cache, which takes those of one position."""


@dataclass(frozen=True, slots=True)
class ModelCache:
    """KV cache of the model's own layers, read by the graph of a draft head that keeps nothing itself.

    ``layers``: of each of the graph's ``kv.layers``, the model's layer whose keys and values it reads; ``int8``: the
    graph for an int8 KV cache of the model, null where the bundle has none.
    """

    layers: tuple[int, ...]
    int8: str | None


@dataclass(frozen=True, slots=True)
class GraphVariant:
    """One way of running the model: its graphs, its weights, and what a runner must know to feed them.

    ``prefill`` returns the logits of the positions it is asked for, so it can do the work of ``decode``, which returns
    those of all, as well. ``minimum_onnxruntime`` is the oldest with every operator they use.
    ``hidden_states``: for embeddings and multi-token prediction; absent where the bundle was exported without them.
    ``hidden_input``: of the graph of a multi-token prediction head alone, its float32 [rows, tokens, size] input of the
    hidden states of the positions before the tokens. ``model_cache``: of such a graph, that it reads the model's KV
    cache; absent where it has its own.
    """

    name: str
    prefill: str
    decode: str
    weights: str
    linear: Literal["matmul_nbits", "matmul"]
    activation_dtype: Literal["float32"]
    device: Literal["cpu"]
    minimum_onnxruntime: str
    kv: KVSpec
    contract: GraphContract
    rotary: tuple[RotaryTable, ...]
    hidden_states: HiddenStates | None = field(default=None, metadata=OPTIONAL)
    hidden_input: str | None = field(default=None, metadata=OPTIONAL)
    model_cache: ModelCache | None = field(default=None, metadata=OPTIONAL)

    @property
    def kept_bytes_per_token(self) -> int:
        """Bytes of KV cache of its own that one token adds."""
        return 0 if self.model_cache else self.kv.bytes_per_token

    def over(self, dtype: KVDtype) -> "GraphVariant":
        """As this one, which reads the model's KV cache, reads one of such numbers."""
        int8 = self.model_cache.int8 if self.model_cache and dtype == "int8" else None
        graph = int8 or self.prefill
        return replace(self, prefill=graph, decode=graph, kv=replace(self.kv, dtype=dtype))

    def converted(self, form: KVFormat) -> "GraphVariant":
        """As this one, which has a float32 KV cache in place, is run with one of another dtype."""
        return replace(self, name=self.name + form.suffix, kv=replace(self.kv, dtype=form.name))


@dataclass(frozen=True, slots=True)
class Model:
    """Facts about the model, for people and planners."""

    family: str
    parameters: int
    num_layers: int
    hidden_size: int
    vocab_size: int
    max_context: int


@dataclass(frozen=True, slots=True)
class MatrixFormat:
    """How a matrix is stored: blocks of ``block_size`` weights of ``bits`` bits, with a zero of its own for each unless
    ``symmetric``; 16 and 32 bits are floats. ``accuracy_level`` is what ``MatMulNBits`` computes at. 2 bits
    without blocks are ternary: -1, 0 or 1 times the scale of a row; inputs are rounded to 8 bits for each token."""

    bits: int
    block_size: int
    symmetric: bool
    accuracy_level: int

    @property
    def is_ternary(self) -> bool:
        """Whether weights are -1, 0 or 1 times a scale."""
        return self.bits == _TERNARY_BITS and not self.block_size


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the matrices are stored, and how they came to be so.

    ``linear``: those of the layers; ``embedding``: the token embedding, the head, and projections between them and the
    layers; ``exceptions``: others, by module. A block that does not divide a matrix is smaller there. ``method``: how
    weights were rounded, or that the checkpoint's own codes and scales were repacked; ``smoothing``: share of the
    activations' outliers that was moved into weights; ``calibration``: where the ``calibration_tokens`` came from that
    were looked at, or null; ``bits_per_weight``: of all matrices, scales included.
    """

    scheme: Literal["int8", "int4", "fp16", "fp32"]
    linear: MatrixFormat
    embedding: MatrixFormat
    exceptions: dict[str, MatrixFormat] = field(default_factory=dict[str, MatrixFormat])
    method: Literal["rounding", "gptq", "repacked"] = "rounding"
    smoothing: float = 0.0
    calibration: str | None = None
    calibration_tokens: int = 0
    bits_per_weight: float = 0.0

    @property
    def calibrates(self) -> bool:
        """Whether the model has to run before its weights can be stored."""
        return self.smoothing > 0 or self.method == "gptq"

    @property
    def narrow(self) -> list[int]:
        """The bits below 4 of matrices in blocks, which edgegen's kernels alone read: 2, 3, both or none."""
        return sorted({form.bits for form in self.exceptions.values() if form.bits < 4 and form.block_size})

    def format_of(self, module: str) -> MatrixFormat:
        """The format of a module's matrix; several that are fused are called ``layers.0.attn.q+k+v``."""
        ordinary = self.embedding if module in EMBEDDINGS else self.linear
        return self.exceptions.get(module, ordinary)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole of ``edgegen.json``.

    ``folder``: the versioned folder beside it that holds every other file; ``files`` names them all, and every path
    here is relative to that folder. ``base``: of an adapter bundle, the bundle that has the graphs and weights which
    ``variants`` name; absent in all others. ``mtp``: the graph of the multi-token prediction head, which proposes
    tokens, as a variant whose prefill and decode graphs are one; absent where the model has none.
    """

    format_version: int
    name: str
    folder: str
    source: Source
    model: Model
    quantization: Quantization
    variants: tuple[GraphVariant, ...]
    tokenizer: str | None
    generation_config: str
    parity: str
    parity_reference: str
    files: dict[str, FileEntry]
    provenance: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPTIONAL)
    base: BaseBundle | None = field(default=None, metadata=OPTIONAL)
    mtp: GraphVariant | None = field(default=None, metadata=OPTIONAL)

    @property
    def all_variants(self) -> dict[str, GraphVariant]:
        """Every description of graphs, the multi-token prediction head's among them, by its place."""
        found = {f"variants[{i}]": variant for i, variant in enumerate(self.variants)}
        return found | ({"mtp": self.mtp} if self.mtp else {})

    @classmethod
    def from_json(cls, text: str, where: str = MANIFEST_NAME) -> "Manifest":
        """Parse and check.

        Raises:
            ManifestError: not JSON, another format version, or fields that are missing, unknown or ill-typed.
        """
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ManifestError(f"{where} is not valid JSON: {error}") from None
        if not isinstance(raw, dict):
            raise ManifestError(f"{where} must be a JSON object.")
        version = cast(dict[str, Any], raw).get("format_version")
        if version != FORMAT_VERSION:
            raise ManifestError(
                f"{where} has format version {version!r}; this edgegen reads version {FORMAT_VERSION}: "
                "export the model again (`edgegen export … --force`), or use the edgegen that wrote it."
            )
        stated = cast(dict[str, Any], raw).pop(KEY, None)
        if stated != ManifestDigest.of(text.encode()).stated:
            raise ManifestError(
                f"{where} is damaged: the hash of its own text is not where an export writes it. Export it again."
            )
        problems: list[str] = []
        manifest = decode(cls, raw, "", problems)
        if not problems:
            problems = _inconsistencies(cast(Manifest, manifest))
        refuse_any(problems, ManifestError, f"{where} is malformed: ")
        return cast(Manifest, manifest)

    def to_json(self) -> str:
        """The text of ``edgegen.json``, the hash of itself included."""
        return with_digest(json.dumps(asdict(self, dict_factory=_without_absent), indent=1))


_ABSENT = frozenset(
    {"base", "mtp", "hidden_states", "hidden_input", "model_cache", "fixed", "shared", "layer", "latent"}
)
"""Fields that are absent where there is none, as `docs/bundle-format.md` has it."""


def _without_absent(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    # The number of a layer may be 0.
    return {name: value for name, value in fields if value or type(value) is int or name not in _ABSENT}


def _inconsistencies(manifest: Manifest) -> list[str]:
    problems = [f"files: unsafe path {path!r}" for path in manifest.files if not is_portable(path)]
    problems += [
        f"files: {first!r} and {second!r} are one file where case makes no difference"
        for first, second in name_clashes(manifest.files)
    ]
    if not is_portable(manifest.folder):
        problems.append(f"folder: unsafe path {manifest.folder!r}")
    if not manifest.variants:
        problems.append("variants: at least one is needed")
    if len({variant.name for variant in manifest.variants}) < len(manifest.variants):
        problems.append("variants: two have the same name")
    named = {
        "generation_config": manifest.generation_config,
        "parity": manifest.parity,
        "parity_reference": manifest.parity_reference,
    }
    if manifest.tokenizer is not None:
        named["tokenizer"] = manifest.tokenizer
    problems += _sizes(manifest)
    if manifest.base is not None:
        named["base.adapter"] = manifest.base.adapter
        problems += _base_problems(manifest.base)
    for where, variant in manifest.all_variants.items():
        for key in ("prefill", "decode", "weights") if manifest.base is None else ():
            named[f"{where}.{key}"] = getattr(variant, key)
        if not variant.kv.layers and not variant.kv.fixed:
            problems.append(f"{where}.kv.layers: at least one is needed")
        for j, layer in enumerate(variant.kv.layers):
            if layer.cache_class not in variant.kv.classes:
                problems.append(f"{where}.kv.layers[{j}]: unknown cache class {layer.cache_class!r}")
        problems += [f"{where}.{problem}" for problem in _cache_problems(variant.kv)]
        if variant.hidden_states is not None and variant.hidden_states.size < 1:
            problems.append(f"{where}.hidden_states.size: at least 1 expected")
        if variant.hidden_states is not None and variant.kv.kind == "concat":
            problems.append(f"{where}.hidden_states: null expected for a cache of kind 'concat'")
        if (variant.hidden_input is not None) != (where == "mtp"):
            wanted = "str" if where == "mtp" else "null"
            problems.append(f"{where}.hidden_input: {wanted} expected")
        if variant.model_cache is not None:
            problems += [f"{where}.model_cache: null expected"] if where != "mtp" else []
            named |= {f"{where}.model_cache.int8": variant.model_cache.int8} if variant.model_cache.int8 else {}
    if manifest.mtp is not None:
        problems += _head_problems(manifest, manifest.mtp)
    problems += [f"{key}: {path!r} is not among files" for key, path in named.items() if path not in manifest.files]
    return problems


def _head_problems(manifest: Manifest, head: GraphVariant) -> list[str]:
    """Return the reasons why the multi-token prediction head cannot be fed the hidden states of the model."""
    problems = [] if head.kv.kind == "in_place" else ["mtp.kv.kind: 'in_place' expected"]
    problems += ["mtp.hidden_states: missing"] if head.hidden_states is None else []
    sizes = {head.hidden_states.size if head.hidden_states else 0}
    sizes |= {variant.hidden_states.size if variant.hidden_states else 0 for variant in manifest.variants}
    problems += ["mtp.hidden_states.size: that of every variant expected"] if len(sizes) > 1 else []
    return problems + (_reading_problems(manifest, head, head.model_cache) if head.model_cache else [])


def _reading_problems(manifest: Manifest, head: GraphVariant, cache: ModelCache) -> list[str]:
    """Return the reasons why a head cannot read the KV cache of the model."""
    problems = ["mtp.kv.fixed: none expected"] if head.kv.fixed else []
    problems += ["mtp.kv.dtype: 'float32' expected"] if head.kv.dtype != "float32" else []
    if len(cache.layers) != len(head.kv.layers):
        return [*problems, f"mtp.model_cache.layers: {len(head.kv.layers)} expected, found {len(cache.layers)}"]
    for where, variant in manifest.all_variants.items():
        if variant is head:
            continue
        if variant.kv.dtype == "int8" and cache.int8 is None:
            problems.append(f"mtp.model_cache.int8: str expected, for {where} has an int8 KV cache")
        kept = {n if one.layer is None else one.layer: one for n, one in enumerate(variant.kv.layers)}
        for layer, reader in zip(cache.layers, head.kv.layers, strict=True):
            if layer not in kept or _extent(variant.kv, kept[layer]) != _extent(head.kv, reader):
                problems.append(f"mtp.model_cache.layers: layer {layer} of {where} has no such cache")
    return problems


def _extent(kv: KVSpec, layer: KVLayer) -> tuple[object, ...]:
    """Return the contents and the layout of a layer's arrays, to compare."""
    kv_class = kv.classes.get(layer.cache_class)
    return layer.cache_class, kv_class and kv_class.window, layer.kv_heads, layer.head_dim, layer.latent


def _base_problems(base: BaseBundle) -> list[str]:
    problems = [] if is_portable(base.name) and "/" not in base.name else [f"base.name: unsafe name {base.name!r}"]
    if not re.fullmatch("[0-9a-f]{64}", base.sha256):
        problems.append("base.sha256: 64 hex digits expected")
    return problems


def _sizes(manifest: Manifest) -> list[str]:
    """Sizes that no model has, of which arrays would be made."""
    sizes = {
        f"model.{key}": getattr(manifest.model, key)
        for key in ("parameters", "num_layers", "hidden_size", "vocab_size", "max_context")
    }
    for place, variant in manifest.all_variants.items():
        for j, layer in enumerate(variant.kv.layers):
            where = f"{place}.kv.layers[{j}]"
            sizes |= {f"{where}.kv_heads": layer.kv_heads, f"{where}.head_dim": layer.head_dim}
        windows = ((name, kv_class.window) for name, kv_class in variant.kv.classes.items())
        sizes |= {f"{place}.kv.classes.{name}.window": size for name, size in windows if size is not None}
    return [
        f"{key}: from 1 to {_LARGEST} expected, found {size}" for key, size in sizes.items() if not 0 < size <= _LARGEST
    ]


def _cache_problems(kv: KVSpec) -> list[str]:
    """Fields of a cache that do not go with its kind."""
    in_place, problems = kv.kind == "in_place", list[str]()
    if kv.fixed and not in_place:
        problems.append(f"kv.fixed: none expected for a cache of kind {kv.kind!r}")
    for n, layer in enumerate(kv.layers if not in_place else ()):
        if layer.latent:
            problems.append(f"kv.layers[{n}].latent: false expected for a cache of kind {kv.kind!r}")
    if kv.shared and not in_place:
        problems.append(f"kv.shared: none expected for a cache of kind {kv.kind!r}")
    keeping = {layer.layer for layer in kv.layers}
    for n, one in enumerate(kv.shared):
        if one.source not in keeping:
            problems.append(f"kv.shared[{n}].source: layer {one.source} has no cache of its own")
        if one.layer == one.source:
            problems.append(f"kv.shared[{n}].layer: layer {one.layer} reads its own cache")
    for n, state in enumerate(kv.fixed):
        if not state.shape or min(state.shape) < 1:
            problems.append(f"kv.fixed[{n}].shape: positive sizes expected, found {list(state.shape)}")
    if kv.dtype not in STORED:
        problems.append(f"kv.dtype: {kv.dtype!r} is not one of {', '.join(map(repr, STORED))}")
    if kv.dtype != "float32" and not in_place:
        problems.append(f"kv.dtype: 'float32' expected for a cache of kind {kv.kind!r}")
    for name, kv_class in kv.classes.items():
        for key, value in (("seqlens", kv_class.seqlens), ("total", kv_class.total)):
            if (value is not None) != in_place:
                wanted = "str" if in_place else "null"
                problems.append(f"kv.classes.{name}.{key}: {wanted} expected for a cache of kind {kv.kind!r}")
        if kv_class.window is not None and not in_place:
            problems.append(f"kv.classes.{name}.window: null expected for a cache of kind {kv.kind!r}")
    return problems
