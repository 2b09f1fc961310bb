"""LoraConfig: what an adapter's ``adapter_config.json`` asks for; whatever is not plain LoRA is refused by its name."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from edgegen.errors import OptionError, UnsupportedModelError, one_or_list, suggestions
from edgegen.stop_regex import StopRegex, StopRegexMatcher
from edgegen_export.files.fields import Fields, is_a

INPUT_EMBEDDING = ""
"""The key of ``token_indices`` that stands for the input embedding, whatever it is called."""

_READ = frozenset(
    """
    alpha_pattern base_model_name_or_path bias ensure_weight_tying init_lora_weights lora_alpha lora_bias
    modules_to_save peft_type r rank_pattern task_type trainable_token_indices use_rslora
    """.split()
)
# They chose what was trained, or say how: the tensors of the adapter tell it all.
_NEUTRAL = frozenset(
    """
    auto_mapping corda_config eva_config exclude_modules fan_in_fan_out inference_mode layers_pattern
    layers_to_transform loftq_config lora_dropout lora_ga_config megatron_core merge_weights peft_version
    qalora_group_size revision runtime_config target_modules
    """.split()
)
_REFUSED = {
    "use_dora": "DoRA rescales the merged weights",
    "use_qalora": "QA-LoRA pools the inputs of its matrices",
    "use_bdlora": "its matrices are block-diagonal",
    "alora_invocation_tokens": "an activated LoRA (aLoRA) acts after its invocation tokens only",
    "arrow_config": "Arrow chooses between several adapters at run time",
    "kasa_config": "KaSA truncates the base weights",
    "monteclora_config": "MonteCLoRA samples its weights",
    "velora_config": "VeLoRA keeps tensors of its own",
    "enable_lora": "it adapts parts of its matrices only",
    "layer_replication": "it adds layers to the base model",
    "megatron_config": "Megatron's layers are not those of the checkpoint",
    "target_parameters": "it adapts parameters that are no module of their own",
}
# Base weights as they were: B·A alone is the change.
_PLAIN_INITS = frozenset({"gaussian", "eva", "orthogonal", "mica"})
_PLAIN_NAME = re.compile(r"(?:[\w-]|\\?\.)*")
"""Of a regular expression that repeats nothing."""
_MOST_PATTERNS = 10_000
_SHOWN = 40
_LARGEST = 3e38  # of a float32, which whole numbers in JSON may exceed

# These took a part of the base weights into A and B; on the original base that part would count twice.
_CHANGED_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """A plain LoRA adapter's settings.

    ``base``: the model it was trained on, as its author called it. ``token_indices``: rows of embeddings that it
    replaces, by the end of the module's name. ``keeps_ties``: a tied head takes what the embedding was given.
    """

    base: str | None
    rank: int
    alpha: float
    rank_stabilized: bool
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    modules_to_save: tuple[str, ...]
    token_indices: Mapping[str, tuple[int, ...]]
    keeps_ties: bool

    def rank_of(self, module: str) -> int:
        """The rank of the update of ``module``, a name within the base model."""
        return _matched(self.rank_pattern, module, self.rank)

    def scaling_of(self, module: str) -> float:
        """The factor of B·A: alpha / r, or alpha / √r where rank-stabilized."""
        rank = self.rank_of(module)
        return _matched(self.alpha_pattern, module, self.alpha) / (math.sqrt(rank) if self.rank_stabilized else rank)


def read_lora_config(raw: Mapping[str, Any], where: str) -> LoraConfig:
    """``adapter_config.json`` → LoraConfig; absent keys take PEFT's defaults.

    Raises:
        UnsupportedModelError: it is not plain LoRA for a causal language model, or is malformed; everything at once.
    """
    kind = raw.get("peft_type")
    if kind != "LORA":
        found = f"peft_type is {kind!r}" if kind is not None else "it has no peft_type"
        raise UnsupportedModelError(f"{where}: {found}; only LoRA adapters (LORA) can be merged at export")
    read = _LoraFields(raw)
    task = raw.get("task_type")
    if task not in (None, "CAUSAL_LM"):
        read.problems.append(f"task_type is {task!r}; edgegen exports causal language models (CAUSAL_LM)")
    for key, reason in _REFUSED.items():
        if raw.get(key):
            read.problems.append(f"{key} is set: {reason}; merge it with PEFT, where it can be, and export the result")
    _check_init(raw.get("init_lora_weights"), read.problems)
    if raw.get("bias") not in (None, "none", "all", "lora_only"):
        read.problems.append(f"bias is {raw['bias']!r}, not none, all or lora_only")
    config = LoraConfig(
        base=base if isinstance(base := raw.get("base_model_name_or_path"), str) and base else None,
        rank=int(read.positive("r", 8)),
        alpha=read.get("lora_alpha", float, 8.0),
        rank_stabilized=read.get("use_rslora", bool, False),
        rank_pattern={k: int(v) for k, v in read.pattern("rank_pattern", whole=True).items()},
        alpha_pattern=read.pattern("alpha_pattern", whole=False),
        modules_to_save=read.names("modules_to_save"),
        token_indices=read.token_indices("trainable_token_indices"),
        keeps_ties=read.get("ensure_weight_tying", bool, False),
    )
    known = _READ | _NEUTRAL | _REFUSED.keys()
    strange = [key for key in sorted(raw.keys() - known) if raw[key] and not key.startswith("_")]
    read.problems += [
        f"{key} = {raw[key]!r}: not understood, and it may change the result{near}"
        for key, near in zip(strange, suggestions(strange, known), strict=True)
    ]
    if read.problems:
        raise UnsupportedModelError(f"{where} asks for what cannot be merged at export: {one_or_list(read.problems)}")
    return config


def _check_init(init: object, problems: list[str]) -> None:
    if init is None or isinstance(init, bool):
        return
    name = str(init).lower()
    if name.startswith(_CHANGED_BASE):
        problems.append(
            f"init_lora_weights is {init!r}, which moved a part of the base weights into the adapter: convert it to "
            "plain LoRA (in PEFT: save_pretrained with path_initial_model_for_weight_conversion), or merge it into "
            "the base it was trained on and export the merged folder"
        )
    elif name not in _PLAIN_INITS:
        problems.append(f"init_lora_weights is {init!r}: not known, and it may have changed the base weights")


def _matched(pattern: Mapping[str, Any], module: str, default: Any) -> Any:
    """PEFT's rule: the first key that is the end of the name, whole parts of it, as a regular expression."""
    return next((value for key, value in pattern.items() if _is_end(key, module)), default)


