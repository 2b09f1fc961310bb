"""RWKV-7, which transformers does not have, against its formulas."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import MODEL_ARCH, GGUFWriter, get_tensor_name_map

from edgegen.bundle.bundle import Bundle
from edgegen.errors import CheckpointError, TensorError, UnsupportedModelError
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families.rwkv7 import RWKV7
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import export_to, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import Case
from tests.families.harness import assert_computes
from tests.families.long_prompts import (
    assert_a_prefix_and_proposals_do_not_show,
    assert_greedy_ids,
    assert_rows_are_as_if_alone,
)
from tests.families.rwkv7 import BASE, VARIANTS, Floats, computed, written
from tests.families.test_exactness import assert_bit_exact


@pytest.mark.parametrize("variant", VARIANTS)
def test_rwkv7_computes_its_formulas(variant: str, tmp_path: Path) -> None:
    config, tensors = written(variant, tmp_path / "checkpoint")
    ids: list[int] = np.random.default_rng(0).integers(3, 96, 50).tolist()
    judge = partial(computed, config, tensors)
    bundle = export_to(tmp_path / "checkpoint", tmp_path / "bundle")
    assert judge(ids).std() > 0.5
    assert_computes(runner_of(bundle), judge, ids)


Exported = Callable[[Scheme], Bundle]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Floats]]:
    folder = tmp_path_factory.mktemp("rwkv7") / "checkpoint"
    return folder, *written("base", folder)


@pytest.fixture(scope="module")
def exported(
    model: tuple[Path, dict[str, Any], dict[str, Floats]], tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    @cache
    def made(scheme: Scheme) -> Bundle:
        bundle, report = export(str(model[0]), tmp_path_factory.mktemp("rwkv7") / scheme, scheme=scheme)
        assert report.preferred.mean_kl < {"fp32": 1e-6, "int8": 0.05, "int4": 1.0}[scheme]
        return bundle

    return made


def test_prompts_of_many_lengths_get_the_ids_of_the_formulas(
    model: tuple[Path, dict[str, Any], dict[str, Floats]], exported: Exported
) -> None:
    assert_greedy_ids(exported("fp32"), partial(computed, *model[1:]))


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_rows_of_many_lengths_are_as_if_alone(scheme: Scheme, exported: Exported) -> None:
    assert_rows_are_as_if_alone(exported(scheme))


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_quantized_is_bit_exact(scheme: Scheme, exported: Exported) -> None:
    assert_bit_exact(exported(scheme), Case("rwkv7", "base", BASE))


def test_a_prefix_is_reused_and_proposals_do_not_show(exported: Exported) -> None:
    assert_a_prefix_and_proposals_do_not_show(exported("int8"))


def test_states_are_all_that_is_kept(exported: Exported) -> None:
    (variant,) = exported("int8").manifest.variants
    assert not variant.kv.layers
    assert [(state.layer, state.kind) for state in variant.kv.states] == [(i // 3, "fixed") for i in range(9)]
    assert variant.kv.bytes_per_row == 3 * (64 + 4 * 16 * 16 + 64) * 4


def test_the_published_sizes_give_the_published_number_of_parameters() -> None:
    """Those of RWKV7-World3-1.5B in the paper, 1,527,404,544 parameters."""
    sizes = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "head_dim": 64}
    ranks = {"decay_low_rank_dim": 96, "a_low_rank_dim": 96, "v_low_rank_dim": 64, "gate_low_rank_dim": 256}
    config = {**BASE, **sizes, **ranks, "value_dim": [2048] * 24, "vocab_size": 65536, "max_position_embeddings": 2048}
    required, optional = decoder_tensors(RWKV7.read_config(config))
    biases = [name for name in optional if name.endswith((".w.bias", ".rate.bias", ".mix.bias"))]
    shapes = [*required.values(), *(optional[name] for name in biases)]
    assert sum(int(np.prod(shape)) for shape in shapes) == 1_527_404_544


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"head_dim": 24}, "hidden_size = 64 is not a multiple of head_dim = 24"),
        ({"num_heads": 8}, "num_heads = 8: contradicts the value 4 of its other name, hidden_size / head_dim"),
        ({"value_dim": [64, 128, 64]}, "value_dim = .*: values are as wide as the hidden states"),
        ({"attn": {"layers": [1]}}, "attn = .*: layers of attention are not supported"),
        ({"hidden_act": "swiglu"}, "hidden_act: 'swiglu' is not supported"),
        ({"decay_low_rank_dim": None}, "decay_low_rank_dim: missing"),
    ],
)
def test_other_models_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said) as caught:
        RWKV7.read_config({**BASE, **changes})
    assert "problems" not in str(caught.value)


def test_a_mix_that_a_later_layer_lacks_is_missing(tmp_path: Path) -> None:
    _, tensors = written("base", tmp_path / "checkpoint")
    left = {name: array for name, array in tensors.items() if ".1.attn.v_lora.lora.0" not in name}
    write_safetensors(tmp_path / "checkpoint" / "model.safetensors", left)
    with pytest.raises(TensorError, match=r"layers\.1\.attn\.v_lora\.lora\.0\.weight: missing"):
        export_to(tmp_path / "checkpoint", tmp_path / "bundle")


def write_gguf(path: Path, config: Mapping[str, Any], tensors: Mapping[str, Floats], **changes: int) -> Path:
    """As llama.cpp's converter writes it, which gives the first layer a mix of its own, that nothing reads."""
    writer, names = GGUFWriter(path, "rwkv7"), get_tensor_name_map(MODEL_ARCH.RWKV7, config["num_hidden_layers"])
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_layer_norm_eps(config["norm_eps"])
    writer.add_wkv_head_size(config["head_dim"])
    writer.add_decay_lora_rank(config["decay_low_rank_dim"])
    writer.add_iclr_lora_rank(config["a_low_rank_dim"])
    writer.add_value_residual_mix_lora_rank(config["v_low_rank_dim"])
    writer.add_gate_lora_rank(config["gate_low_rank_dim"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(0)
    for key, value in changes.items():
        writer.add_uint32(f"rwkv7.{key}", value)
    blends = dict[str, list[Floats]]()
    for name, array in tensors.items():
        if ".attn.x_" in name:
            blends.setdefault(name.split(".")[2], []).append(array)
            continue
        theirs = name.replace("attn_norm", "ln1").replace("ffn_norm", "ln2").replace("g_norm", "ln_x")
        theirs = theirs.replace(".attn.", ".attention.").replace(".ffn.", ".feed_forward.")
        for ours, converted in (("0.weight", "1.weight"), ("2.weight", "2.weight"), ("2.bias", "0.weight")):
            theirs = theirs.replace(f"_lora.lora.{ours}", converted)
        stored = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
        assert stored, name
        stored = stored if stored.endswith((".weight", ".bias")) else f"{stored}.weight"
        stored_array = array.reshape(-1) if "r_k" in name else array
        if "blk.0.time_mix_a" in stored:
            writer.add_tensor(stored.replace("time_mix_a", "time_mix_v"), stored_array)
        writer.add_tensor(stored, stored_array)
    for layer, parts in blends.items():
        writer.add_tensor(f"blk.{layer}.time_mix_lerp_fused.weight", np.stack(parts))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_read(model: tuple[Path, dict[str, Any], dict[str, Floats]], tmp_path: Path) -> None:
    _, config, tensors = model
    file = write_gguf(tmp_path / "model.gguf", config, tensors)
    read = Checkpoint.open(str(file)).tensors
    assert {name for name in read if name not in tensors} == {
        f"model.layers.0.attn.v_lora.lora.{name}" for name in ("0.weight", "2.weight", "2.bias")
    }
    for name, array in tensors.items():
        np.testing.assert_array_equal(read[name].read(), array, err_msg=name)
    bundle = export_to(file, tmp_path / "bundle")
    ids: list[int] = np.random.default_rng(0).integers(3, 96, 50).tolist()
    assert bundle.manifest.model.max_context == 1 << 20
    assert_computes(runner_of(bundle), partial(computed, config, tensors), ids)


def test_a_gguf_file_of_other_shifts_is_refused(
    model: tuple[Path, dict[str, Any], dict[str, Floats]], tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "model.gguf", *model[1:], token_shift_count=1)
    with pytest.raises(CheckpointError, match=r"rwkv7\.token_shift_count"):
        Checkpoint.open(str(file))
