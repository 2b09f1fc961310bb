"""The original checkpoint in a GGUF file: its ``config.json`` and its tensors under their own names."""

import re
from collections.abc import Mapping
from types import NoneType
from typing import Any, NamedTuple, cast

import numpy as np

from edgegen.errors import CheckpointError, UnsupportedModelError, did_you_mean, refuse_any
from edgegen_export.checkpoint.gguf.architecture import PREFIX, DraftLayer, GgufArchitecture
from edgegen_export.checkpoint.gguf.architectures import ARCHITECTURES
from edgegen_export.checkpoint.gguf.config_rules import ROPE_FACTORS
from edgegen_export.checkpoint.gguf.file import GgufFile
from edgegen_export.checkpoint.gguf.header import ARCHITECTURE
from edgegen_export.checkpoint.gguf.layouts import Heads, Joined, Layout, Same
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader
from edgegen_export.tensors.lazy import LazyTensor

_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
_SHOWN = 60
"""How much of an unknown name is repeated."""
_LAYER = re.compile(r"blk\.(\d+)\.")
_DRAFT_INPUT = "nextn.eh_proj.weight"
"""Name of a tensor that every layer that proposes further tokens has."""
_BOS, _PAD = "bos_token_id", "padding_token_id"
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")  # of a text, of a turn, of a message
_ENDING = frozenset(
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|> "
    "<EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos>".split()
)
"""Control tokens that end a text in llama.cpp, whichever of them the metadata name."""
_CONTROL = 3
"""The type of control tokens."""


class Original(NamedTuple):
    """``heads``: what the tensors' layouts depend on. ``drafts``: layers after the last one, which propose further
    tokens. ``left_out``: why these are not read, where they are not."""

    config: dict[str, Any]
    architecture: GgufArchitecture
    heads: Heads
    tied: bool
    layers: int
    drafts: range
    left_out: str = ""

    @property
    def draft(self) -> DraftLayer | None:
        """The first of these, where it is read."""
        return None if self.left_out or not self.drafts else self.architecture.draft


def read_original(gguf: GgufFile) -> Original:
    """The configuration that the metadata and the tensors' names describe.

    Raises ``UnsupportedModelError`` for an architecture that is not known, ``CheckpointError`` for all that is missing
    or not understood.
    """
    name = gguf.metadata[ARCHITECTURE]
    if name not in ARCHITECTURES:
        near = did_you_mean(_stem(name), ARCHITECTURES)
        raise UnsupportedModelError(
            f"{gguf.path}: {ARCHITECTURE} {name[:_SHOWN]!r} is not supported{near}; "
            f"supported: {', '.join(sorted(ARCHITECTURES))}"
        )
    architecture = ARCHITECTURES[name]
    read = MetadataReader(gguf, name)
    if architecture.variant is not None and read.has(architecture.variant[0]):
        architecture = architecture.variant[1]
    tied = _is_tied(gguf.tensors)
    config: dict[str, Any] = {
        "model_type": architecture.model_type,
        "vocab_size": read.vocab_size,
        "tie_word_embeddings": tied,
        **architecture.constants,
    }
    config |= {theirs: read.integer(ours) for ours, theirs in architecture.integers.items()}
    config |= {theirs: read.real(ours) for ours, theirs in architecture.reals.items()}
    for rule in architecture.rules:
        config |= rule(read)
    heads, layers = read.heads._replace(net=read.net), config.get("num_hidden_layers", read.layers)
    read.finish()
    drafts = range(layers, read.layers)
    left_out = _unread_drafts(gguf, architecture, drafts)
    return Original(config | _token_ids(gguf), architecture, heads, tied, layers, drafts, left_out)


def _unread_drafts(gguf: GgufFile, architecture: GgufArchitecture, drafts: range) -> str:
    """Why the layers that propose further tokens are not read, in words; empty where they are, or there are none.

    Raises ``CheckpointError`` for a file that has nothing else.
    """
    if not drafts:
        return ""
    first, arch = f"blk.{drafts.start}.", gguf.metadata[ARCHITECTURE]
    names = sorted(name for name in gguf.tensors if name.startswith(first))
    if names and not any(name.startswith("blk.0.") for name in gguf.tensors):
        raise CheckpointError(
            f"{gguf.path} has a multi-token prediction head alone: give the file of the model, with the head in it"
        )
    if not names:
        return f"{arch}.nextn_predict_layers = {len(drafts)}, and the file has no tensor of such a layer"
    if architecture.draft is None:
        beside = next((name for name in names if ".nextn." in name), names[0])
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return f"{beside}{more}: heads in files of {arch} are not read"
    return "" if first + _DRAFT_INPUT in gguf.tensors else f"{first}{_DRAFT_INPUT}: missing"


def _stem(name: str) -> str:
    """The longest known name that ``name`` begins with, as those of variants do; or ``name`` itself."""
    lower = name.lower()
    return max((known for known in ARCHITECTURES if lower.startswith(known)), key=len, default=lower)


