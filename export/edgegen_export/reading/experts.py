"""Mixture of experts: the config keys and tensor names that families with experts share."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from edgegen_export.architecture.architecture import TensorMap
from edgegen_export.architecture.components.experts import Experts, Routing
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Interleaved, Scattered, TensorLayout
from edgegen_export.reading.passes import of_layer

STEP = 16
"""QMoE accepts whole blocks of 16 or more only, so the widths of experts' matrices must be multiples of this."""

MOST = 1 << 12
"""An upper limit that no real model exceeds, since each expert adds tensor names."""


MOST_APART = 1 << 13
"""An upper limit of the experts in all layers where each has nodes of its own: a graph may have 16 MB, and their nodes
and the places of their weights take some 1.5 kB."""


def with_experts(
    read: ConfigReader,
    config: DecoderConfig,
    count_key: str,
    *,
    normalized: bool,
    width: int | None = None,
    layers: Collection[int] | None = None,
    per_token: int | None = None,
    per_token_key: str = "num_experts_per_tok",
) -> DecoderConfig:
    """``config`` with ``count_key`` experts in place of the MLPs of ``layers``, of all without it; each as wide as
    these or of ``width``. ``per_token``: how many of them a token uses, where that has been read; else
    ``per_token_key`` says so."""
    width = width or config.mlp.width
    count, per_token = read_counts(read, count_key, per_token_key, per_token=per_token)
    read.ignore("output_router_logits", "router_aux_loss_coef")
    if config.mlp.activation != "silu":
        read.problem("hidden_act: experts are supported with silu only")
    check_expert_sizes(read, {"hidden_size": config.hidden_size, "the width of an expert": width})
    experts = Experts(count, per_token, normalized, width)
    return config.each_layer(lambda own: replace(own, mlp=experts), layers)


def check_expert_sizes(read: ConfigReader, sizes: Mapping[str, int]) -> None:
    """Refuse ``sizes``, by what messages call them, that the experts' operator does not accept."""
    for said, size in sizes.items():
        if size % STEP:
            read.problem(f"{said} = {size}: experts of this size are not supported, only multiples of {STEP}")


def read_counts(
    read: ConfigReader, count_key: str, per_token_key: str = "num_experts_per_tok", *, per_token: int | None = None
) -> tuple[int, int]:
    """How many experts there are, and how many of them a token uses, read unless it is given."""
    count = read.positive(count_key, most=MOST)
    used = read.positive(per_token_key) if per_token is None else per_token
    if used > count and read.sound(count_key):
        read.problem(f"{per_token_key} = {used} is more than {count_key} = {count}")
    return count, used


def limit_apart(read: ConfigReader, count_key: str, count: int, layers: int) -> None:
    """Refuse more experts in all ``layers`` with them than a graph can hold one by one."""
    if read.sound(count_key) and count * layers > MOST_APART:
        read.problem(
            f"{count_key} = {count}: {count * layers} experts in all layers, at most {MOST_APART} are supported"
        )


def with_deepseek_experts(
    read: ConfigReader,
    config: DecoderConfig,
    layers: Collection[int],
    *,
    count_key: str = "n_routed_experts",
    shared_key: str = "n_shared_experts",
) -> DecoderConfig:
    """``config`` with experts in ``layers``, routed as in DeepSeek-V3 (arXiv:2412.19437): sigmoids weigh them, a bias
    of each has a say in the choice alone, and they are chosen from the best groups. Shared experts are one MLP."""
    if not layers:
        without_experts(read, count_key, shared_key, "n_group", "topk_group", "routed_scaling_factor")
        return config
    config = with_sigmoid_experts(
        read, config, layers, count_key, shared_key, "routed_scaling_factor", normalized=read.flag("norm_topk_prob")
    )
    assert config.experts
    groups, chosen = read_groups(read, count_key, config.experts.count, config.experts.per_token)
    routing = replace(config.experts.routing, groups=groups, chosen_groups=chosen)
    return config.each_experts(lambda own: replace(own, routing=routing))


def with_sigmoid_experts(
    read: ConfigReader,
    config: DecoderConfig,
    layers: Collection[int],
    count_key: str,
    shared_key: str,
    scaling_key: str,
    *,
    normalized: bool = True,
) -> DecoderConfig:
    """``config`` with experts in ``layers`` that sigmoids weigh and a bias of each helps to choose, and shared ones."""
    if not layers:
        without_experts(read, count_key, shared_key, scaling_key)
        return config
    width = read.positive("moe_intermediate_size")
    config = with_experts(read, config, count_key, normalized=normalized, width=width, layers=layers)
    routing = Routing("sigmoid", choice_bias=True, epsilon=1e-20, scaling=read.above_zero(scaling_key))
    shared = width * read.count(shared_key)
    return config.each_experts(lambda own: replace(own, routing=routing, shared_width=shared))


