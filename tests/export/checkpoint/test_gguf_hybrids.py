"""GGUF files of the families in gguf_hybrids.py: the same model as the checkpoint they were written from."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import safetensors.numpy

from edgegen.errors import CheckpointError
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families import FAMILIES
from tests.export.bundles import decoded, export_to, random_ids, runner_of
from tests.export.checkpoint import gguf_steps_of_hybrids as steps
from tests.export.checkpoint.gguf_case import Case as GgufCase
from tests.export.checkpoint.gguf_hybrids import FAMILIES_OF_FILES, Family
from tests.export.checkpoint.gguf_models import write_gguf
from tests.export.checkpoint.gguf_steps import Arrays, Describe, Rearrange
from tests.families.cases import CASES, Case
from tests.families.harness import checkpoint_of, judged_cases
from tests.second_oracle import config_json

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that write the files


def _family_of(case: Case) -> Family | None:
    """How a case's checkpoint becomes a file: with experts, a Nemotron-H is another architecture there."""
    sparse = "moe" in (case.config.get("layers_block_type") or ())
    return FAMILIES_OF_FILES.get(f"{case.family}_moe" if sparse else case.family)


def _is_said(case: Case) -> bool:
    family = _family_of(case)
    return family is not None and not case.refused and not any(name in case.name for name in family.left)


SAID = [
    replace(case, oracles=FAMILIES_OF_FILES[case.family].oracles or case.oracles) for case in CASES if _is_said(case)
]


class Stored:
    """A checkpoint as the writer of GGUF files wants a model."""

    def __init__(self, case: Case, folder: Path) -> None:
        whole = config_json(case.family, case.config, use_diff=False, version=case.oracles[0])
        self.config = SimpleNamespace(**{"bos_token_id": 1, "eos_token_id": 2, **_given({**case.config, **whole})})
        self.arrays: Arrays = cast(Any, safetensors.numpy).load_file(folder / "model.safetensors")

    def state_dict(self) -> dict[str, Any]:
        return {name: SimpleNamespace(numpy=lambda array=array: array) for name, array in self.arrays.items()}


def _given(config: dict[str, Any]) -> dict[str, Any]:
    rope: dict[str, Any] = config.get("rope_parameters") or {}
    theta = {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}
    ids = {key: value for key, value in config.items() if key.endswith("_token_id") and value is None}
    counted = {"num_hidden_layers": len(config.get("layers_block_type") or ())}
    return {key: value for key, value in {**counted, **theta, **config}.items() if key not in ids}


def written(case: Case, folder: Path, more: Family | None = None) -> Path:
    family = more or _family_of(case)
    assert family
    checkpoint_of(case, folder / "checkpoint")
    return file_of(case, folder, family)


def file_of(case: Case, folder: Path, family: Family) -> Path:
    """The file of the checkpoint in ``folder``/checkpoint."""
    shape = GgufCase(family.arch, "", "", {}, family.describe, family.rearrange, named_like=family.named_like)
    return write_gguf(folder / "model.gguf", shape, Stored(case, folder / "checkpoint"))


ONLY_COMPUTED = ("falcon_h1", "bamba")
"""Families whose files hold other tensors: multipliers are in them; Bamba is a Granite without them."""


@pytest.mark.parametrize("case", judged_cases(case for case in SAID if case.family not in ONLY_COMPUTED))
def test_a_gguf_hybrid_reads_back_as_the_checkpoint(case: Case, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(str(written(case, tmp_path)))
    original = Checkpoint.open(str(tmp_path / "checkpoint"))
    theirs, ours = (find_architecture(it.config, FAMILIES).read_config(it.config) for it in (original, checkpoint))
    assert ours == theirs
    for name, tensor in checkpoint.tensors.items():
        stored = name.replace("backbone.", "model.", 1) if name not in original.tensors else name
        np.testing.assert_allclose(tensor.read(), original.tensors[stored].read(), rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "case", judged_cases(case for case in SAID if case.family in ONLY_COMPUTED or case.name == "base")
)
def test_a_gguf_hybrid_computes_what_the_checkpoint_computes(case: Case, tmp_path: Path) -> None:
    """Of each family one: the others have the same configuration and tensors."""
    of_file = export_to(written(case, tmp_path), tmp_path / "of_file")
    of_folder = export_to(tmp_path / "checkpoint", tmp_path / "of_folder")
    ids = random_ids(of_folder, 12)
    found, expected = (
        decoded(runner, runner.new_cache(), ids) for runner in (runner_of(of_file), runner_of(of_folder))
    )
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found, expected, atol=1e-4)  # of logarithms of exponentials


def _case(family: str) -> Case:
    return next(case for case in SAID if case.family == family and case.name == "base")


def _changed(family: str, *describe: Describe, rearrange: tuple[Rearrange, ...] = ()) -> Family:
    usual = FAMILIES_OF_FILES[family]
    return replace(usual, describe=(*usual.describe, *describe), rearrange=(*usual.rearrange, *rearrange))


