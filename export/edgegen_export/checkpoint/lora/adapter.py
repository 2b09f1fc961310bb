"""Adapter: a PEFT LoRA adapter, in a folder or on the hub, and how it is merged into a checkpoint."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from edgegen.bundle.manifest import AdapterSource
from edgegen.errors import CheckpointError, TensorError, one_or_list
from edgegen_export.checkpoint import hub
from edgegen_export.checkpoint.base_names import BaseNames
from edgegen_export.checkpoint.checkpoint import Checkpoint, existing_place
from edgegen_export.checkpoint.companions import MORE_TEMPLATES, TOKENIZER_FILES, TOKENIZERS
from edgegen_export.checkpoint.listing import Listing
from edgegen_export.checkpoint.lora.config import LoraConfig, read_lora_config
from edgegen_export.checkpoint.lora.merge import SHOWN, merge_tensors
from edgegen_export.checkpoint.lora.tensors import module_updates
from edgegen_export.checkpoint.refusal import no_adapter_refusal
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.checkpoint.weight_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, read_json_object
from edgegen_export.tensors.lazy import LazyTensor


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """A LoRA adapter in a local folder (fetched there, when it came from the hub)."""

    listing: Listing = field(repr=False)
    source: AdapterSource
    config: LoraConfig
    tensors: Mapping[str, LazyTensor] = field(repr=False)

    @classmethod
    def open(
        cls,
        source: str,
        *,
        progress: Callable[[str], None] = lambda _: None,
        check_download: hub.CheckDownload = lambda _folder, _nbytes: None,
    ) -> "Adapter":
        """Open a local folder or a hub id; an existing folder wins. ``progress`` is told what is being fetched.
        ``check_download`` hears the hub's cache folder and how many bytes of weights are to be downloaded into it, and
        may refuse.

        Raises ``CheckpointError`` (``HubError`` when the hub is the reason) unless there is an adapter in
        safetensors, and ``UnsupportedModelError``, before its weights are fetched, when it is not plain LoRA.
        """
        folder = existing_place(source)
        if folder is not None and folder.is_file():
            raise CheckpointError(f"{source} is a file: an adapter is a folder as PEFT saves it, or a hub id")
        if folder is None:
            snapshot = hub.fetch_adapter(source, progress, lambda raw: read_lora_config(raw, source), check_download)
            return cls._in(snapshot.listing, AdapterSource("hub", source, snapshot.revision))
        return cls._in(Listing.read(folder), AdapterSource("folder", folder.resolve().name))

    @classmethod
    def _in(cls, listing: Listing, source: AdapterSource) -> "Adapter":
        folder = listing.folder
        if refusal := no_adapter_refusal(listing.names, str(folder), hub=False):
            raise CheckpointError(refusal)
        config = read_lora_config(read_json_object(folder / ADAPTER_CONFIG), str(folder))
        return cls(listing, source, config, MappingProxyType(open_safetensors(folder / ADAPTER_WEIGHTS)))


def merge_adapter(
    checkpoint: Checkpoint,
    adapter: Adapter,
    names: BaseNames,
    *,
    tied_head: bool,
    warn: Callable[[str], None] = lambda _: None,
) -> Checkpoint:
    """``checkpoint`` with ``adapter`` merged into it, tensor by tensor as they are read.

    ``tied_head``: the base's head is its embedding. The config says what the merge changed of it
    (``tie_word_embeddings``, ``vocab_size``), and the adapter's tokenizer, where it has one, stands in for the base's.
    ``warn`` hears of a base other than the one the adapter names.

    Raises ``TensorError``, with everything at once, when the adapter's tensors do not fit the base or are not finite.
    """
    base, trained_on = checkpoint.source.id, adapter.config.base
    updates, misnamed = module_updates(adapter.tensors, adapter.config.modules_to_save)
    merged, misfits = merge_tensors(checkpoint.tensors, updates, adapter.config, names, tied_head=tied_head)
    if problems := [*misnamed, *misfits] or ([] if updates else ["it has no tensors of any module"]):
        listed = problems[:SHOWN] + [f"and {len(problems) - SHOWN} more"] * (len(problems) > SHOWN)
        other = f", trained on {trained_on}," if trained_on else ""
        raise TensorError(f"the adapter {adapter.source.id}{other} does not fit {base}: {one_or_list(listed)}")
    _check_finite(adapter)
    if trained_on is not None and _last(trained_on) != _last(base):
        warn(f"the adapter {adapter.source.id} was trained on {trained_on}, and is merged into {base}")
    config = dict(checkpoint.config)
    if merged.untied:
        config["tie_word_embeddings"] = False
    if merged.vocabulary is not None:
        config["vocab_size"] = merged.vocabulary
    own, bases = (
        [*sorted(TOKENIZER_FILES), *listing.below(MORE_TEMPLATES, ".jinja")]
        for listing in (adapter.listing, checkpoint.listing)
    )
    found = {name: path for name in own if (path := adapter.listing.file(name))}
    is_whole = bool(found.keys() & TOKENIZERS)  # then none of the base's files belongs to it
    return replace(
        checkpoint,
        source=replace(checkpoint.source, adapter=adapter.source),
        config=config,
        tensors=MappingProxyType(merged.tensors),
        stand_ins={**(dict.fromkeys(bases) if is_whole else {}), **found},
        metadata={} if is_whole else checkpoint.metadata,  # which may describe a tokenizer, too
    )


def _check_finite(adapter: Adapter) -> None:
    """Check that every number of an adapter's tensors is finite.

    Raises:
        TensorError: the adapter has NaN or infinity.
    """
    broken = [name for name, tensor in sorted(adapter.tensors.items()) if not _is_finite(tensor)]
    if broken:
        found = [f"{name}: has values that are NaN or infinite" for name in broken]
        raise TensorError(f"the adapter {adapter.source.id} is broken: {one_or_list(found)}")


def _is_finite(tensor: LazyTensor) -> bool:
    if not tensor.shape:
        return bool(np.isfinite(tensor.read()))
    return all(np.isfinite(slab).all() for _, _, slab in tensor.slabs())


def _last(model: str) -> str:
    """The last part of a hub id or a path, in small letters."""
    return re.split(r"[/\\]", model.rstrip("/\\"))[-1].lower()
