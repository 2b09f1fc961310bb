"""Architecture: a model family as data, and the strict binding of a checkpoint's tensors to our names."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from edgegen.errors import TensorError, UnsupportedModelError, did_you_mean, one_or_list
from edgegen_export.architecture.config import (
    LAYER_NORMS,
    AltUp,
    DecoderConfig,
    GatedDeltaNet,
    LearnedPositions,
    Mamba2,
    Norm,
    QKNorm,
)
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated, Same, Shape, TensorLayout
from edgegen_export.checkpoint import BaseNames, LazyTensor
from edgegen_export.checkpoint.base_names import without_prefix

TensorMap = Mapping[str | tuple[str, ...], "str | TensorLayout"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model family as data: how its ``config.json`` is read, and what its tensors are called.

    ``tensors`` maps our names (templates with ``{i}``) to the checkpoint's names, or to a :class:`TensorLayout` where
    the checkpoint stores them differently. It is a function of the config where names or layouts depend on it.
    ``classes``: values of the config's ``architectures`` that are this causal language model.
    ``read``: makes a ``DecoderConfig`` of the config. ``defaults``: values of the family's config class for missing
    keys. ``aliases``: other names of keys.
    ``prefixes``: optional prefixes of all tensor names. ``ignored``: patterns of tensor names that hold no weight.
    ``variant``: other ``tensors``, for checkpoints where a tensor's name ends as said.
    """

    model_types: tuple[str, ...]
    classes: tuple[str, ...]
    read: Callable[[ConfigReader], DecoderConfig]
    tensors: TensorMap | Callable[[DecoderConfig], TensorMap]
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prefixes: tuple[str, ...] = ("",)
    ignored: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    variant: tuple[str, Callable[[DecoderConfig], TensorMap]] | None = None

    def as_stored(self, names: Iterable[str]) -> "Architecture":
        """This, with the ``tensors`` of a checkpoint that has these ``names``."""
        if self.variant is None or not any(name.endswith(self.variant[0]) for name in names):
            return self
        return replace(self, tensors=self.variant[1])

    def layouts(self, config: DecoderConfig) -> dict[str | tuple[str, ...], TensorLayout]:
        """``tensors`` under ``config``, plain names turned into layouts."""
        tensors = self.tensors(config) if callable(self.tensors) else self.tensors
        return {ours: Same(theirs) if isinstance(theirs, str) else theirs for ours, theirs in tensors.items()}

    def base_names(self, config: DecoderConfig) -> BaseNames:
        """The modules that an adapter changes in a special way: embedding, head and transposed matrices."""
        layouts = self.layouts(config)
        transposed = (layout for layout in layouts.values() if isinstance(layout, Concatenated) and layout.transposed)
        return BaseNames(
            embedding=_module(layouts.get("embed.weight")),
            head=_module(layouts.get("head.weight")),
            inputs_first=tuple(map(_module, transposed)),
            prefixes=self.prefixes,
        )

    def read_config(self, config: Mapping[str, Any]) -> DecoderConfig:
        """
        Raises:
            UnsupportedModelError: the config asks for what cannot be exported; every problem is listed.
        """
        reader = ConfigReader(config, self.defaults, self.aliases)
        result = self.read(reader)
        reader.finish()
        return result


