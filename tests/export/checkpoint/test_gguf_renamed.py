"""GGUF files of families that transformers does not have: what a model of a type that it has computes, renamed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint import Checkpoint
from tests.export.bundles import decoded, export_to, random_ids, runner_of
from tests.export.checkpoint.gguf_case import LLAMA, Case
from tests.export.checkpoint.gguf_models import arrays_of, random_model, write_gguf
from tests.export.checkpoint.gguf_steps import Arrays, Rearrange, kv_heads, llama, permuted, rope, sizes
from tests.families.test_renamed import INTERNLM2, as_internlm2, as_qwen
from tests.oracle import import_torch

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that write the files


def _of_internlm2(config: Any, arrays: Arrays) -> Arrays:
    """Names of InternLM 2, whose queries, keys and values the converter takes apart."""
    names = {**INTERNLM2, **{f"self_attn.{x}_proj": f"attention.w{x}" for x in "qkv"}}
    renamed: Arrays = {}
    for name, array in arrays.items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        renamed[name] = array
    return renamed


CASE = Case(
    "internlm2",
    "LlamaConfig",
    "LlamaForCausalLM",
    {**LLAMA, "rope_theta": 1e6},
    (sizes, kv_heads, rope, llama),
    (permuted, _of_internlm2),
)


def test_internlm2_is_the_checkpoint_it_was_made_of(tmp_path: Path) -> None:
    torch, model = import_torch(), random_model(CASE)
    file = write_gguf(tmp_path / "model.gguf", CASE, model)
    checkpoint = Checkpoint.open(str(file))
    assert checkpoint.config["model_type"] == "internlm2"
    wanted = as_internlm2(dict(arrays_of(model)), model.config.to_dict())
    assert set(checkpoint.tensors) == set(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(checkpoint.tensors[name].read(), array, err_msg=name)
    bundle = export_to(file, tmp_path / "bundle")
    runner, ids = runner_of(bundle), random_ids(bundle, 12)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), logits, atol=1e-5)


ORION = Case(
    "orion",
    "StableLmConfig",
    "StableLmForCausalLM",
    {**LLAMA, "partial_rotary_factor": 1.0, "use_qkv_bias": False, "layer_norm_eps": 1e-5},
    (sizes, kv_heads, rope, llama),
)


def _of_qwen(config: Any, arrays: Arrays) -> Arrays:
    return as_qwen(dict(arrays), config.to_dict())


def _qwen_sizes(writer: Any, config: Any) -> None:
    sizes(writer, config)
    writer.add_feed_forward_length(2 * config.intermediate_size)


QWEN = Case(
    "qwen",
    "Qwen2Config",
    "Qwen2ForCausalLM",
    {**LLAMA, "num_key_value_heads": 4},
    (_qwen_sizes, rope),
    (_of_qwen,),
)


@pytest.mark.parametrize("case", [ORION, QWEN], ids=lambda case: case.arch)
def test_a_file_computes_what_the_model_computes_that_it_was_made_of(case: Case, tmp_path: Path) -> None:
    torch, model = import_torch(), random_model(case)
    file = write_gguf(tmp_path / "model.gguf", case, model)
    assert Checkpoint.open(str(file)).config["model_type"] == case.arch
    bundle = export_to(file, tmp_path / "bundle")
    runner, ids = runner_of(bundle), random_ids(bundle, 12)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), logits, atol=1e-5)


def _without_keys(config: Any, arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if "0.attention.wk" not in name}


def _with_short_keys(config: Any, arrays: Arrays) -> Arrays:
    return {name: array[:8] if "0.attention.wk" in name else array for name, array in arrays.items()}


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            _without_keys,
            r"blk\.0\.attn_q\.weight: the other part of model\.layers\.0\.attention\.wqkv\.weight is missing",
        ),
        (_with_short_keys, r"blk\.0\.attn_q\.weight: does not fit the other part of .*wqkv\.weight: "),
    ],
)
def test_parts_that_do_not_make_one_are_refused(step: Rearrange, said: str, tmp_path: Path) -> None:
    case = replace(CASE, rearrange=(*CASE.rearrange, step))
    with pytest.raises(CheckpointError, match=said):
        Checkpoint.open(str(write_gguf(tmp_path / "model.gguf", case, random_model(case))))
