"""RWKV-7: its sizes, its GGUF files, and what it is refused for."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import MODEL_ARCH, GGUFWriter, get_tensor_name_map

from edgegen.errors import CheckpointError, TensorError, UnsupportedModelError
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families.rwkv7 import RWKV7
from tests.export.bundles import export_to, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.formulas.rwkv7 import BASE, computed, written
from tests.families.harness import assert_computes
from tests.families.random_tensors import Floats


def test_the_published_sizes_give_the_published_number_of_parameters() -> None:
    """Sizes of RWKV7-World3-1.5B in the paper, 1,527,404,544 parameters."""
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


def test_a_gguf_file_is_read(tmp_path: Path) -> None:
    config, tensors = written("base", tmp_path / "checkpoint")
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


def test_a_gguf_file_of_other_shifts_is_refused(tmp_path: Path) -> None:
    config, tensors = written("base", tmp_path / "checkpoint")
    file = write_gguf(tmp_path / "model.gguf", config, tensors, token_shift_count=1)
    with pytest.raises(CheckpointError, match=r"rwkv7\.token_shift_count"):
        Checkpoint.open(str(file))