def decoder_tensors(config: DecoderConfig) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Our tensors of ``config``: (required, optional) names and shapes. Presence decides whether a bias exists."""
    d = config.hidden_size
    embedding = config.embedding_size or d
    matrices: dict[str, Shape] = {"embed": (config.vocab_size, embedding)}
    if embedding != d:
        matrices |= {"embed_in": (d, embedding), "head_in": (embedding, d)}
    if own := config.per_layer:
        both = config.num_layers * own.width
        matrices |= {"embed_per_layer": (own.rows, both), "per_layer_in": (both, d)}
        for i in range(config.num_layers):
            matrices |= {f"layers.{i}.per_layer.gate": (own.width, d), f"layers.{i}.per_layer.out": (d, own.width)}
    if config.altup:
        matrices |= dict.fromkeys((*altup_inputs(config.altup), *altup_outputs(config.altup)), (d, d))
    if rank := config.laurel:
        for i in range(config.num_layers):
            matrices |= {f"layers.{i}.laurel.left": (rank, d), f"layers.{i}.laurel.right": (d, rank)}
    kernels: dict[str, Shape] = {}
    for i, layer in enumerate(config.layers):
        attn, mlp, conv = f"layers.{i}.attn", f"layers.{i}.mlp", f"layers.{i}.conv"
        if layer.conv:
            matrices |= {f"{conv}.{name}": (d, d) for name in ("b", "c", "v", "out")}
            kernels[f"{conv}.kernel"] = (d, 1, layer.conv.width)
        if layer.mamba:
            matrices |= _mamba2(f"layers.{i}.mamba", d, layer.mamba)
            kernels[f"layers.{i}.mamba.kernel"] = (layer.mamba.convolved, 1, layer.mamba.width)
        if layer.delta:
            matrices |= _delta(f"layers.{i}.delta", d, layer.delta)
            kernels[f"layers.{i}.delta.kernel"] = (layer.delta.convolved, 1, layer.delta.width)
        if layer.attends:
            q, kv = (n * config.head_dim_of(i) for n in (config.num_heads, config.kv_heads_of(i)))
            gates = config.num_heads if config.gated_attention == "by_head" else q
            rows = {f"{attn}.q": q, f"{attn}.k": kv, f"{attn}.v": kv, f"{attn}.gate": gates}
            matrices |= {name: (rows[name], d) for name in attention_inputs(config, i)}
            matrices[f"{attn}.o"] = (d, q)
        if not config.has_mlp(i):
            continue
        experts = config.experts_of(i)
        if experts is None:
            matrices |= _mlp(mlp, d, config.mlp_width_of(i), gated=config.gated)
            continue
        matrices[f"{mlp}.router"] = (experts.count, d)
        matrices |= _mlp(mlp, experts.latent or d, experts.width, gated=config.gated, count=experts.count)
        if experts.latent:
            matrices |= {f"layers.{i}.latent_in": (experts.latent, d), f"layers.{i}.latent_out": (d, experts.latent)}
        if experts.shared_width:
            matrices |= _mlp(f"layers.{i}.shared", d, experts.shared_width, gated=config.gated)
            matrices |= {f"layers.{i}.shared_gate": (1, d)} if experts.shared_gated else {}
    if not config.tied_head:
        matrices["head"] = (config.vocab_size, embedding)

    required = {f"{name}.weight": shape for name, shape in (matrices | kernels).items()}
    if isinstance(config.positions, LearnedPositions):
        required["positions.weight"] = (config.positions.rows, d)
    if config.activation == "xielu":
        required |= {name: shape for i in range(config.num_layers) for name, shape in xielu_tensors(i).items()}
    for i, layer in enumerate(config.layers):
        if layer.mamba:
            required |= dict.fromkeys(mamba2_numbers(i), (layer.mamba.heads,))
        if layer.delta:
            required |= dict.fromkeys(delta_numbers(i), (layer.delta.value_heads,))
    for name, (norm, shape) in decoder_norms(config).items():
        required |= {f"{name}.weight": shape} if norm.weight else {}
        required |= {f"{name}.bias": shape} if norm.bias else {}
    if config.altup:
        for i in range(config.num_layers):
            required |= altup_numbers(i, config.altup, d)
    if config.layer_scale:
        required |= {f"layers.{i}.scale": (1,) for i in range(config.num_layers)}
    for i in range(config.num_layers):
        required |= _of_routing(config, i)
    if config.sinks:
        required |= {f"layers.{i}.attn.sinks": (config.num_heads,) for i in config.attention_layers}
    biased = [name for name in matrices if name.startswith("layers.") and ".shared_gate" not in name]
    optional = {f"{name}.bias": (matrices | kernels)[name][:1] for name in (*biased, *kernels)}
    optional["head.bias"] = (config.vocab_size,)
    return required, optional


def xielu_tensors(layer: int) -> dict[str, Shape]:
    """The trained numbers of a layer's xIELU: for positive inputs, for negative ones, and of the linear part."""
    module = f"layers.{layer}.mlp.act"
    return {f"{module}.alpha_p": (1,), f"{module}.alpha_n": (1,), f"{module}.beta": ()}


