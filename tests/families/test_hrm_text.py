"""HRM-Text's GGUF files, whose layers are those of one stack after those of the other."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from tests.export.bundles import decoded, export_to, runner_of
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of, oracle_of, tokens
from tests.families.test_renamed import as_unfused_hrm_text

CASE = next(case for case in CASES if str(case) == "hrm_text: base")
NAMES = {
    **{f"self_attn.{x}_proj": f"attn_{x}" for x in ("q", "k", "v", "gate")},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")},
}
AROUND = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.z_L_init": "hrm.z_l_init",
    "lm_head.weight": "output.weight",
}
LAYERS = CASE.config["num_hidden_layers"]


def write(path: Path, checkpoint: Path, *, shift: int = 0) -> Path:
    """As llama.cpp's converter writes it; ``shift``: of the layers' numbers."""
    stored = {key: each.read() for key, each in open_safetensors(checkpoint / "model.safetensors").items()}
    config, writer = CASE.config, GGUFWriter(path, "hrm_text")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(LAYERS * config["H_cycles"] * (config["L_cycles"] + 1))
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_attention_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_embedding_scale(1 / config["initializer_range"])
    for key, value in (
        ("layers_per_stack", LAYERS),
        ("h_cycles", config["H_cycles"]),
        ("l_cycles", config["L_cycles"]),
    ):
        writer.add_uint32(f"hrm_text.hrm.{key}", value)
    writer.add_bool("hrm_text.hrm.prefix_lm", False)
    writer.add_token_list([f"t{i}" for i in range(config["vocab_size"])])
    for name, array in as_unfused_hrm_text(stored, dict(config)).items():
        if name in AROUND:
            writer.add_tensor(AROUND[name], array)
            continue
        _, stack, _, number, module = name.removesuffix(".weight").split(".", 4)
        writer.add_tensor(f"blk.{int(number) + LAYERS * (stack == 'H_module') + shift}.{NAMES[module]}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_computes_what_its_checkpoint_does(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(CASE, tmp_path / "checkpoint")
    runner = runner_of(export_to(write(tmp_path / "model.gguf", checkpoint), tmp_path / "bundle"))
    ids = tokens(CASE, 40, seed=1)
    expected = oracle_of(CASE, checkpoint).logits(np.array([ids]))[0]
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected, rtol=0, atol=1e-3)


def test_layers_behind_both_stacks_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", checkpoint_of(CASE, tmp_path / "checkpoint"), shift=LAYERS)
    with pytest.raises(CheckpointError, match=r"blk\.4\.attn_q\.weight: not a tensor of hrm_text"):
        Checkpoint.open(str(path))
