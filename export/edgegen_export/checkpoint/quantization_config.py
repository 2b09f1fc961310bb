"""read_quantization(): what a config says of how its checkpoint is quantized.

Read are GPTQ, AWQ and MXFP4 (``packing.py``); FP8 as transformers (``fp8``, ``fbgemm_fp8``), compressed-tensors and
ModelOpt store it; int8 and packed integers of compressed-tensors; NVFP4 and MX formats of compressed-tensors, ModelOpt
and MLX; MLX's affine groups; bitsandbytes' codebooks and int8; and BitNet's ternary matrices. What quantizes
activations (but BitNet's) or the KV cache is not used and named as such; every key that is not known is a problem.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

from edgegen.errors import did_you_mean, suggestions
from edgegen_export.checkpoint.bitsandbytes import BitsAndBytes
from edgegen_export.checkpoint.packing import SETTINGS, Packing, read_packing
from edgegen_export.checkpoint.stored_format import CHANNEL, REGEX, TENSOR, Block, Formats, StoredFormat, Target
from edgegen_export.checkpoint.ternary import Ternary
from edgegen_export.checkpoint.weight_files import read_json_object
from edgegen_export.files.fields import Fields

MLX_SETTINGS = "quantization"
MODELOPT_FILE = "hf_quant_config.json"
"""Where ModelOpt writes its settings; only its later versions write them into config.json, too."""

_PACKED_METHODS = ("gptq", "awq", "mxfp4")
_ORIGINAL = "export the original checkpoint"

Settings = Mapping[str, Any]


def read_quantization(config: Settings) -> Packing | Formats | BitsAndBytes | Ternary | list[str] | None:
    """How the weights of a checkpoint with this ``config`` are stored, or everything in it that is not read; None where
    they are not quantized."""
    settings, of_mlx = config.get(SETTINGS), config.get(MLX_SETTINGS)
    if of_mlx is not None:
        return _read_mlx(of_mlx, settings)
    if settings is None:
        return None
    if not isinstance(settings, Mapping):
        return [f"{SETTINGS}: an object expected, found {settings!r}"]
    found = cast(Settings, settings)
    if "quant_method" not in found and {"group_size", "bits"} <= found.keys():  # MLX writes its settings twice
        return _read_mlx(found, None)
    # Some checkpoints of ModelOpt say only what the quantization is, not whose.
    method = found.get("quant_method", "modelopt" if "quant_algo" in found else None)
    if method in _PACKED_METHODS:
        return read_packing(found)
    reader = _METHODS.get(method) if isinstance(method, str) else None
    if reader is None:
        known = (*_PACKED_METHODS, *_METHODS)
        near = did_you_mean(method, known) if isinstance(method, str) else ""
        read = f"{', '.join(known[:-1])} and {known[-1]} are read"
        return [f"{SETTINGS}.quant_method = {method!r}: {read}{near}; {_ORIGINAL}"]
    said = _Said(SETTINGS, found)
    formats = reader(said)
    return said.unread() or formats


def with_modelopt_settings(config: dict[str, Any], file: Path | None) -> dict[str, Any]:
    """``config`` with ModelOpt's settings from a ``file`` of theirs, where it has none of its own."""
    if file is None or config.get(SETTINGS) is not None:
        return config
    return config | {SETTINGS: {**read_json_object(file), "quant_method": "modelopt"}}