def altup_inputs(altup: AltUp) -> tuple[str, ...]:
    """The matrices that make all streams but the first of the token embedding."""
    return tuple(f"altup_in.{k}" for k in range(altup.streams - 1))


def altup_outputs(altup: AltUp) -> tuple[str, ...]:
    """The matrices that project all streams but the first behind the last layer."""
    return tuple(f"altup_out.{k}" for k in range(altup.streams - 1))


def altup_numbers(layer: int, altup: AltUp, hidden: int) -> dict[str, Shape]:
    """The router and the coefficients of a layer with several streams, and the vector of the active one."""
    module, count = f"layers.{layer}.altup", altup.streams
    return {
        f"{module}.router.weight": (count, hidden),
        f"{module}.predict.weight": (count * count, count),
        f"{module}.correct.weight": (count, count),
        **({f"{module}.scale.weight": (hidden,)} if altup.scaled else {}),
    }


def matrices_around(config: DecoderConfig) -> list[tuple[str, ...]]:
    """The matrices before and behind the layers, those that are fused together, but for embedding and head."""
    found: list[tuple[str, ...]] = [("per_layer_in",)] if config.per_layer else []
    if config.altup:
        found += [altup_inputs(config.altup), *((name,) for name in altup_outputs(config.altup))]
    return found


def choice_bias(layer: int) -> str:
    """The numbers that are added to the scores of a layer's experts for the choice."""
    return f"layers.{layer}.mlp.router.choice_bias"


def expert_scales(layer: int) -> str:
    """The factors of the weights of a layer's experts."""
    return f"layers.{layer}.mlp.router.expert_scales"


def mamba2_numbers(layer: int) -> tuple[str, str, str]:
    """The trained numbers of a Mamba-2 mixer, one per head: added to dt, the rate's logarithm, the skip."""
    module = f"layers.{layer}.mamba"
    return f"{module}.dt_offset", f"{module}.rate", f"{module}.skip"


def mamba2_inputs(layer: int) -> tuple[str, ...]:
    """The matrices of a Mamba-2 mixer that take what the layer takes."""
    return tuple(f"layers.{layer}.mamba.{name}" for name in ("z", "x", "b", "c", "dt"))


def _mamba2(module: str, hidden: int, mixer: Mamba2) -> dict[str, Shape]:
    """The matrices of a Mamba-2 mixer."""
    shared = mixer.groups * mixer.state
    rows = {"z": mixer.inner, "x": mixer.inner, "b": shared, "c": shared, "dt": mixer.heads}
    taking = {f"{module}.{name}": (count, hidden) for name, count in rows.items()}
    return {**taking, f"{module}.out": (hidden, mixer.inner)}


def delta_numbers(layer: int) -> tuple[str, str]:
    """The trained numbers of a gated delta net, one per value head: added to dt, the rate's logarithm."""
    module = f"layers.{layer}.delta"
    return f"{module}.dt_offset", f"{module}.rate"


def attention_inputs(config: DecoderConfig, layer: int) -> tuple[str, ...]:
    """The matrices of attention that take what the layer takes."""
    names = ["q", "k"] if config.layers[layer].value_is_key else ["q", "k", "v"]
    names = names if config.layers[layer].source is None else ["q"]
    return tuple(f"layers.{layer}.attn.{name}" for name in (*names, *(["gate"] if config.gated_attention else [])))


