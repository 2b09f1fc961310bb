"""OLMo Hybrid, Kimi Linear and Ling 3.0 as they are published, and the configs that are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.errors import TensorError, UnsupportedModelError
from edgegen_export.architecture.components.gated_delta_net import GatedDeltaNet
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families.bailing import BAILING_HYBRID
from edgegen_export.families.kimi_linear import KIMI_LINEAR
from edgegen_export.families.olmo import OLMO_HYBRID
from tests.export.bundles import export_to
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of

Tensors = dict[str, NDArray[np.float32]]

ATTENDING = 3
"""The layer of the base case of OLMo Hybrid that has attention."""


def kernels_by_part(tensors: Tensors, net: str, sizes: tuple[int, ...]) -> Tensors:
    """The kernels of a layer cut where queries, keys and values meet, which transformers 5 cuts in equal parts."""
    names = [f"{net}.{x}_conv1d.weight" for x in "qkv"]
    whole = np.concatenate([tensors[name] for name in names])
    return dict(zip(names, np.split(whole, np.cumsum(sizes)[:-1]), strict=True))


def published_olmo(tensors: Tensors) -> Tensors:
    """allenai/Olmo-Hybrid-7B."""
    for i in range(ATTENDING):
        tensors |= kernels_by_part(tensors, f"model.layers.{i}.linear_attn", (48, 48, 96))
    names = {"attention_layer_norm": "input_layernorm", "feedforward_layer_norm": "post_attention_layernorm"}
    return renamed(tensors, names)


def converted_olmo(tensors: Tensors) -> Tensors:
    """As the converter of transformers writes it: the names of norms differ in layers with nets alone."""
    for i in range(ATTENDING):
        tensors |= kernels_by_part(tensors, f"model.layers.{i}.linear_attn", (48, 48, 96))
    layer = f"layers.{ATTENDING}."
    return renamed(tensors, {f"{layer}feedforward_layer_norm": f"{layer}post_attention_layernorm"})


def published_kimi(tensors: Tensors) -> Tensors:
    """moonshotai/Kimi-Linear-48B-A3B-Instruct: MLPs without experts have their own name."""
    return renamed(
        tensors, {f"layers.0.block_sparse_moe.{x}_proj": f"layers.0.mlp.{x}_proj" for x in ("gate", "up", "down")}
    )


def published_ling(tensors: Tensors) -> Tensors:
    """inclusionAI/Ling-3.0-tiny: what both kinds of attention give has a name of each."""
    return renamed(tensors, {f"layers.{i}.attention.dense": f"layers.{i}.attention.o_proj" for i in (0, 2)})


def renamed(tensors: Tensors, names: dict[str, str]) -> Tensors:
    found: Tensors = {}
    for name, array in tensors.items():
        for theirs, other in names.items():
            name = name.replace(theirs, other)
        found[name] = array
    return found


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("olmo_hybrid", published_olmo),
        ("olmo_hybrid", converted_olmo),
        ("kimi_linear", published_kimi),
        ("bailing_hybrid", published_ling),
    ],
)
def test_published_names_are_those_that_transformers_writes(
    family: str, change: Callable[[Tensors], Tensors], tmp_path: Path
) -> None:
    case = next(case for case in CASES if str(case) == f"{family}: base")
    saved, published = checkpoint_of(case, tmp_path / "saved"), tmp_path / "published"
    published.mkdir()
    tensors = {name: each.read() for name, each in open_safetensors(saved / "model.safetensors").items()}
    changed = change(dict(tensors))
    assert changed.keys() != tensors.keys()
    write_safetensors(published / "model.safetensors", changed)
    (published / "config.json").write_bytes((saved / "config.json").read_bytes())
    first, second = export_to(saved, tmp_path / "first"), export_to(published, tmp_path / "second")
    assert first.manifest.files[first.variant.weights] == second.manifest.files[second.variant.weights]


def test_kernels_that_are_too_few_are_refused_by_their_sizes(tmp_path: Path) -> None:
    case = next(case for case in CASES if str(case) == "olmo_hybrid: base")
    whole, broken = checkpoint_of(case, tmp_path / "checkpoint"), tmp_path / "broken"
    broken.mkdir()
    tensors = {name: each.read() for name, each in open_safetensors(whole / "model.safetensors").items()}
    name = "model.layers.1.linear_attn.v_conv1d.weight"
    write_safetensors(broken / "model.safetensors", {**tensors, name: tensors[name][:-1]})
    (broken / "config.json").write_bytes((whole / "config.json").read_bytes())
    with pytest.raises(TensorError, match=r"v_conv1d.weight: shape \[63, 1, 4\], but the config asks for \[96, 1, 4\]"):
        export_to(broken, tmp_path / "bundle")


def test_the_published_olmo_has_no_positions_and_norms_by_kind_of_layer() -> None:
    config = OLMO_HYBRID.read_config({"rope_parameters": {"rope_theta": None}})
    nets = [layer.mixer for layer in config.layers if isinstance(layer.mixer, GatedDeltaNet)]
    assert {(net.key_heads, net.key_dim, net.value_dim, net.doubled) for net in nets} == {(30, 96, 192, True)}
    assert {config.block_of(i) for i in config.attentions} == {"post_norm"}
    assert [config.block_of(i) for i in range(4)] == ["sequential"] * 3 + ["post_norm"]
    assert {attention.rope for attention in config.attentions.values()} == {None}


def kinds(config: DecoderConfig) -> str:
    return "".join("*" if layer.attention else "d" for layer in config.layers)


def test_layers_of_kimi_are_listed_from_one_or_named() -> None:
    lists = {"kda_layers": [1, 2, 4], "full_attn_layers": [3, 5]}
    few = {"num_hidden_layers": 5, "first_k_dense_replace": 5}
    assert kinds(KIMI_LINEAR.read_config({**few, "linear_attn_config": lists})) == "dd*d*"
    assert kinds(KIMI_LINEAR.read_config(few)) == "dddd*"
    named = ["full_attention"] + ["linear_attention"] * 4
    assert kinds(KIMI_LINEAR.read_config({**few, "linear_attn_config": lists, "layer_types": named})) == "*dddd"


def test_a_rotated_share_of_ling_is_one_of_a_head_of_its_nets() -> None:
    said = {"partial_rotary_factor": 0.5, "rotary_dim": 64, "head_dim": 128}
    rope = BAILING_HYBRID.read_config(said).attention.rope
    assert rope
    assert rope == BAILING_HYBRID.read_config({}).attention.rope
    assert rope.dim == 64


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        (OLMO_HYBRID, {"layer_types": ["linear_attention"] * 32}, "at least one layer must have attention"),
        (OLMO_HYBRID, {"linear_num_key_heads": 7}, "linear_num_key_heads = 7: must divide linear_num_value_heads = 30"),
        (OLMO_HYBRID, {"rope_theta": None}, "rope_theta: missing"),
        (KIMI_LINEAR, {"layer_types": ["linear_attention"] * 27}, "at least one layer must have attention"),
        (KIMI_LINEAR, {"mla_use_nope": False}, "latent attention does not rotate in this family"),
        (KIMI_LINEAR, {"moe_router_activation_func": "softmax"}, "experts are weighed by sigmoids only"),
        (KIMI_LINEAR, {"n_group": 4, "topk_group": 2, "use_grouped_topk": False}, "use_grouped_topk = False: experts"),
        (KIMI_LINEAR, {"mla_use_output_gate": True}, "mla_use_output_gate = True: not understood"),
        (BAILING_HYBRID, {"num_hidden_layers": 40}, "not a multiple of layer_group_size = 6; name layer_types"),
        (BAILING_HYBRID, {"expert_swiglu_limit_list": [0.0] * 41 + [7.0]}, "expert_swiglu_limit_list: limits of what"),
        (BAILING_HYBRID, {"no_kda_lora": False}, "gates of a low rank are not supported"),
        (BAILING_HYBRID, {"linear_attention": "lightning"}, "linear attention of another kind is not supported"),
        (BAILING_HYBRID, {"partial_rotary_factor": 0.25}, "it rotates 32 channels, and qk_rope_head_dim is 64"),
    ],
    ids=lambda it: str(getattr(it, "model_types", it)),
)
def test_what_cannot_be_computed_is_refused(family: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        family.read_config(json.loads(json.dumps(changes)))
    assert said in str(caught.value)