def read_groups(read: ConfigReader, count_key: str, count: int, per_token: int) -> tuple[int, int]:
    """The groups that ``count`` experts are in, and from how many of them a token may choose ``per_token``."""
    groups, chosen = read.positive("n_group"), read.positive("topk_group")
    if count % groups or (groups > 1 and count // groups < 2):
        read.problem(f"n_group = {groups}: groups of {count_key} = {count} must have the same size, at least 2")
        return 1, 1
    if chosen > groups:
        read.problem(f"topk_group = {chosen} is more than n_group = {groups}")
    if per_token > chosen * (count // groups):
        read.problem(f"num_experts_per_tok = {per_token}: topk_group = {chosen} groups do not have so many")
    return groups, chosen


def behind_dense(read: ConfigReader, key: str, layers: int) -> Sequence[int]:
    """The layers after the first ``key``, which have no experts."""
    dense = read.get(key, int, 0)
    if dense < 0:
        read.problem(f"{key}: must be at least 0, found {dense}")
    return range(max(0, dense), layers)


def read_mlp_types(read: ConfigReader, layers: int, otherwise: Collection[int]) -> Collection[int]:
    """The layers with experts: by ``mlp_layer_types``, or ``otherwise``."""
    sparse = read.per_layer("mlp_layer_types", {"dense": False, "sparse": True}, layers)
    return otherwise if sparse is None else [i for i, it in enumerate(sparse) if it]


def read_sparse_layers(read: ConfigReader, layers: int) -> frozenset[int]:
    """The layers with experts, as Qwen's configs say it: every ``decoder_sparse_step``-th but ``mlp_only_layers``."""
    dense, step = read.get("mlp_only_layers", list, []), read.positive("decoder_sparse_step")
    return frozenset(i for i in range(layers) if i not in dense and (i + 1) % step == 0)


def without_experts(read: ConfigReader, *keys: str) -> None:
    """Mark the keys of experts as read where no layer has any; ``keys``: those of the family beside the usual ones."""
    read.ignore(
        *("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob"),
        *("output_router_logits", "router_aux_loss_coef", *keys),
    )


SHARED_EXPERTS: TensorMap = {
    f"layers.{{i}}.shared.{x}.weight": f"layers.{{i}}.mlp.shared_experts.{x}_proj.weight"
    for x in ("gate", "up", "down")
}
DEEPSEEK_EXPERTS: TensorMap = {
    **SHARED_EXPERTS,
    "layers.{i}.mlp.router.choice_bias": "layers.{i}.mlp.gate.e_score_correction_bias",
}
"""Names of tensors beside the experts and their router in DeepSeek-V3."""


def by_layer(config: DecoderConfig, with_experts: TensorMap, dense: TensorMap) -> TensorMap:
    """``with_experts`` for the layers that have them, ``dense`` for the others."""
    if all(layer.experts for layer in config.layers):
        return with_experts
    result = dict[str | tuple[str, ...], str | TensorLayout]()
    for i, layer in enumerate(config.layers):
        result |= of_layer(with_experts if layer.experts else dense, i, str(i), "{i}")
    return result


def expert_tensors(
    config: DecoderConfig,
    module: str,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    router: str = "gate",
) -> TensorMap:
    """The tensor map of a ``router`` and its ``experts``, with these names for gate, up and down."""
    assert config.experts
    count = config.experts.count
    return {
        "layers.{i}.mlp.router.weight": f"{module}.{router}.weight",
        **{
            f"layers.{{i}}.mlp.{ours}.weight": Scattered(f"{module}.experts.{{n}}.{theirs}.weight", count)
            for ours, theirs in zip(("gate", "up", "down"), names, strict=True)
        },
    }


def stacked_expert_tensors(
    config: DecoderConfig,
    module: str,
    *,
    router: str = "gate.weight",
    gate_up: str = "experts.gate_up_proj",
    down: str = "experts.down_proj",
) -> TensorMap:
    """The tensor map of a ``router``, and of experts that have an axis of their own, gate and up as one tensor."""
    assert config.experts
    ours, count = {name: f"layers.{{i}}.mlp.{name}.weight" for name in ("gate", "up", "down")}, config.experts.count
    return {
        "layers.{i}.mlp.router.weight": f"{module}.{router}",
        (ours["gate"], ours["up"]): Interleaved(f"{module}.{gate_up}", count, stacked=True),
        ours["down"]: Interleaved(f"{module}.{down}", count, stacked=True),
    }