def delta_inputs(layer: int) -> tuple[str, ...]:
    """The matrices of a gated delta net that take what the layer takes."""
    return tuple(f"layers.{layer}.delta.{name}" for name in ("q", "k", "v", "z", "dt", "beta"))


def mixer_matrices(config: DecoderConfig, layer: int) -> dict[str, tuple[str, ...]]:
    """All matrices of a layer but its MLP's: by those that give what is added to the residual stream, those that take
    what the layer takes."""
    own, name = config.layers[layer], f"layers.{layer}"
    found: dict[str, tuple[str, ...]] = {}
    if own.conv:
        found[f"{name}.conv.out"] = tuple(f"{name}.conv.{one}" for one in "bcv")
    if own.mamba:
        found[f"{name}.mamba.out"] = mamba2_inputs(layer)
    if own.delta:
        found[f"{name}.delta.out"] = delta_inputs(layer)
    if own.attends:
        found[f"{name}.attn.o"] = attention_inputs(config, layer)
    return found


def _delta(module: str, hidden: int, net: GatedDeltaNet) -> dict[str, Shape]:
    """The matrices of a gated delta net."""
    rows = {"q": net.keys, "k": net.keys, "v": net.values, "z": net.values}
    rows |= {"dt": net.value_heads, "beta": net.value_heads}
    taking = {f"{module}.{name}": (count, hidden) for name, count in rows.items()}
    return {**taking, f"{module}.out": (hidden, net.values)}


def _mlp(module: str, hidden: int, width: int, *, gated: bool, count: int = 1) -> dict[str, Shape]:
    """The matrices of ``count`` MLPs, those of all experts concatenated."""
    wide, down = (count * width, hidden), (count * hidden, width)
    return {**({f"{module}.gate": wide} if gated else {}), f"{module}.up": wide, f"{module}.down": down}


def decoder_norms(config: DecoderConfig) -> dict[str, tuple[Norm, Shape]]:
    """Our norms of ``config``: what each computes, and the shape of its weight."""
    names = ["embed_norm"] if config.embedding_norm else []
    names += [f"layers.{i}.{name}" for i in range(config.num_layers) for name in LAYER_NORMS[config.block]]
    names += ["final_norm"] if config.final_norm else []
    norms: dict[str, tuple[Norm, Shape]] = dict.fromkeys(names, (config.norm, (config.hidden_size,)))
    for i, layer in enumerate(config.layers):
        if layer.mamba and layer.mamba.eps is not None:
            norms[f"layers.{i}.mamba.norm"] = (Norm("rms", layer.mamba.eps), (layer.mamba.inner,))
        if layer.delta:
            norms[f"layers.{i}.delta.norm"] = (Norm("rms", layer.delta.eps), (layer.delta.value_dim,))
    if own := config.per_layer:
        norms["per_layer_norm"] = (config.norm, (own.width,))
        norms |= {f"layers.{i}.per_layer_norm": (config.norm, (config.hidden_size,)) for i in range(config.num_layers)}
    for part in (["altup"] if config.altup else []) + (["laurel"] if config.laurel else []):
        norms |= {f"layers.{i}.{part}.norm": (config.norm, (config.hidden_size,)) for i in range(config.num_layers)}
    for i in range(config.num_layers):
        if (experts := config.experts_of(i)) and experts.own_norms:
            own_norms = ("router_norm", "expert_norm", "shared_post_norm", "expert_post_norm")
            norms |= {f"layers.{i}.{name}": (config.norm, (config.hidden_size,)) for name in own_norms}
    if config.qk_norm:
        for i in config.attention_layers:
            normed = {"q_norm": config.num_heads}
            normed |= {"k_norm": config.kv_heads_of(i)} if config.layers[i].source is None else {}
            for name, heads in normed.items():
                shape = _qk_shape(config.qk_norm, heads, config.head_dim_of(i))
                norms[f"layers.{i}.attn.{name}"] = (config.qk_norm.norm, shape)
    return norms