class _Said(Fields):
    """Settings, read key by key; those that were not read are problems, and so is every value that is not known."""

    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__(settings)
        self.name = name
        self._inner = list[_Said]()

    @property
    def keys(self) -> Collection[str]:
        return self._values.keys()

    def unread(self) -> list[str]:
        """Every problem, and every key that was not read."""
        unknown = sorted(key for key in self._values.keys() - self._read if self._values[key] is not None)
        return [
            *self.problems,
            *(
                f"{self.name}.{key} = {self._values[key]!r}: not understood, and it may change the result{near}"
                for key, near in zip(unknown, suggestions(unknown, self._read), strict=True)
            ),
            *(problem for inner in self._inner for problem in inner.unread()),
        ]

    def problem(self, key: str, expected: str) -> None:
        self._read.add(key)
        self.problems.append(f"{self.name}.{key} = {self._values.get(key)!r}: {expected}")

    def one_of(self, key: str, known: Sequence[object], default: Any = None, why: str = "") -> Any:
        """The value of ``key``, which must be one of ``known``; ``default`` if it is absent."""
        value = self.value(key)
        value = default if value is None else value
        if not any(value is one or (type(value) is type(one) and value == one) for one in known):
            read = " or ".join(map(str, known))
            near = did_you_mean(value, [str(one) for one in known]) if isinstance(value, str) else ""
            self.problem(key, why or f"read with {read}{near}")
            return default
        return value

    def positive(self, key: str, default: int | None = None) -> int:
        value = self.value(key)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            self.problem(key, "a positive whole number expected")
            return default or 1
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        value = self.value(key)
        items = cast("list[object]", value) if isinstance(value, list) else []
        if value is not None and (not isinstance(value, list) or not all(isinstance(item, str) for item in items)):
            self.problem(key, "a list of names expected")
            return ()
        return tuple(map(str, items))

    def patterns(self, key: str) -> tuple[str, ...]:
        """A list of names, and of regular expressions after ``re:``."""
        found = self.strings(key)
        for pattern in found:
            try:
                re.compile(pattern.removeprefix(REGEX) if pattern.startswith(REGEX) else "")
            except re.error as error:
                self.problem(key, f"{pattern!r} is not a regular expression ({error})")
                return ()
        return found

    def inner(self, key: str) -> "_Said | None":
        """The object under ``key``; None if it is absent."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.problem(key, "an object expected")
            return None
        found = _Said(f"{self.name}.{key}", cast(Settings, value))
        self._inner.append(found)
        return found


def _block(value: object) -> Block | None:
    """``[rows, columns]``, or ``"rowsxcolumns"``."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,6}x\d{1,6}", value):
        value = [int(part) for part in value.split("x")]
    if not isinstance(value, list):
        return None
    sizes = cast("list[object]", value)
    whole = [size for size in sizes if type(size) is int and size > 0]
    return (whole[0], whole[1]) if len(whole) == len(sizes) == 2 else None


# transformers.


def _read_fp8(said: _Said) -> Formats:
    """FP8 with a scale per block (``weight_scale_inv``), or per tensor."""
    given, block = said.value("weight_block_size"), None
    if given is not None and (block := _block(given)) is None:
        said.problem("weight_block_size", "[rows, columns] expected")
    said.one_of("fmt", (None, "e4m3", "float8_e4m3fn", "e5m2", "float8_e5m2"))
    said.one_of("expert_dtype", (None, "fp8"))
    said.one_of("is_checkpoint_fp8_serialized", (None, True))
    bytes_are = said.one_of("scale_fmt", (None, "float", "ue8m0"))
    activations = said.one_of("activation_scheme", (None, "dynamic", "static"))
    # Which modules are quantized is what their tensors say.
    for key in ("modules_to_not_convert", "ignored_layers", "modules_to_convert"):
        said.strings(key)
    said.ignore("quant_method", "dequantize")
    form = StoredFormat("float8", (block,) if block else (TENSOR, CHANNEL), byte_scales=_bytes_of(bytes_are))
    return Formats(form, unused=(*_of_kv_cache(said), *(["static scales of activations"] * (activations == "static"))))


def _bytes_of(scale_fmt: object) -> Literal["exponents", "none"]:
    return "exponents" if scale_fmt == "ue8m0" else "none"


def _read_fbgemm(said: _Said) -> Formats:
    said.strings("modules_to_not_convert")
    said.ignore("quant_method", "activation_scale_ub")
    return Formats(StoredFormat("float8", (CHANNEL,)))


