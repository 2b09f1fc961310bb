"""Inkling, Inkling 2 and its kind with loops: prompts of many lengths, and what no case of theirs can say."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.architecture.components.block_residual import BlockResidual
from edgegen_export.architecture.components.pass_start import PassMessages
from edgegen_export.families import FAMILIES
from edgegen_export.families.inkling2 import INKLING2_LOOP
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import decoded, export_to, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES, Case
from tests.families.harness import TOLERANCE, checkpoint_of, oracle_of
from tests.families.long_prompts import (
    assert_a_prefix_and_proposals_do_not_show,
    assert_greedy_ids,
    assert_rows_are_as_if_alone,
)
from tests.second_oracle import Judge

Floats = NDArray[np.float32]
NAMES = ("inkling_text", "inkling2_text", "inkling2_loop_text")
LONG = 256
"""Positions: room for the longest prompt."""


def case_of(name: str, **changes: Any) -> Case:
    base = next(case for case in CASES if (case.family, case.name) == (name, "base"))
    return replace(base, config={**base.config, "max_position_embeddings": LONG, **changes})


Model = tuple[Path, Judge]


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    case = case_of(request.param)
    folder = checkpoint_of(case, tmp_path_factory.mktemp("inkling") / "checkpoint")
    return folder, oracle_of(case, folder)


def quantized(checkpoint: Path, target: Path, scheme: Scheme) -> Bundle:
    return export(str(checkpoint), target, ExportOptions(scheme=scheme, fast=True))[0]


def test_prompts_of_many_lengths_get_the_ids_of_transformers(model: Model, tmp_path: Path) -> None:
    checkpoint, oracle = model
    assert_greedy_ids(export_to(checkpoint, tmp_path / "bundle"), lambda ids: oracle.logits(np.array([ids]))[0])


def test_quantized_rows_are_as_if_alone_and_prefixes_are_reused(model: Model, tmp_path: Path) -> None:
    bundle = quantized(model[0], tmp_path / "bundle", "int8")
    assert_rows_are_as_if_alone(bundle)
    assert_a_prefix_and_proposals_do_not_show(bundle)


@pytest.mark.slow
def test_rows_of_four_bits_are_as_if_alone(model: Model, tmp_path: Path) -> None:
    assert_rows_are_as_if_alone(quantized(model[0], tmp_path / "bundle", "int4"))


@pytest.mark.parametrize("name", ["inkling_text", "inkling2_text"])
def test_rows_that_pad_the_vocabulary_are_left_out(name: str, tmp_path: Path) -> None:
    case = case_of(name, unpadded_vocab_size=90)
    checkpoint = checkpoint_of(case, tmp_path / "checkpoint")
    ids = np.random.default_rng(1).integers(0, 90, 40).tolist()
    runner = runner_of(export_to(checkpoint, tmp_path / "bundle"))
    found, expected = decoded(runner, runner.new_cache(), ids), oracle_of(case, checkpoint).logits(np.array([ids]))[0]
    assert found.shape == expected.shape == (40, 90)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_keeps_the_last_tokens_of_four_convolutions(name: str) -> None:
    file = {**case_of(name).config, "model_type": name}
    config = find_architecture(file, FAMILIES).read_config(file)
    kv = kv_spec(config)
    for layer, own in config.attentions.items():
        kinds = [(state.kind, state.window) for state in kv.states if state.layer == layer]
        assert kinds == [("fixed", None)] * 4 + [("windowed" if own.window else "growing", own.window)]
    assert {own.window for own in config.attentions.values()} == {None, 12}


def test_passes_begin_with_what_the_first_one_took_and_hear_the_last_one() -> None:
    config = INKLING2_LOOP.read_config(
        {
            **case_of("inkling2_loop_text").config,
            "model_type": "inkling2_loop_text",
            "num_hidden_layers": 7,
            "layer_types": ["hybrid"] * 7,
            "loop_layer_index_end": 6,
        }
    )
    found = [(layer.first(BlockResidual), layer.first(PassMessages)) for layer in config.layers]
    blocks = [(own.blocks, own.begins) for own, _ in found if own]
    heard = [(own.heard, own.start) for _, own in found if own]
    first = [((), 0), ((0,), None)]
    # Kept: what 0, 2 take; 2's again, as it is; what 4 takes; of the second pass its result and what 4 takes.
    assert blocks == [
        *first,
        *(((0,), 1), ((0, 1), None), ((0, 1), 3), ((0, 1, 3), None)),
        *(((0,), 1), ((0, 1), None), ((0, 1), 5), ((0, 1, 5), None)),
        *(((0,), 1), ((0, 1), None), ((0, 1), 7), ((0, 1, 7), None)),
        ((0, 1, 7), 8),
    ]
    assert heard == [((), None)] * 4 + [((3, 4), 2)] + [((3, 4), None)] * 3 + [((5, 6), 2)] + [((5, 6), None)] * 3


PUBLISHED = (
    ("lm_head", "model.unembed"),
    (".embed_tokens.embed_norm.", ".embed_norm."),
    (".embed_tokens.", ".embed."),
    (".input_layernorm.", ".attn_norm."),
    (".post_attention_layernorm.", ".mlp_norm."),
    (".q_proj", ".wq_du"),
    (".k_proj", ".wk_dv"),
    (".v_proj", ".wv_dv"),
    (".r_proj", ".wr_du"),
    (".o_proj", ".wo_ud"),
    (".self_attn.", ".attn."),
    ("_sconv.conv1d.", "_sconv."),
    ("gate.e_score_correction_bias", "gate.bias"),
    ("shared_experts.down_proj", "shared_experts.shared_w2_weight"),
    ("experts.down_proj", "experts.w2_weight"),
    ("mlp.down_proj", "mlp.w2_md"),
)
"""Parts of names as transformers has them in memory, and as its conversion reads them from published files."""


def in_turns(gate: Floats, up: Floats) -> Floats:
    """The rows of both in turns, after the axis of experts where there is one."""
    rows = np.stack([gate, up], axis=-2)
    return rows.reshape(*gate.shape[:-2], -1, gate.shape[-1])


def published(tensors: Mapping[str, Floats]) -> dict[str, Floats]:
    found = {name: each for name, each in tensors.items() if "gate_proj" not in name and "up_proj" not in name}
    for name, each in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            found[name.replace("gate_up_proj", "w13_weight")] = in_turns(*np.split(each, 2, axis=1))
        elif "gate_proj" in name:
            part = "shared_w13_weight" if "experts" in name else "w13_dn"
            found[name.replace("gate_proj", part)] = in_turns(each, tensors[name.replace("gate_proj", "up_proj")])
    for ours, theirs in PUBLISHED:
        found = {name.replace(ours, theirs): each for name, each in found.items()}
    return {name.replace("model.", "model.llm.", 1): each for name, each in found.items()}


def test_a_published_inkling_with_towers_is_read(tmp_path: Path) -> None:
    """Its towers need a package that the oracle's environment has not."""
    case = case_of("inkling_text")
    text = checkpoint_of(case, tmp_path / "text")
    tensors: dict[str, Floats] = cast(Any, safetensors.numpy).load_file(text / "model.safetensors")
    beside = ("model.visual.layers.norm_0.weight", "model.audio.encoder.weight", "model.mtp.layers.0.norm.weight")
    whole = tmp_path / "whole"
    whole.mkdir()
    write_safetensors(
        whole / "model.safetensors", published(tensors) | dict.fromkeys(beside, tensors["model.norm.weight"])
    )
    config = {
        "model_type": "inkling_mm_model",
        "architectures": ["InklingForConditionalGeneration"],
        "text_config": json.loads((text / "config.json").read_text()),
        "vision_config": {"model_type": "inkling_vision"},
        "audio_config": {"model_type": "inkling_audio"},
        "mtp_config": {"num_nextn_predict_layers": 1},
        "image_token_id": 3,
        "image_bos_token_id": 4,
        "audio_token_id": 5,
        "audio_bos_token_id": 6,
    }
    (whole / "config.json").write_text(json.dumps(config))
    ids = np.random.default_rng(1).integers(0, 96, 40).tolist()
    runner = runner_of(export_to(whole, tmp_path / "bundle"))
    expected = oracle_of(case, text).logits(np.array([ids]))[0]
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("inkling_text", {"shared_expert_sink": False}, "the router weighs shared experts with the others"),
        ("inkling_text", {"tie_word_embeddings": True}, "embedding and head are apart in this family"),
        ("inkling_text", {"conv_kernel_size": 1}, "a convolution over a single token keeps no state"),
        ("inkling_text", {"swa_num_key_value_heads": 3}, "swa_num_key_value_heads = 3 does not divide"),
        ("inkling2_text", {"n_routed_experts": 4096}, "20480 experts in all layers, at most 8192 are supported"),
        ("inkling2_loop_text", {"n_routed_experts": 1024}, "9216 experts in all layers, at most 8192 are supported"),
        ("inkling2_text", {"scoring_func": "softmax"}, "only sigmoids weigh experts"),
        ("inkling2_loop_text", {"n_layers_per_attn_res_block": 3}, "of multiples of n_layers_per_attn_res_block = 3"),
        ("inkling2_loop_text", {"loop_layer_index_start": 0}, "a range within the 5 layers"),
        ("inkling2_loop_text", {"loop_config": {"core_end": 6}}, "a range within the 5 layers"),
        ("inkling2_loop_text", {"loop_config": {"gain": 6}}, "gain = 6: not understood"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_key(name: str, changes: Mapping[str, Any], said: str) -> None:
    file = {**case_of(name).config, "model_type": name, **changes}
    with pytest.raises(UnsupportedModelError, match=said):
        find_architecture(file, FAMILIES).read_config(file)