def original_tensors(gguf: GgufFile, original: Original) -> dict[str, LazyTensor]:
    """The original's tensors as lazy views.

    Raises ``CheckpointError`` listing tensors that are not of the architecture or do not fit its heads.
    """
    tensors: dict[str, LazyTensor] = {}
    problems: list[str] = []
    draft = original.draft
    plain_modules = original.architecture.modules
    draft_modules = {**plain_modules, **(draft.modules if draft else {})}
    for name, tensor in gguf.tensors.items():
        if name in ROPE_FACTORS or (name == _HEAD and original.tied):
            continue
        layer = _LAYER.match(name)
        proposes = layer is not None and int(layer[1]) in original.drafts
        if layer is not None and proposes and (draft is None or int(layer[1]) != original.layers):
            continue
        modules = draft_modules if proposes else plain_modules
        whole = _LAYER.sub("blk.{i}.", name)
        template, _, parameter = whole.rpartition(".")
        if whole in modules:  # some vectors have no name of a parameter
            template, parameter = whole, ""
        found = modules.get(template)
        place = _place(layer, original)
        if found is None or place is None or parameter not in ("weight", "bias", ""):
            near = did_you_mean(template, modules) if found is None else ""
            problems.append(f"{name}: not a tensor of {gguf.metadata[ARCHITECTURE]}{near}")
            continue
        layout: Layout = Same(found) if isinstance(found, str) else found
        try:
            theirs = layout.apply(tensor, parameter, original.heads)
        except (ValueError, IndexError) as error:
            problems.append(f"{name}: shape {list(tensor.shape)} does not fit the metadata: {error}")
            continue
        named = {key.replace("{stack}", place[0]).replace("{i}", place[1]): view for key, view in theirs.items()}
        problems += [f"{name}: {key} is made of {tensors[key].names[0]} already" for key in named.keys() & tensors]
        tensors |= named
    for joined in original.architecture.joined:
        problems += _join(tensors, joined, original)
    for key, (theirs, shape) in original.architecture.vectors.items():
        numbers, layers = gguf.metadata.get(key), original.layers
        if not isinstance(numbers, list) or list(map(type, cast(list[Any], numbers))) != [float] * layers:
            problems.append(f"{key}: {layers} numbers expected, one for each layer, found {numbers!r}")
            continue
        for i, number in enumerate(cast(list[float], numbers)):
            tensors[theirs.replace("{i}", str(i))] = LazyTensor.from_array(np.full(shape, number, np.float32))
    refuse_any(problems, CheckpointError, f"{gguf.path}: ")
    if draft is None or not draft.prefix:
        return tensors
    layer = PREFIX.replace("{i}", str(original.layers))
    return {
        draft.prefix + name.removeprefix(layer) if name.startswith(layer) else name: tensor
        for name, tensor in tensors.items()
    }


def _place(layer: re.Match[str] | None, original: Original) -> tuple[str, str] | None:
    """The stack that a layer of the file is in, where there are several, and its number there; None beyond the last."""
    stacks = original.architecture.stacks
    if layer is None or not stacks:
        return "", layer[1] if layer else ""
    stack, number = divmod(int(layer[1]), original.config["num_layers_per_stack"])
    return (stacks[stack], str(number)) if stack < len(stacks) else None


def _join(tensors: dict[str, LazyTensor], joined: Joined, original: Original) -> list[str]:
    """Put the original's tensor in the place of its parts, in every layer that has them; what is wrong with them."""
    problems: list[str] = []
    for i in range(original.layers + bool(original.draft)):
        parts = {name: tensors.pop(name.replace("{i}", str(i)), None) for name in joined.parts}
        there = [part for part in parts.values() if part is not None]
        theirs = joined.theirs.replace("{i}", str(i))
        if not there:
            continue
        if len(there) < len(parts):
            problems.append(f"{there[0].names[0]}: the other part of {theirs} is missing")
            continue
        try:
            tensors[theirs] = joined.apply(there, original.heads)
        except (ValueError, IndexError) as error:
            problems.append(f"{there[0].names[0]}: does not fit the other part of {theirs}: {error}")
    return problems


def _is_tied(tensors: Mapping[str, LazyTensor]) -> bool:
    """Whether there is no head of its own, or only a copy of the embedding, which some converters write."""
    head, embedding = tensors.get(_HEAD), tensors.get(_EMBEDDING)
    if head is None or embedding is None:
        return head is None
    return head.dtype == embedding.dtype and len(head.shape) == 2 and head.equals(embedding)


def _token_ids(gguf: GgufFile) -> dict[str, Any]:
    """bos, eos and pad; eos is a list where several tokens end a text, those included that llama.cpp knows by name."""
    given = {key: gguf.metadata.get(f"tokenizer.ggml.{key}") for key in (_BOS, _PAD, *_ENDS)}
    wrong = [f"tokenizer.ggml.{key} is {value!r}" for key, value in given.items() if type(value) not in (int, NoneType)]
    refuse_any(wrong, CheckpointError, f"{gguf.path}: the id of a token is a whole number: ")
    ids = {name: given[key] for name, key in (("bos_token_id", _BOS), ("pad_token_id", _PAD)) if given[key] is not None}
    ends = list(dict.fromkeys(given[key] for key in _ENDS if given[key] is not None))
    if ends:
        ends += [token_id for token_id in _ends_by_name(gguf) if token_id not in ends]
    return ids | ({"eos_token_id": ends if len(ends) > 1 else ends[0]} if ends else {})


def _ends_by_name(gguf: GgufFile) -> list[int]:
    """The control tokens that end a text by their names; with ``<|return|>``, ``<|end|>`` ends a part of it only."""
    tokens, kinds = (gguf.metadata.get(f"tokenizer.ggml.{key}") for key in ("tokens", "token_type"))
    if not (isinstance(tokens, list) and isinstance(kinds, list)):
        return []
    pairs = enumerate(zip(cast("list[Any]", tokens), cast("list[Any]", kinds), strict=False))
    found = {text: token_id for token_id, (text, kind) in pairs if kind == _CONTROL and text in _ENDING}
    if "<|return|>" in found:
        found.pop("<|end|>", None)
    return [*found.values()]
