"""ModuleUpdate: what an adapter holds for one module of the base model, found by the names that PEFT gives."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from edgegen_export.tensors.lazy import LazyTensor

_ADAPTER = r"(?:\.[^.]+)?"  # its name in PEFT, which newer versions leave out
_FORMS = tuple(
    (re.compile(r"(?P<module>.+)\." + rest), field)
    for rest, field in (
        (rf"lora_A{_ADAPTER}\.weight", "a"),
        (rf"lora_B{_ADAPTER}\.weight", "b"),
        (rf"lora_B{_ADAPTER}\.bias", "b_bias"),
        (rf"lora_embedding_A{_ADAPTER}", "embedding_a"),
        (rf"lora_embedding_B{_ADAPTER}", "embedding_b"),
        (rf"token_adapter\.trainable_tokens_delta{_ADAPTER}", "token_rows"),
        (rf"token_adapter\.trainable_tokens_original{_ADAPTER}", None),
        (r"token_adapter\.base_layer\.weight", "frozen"),
        (r"base_layer\.weight", "frozen"),
        (r"base_layer\.bias", "bias"),
        (r"weight", "weight"),
        (r"bias", "bias"),
    )
)
_PREFIX = re.compile(r"^base_model\.(model\.)?")
_TRAINED, _ORIGINAL = "modules_to_save", "original_module"
_WRAPPED = re.compile(rf"(?P<before>.+)\.(?P<wrapper>{_TRAINED}|{_ORIGINAL})(?:\.default)?\.(?P<after>.+)")
_DORA = "lora_magnitude_vector"


@dataclass(slots=True)
class ModuleUpdate:
    """Tensors of one module, each where the adapter has it.

    ``a`` [r, in] and ``b`` [out, r] are the factors of an update, ``b_bias`` [out] belongs to ``b``; those of an
    embedding are ``embedding_a`` [r, rows] and ``embedding_b`` [columns, r]. ``token_rows`` [tokens, columns] take the
    place of the rows ``tokens``. ``weight`` and ``bias`` were trained and take the place of the base's; ``frozen`` is
    the weight that lay under the adapter when it was saved: the base's own, perhaps with a larger vocabulary.
    """

    module: str
    a: LazyTensor | None = None
    b: LazyTensor | None = None
    b_bias: LazyTensor | None = None
    embedding_a: LazyTensor | None = None
    embedding_b: LazyTensor | None = None
    token_rows: LazyTensor | None = None
    weight: LazyTensor | None = None
    bias: LazyTensor | None = None
    frozen: LazyTensor | None = None
    tokens: tuple[int, ...] = ()

    @property
    def changes_weight(self) -> bool:
        """Whether there is more than the weight as it was."""
        trained = (self.weight, self.a, self.b, self.embedding_a, self.embedding_b, self.token_rows)
        return any(tensor is not None for tensor in trained)


def module_updates(
    tensors: Mapping[str, LazyTensor], modules_to_save: tuple[str, ...]
) -> tuple[list[ModuleUpdate], list[str]]:
    """An adapter's tensors by the modules they are for, and what is wrong with their names.

    A weight that is there whole was trained if ``modules_to_save`` has its module or one around it; else it is frozen.
    """
    updates: dict[str, ModuleUpdate] = {}
    problems: list[str] = []
    for name, tensor in tensors.items():
        if _DORA in name:
            problems.append(f"{name}: DoRA's; merge the adapter with PEFT and export the merged folder")
            continue
        plain, wrapper = _unwrapped(name)
        if wrapper == _TRAINED and plain in tensors:
            continue  # the same once more
        found = _parsed(plain)
        if found is None:
            problems.append(f"{name}: not a tensor of a LoRA adapter")
            continue
        if "float" not in tensor.dtype:
            problems.append(f"{name}: stored as {tensor.dtype}, and only floats are merged")
            continue
        module, field = found
        if wrapper == _ORIGINAL and field != "weight":
            continue
        is_trained = wrapper == _TRAINED or is_within(module, modules_to_save)
        if field == "weight" and (wrapper == _ORIGINAL or not is_trained):
            field = "frozen"
        update = updates.setdefault(module, ModuleUpdate(module))
        if field is not None and getattr(update, field) is not None:
            problems.append(f"{name}: a second tensor of this kind for {module}")
        elif field is not None:
            setattr(update, field, tensor)
    return list(updates.values()), problems


def is_within(module: str, ends: tuple[str, ...]) -> bool:
    """Whether the name of ``module``, or of one around it, ends with one of ``ends``."""
    parts = module.split(".")
    return any(".".join(parts[: k + 1]).endswith(ends) for k in range(len(parts)))


def _unwrapped(name: str) -> tuple[str, str | None]:
    """The name without PEFT's wrapper of a module trained whole, and which of the wrapper's two modules it was in."""
    match = _WRAPPED.fullmatch(name)
    return (f"{match['before']}.{match['after']}", match["wrapper"]) if match else (name, None)


def _parsed(name: str) -> tuple[str, str | None] | None:
    """The module and the field of ModuleUpdate (None: of no use) that a name means."""
    bare = _PREFIX.sub("", name, count=1)
    return next(((match["module"], field) for form, field in _FORMS if (match := form.fullmatch(bare))), None)
