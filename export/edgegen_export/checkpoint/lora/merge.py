"""merge_tensors: a base model's tensors with an adapter's updates in them, by the base's own names, still unread.

Where the base ties its head to the embedding and the adapter changes the two in different ways, the result has a head
of its own: what the adapted model computed when it was trained. (PEFT's ``merge_and_unload`` adds an update of
either to the one tensor that both use.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgegen.errors import did_you_mean
from edgegen_export.checkpoint.base_names import BaseNames
from edgegen_export.checkpoint.lora.config import INPUT_EMBEDDING, LoraConfig
from edgegen_export.checkpoint.lora.tensors import ModuleUpdate, is_within
from edgegen_export.tensors.lazy import ArrayTensor, LazyTensor
from edgegen_export.tensors.low_rank import LowRankUpdate

_OTHER_HEADS = frozenset({"score", "classifier", "qa_outputs", "v_head"})
SHOWN = 12
"""Problems that a message lists."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged tensors. ``untied``: the head was the embedding, and is now a tensor of its own.

    ``vocabulary``: rows of embedding and head, where the adapter changed their number.
    """

    tensors: dict[str, LazyTensor]
    untied: bool
    vocabulary: int | None


def merge_tensors(
    base: Mapping[str, LazyTensor],
    updates: Iterable[ModuleUpdate],
    config: LoraConfig,
    names: BaseNames,
    *,
    tied_head: bool,
) -> tuple[Merged, list[str]]:
    """``base`` with ``updates`` applied, and whatever keeps them from fitting."""
    merge = _Merge(base, config, names)
    found = merge.placed(updates, tied_head=tied_head)
    merge.check_saved(found)
    untied = tied_head and merge.apply_tied(found)
    for name, update in found.items():
        merge.apply(name, update)
    return Merged(merge.tensors, untied, merge.vocabulary()), merge.problems


class _Merge:
    def __init__(self, base: Mapping[str, LazyTensor], config: LoraConfig, names: BaseNames) -> None:
        self.tensors = dict(base)
        self.problems: list[str] = []
        self._base = base
        self._config = config
        self._names = names
        self._modules = {name.rpartition(".")[0] for name in base}
        self._by_bare_name = {names.bare(module): module for module in self._modules}
        self._head = self._by_bare_name.get(names.head, names.head)
        self._embedding = self._by_bare_name.get(names.embedding, "")

    def placed(self, updates: Iterable[ModuleUpdate], *, tied_head: bool) -> dict[str, ModuleUpdate]:
        """The updates by the base's names of their modules."""
        found: dict[str, ModuleUpdate] = {}
        for update in updates:
            bare = self._names.bare(update.module)
            name = self._by_bare_name.get(bare)
            if name is None and tied_head and bare == self._names.head:
                name = self._head
            if name is None:
                self.problems.append(self._lost(update.module))
            elif name in found:
                self.problems.append(f"{update.module}: this module of the base has another name in the adapter, too")
            else:
                found[name] = replace(update, tokens=self._tokens(update, name))
        return found

    def check_saved(self, found: Mapping[str, ModuleUpdate]) -> None:
        """Everything that the adapter's config says was trained has its tensors."""
        if self._config.token_indices and all(update.token_rows is None for update in found.values()):
            self.problems.append("trainable_token_indices is set, but the adapter has no rows of them")
        for end in self._config.modules_to_save:
            given = any(is_within(update.module, (end,)) for update in found.values())
            if not given and any(is_within(module, (end,)) for module in (*self._modules, self._head)):
                self.problems.append(f"modules_to_save has {end!r}, but the adapter has no tensor of it")

    def apply(self, name: str, update: ModuleUpdate, base: str | None = None) -> None:
        """Apply an update to the module ``name``, whose weight is the module ``base``'s, if given."""
        weight = self._weight(name, update, self._base.get(f"{base or name}.weight"))
        if weight is not None:
            self.tensors[f"{name}.weight"] = weight
        self.apply_bias(name, update)

    def apply_bias(self, name: str, update: ModuleUpdate) -> None:
        """Apply what an update has for the bias; one is made where the base has none."""
        key = f"{name}.bias"
        base, given, added = self._base.get(key), update.bias, update.b_bias
        bias = given or base
        for tensor in (given, added):
            wanted = given if name == self._head else base  # a head's bias grows with the vocabulary
            if tensor is not None and (len(tensor.shape) != 1 or tensor.shape != (wanted or bias or tensor).shape):
                self.problems.append(f"{update.module}: a bias of shape {list(tensor.shape)} does not fit")
                return
        if added is not None:
            total = added.read() * np.float32(self._config.scaling_of(update.module))
            bias = ArrayTensor(total if bias is None else bias.read() + total, name=key)
        if bias is not None:
            self.tensors[key] = bias

    def apply_tied(self, found: dict[str, ModuleUpdate]) -> bool:
        """Apply the updates of embedding and head, taken out of ``found``; whether the two then differ."""
        if self._embedding not in found and self._head not in found:
            return False
        if not self._embedding:
            self.problems.append(f"{self._head}: it is tied to the embedding, which the base does not have by its name")
            del found[self._head]
            return False
        embedding = found.pop(self._embedding, ModuleUpdate(self._embedding))
        head = found.pop(self._head, ModuleUpdate(self._head))
        embedding = replace(embedding, frozen=embedding.frozen or head.frozen)
        head = replace(head, frozen=head.frozen or embedding.frozen)
        if embedding.token_rows is not None and not head.tokens:  # PEFT gives them to both
            if replace(head, token_rows=None).changes_weight:
                self.problems.append(
                    f"{embedding.module}: its single tokens were trained for the tied {head.module} as well, which "
                    "the adapter also changes in another way"
                )
            head = replace(head, token_rows=embedding.token_rows, tokens=embedding.tokens)
        self.apply(self._embedding, embedding)
        if (self._config.keeps_ties and embedding.changes_weight) or _are_alike(embedding, head):
            self.tensors.pop(f"{self._head}.weight", None)  # the embedding once more
            self.apply_bias(self._head, head)
            return False
        self.apply(self._head, head, base=self._embedding)
        return True

    def vocabulary(self) -> int | None:
        """The embedding's rows, if the adapter changed their number; the head must have as many."""
        before, after = self._rows(self._base), self._rows(self.tensors)
        if set(before) == set(after):
            return None
        if len(set(after)) > 1:
            self.problems.append(
                f"the embedding has {after[0]} rows, the head {after[1]}: the adapter has a larger vocabulary's rows "
                "for one of them only"
            )
        return after[0]

    def _rows(self, tensors: Mapping[str, LazyTensor]) -> list[int]:
        """Rows of the embedding and of the head, where they are tensors."""
        found = (tensors.get(f"{module}.weight") for module in (self._embedding, self._head))
        return [tensor.shape[0] for tensor in found if tensor is not None and tensor.shape]

    def _weight(self, name: str, update: ModuleUpdate, base: LazyTensor | None) -> LazyTensor | None:
        """The merged weight, of the base's shape or with another vocabulary; None if the adapter has no such weight."""
        weight = update.weight or update.frozen or base
        if weight is None:
            if update.changes_weight:
                self.problems.append(f"{update.module}: the base has no weight there")
            return None
        may_grow = name in (self._embedding, self._head)
        fits = base is None or weight.shape == base.shape or (may_grow and weight.shape[1:] == base.shape[1:])
        if base is not None and not fits:
            self.problems.append(_misfit(update.module, "a weight", weight.shape, base.shape))
            return None
        factors = self._factors(name, update, weight)
        if factors is not None:
            left, right = factors
            if weight.shape != (left.shape[0], right.shape[1]):
                changed = (left.shape[0], right.shape[1])
                self.problems.append(_misfit(update.module, "an update", changed, weight.shape))
                return None
            weight = LowRankUpdate(weight, left, right, self._config.scaling_of(update.module))
        return self._with_tokens(update, weight)

    def _factors(self, name: str, update: ModuleUpdate, weight: LazyTensor) -> tuple[LazyTensor, LazyTensor] | None:
        """The factors [rows, r] and [r, columns] for the weight as it is stored; None if none fit."""
        rank = self._config.rank_of(update.module)
        a, b, e_a, e_b = update.a, update.b, update.embedding_a, update.embedding_b
        if (a is None) != (b is None) or (e_a is None) != (e_b is None) or (update.b_bias is not None and b is None):
            self.problems.append(f"{update.module}: the adapter has one of lora_A and lora_B only")
            return None
        if a is not None and e_a is not None:
            self.problems.append(f"{update.module}: two updates, one of an embedding and one of a linear layer")
            return None
        a, b = a or e_a, b or e_b
        if a is None or b is None:
            return None
        if any(len(t.shape) != 2 or 0 in t.shape for t in (a, b)):
            self.problems.append(
                f"{update.module}: lora_A and lora_B have shapes {list(a.shape)} and {list(b.shape)}: a distributed "
                "training must gather its parts before saving"
            )
            return None
        if not a.shape[0] == b.shape[1] == rank:
            self.problems.append(
                f"{update.module}: lora_A has rank {a.shape[0]}, lora_B {b.shape[1]}, adapter_config.json says {rank}"
            )
            return None
        if e_a is not None or (self._names.is_inputs_first(name) and weight.shape == (a.shape[1], b.shape[0])):
            return a.transposed(), b.transposed()
        return b, a

    def _with_tokens(self, update: ModuleUpdate, weight: LazyTensor) -> LazyTensor | None:
        """The weight with single rows replaced."""
        rows, tokens = update.token_rows, update.tokens
        if rows is None:
            return weight
        if len(weight.shape) != 2 or rows.shape != (len(tokens), weight.shape[1]):
            self.problems.append(
                f"{update.module}: token rows of shape {list(rows.shape)}, but trainable_token_indices has "
                f"{len(tokens)} tokens for it"
            )
            return None
        if tokens and max(tokens) >= weight.shape[0]:
            self.problems.append(f"{update.module}: token {max(tokens)} is not among {weight.shape[0]} rows")
            return None
        parts: list[LazyTensor] = []
        at = 0
        for token, k in sorted((token, k) for k, token in enumerate(tokens)):
            parts += [weight.take(at, token), rows.take(k, k + 1)]
            at = token + 1
        return LazyTensor.concat([*(part for part in parts if part.shape[0]), weight.take(at, weight.shape[0])])

    def _tokens(self, update: ModuleUpdate, name: str) -> tuple[int, ...]:
        """Which tokens the rows of an update are for."""
        named = self._config.token_indices
        if name == self._embedding and INPUT_EMBEDDING in named:
            return named[INPUT_EMBEDDING]
        return next((tokens for end, tokens in named.items() if end and update.module.endswith(end)), ())

    def _lost(self, module: str) -> str:
        if _last(module) in _OTHER_HEADS:
            return f"{module}: the head of another task; edgegen exports causal language models"
        near = did_you_mean(module, self._modules) if len(self.problems) < SHOWN else ""
        return f"{module}: the base has no such module{near}"


def _are_alike(embedding: ModuleUpdate, head: ModuleUpdate) -> bool:
    """Whether one tensor can still be both."""
    factors = (embedding.a, embedding.embedding_a, head.a, head.embedding_a)
    if any(factor is not None for factor in factors) or embedding.token_rows is not head.token_rows:
        return False
    pairs = ((embedding.weight, head.weight), (embedding.frozen, head.frozen))
    return all(x is y or (x is not None and y is not None and x.equals(y)) for x, y in pairs)


def _misfit(module: str, what: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    return f"{module}: the adapter has {what} of shape {list(found)}, the base's weight is {list(wanted)}"


def _last(module: str) -> str:
    return module.rpartition(".")[2]
