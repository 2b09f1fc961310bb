"""Architecture: a model family as data, and the strict binding of a checkpoint's tensors to our names."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from edgegen.errors import TensorError, UnsupportedModelError, did_you_mean, one_or_list
from edgegen_export.checkpoint import LazyTensor
from edgegen_export.config import DecoderConfig
from edgegen_export.cuts import Cut, Same, Shape

TensorMap = Mapping[str | tuple[str, ...], "str | Cut"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """``tensors`` maps our names (templates with ``{i}``) to theirs; several of ours to one fused tensor by a cut.

    ``classes``: values of the config's ``architectures`` that are this causal language model.
    ``prefixes``: what may stand before every one of their names. ``ignored``: patterns of names without weight.
    """

    model_types: tuple[str, ...]
    classes: tuple[str, ...]
    read_config: Callable[[Mapping[str, Any]], DecoderConfig]
    tensors: TensorMap
    prefixes: tuple[str, ...] = ("",)
    ignored: tuple[str, ...] = ()


def decoder_tensors(config: DecoderConfig) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Our tensors of ``config``: (required, optional) names and shapes. Presence decides whether a bias exists."""
    d, q = config.hidden_size, config.num_heads * config.head_dim
    kv = config.num_kv_heads * config.head_dim
    matrices: dict[str, Shape] = {"embed": (config.vocab_size, d)}
    norms = ["final_norm"]
    for i in range(config.num_layers):
        layer = f"layers.{i}"
        matrices |= {f"{layer}.attn.q": (q, d), f"{layer}.attn.k": (kv, d), f"{layer}.attn.v": (kv, d)}
        matrices |= {f"{layer}.attn.o": (d, q)}
        matrices |= {
            f"{layer}.mlp.up": (config.intermediate_size, d),
            f"{layer}.mlp.down": (d, config.intermediate_size),
        }
        norms += [f"{layer}.attn_norm", f"{layer}.mlp_norm"]
    if not config.tied_head:
        matrices["head"] = (config.vocab_size, d)

    required = {f"{name}.weight": shape for name, shape in matrices.items()}
    required["positions.weight"] = (config.max_positions, d)
    for name in norms:
        required |= {f"{name}.weight": (d,), f"{name}.bias": (d,)}
    optional = {f"{name}.bias": shape[:1] for name, shape in matrices.items() if name.startswith("layers.")}
    return required, optional


def bind(architecture: Architecture, config: DecoderConfig, theirs: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    """Our names → lazy tensors. Every tensor of the checkpoint is used exactly once or ignored by name.

    Raises:
        TensorError: tensors are missing, extra or misshapen; all of them are listed.
    """
    required, optional = decoder_tensors(config)
    shapes = required | optional
    found, clashes = _without_prefix(architecture, theirs)
    instances = _instances(architecture, config)
    strange = found.keys() - {cut.theirs for _, cut in instances}
    bound: dict[str, LazyTensor] = {}
    used: set[str] = set()
    spare_head: str | None = None
    problems = list(clashes)
    for names, cut in instances:
        if config.tied_head and names == ("head.weight",):
            spare_head = cut.theirs
            continue
        if not all(name in shapes for name in names):
            continue  # ours does not exist under this config
        wanted = cut.shape([shapes[name] for name in names])
        tensor = found.get(cut.theirs)
        if tensor is None:
            if any(name in required for name in names):
                near = did_you_mean(cut.theirs, strange)
                problems.append(f"{cut.theirs}: missing, shape {list(wanted)} expected{near}")
            continue
        used.add(cut.theirs)
        if tensor.shape != wanted:
            problems.append(f"{cut.theirs}: shape {list(tensor.shape)}, but the config asks for {list(wanted)}")
            continue
        bound |= zip(names, cut.apply(tensor, [shapes[name] for name in names]), strict=True)
    if spare_head in found:
        used.add(spare_head)
        if "embed.weight" in bound and not _equal(found[spare_head], bound["embed.weight"]):
            problems.append(
                f"{spare_head}: differs from the token embedding, to which the config ties it; to use it, set "
                '"tie_word_embeddings": false in config.json; to drop it, delete it from the checkpoint'
            )
    problems += [f"{name}: not a tensor of this architecture" for name in sorted(found.keys() - used)]
    if problems:
        raise TensorError(f"the checkpoint's tensors do not fit its config.json: {one_or_list(problems)}")
    return bound


def _equal(a: LazyTensor, b: LazyTensor) -> bool:
    """Whether both have the same values; old checkpoints store a tied head a second time."""
    slabs = zip(a.slabs(), b.slabs(), strict=True)
    return a.shape == b.shape and all(np.array_equal(x, y, equal_nan=True) for (_, _, x), (_, _, y) in slabs)


def _without_prefix(
    architecture: Architecture, theirs: Mapping[str, LazyTensor]
) -> tuple[dict[str, LazyTensor], list[str]]:
    """Their tensors by bare name, ignored ones left out; names that two prefixes would make equal are problems."""
    prefixes = sorted(architecture.prefixes, key=len, reverse=True)
    ignored = re.compile("|".join(architecture.ignored) or r"(?!)")
    found: dict[str, LazyTensor] = {}
    clashes: list[str] = []
    for full_name, tensor in theirs.items():
        name = full_name.removeprefix(next(p for p in prefixes if full_name.startswith(p)))
        if ignored.fullmatch(name):
            continue
        if name in found:
            clashes.append(f"{full_name}: stored twice, with and without a prefix")
        found[name] = tensor
    return found, clashes


def _instances(architecture: Architecture, config: DecoderConfig) -> list[tuple[tuple[str, ...], Cut]]:
    """The architecture's map with its templates filled in for every layer."""
    instances: list[tuple[tuple[str, ...], Cut]] = []
    for ours, theirs in architecture.tensors.items():
        names = (ours,) if isinstance(ours, str) else ours
        cut = Same(theirs) if isinstance(theirs, str) else theirs
        layers = range(config.num_layers) if "{i}" in cut.theirs else range(1)
        instances += [(tuple(n.format(i=i) for n in names), cut.for_layer(i)) for i in layers]
    return instances


def find_architecture(config: Mapping[str, Any], families: tuple[Architecture, ...]) -> Architecture:
    """The family that ``config.json`` names.

    Raises:
        UnsupportedModelError: no family has that ``model_type``, or the class is not its causal language model.
    """
    known = {model_type: family for family in families for model_type in family.model_types}
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise UnsupportedModelError(
            f"config.json has no model_type, so the architecture is unknown; supported: {', '.join(sorted(known))}."
        )
    if model_type not in known:
        raise UnsupportedModelError(
            f"model_type {model_type!r} is not supported{did_you_mean(model_type, known)}; "
            f"supported: {', '.join(sorted(known))}; for others, try --via optimum."
        )
    family = known[model_type]
    found = config.get("architectures") or family.classes
    classes = [str(name) for name in cast(list[object], found)] if isinstance(found, list | tuple) else [str(found)]
    if not set(classes) & set(family.classes):
        raise UnsupportedModelError(
            f"the checkpoint is a {' / '.join(classes)}; edgegen exports causal language models: "
            f"{', '.join(family.classes)}."
        )
    return family
