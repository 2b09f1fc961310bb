"""bind(): a checkpoint's tensors under our names, each used exactly once."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from edgegen.errors import TensorError, did_you_mean, refuse_any
from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.tensor_layouts import Shape, TensorLayout
from edgegen_export.architecture.tensors import components_of, decoder_tensors
from edgegen_export.checkpoint.base_names import without_prefix
from edgegen_export.tensors.lazy import LazyTensor

_FREQUENCIES = r"(.*\.)?rotary(_emb)?\.inv_freq"
"""Of RoPE, which old checkpoints of all families stored as buffers."""


def bind(architecture: Architecture, config: DecoderConfig, theirs: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    """Our names → lazy tensors. Every tensor of the checkpoint is used exactly once or ignored by name.

    Raises:
        TensorError: tensors are missing, extra or misshapen; all of them are listed.
    """
    required, optional = decoder_tensors(config)
    shapes = required | optional
    found, clashes = _without_prefix(architecture, theirs)
    found = _without_drafts(architecture, config, found)
    instances = _instances(architecture.as_stored(found), config)
    strange = _by_layer(found.keys() - {name for _, layout in instances for name in layout.names})
    bound: dict[str, LazyTensor] = {}
    used: set[str] = set()
    problems = list(clashes)
    spare = {f"{layer}{name}" for layer, one in components_of(config) for name in one.spare}
    head = next((layout.theirs for names, layout in instances if names == ("head.weight",)), "")
    for names, layout in instances:
        if not all(name in shapes for name in names):  # ours do not exist under this config
            used |= found.keys() & set(layout.names) if spare.issuperset(names) else set()
            continue
        sources = {name: found.get(name) for name in layout.names}
        sizes = layout.shapes(
            [shapes[name] for name in names], [each.shape if each else None for each in sources.values()]
        )
        wanted = dict(zip(sources, sizes, strict=True))
        if any(name in required for name in names) or any(sources.values()):
            problems += _missing(sources, wanted, strange)
        present = [source for source in sources.values() if source is not None]
        used |= found.keys() & set(layout.names)
        problems += [
            f"{name}: shape {list(source.shape)}, but the config asks for {list(wanted[name])}"
            for name, source in sources.items()
            if source is not None and source.shape != wanted[name]
        ]
        if [source.shape for source in present] == [*wanted.values()]:
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
    refuse_any(problems, TensorError, "the checkpoint's tensors do not fit its config.json: ")
    return bound


def _missing(
    sources: Mapping[str, LazyTensor | None], wanted: Mapping[str, Shape], strange: Mapping[str, Iterable[str]]
) -> Iterator[str]:
    """Say which of the ``sources`` are not there; ``strange``: by layer, names that no layout has."""
    missing = {name: name for name, source in sources.items() if source is None}
    if len(missing) == len(sources) > 1:
        first, *_, last = missing  # experts may have thousands
        missing = {first: f"{first} to {last}"}
    for name, said in missing.items():
        advice = did_you_mean(said, strange.get(_layer(name), ()))
        yield f"{said}: missing, shape {list(wanted[name])} expected{advice}"


def bind_draft_head(
    architecture: Architecture,
    config: DecoderConfig,
    theirs: Mapping[str, LazyTensor],
    bound: Mapping[str, LazyTensor],
) -> tuple[dict[str, LazyTensor], str]:
    """The tensors of the multi-token prediction head under our names, embedding and head of the model, which are
    ``bound``, among them; and why the checkpoint's head is not used, where it is not.

    Empty where the checkpoint has no such head: a model is no worse without one.
    """
    head = architecture.draft_head
    found, _ = _without_prefix(replace(architecture, heads=()), theirs)
    if head is None:
        drafts = set(found) - set(_without_drafts(architecture, config, _without_prefix(architecture, theirs)[0]))
        if not drafts:
            return {}, ""
        more = f" and {len(drafts) - 1} more" if len(drafts) > 1 else ""
        return {}, f"{min(drafts)}{more}: heads of {architecture.model_types[0]} are not read"
    own, different = head.find(config, found, bound)
    if not own:
        return {}, ""
    if different:
        return {}, f"{' and '.join(different)}: not the model's own, and would be stored beside it"
    decoder = head.config(config)
    layouts = head.layouts(architecture.as_stored(own).layouts(decoder))
    alone = Architecture(architecture.model_types, architecture.classes, architecture.read, layouts, prefixes=("",))
    try:
        return bind(alone, decoder, own), ""
    except TensorError as error:
        return {}, str(error)


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


def _without_prefix(
    architecture: Architecture, theirs: Mapping[str, LazyTensor]
) -> tuple[dict[str, LazyTensor], list[str]]:
    """The checkpoint's tensors without prefix and without ignored ones; duplicate names become problems."""
    ignored = re.compile("|".join((_FREQUENCIES, *architecture.ignored, *architecture.heads)))
    found: dict[str, LazyTensor] = {}
    clashes: list[str] = []
    for full_name, tensor in theirs.items():
        name = without_prefix(full_name, architecture.prefixes)
        for theirs_part, part in architecture.renamed.items():
            name = name.replace(theirs_part, part)
        if ignored.fullmatch(name):
            continue
        if name in found:
            clashes.append(f"{full_name}: stored twice, with and without a prefix")
        found[name] = tensor
    return found, clashes


def _without_drafts(
    architecture: Architecture, config: DecoderConfig, found: Mapping[str, LazyTensor]
) -> dict[str, LazyTensor]:
    """``found`` without the layers behind the last one that propose further tokens."""
    module = architecture.drafts.partition("{i}")[0]
    drafts = {
        f"{module}{number}."
        for number in {_layer(name) for name in found}
        if architecture.drafts.replace("{i}", number) in found and int(number or 0) >= config.num_layers
    }
    return {name: tensor for name, tensor in found.items() if name[: name.find(".", len(module)) + 1] not in drafts}


def _instances(architecture: Architecture, config: DecoderConfig) -> list[tuple[tuple[str, ...], TensorLayout]]:
    """The architecture's map with its templates filled in for every layer."""
    instances: list[tuple[tuple[str, ...], TensorLayout]] = []
    for ours, layout in architecture.layouts(config).items():
        names = (ours,) if isinstance(ours, str) else ours
        layers = range(config.num_layers) if "{i}" in layout.theirs else range(1)
        instances += [(tuple(n.replace("{i}", str(i)) for n in names), layout.for_layer(i)) for i in layers]
    return instances