def _of_kv_cache(said: _Said) -> tuple[str, ...]:
    """Name the KV cache's quantization if there is one; edgegen measures scales of its own."""
    keys = ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_quant_method")
    said.ignore(*keys)
    return ("the quantization of the KV cache",) if any(said.value(key) is not None for key in keys) else ()


# compressed-tensors.

_CT_FORMATS = {
    "dense": (),
    "pack-quantized": ("int",),
    "int-quantized": ("int",),
    "float-quantized": ("float",),
    "naive-quantized": ("int", "float"),
    "nvfp4-pack-quantized": ("float",),
    "mxfp4-pack-quantized": ("float",),
    "mxfp8-quantized": ("float",),
}
"""The types of numbers that each may have."""

_MIXED = "mixed-precision"


def _read_compressed_tensors(said: _Said) -> Formats:
    known = (*_CT_FORMATS, _MIXED)
    whole = said.one_of("format", known)
    said.ignore("quant_method", "global_compression_ratio", "version", "run_compressed")
    said.one_of("quantization_status", (None, "compressed", "frozen"))
    for key in ("sparsity_config", "transform_config", "moe_sparsity_config"):
        if said.value(key) and said.value(key) != {"format": "dense"}:
            said.problem(key, f"weights that are changed so are not read; {_ORIGINAL}")
    targets, unused = list[Target](), _of_kv_cache(said)
    groups = said.inner("config_groups")
    if groups is None and whole != "dense":
        said.problem("config_groups", "an object expected, which says how modules are quantized")
    for name in groups.keys if groups else ():
        group = groups.inner(name) if groups else None
        if group is None:
            continue
        form = group.one_of("format", (None, *_CT_FORMATS)) or (whole if whole != _MIXED else None)
        found = None
        if group.value("weights") is not None and form is None and whole is not None:
            group.problem("format", f"one of {', '.join(_CT_FORMATS)} expected")
        elif form is not None and (weights := group.inner("weights")) is not None:
            found = _of_weights(weights, str(form))
        targets += [(target, found) for target in group.patterns("targets")]
        if group.value("output_activations") is not None:
            unused = (*unused, "scales of outputs")
        inputs = group.value("input_activations")
        if isinstance(inputs, Mapping) and not cast(Settings, inputs).get("dynamic"):
            unused = (*unused, "static scales of activations")
    return Formats(None, tuple(targets), said.patterns("ignore"), unused=tuple(dict.fromkeys(unused)))


def _of_weights(said: _Said, form: str) -> StoredFormat | None:
    """The format of a group's weights; None where they are floats."""
    kind = said.one_of("type", ("int", "float"), "int")
    bits = said.positive("num_bits", 8)
    symmetric = said.one_of("symmetric", (True, False), True)
    said.one_of("dynamic", (None, False), why="weights are read that were quantized before")
    said.ignore("observer", "observer_kwargs", "actorder", "scale_dtype", "zp_dtype")
    block = _of_strategy(said)
    if form == "dense":
        return None
    if kind not in _CT_FORMATS[form]:
        said.problem("type", f"{form} is read with {' or '.join(_CT_FORMATS[form])}")
    if form == "pack-quantized":
        if bits > 8:
            said.problem("num_bits", "packed integers are read with up to 8 bits")
        return StoredFormat("words", (block,), min(bits, 8), zeros=not symmetric, shaped=True)
    if kind == "float" and not symmetric:
        said.problem("symmetric", "floats are read without zero points")
    four = form in ("nvfp4-pack-quantized", "mxfp4-pack-quantized")
    if bits != 4 if four else bits > 8 or (kind == "float" and bits != 8):
        said.problem("num_bits", f"{form} is read with {4 if four else 8} bits")
    if form == "nvfp4-pack-quantized":
        return StoredFormat("float4", (block,), byte_scales="float8", second_scale="divisor")
    if form == "mxfp4-pack-quantized":
        return StoredFormat("float4", (block,), byte_scales="exponents")
    if kind == "int":
        return StoredFormat("int8", (block,), zeros=not symmetric)
    return StoredFormat("float8", (block,), byte_scales="exponents" if form == "mxfp8-quantized" else "none")