def _of_routing(config: DecoderConfig, layer: int) -> dict[str, Shape]:
    """The trained numbers of a layer's routing, one per expert."""
    experts = config.experts_of(layer)
    if experts is None:
        return {}
    names = [choice_bias(layer)] if experts.routing.choice_bias else []
    names += [expert_scales(layer)] if experts.routing.expert_scales else []
    return dict.fromkeys(names, (experts.count,))


def _qk_shape(qk_norm: QKNorm, heads: int, head_dim: int) -> Shape:
    match qk_norm.over:
        case "head":
            return (head_dim,)
        case "each_head":
            return (heads, head_dim)
        case "all":
            return (heads * head_dim,)


def bind(architecture: Architecture, config: DecoderConfig, theirs: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    """Our names → lazy tensors. Every tensor of the checkpoint is used exactly once or ignored by name.

    Raises:
        TensorError: tensors are missing, extra or misshapen; all of them are listed.
    """
    required, optional = decoder_tensors(config)
    shapes = required | optional
    found, clashes = _without_prefix(architecture, theirs)
    instances = _instances(architecture.as_stored(found), config)
    strange = _by_layer(found.keys() - {name for _, layout in instances for name in layout.names})
    bound: dict[str, LazyTensor] = {}
    used: set[str] = set()
    problems = list(clashes)
    spare = _spare_tensors(config)
    head = next((layout.theirs for names, layout in instances if names == ("head.weight",)), "")
    for names, layout in instances:
        if not all(name in shapes for name in names):  # ours do not exist under this config
            used |= found.keys() & set(layout.names) if spare.issuperset(names) else set()
            continue
        wanted = layout.shape([shapes[name] for name in names])
        sources = [found.get(name) for name in layout.names]
        if any(name in required for name in names) or any(sources):
            missing = [name for name, source in zip(layout.names, sources, strict=True) if source is None]
            if len(missing) == len(sources) > 1:
                missing = [f"{missing[0]} to {missing[-1]}"]  # experts may have thousands
            problems += [
                f"{name}: missing, shape {list(wanted)} expected{did_you_mean(name, strange.get(_layer(name), ()))}"
                for name in missing
            ]
        present = [source for source in sources if source is not None]
        used |= found.keys() & set(layout.names)
        problems += [
            f"{name}: shape {list(source.shape)}, but the config asks for {list(wanted)}"
            for name, source in zip(layout.names, sources, strict=True)
            if source is not None and source.shape != wanted
        ]
        if len(present) == len(sources) and all(source.shape == wanted for source in present):
            bound |= zip(names, layout.apply(present, [shapes[name] for name in names]), strict=True)
    if config.tied_head and head in found:  # old checkpoints store it twice
        used.add(head)
        if "embed.weight" in bound and not found[head].equals(bound["embed.weight"]):
            problems.append(
                f"{head}: differs from the token embedding, to which the config ties it; to use it, set "
                '"tie_word_embeddings": false in config.json; to drop it, delete it from the checkpoint'
            )
    if found and not used - {head}:  # heads of most models have the same name
        some = ", ".join(name[:100] for name in sorted(found.keys() - used)[:3])
        raise TensorError(
            f"the checkpoint's tensors ({some}, …) are not those of a "
            f"{architecture.model_types[0]} model: its config.json must be that of another one"
        )
    problems += [f"{name}: missing, and other layers have it" for name in _lacking(instances, optional, found)]
    unmapped = required.keys() - {name for names, _ in instances for name in names}
    problems += [f"{name}: needed, and the architecture does not say what it is called" for name in sorted(unmapped)]
    problems += [f"{name}: not a tensor of this architecture" for name in sorted(found.keys() - used)]
    if problems:
        raise TensorError(f"the checkpoint's tensors do not fit its config.json: {one_or_list(problems)}")
    return bound


def _spare_tensors(config: DecoderConfig) -> set[str]:
    """Tensors that a checkpoint may have, and that nothing is computed with: of keys and values that are not read, and
    vectors of streams that are not scaled."""
    readers = [i for i, layer in enumerate(config.layers) if layer.source is not None]
    names = ("k.weight", "k.bias", "v.weight", "v.bias", "k_norm.weight", "k_norm.bias")
    spare = {f"layers.{i}.attn.{name}" for i in readers for name in names}
    scaled = config.altup is None or config.altup.scaled
    return spare if scaled else spare | {f"layers.{i}.altup.scale.weight" for i in range(config.num_layers)}


def _layer(name: str) -> str:
    """The first number in a name: that of its layer, where it has one."""
    number = re.search(r"\d+", name)
    return number[0] if number else ""


def _by_layer(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by layer: spelling hints search one layer, since a model may have ten thousands of tensors."""
    result: dict[str, list[str]] = {}
    for name in names:
        result.setdefault(_layer(name), []).append(name)
    return result


def _lacking(
    instances: list[tuple[tuple[str, ...], TensorLayout]],
    optional: Mapping[str, Shape],
    found: Mapping[str, LazyTensor],
) -> list[str]:
    """The checkpoint's names of optional tensors that only some layers have."""
    with_it, without = set[str](), dict[str, list[str]]()
    for names, layout in instances:
        kind = re.sub(r"\d+", "{i}", names[0], count=1)
        if names[0] not in optional:
            continue
        if any(name in found for name in layout.names):
            with_it.add(kind)
        else:
            without.setdefault(kind, []).extend(layout.names)
    return [name for kind, names in without.items() if kind in with_it for name in names]


def _module(layout: TensorLayout | None) -> str:
    """The module whose weight has this layout; empty where the architecture has none."""
    return layout.theirs.removesuffix(".weight") if layout else ""


def _without_prefix(
    architecture: Architecture, theirs: Mapping[str, LazyTensor]
) -> tuple[dict[str, LazyTensor], list[str]]:
    """The checkpoint's tensors without prefix and without ignored ones; duplicate names become problems."""
    ignored = re.compile("|".join(architecture.ignored) or r"(?!)")
    found: dict[str, LazyTensor] = {}
    clashes: list[str] = []
    for full_name, tensor in theirs.items():
        name = without_prefix(full_name, architecture.prefixes)
        if ignored.fullmatch(name):
            continue
        if name in found:
            clashes.append(f"{full_name}: stored twice, with and without a prefix")
        found[name] = tensor
    return found, clashes


def _instances(architecture: Architecture, config: DecoderConfig) -> list[tuple[tuple[str, ...], TensorLayout]]:
    """The architecture's map with its templates filled in for every layer."""
    instances: list[tuple[tuple[str, ...], TensorLayout]] = []
    for ours, layout in architecture.layouts(config).items():
        names = (ours,) if isinstance(ours, str) else ours
        layers = range(config.num_layers) if "{i}" in layout.theirs else range(1)
        instances += [(tuple(n.replace("{i}", str(i)) for n in names), layout.for_layer(i)) for i in layers]
    return instances


WhyNot = Callable[[Mapping[str, Any], Collection[str]], str | None]


def find_architecture(
    config: Mapping[str, Any], families: tuple[Architecture, ...], why_not: WhyNot | None = None
) -> Architecture:
    """The family that ``config.json`` names. ``why_not``: why a model of none cannot be exported, where that is known.

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
        if reason := why_not and why_not(config, known):
            raise UnsupportedModelError(f"model_type {model_type!r} cannot be exported: {reason}.")
        # The nearest name may be another architecture; only another spelling is the same one.
        same = next((f" (did you mean {name!r}?)" for name in known if _letters(name) == _letters(model_type)), "")
        raise UnsupportedModelError(
            f"model_type {model_type!r} is not supported{same}; supported: {', '.join(sorted(known))}."
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


def _letters(name: str) -> str:
    """Letters and digits alone, in lower case."""
    return "".join(c for c in name.lower() if c.isalnum())