def test_a_draft_layer_of_ling_has_keys_and_is_left(tmp_path: Path) -> None:
    heads = says(head_count_kv=[0, 1, 0, 1, 1])
    family = _changed("bailing_hybrid", steps.with_drafts, heads, rearrange=(steps.a_draft_layer,))
    checkpoint = Checkpoint.open(str(written(_case("bailing_hybrid"), tmp_path, family)))
    assert checkpoint.config["num_hidden_layers"] == 4
    assert checkpoint.config["layer_types"] == ["linear_attention", "full_attention"] * 2
    own = set(Checkpoint.open(str(tmp_path / "checkpoint")).tensors)
    assert set(checkpoint.tensors) == own | {"model.layers.4.eh_proj.weight"}  # by which a warning names the head


def _limited(writer: Any, config: Any) -> None:
    """As Ling 3.0 Flash, whose last layers have limits."""
    writer.add_array("bailingmoe3.swiglu_clamp_exp", [0.0, 0.0, 0.0, 7.0])


def says(**values: Any) -> Describe:
    """Metadata under the writer's methods of these names, instead of what was said before."""

    def describe(writer: Any, config: Any) -> None:
        for name, value in values.items():
            getattr(writer, f"add_{name}")(value)

    return describe


def _without(part: str) -> Rearrange:
    return lambda config, arrays: {key: array for key, array in arrays.items() if part not in key}


def _with(name: str, array: Any) -> Rearrange:
    return lambda config, arrays: {**arrays, name: np.array(array, np.float32)}


@pytest.mark.parametrize(
    ("family", "changed", "said"),
    [
        (
            "granitemoehybrid",
            _changed("granitemoehybrid", says(head_count_kv=[0, 2])),
            r"granitehybrid.attention.head_count_kv: 3 numbers expected, found 2",
        ),
        (
            "granitemoehybrid",
            _changed("granitemoehybrid", says(ssm_inner_size=100, ssm_time_step_rank=7)),
            r"ssm.inner_size: 100 channels cannot be shared by 7 heads.*\n.*100 is not a multiple of embedding_length",
        ),
        (
            "nemotron_h",
            _changed("nemotron_h", says(feed_forward_length=[0, 96, 0, 48, 0])),
            r"nemotron_h.feed_forward_length: differs from layer to layer",
        ),
        (
            "nemotron_h",
            _changed("nemotron_h", says(expert_count=4)),
            r"nemotron_h.expert_count = 4: experts are not known of this architecture",
        ),
        (
            "qwen3_next",
            _changed("qwen3_next", says(ssm_time_step_rank=3)),
            r"ssm.time_step_rank: 3 does not share 64 channels, or 2 heads of keys",
        ),
        (
            "qwen3_next",
            _changed("qwen3_next", says(ssm_state_size=8)),
            r"blk.0.attn_qkv.weight: does not fit the other part of .*in_proj_qkvz.weight: 96 and 64 rows",
        ),
        (
            "qwen3_next",
            _changed("qwen3_next", rearrange=(_without("blk.1.attn_gate"),)),
            r"blk.1.attn_qkv.weight: the other part of model.layers.1.linear_attn.in_proj_qkvz.weight is missing",
        ),
        (
            "qwen3_5_text",
            _changed("qwen3_5_text", rearrange=(_with("model.layers.0.linear_attn.A_log", [-1.0]),)),
            r"blk.0.ssm_a: shape \[1\] does not fit the metadata: 4 rows of values were expected",
        ),
        (
            "kimi_linear",
            _changed("kimi_linear", says(expert_weights_norm=False)),
            r"expert_weights_norm = False: the weights of experts add up to one in this architecture",
        ),
        (
            "bailing_hybrid",
            _changed("bailing_hybrid", _limited),
            r"bailingmoe3.swiglu_clamp_exp: limits of what the gates of experts give are not supported",
        ),
        (
            "gemma3n_text",
            _changed("gemma3n_text", says(activation_sparsity_scale=[1.5, 0.5])),
            r"gemma3n.activation_sparsity_scale: 4 numbers expected, found 2",
        ),
        (
            "gemma3n_text",
            _changed("gemma3n_text", says(activation_sparsity_scale=[1.5, 0.5, float("nan"), 0.0])),
            r"gemma3n.activation_sparsity_scale: 4 numbers expected",
        ),
        (
            "gemma4_text",
            _changed("gemma4_text", says(head_count_kv=[2, 1, 1, 1])),
            r"gemma4.attention.head_count_kv: one number for all layers of sliding_attention expected",
        ),
        (
            "gemma4_text",
            _changed("gemma4_text", says(feed_forward_length=[96, 96, 96, 100])),
            r"gemma4.feed_forward_length: one number expected, or twice as much where keys and values are shared",
        ),
        (
            "gemma4_text",
            _changed("gemma4_text", rearrange=(_with("rope_freqs.weight", [1.0, 2.0] * 8),)),
            r"gemma4.rope_freqs.weight: 16 numbers expected, 1 for what rotates and 1e30 after it",
        ),
    ],
)
def test_files_that_contradict_themselves_are_refused(family: str, changed: Family, said: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=said):
        Checkpoint.open(str(written(_case(family), tmp_path, changed)))


def test_states_that_would_grow_are_refused(tmp_path: Path) -> None:
    """Their rates must be negative: the logarithm of others is no number, and the tensor is named."""
    family = _changed("granitemoehybrid", rearrange=(_with("model.layers.0.mamba.A_log", [[0.5]] * 4),))
    path = written(_case("granitemoehybrid"), tmp_path, family)
    with pytest.raises(CheckpointError, match=r"ssm_a"):
        export_to(path, tmp_path / "bundle")