def _is_end(key: str, module: str) -> bool:
    """In time that is linear in the name: a stranger's expression may make ``re`` take forever."""
    if _PLAIN_NAME.fullmatch(key):
        return re.match(rf"(.*\.)?({key})$", module) is not None
    matcher = StopRegexMatcher(StopRegex.of(_whole_name(key)))
    return (matcher.push(module) or matcher.finish()) is not None


def _whole_name(key: str) -> str:
    return rf"\A(?:.*\.)?(?:{key})\Z"


class _LoraFields(Fields):
    """With PEFT's own kinds of values."""

    def positive(self, key: str, default: int) -> int:
        value = self.value(key)
        if value is not None and not _is_rank(value):
            self.expected(key, "a positive whole number", value)
        return value if _is_rank(value) else default

    def pattern(self, key: str, *, whole: bool) -> dict[str, float]:
        """Regular expression → number."""
        value = self.value(key)
        if not value:
            return {}
        entries = cast(dict[str, Any], value) if isinstance(value, dict) else {}
        if len(entries) > _MOST_PATTERNS:
            self.wrong(key, f"at most {_MOST_PATTERNS} names expected, found {len(entries)}")
            return {}
        wrong = not entries or not all((_is_rank(v) if whole else is_a(v, float)) for v in entries.values())
        for name in entries:
            try:
                re.compile(name)
                if not _PLAIN_NAME.fullmatch(name):
                    StopRegex.of(_whole_name(name))
            except re.error as error:
                self.wrong(key, f"{name!r} is not a regular expression: {error}")
                return {}
            except (RecursionError, OverflowError):
                self.wrong(key, f"{name[:_SHOWN]!r}… cannot be used: it is nested or repeated too much")
                return {}
            except OptionError as error:
                self.wrong(key, f"{name!r} cannot be used: {error}")
                return {}
        if wrong:
            self.expected(key, "an object of names and numbers", cast(object, value))
            return {}
        return entries

    def names(self, key: str) -> tuple[str, ...]:
        value = self.value(key)
        if not value:
            return ()
        items = cast(list[Any], value) if isinstance(value, list) else [value]
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in items):
            self.expected(key, "a list of names", cast(object, value))
            return ()
        return tuple(items)

    def token_indices(self, key: str) -> dict[str, tuple[int, ...]]:
        value = self.value(key)
        if not value:
            return {}
        by_name = cast(dict[str, Any], value) if isinstance(value, dict) else {INPUT_EMBEDDING: value}
        for name, indices in by_name.items():
            if not isinstance(indices, list) or not all(type(i) is int and i >= 0 for i in cast(list[object], indices)):
                self.expected(key, "token ids", cast(object, value))
                return {}
            if len(set(cast(list[int], indices))) != len(cast(list[int], indices)):
                self.wrong(key, f"a token id occurs twice for {name or 'the embedding'}")
        return {name: tuple(indices) for name, indices in by_name.items()}


def _is_rank(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 < value < _LARGEST