_STRATEGIES = ("tensor", "channel", "group", "block", "tensor_group")


def _of_strategy(said: _Said) -> Block:
    """The block of weights that shares a scale."""
    size, structure = said.value("group_size"), said.value("block_structure")
    inferred = "tensor" if size is None else "channel" if size == -1 else "group"
    match said.one_of("strategy", _STRATEGIES, inferred):
        case "channel":
            return CHANNEL
        case "group" | "tensor_group":
            return 1, said.positive("group_size")
        case "block":
            if (block := _block(structure)) is None:
                said.problem("block_structure", "[rows, columns] expected")
            return block or TENSOR
        case _:
            return TENSOR


# ModelOpt.

_NVFP4_GROUP, _MX_GROUP, _FP8_BLOCK = 16, 32, 128


def _read_modelopt(said: _Said) -> Formats:
    said.ignore("quant_method", "producer", "config_groups")  # groups repeat what quant_algo says
    inside = said.inner("quantization") or said
    ignored = (*inside.strings("ignore"), *inside.strings("exclude_modules"))
    unused = _of_kv_cache(inside)
    layers = inside.value("quantized_layers")
    if inside.value("quant_algo") != "MIXED_PRECISION":
        inside.ignore("quantized_layers")
        form, activations = _of_algorithm(inside)
        return Formats(form, ignored=_wildcards(ignored), unused=(*unused, *activations))
    modules = dict[str, StoredFormat | None]()
    by_layer = inside.inner("quantized_layers")
    if not isinstance(layers, Mapping) or by_layer is None:
        inside.problem("quantized_layers", "an object expected, which says how modules are quantized")
        return Formats()
    for name in by_layer.keys:
        if (layer := by_layer.inner(name)) is not None:
            modules[name], activations = _of_algorithm(layer)
            unused = (*unused, *activations)
    return Formats(
        None,
        ignored=_wildcards(ignored),
        modules=MappingProxyType(modules),
        unused=tuple(dict.fromkeys(unused)),
    )


def _of_algorithm(said: _Said) -> tuple[StoredFormat | None, tuple[str, ...]]:
    """The format that ``quant_algo`` names, and what of it is not used."""
    static = ("static scales of activations",)
    for key in ("has_zero_point", "pre_quant_scale"):
        said.one_of(key, (None, False), why=f"not read; {_ORIGINAL}")
    algorithm = said.one_of("quant_algo", tuple(_ALGORITHMS))
    form, default = _ALGORITHMS.get(str(algorithm), (None, None))
    if form is None:
        return None, ()
    said.ignore("group_size")
    if default is not None:
        size = said.positive("group_size", default)
        rows = size if form.blocks == (TENSOR,) else 1
        form = StoredFormat(form.numbers, ((rows, size),), 8, form.byte_scales, form.second_scale)
    return form, static if algorithm in ("FP8", "NVFP4") else ()


_NVFP4 = StoredFormat("float4", (CHANNEL,), byte_scales="float8", second_scale="factor")
_ALGORITHMS: Mapping[str, tuple[StoredFormat | None, int | None]] = {
    "FP8": (StoredFormat("float8", (TENSOR, CHANNEL)), None),
    "FP8_PER_CHANNEL_PER_TOKEN": (StoredFormat("float8", (CHANNEL,)), None),
    "FP8_PB_WO": (StoredFormat("float8", (TENSOR,)), _FP8_BLOCK),
    "NVFP4": (_NVFP4, _NVFP4_GROUP),
    "W4A16_NVFP4": (_NVFP4, _NVFP4_GROUP),
    "MXFP8": (StoredFormat("float8", (CHANNEL,), byte_scales="exponents"), _MX_GROUP),
}
"""Formats, and the usual size of their blocks, where they have any: of columns, or of both with the block TENSOR."""


def _wildcards(names: Sequence[str]) -> tuple[str, ...]:
    """Names with ``*`` for anything as regular expressions."""
    return tuple(
        REGEX + ".*".join(map(re.escape, name.split("*"))) + r"(\.|$)" if "*" in name else name for name in names
    )


