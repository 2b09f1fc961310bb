"""Kinds of keys in published ``config.json`` files that are of the training alone, whatever exactly they are called.

A dropout, under any name, is the identity at inference; the weight of a loss, the spread of initial weights and the
kernels that a program chose say nothing of what the trained weights compute. Each kind has the values that such a key
may have; a key of that name with another value is an error like any unknown one. Keys that a family reads itself never
get here.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from edgegen_export.files.fields import is_a

_REAL_DROPOUTS = frozenset({"token_dropout"})
"""ESM scales its embeddings by this one at inference, too."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """``names``: a regular expression of all of a key. ``where`` says in words when a value changes nothing."""

    names: re.Pattern[str]
    where: str
    at: Callable[[Any], bool]


def judge_training_key(key: str, value: object) -> str | None:
    """None if ``key`` changes nothing at ``value``, empty if it is of no kind that is known, and else where it would
    change nothing."""
    if key in _REAL_DROPOUTS:
        return ""
    kind = next((kind for kind in _KINDS if kind.names.fullmatch(key)), None)
    if kind is None:
        return ""
    return None if kind.at(value) else kind.where


def _is_share(value: object) -> bool:
    return value is False or (is_a(value, float) and 0 <= value <= 1)


def _is_plain(value: object) -> bool:
    """A number, a text or a truth value, or a list of such."""
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return all(isinstance(each, int | float | str) for each in values)


_KINDS = (
    _Kind(
        re.compile(r"(?:\w+_)?(?:dropout|layerdrop|pdrop|dropatt|drop_path)(?:_p|_prob|_rate)?"),
        "it is a dropout, from 0 to 1",
        _is_share,
    ),
    _Kind(
        re.compile(
            r"(?:\w+_)?loss(?:es)?(?:_(?:coefs?|coeffs?|coefficients?|alphas?|weights?|factors?|scaling_factor|types?"
            r"|function))?|label_smoothing(?:_factor)?|seq_aux|(?:moe_)?(?:router_)?bias_update_(?:rate|speed)"
        ),
        "it is of a loss of the training",
        _is_plain,
    ),
    _Kind(
        re.compile(
            r"(?:\w+_)?init(?:ializer|ialization)?_"
            r"(?:range|std|factor|cutoff_factor|method|method_std|device|fn|mode|scheme|floor|variance_scale)"
        ),
        "it is of the weights before the training",
        _is_plain,
    ),
    _Kind(
        re.compile(
            r"output_router_logits|(?:use_)?gradient_checkpointing|(?:use_)?recompute|moe_grouped_gemm|fp16|bf16|fp32"
            r"|(?:use_)?flash_att(?:n|ention)(?:_2|_v2)?|use_sdpa|trust_remote_code|sequence_parallel"
            r"|use_fused_(?:rms_norm|layer_norm|rope|swiglu|mlp|cross_entropy|linear_cross_entropy)"
            r"|fuse_(?:norm|swiglu|cross_entropy|linear_cross_entropy)"
        ),
        "it is true or false: how a program trains or computes",
        lambda value: isinstance(value, bool),
    ),
    _Kind(
        re.compile(
            r"(?:ep|tp|pp|cp)_size|(?:tensor|expert|pipeline|context)_(?:model_)?parallel_(?:size|degree)"
            r"|(?:num_)?logits_to_keep"
        ),
        "it is a number: how a program divides its work",
        lambda value: isinstance(value, int),
    ),
    _Kind(
        re.compile(
            r"(?:nemo|megatron|axolotl|peft|mlx_lm|swift|llamafactory|autoawq|gptqmodel|optimum|torch|framework)_version"
            r"|attn_impl|moe_token_dispatcher_type|(?:training|params)_dtype"
        ),
        "it is a text of another program",
        lambda value: isinstance(value, str),
    ),
    _Kind(
        re.compile(r"keys_to_ignore_at_inference"), "it lists outputs of transformers", lambda v: isinstance(v, list)
    ),
)
