"""GGUF files of mixtures of experts and of LFM2: quantized stacks of matrices, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint import Checkpoint
from tests.export.bundles import export_to, random_ids, runner_of
from tests.export.checkpoint.gguf_models import CASES, arrays_of, random_model, write_gguf

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that write the files

KINDS = [GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0, GGMLQuantizationType.MXFP4]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_expert_is_a_part_of_a_quantized_stack(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    case = CASES["qwen3moe"]
    case = replace(case, settings={**case.settings, "moe_intermediate_size": 64})
    model = random_model(case)
    path = write_gguf(tmp_path / "model.gguf", case, model, kind)
    tensors = Checkpoint.open(str(path)).tensors
    experts = {name: array for name, array in arrays_of(model).items() if ".experts." in name}
    assert len(experts) == 2 * 6 * 3
    for name, array in experts.items():
        wanted = dequantize(quantize(array, kind), kind)
        np.testing.assert_array_equal(tensors[name].read(), wanted, err_msg=name)
        np.testing.assert_array_equal(tensors[name].take(3, 7).read(), wanted[3:7])
        tensors[name].release()
    bundle = export_to(path, tmp_path / "bundle")
    runner = runner_of(bundle)
    assert np.isfinite(runner.prefill(runner.new_cache(), 0, random_ids(bundle, 9))).all()


def _normalized(writer: GGUFWriter, config: Any) -> None:
    writer.add_expert_weights_norm(True)


def _scaled(writer: GGUFWriter, config: Any) -> None:
    writer.add_expert_weights_scale(2.5)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (_normalized, "qwen2moe.expert_weights_norm = True: this architecture always has False"),
        (_scaled, "qwen2moe.expert_weights_scale = 2.5: weights of experts that are scaled are not supported"),
    ],
)
def test_what_llama_cpp_does_not_do_is_refused(tmp_path: Path, step: Any, said: str) -> None:
    case = CASES["qwen2moe"]
    case = replace(case, describe=(*case.describe, step))
    with pytest.raises(CheckpointError, match=said):
        Checkpoint.open(str(write_gguf(tmp_path / "model.gguf", case, random_model(case))))


@pytest.mark.parametrize("heads", [[2, 1, 0], [0, 0, 0], [2, 0]])
def test_layers_with_attention_have_as_many_key_heads(tmp_path: Path, heads: list[int]) -> None:
    def other(writer: GGUFWriter, config: Any) -> None:
        writer.add_layer_norm_rms_eps(config.norm_eps)
        writer.add_shortconv_l_cache(config.conv_L_cache)
        writer.add_head_count_kv(heads)

    case = CASES["lfm2"]
    case = replace(case, describe=(*case.describe[:-1], other))
    with pytest.raises(CheckpointError, match=r"head_count_kv: 3 numbers, all the same or 0, expected"):
        Checkpoint.open(str(write_gguf(tmp_path / "model.gguf", case, random_model(case))))