# MLX.

_MLX_BITS = (2, 3, 4, 5, 6, 8)
_MLX_MODES: Mapping[str, tuple[int, int, StoredFormat]] = {
    "mxfp4": (4, 32, StoredFormat("float4", ((1, 32),), byte_scales="exponents", in_words=True)),
    "mxfp8": (8, 32, StoredFormat("float8", ((1, 32),), byte_scales="exponents", in_words=True)),
    "nvfp4": (4, 16, StoredFormat("float4", ((1, 16),), byte_scales="float8", in_words=True)),
}
"""Bits, columns that share a scale, and the format."""

_MLX_KEYS = ("group_size", "bits", "mode")


def _read_mlx(settings: object, other: object) -> Formats | list[str]:
    """MLX's settings; its tools write them twice. Modules may have settings of their own, or false."""
    if not isinstance(settings, Mapping):
        return [f"{MLX_SETTINGS}: an object expected, found {settings!r}"]
    if other is not None and other != settings:
        return [f"{SETTINGS}: says something else than {MLX_SETTINGS}; delete the one that is wrong"]
    found = cast(Settings, settings)
    said = _Said(MLX_SETTINGS, found)
    said.ignore("quant_method", "linear_class", "quantize_activations")
    default, modules = _of_mlx(said), dict[str, StoredFormat | None]()
    for key, value in found.items():
        if key not in _MLX_KEYS and isinstance(value, bool):
            said.ignore(key)
            modules[key] = default if value else None
        elif key not in _MLX_KEYS and isinstance(value, Mapping) and (inner := said.inner(key)) is not None:
            modules[key] = _of_mlx(inner)
    return said.unread() or Formats(default, modules=MappingProxyType(modules), mlx=True)


def _of_mlx(said: _Said) -> StoredFormat | None:
    mode = said.one_of("mode", ("affine", *_MLX_MODES), "affine")
    if mode == "affine":
        bits, size = said.one_of("bits", _MLX_BITS), said.positive("group_size", 64)
        return StoredFormat("words", ((1, size),), bits or 8, offsets=True)
    bits, size, form = _MLX_MODES[mode]
    said.one_of("bits", (bits,), bits)
    said.one_of("group_size", (size,), size)
    return form


def _read_bitsandbytes(said: _Said) -> BitsAndBytes:
    said.ignore("quant_method", "load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit")
    said.ignore("bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant", "llm_int8_enable_fp32_cpu_offload")
    said.ignore("llm_int8_threshold")  # of activations
    said.strings("llm_int8_skip_modules")
    said.one_of("bnb_4bit_quant_type", (None, "nf4", "fp4"))
    said.one_of("bnb_4bit_quant_storage", (None, "uint8"))
    said.one_of("llm_int8_has_fp16_weight", (None, False))
    return BitsAndBytes()


_HEAD = "lm_head"


def _read_bitnet(said: _Said) -> Ternary:
    said.ignore("quant_method", "rms_norm_eps")
    kind = said.one_of("linear_class", ("bitlinear", "autobitlinear"), "bitlinear")
    mode = said.one_of("quantization_mode", ("offline", "online"), "offline")
    said.one_of("use_rms_norm", (None, False), why=f"norms before each matrix are not read; {_ORIGINAL}")
    if set(said.strings("modules_to_not_convert")) - {_HEAD}:
        said.problem("modules_to_not_convert", f"read where it names {_HEAD} or nothing")
    return Ternary(packed=kind == "bitlinear" or mode == "offline", divides=kind == "bitlinear")


_METHODS: Mapping[str, Callable[[_Said], Formats | BitsAndBytes | Ternary]] = {
    "fp8": _read_fp8,
    "fbgemm_fp8": _read_fbgemm,
    "compressed-tensors": _read_compressed_tensors,
    "modelopt": _read_modelopt,
    "bitsandbytes": _read_bitsandbytes,
    "bitnet": _read_bitnet,
}
