"""GGUF files of 2025's families: what stands in the metadata alone, such as scales of queries and xIELU's numbers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter, RopeScalingType

from edgegen.errors import CheckpointError
from edgegen_export.architecture.components.attention import QueryScale
from edgegen_export.architecture.rope import Yarn
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families.mistral import MINISTRAL3
from tests.export.checkpoint.gguf_models import CASES, random_model, write_gguf
from tests.export.checkpoint.gguf_steps import kv_heads

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that write the files


def _long_context(writer: GGUFWriter, config: Any) -> None:
    """Write the metadata that llama.cpp's converter writes for a Ministral 3."""
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_scaling_orig_ctx_len(16)
    writer.add_rope_scaling_yarn_beta_fast(32.0)
    writer.add_rope_scaling_yarn_beta_slow(1.0)
    writer.add_rope_scaling_yarn_log_mul(1.0)
    writer.add_attn_temperature_scale(0.1)


def test_a_scale_of_queries_makes_a_ministral(tmp_path: Path) -> None:
    case = CASES["mistral 3"]
    case = replace(case, describe=(*case.describe, _long_context))
    checkpoint = Checkpoint.open(str(write_gguf(tmp_path / "model.gguf", case, random_model(case))))
    assert checkpoint.config["model_type"] == "ministral3"
    config = MINISTRAL3.read_config(checkpoint.config)
    assert config.attention.query_scale == QueryScale(0.1, 16)
    (rope,) = {own.rope for own in config.attentions.values()}
    assert rope is not None
    assert rope.theta == 1e6
    assert rope.scaling == Yarn(4.0, 16, fast=32.0, slow=1.0, truncate=True, attention_factor=1.0)


def _one_number(writer: GGUFWriter, config: Any) -> None:
    for name in ("alpha_n", "beta", "eps"):
        getattr(writer, f"add_xielu_{name}")(config.xielu[name])
    writer.add_xielu_alpha_p([0.5])


def test_numbers_that_are_not_one_for_each_layer_are_refused(tmp_path: Path) -> None:
    case = CASES["apertus without scaling"]
    case = replace(case, describe=(*case.describe[:-1], _one_number))
    path = write_gguf(tmp_path / "model.gguf", case, random_model(case))
    with pytest.raises(CheckpointError, match=r"xielu.alpha_p: 2 numbers expected, one for each layer, found \[0.5\]"):
        Checkpoint.open(str(path))


def _three_key_heads(writer: GGUFWriter, config: Any) -> None:
    writer.add_head_count_kv([2, 0, 1])


def test_layers_without_attention_are_for_architectures_that_have_them(tmp_path: Path) -> None:
    """Key-value heads that differ from layer to layer, or are zero where every layer has some."""
    lfm2, qwen = CASES["lfm2"], CASES["qwen3"]
    of_lfm2 = replace(lfm2, describe=(*lfm2.describe[:-1], _three_key_heads, _kernel))
    of_qwen = replace(qwen, describe=(*(it for it in qwen.describe if it is not kv_heads), _three_key_heads))
    for case in (of_lfm2, of_qwen):
        path = write_gguf(tmp_path / f"{case.arch}.gguf", case, random_model(case))
        with pytest.raises(CheckpointError, match=r"attention.head_count_kv: differs from layer to layer"):
            Checkpoint.open(str(path))


def _kernel(writer: GGUFWriter, config: Any) -> None:
    writer.add_shortconv_l_cache(config.conv_L_cache)
    writer.add_layer_norm_rms_eps(config.norm_eps)
