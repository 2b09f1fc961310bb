"""GGUF files of the mixtures of experts of 2025: the same model as the checkpoint they were written from."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gguf import ExpertGatingFuncType

from edgegen.errors import CheckpointError
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families import FAMILIES
from tests.export.bundles import decoded, export_to, random_ids, runner_of
from tests.export.checkpoint import gguf_steps_of_hybrids as steps
from tests.export.checkpoint.gguf_hybrids import Family
from tests.export.checkpoint.gguf_steps import Describe, Rearrange, pictures
from tests.export.checkpoint.gguf_steps_of_experts import FAMILIES_OF_EXPERTS, gates_apart, named_choice_bias, windows
from tests.export.checkpoint.test_gguf_hybrids import says, written
from tests.families.cases import CASES, Case
from tests.families.harness import judged_cases

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that write the files


def _is_said(case: Case) -> bool:
    family = FAMILIES_OF_EXPERTS.get(case.family)
    return family is not None and not case.refused and not any(name in case.name for name in family.left)


SAID = [case for case in CASES if _is_said(case)]
BASES = [case for case in SAID if case.name == "base"]


@pytest.mark.parametrize("case", judged_cases(SAID))
def test_a_gguf_mixture_reads_back_as_the_checkpoint(case: Case, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(str(written(case, tmp_path, FAMILIES_OF_EXPERTS[case.family])))
    original = Checkpoint.open(str(tmp_path / "checkpoint"))
    theirs, ours = (find_architecture(it.config, FAMILIES).read_config(it.config) for it in (original, checkpoint))
    assert ours == theirs
    assert set(checkpoint.tensors) == set(original.tensors)
    for name, tensor in checkpoint.tensors.items():
        np.testing.assert_array_equal(tensor.read(), original.tensors[name].read(), err_msg=name)


@pytest.mark.parametrize("case", judged_cases(BASES))
def test_a_gguf_mixture_computes_what_the_checkpoint_computes(case: Case, tmp_path: Path) -> None:
    of_file = export_to(written(case, tmp_path, FAMILIES_OF_EXPERTS[case.family]), tmp_path / "of_file")
    of_folder = export_to(tmp_path / "checkpoint", tmp_path / "of_folder")
    ids = random_ids(of_folder, 12)
    found, expected = (
        decoded(runner, runner.new_cache(), ids) for runner in (runner_of(of_file), runner_of(of_folder))
    )
    assert np.abs(expected).max() > 0.01
    np.testing.assert_array_equal(found, expected)


def _base(family: str) -> Case:
    return next(case for case in BASES if case.family == family)


def _changed(family: str, *describe: Describe, rearrange: tuple[Rearrange, ...] = ()) -> Family:
    usual = FAMILIES_OF_EXPERTS[family]
    return Family(usual.arch, (*usual.describe, *describe), (*usual.rearrange, *rearrange))


def test_layers_that_propose_further_tokens_are_left(tmp_path: Path) -> None:
    changed = _changed("exaone_moe", steps.with_drafts, rearrange=(steps.a_draft_layer,))
    checkpoint = Checkpoint.open(str(written(_base("exaone_moe"), tmp_path, changed)))
    original = Checkpoint.open(str(tmp_path / "checkpoint"))
    assert checkpoint.config["num_hidden_layers"] == original.config["num_hidden_layers"]
    assert set(checkpoint.tensors) == set(original.tensors)


def test_positions_of_pictures_change_nothing_in_texts(tmp_path: Path) -> None:
    plain = Checkpoint.open(str(written(_base("glm4_moe"), tmp_path, FAMILIES_OF_EXPERTS["glm4_moe"])))
    of_vision = _changed("glm4_moe", pictures)
    (tmp_path / "vision").mkdir()
    assert Checkpoint.open(str(written(_base("glm4_moe"), tmp_path / "vision", of_vision))).config == plain.config


def test_gates_of_stacked_experts_may_be_apart(tmp_path: Path) -> None:
    file = written(_base("mistral4"), tmp_path, _changed("mistral4", rearrange=(gates_apart,)))
    original, checkpoint = Checkpoint.open(str(tmp_path / "checkpoint")), Checkpoint.open(str(file))
    assert set(checkpoint.tensors) == set(original.tensors)
    for name, tensor in checkpoint.tensors.items():
        np.testing.assert_array_equal(tensor.read(), original.tensors[name].read(), err_msg=name)


def test_a_choice_bias_may_have_an_axis_more(tmp_path: Path) -> None:
    usual = FAMILIES_OF_EXPERTS["ernie4_5_moe"]
    in_rows = Family(usual.arch, usual.describe, usual.rearrange[: usual.rearrange.index(named_choice_bias) + 1])
    checkpoint = Checkpoint.open(str(written(_base("ernie4_5_moe"), tmp_path, in_rows)))
    assert checkpoint.tensors["model.layers.1.mlp.moe_statics.e_score_correction_bias"].shape == (1, 8)


def test_exaones_windows_follow_every_third_layer_where_no_flags_are(tmp_path: Path) -> None:
    usual = FAMILIES_OF_EXPERTS["exaone_moe"]
    unsaid = Family(
        usual.arch, (*(it for it in usual.describe if it is not windows), says(sliding_window=7)), usual.rearrange
    )
    checkpoint = Checkpoint.open(str(written(_base("exaone_moe"), tmp_path, unsaid)))
    assert checkpoint.config["layer_types"] == ["sliding_attention"] * 3 + ["full_attention"]


def test_hunyuans_stretched_base_is_in_the_file(tmp_path: Path) -> None:
    """The converter computes it, and writes it in single precision."""
    case = next(case for case in CASES if str(case) == "hunyuan_v1_moe: stretched base")
    size, alpha = case.config["head_dim"], case.config["rope_scaling"]["alpha"]
    stretched = _changed("hunyuan_v1_moe", says(rope_freq_base=10000.0 * alpha ** (size / (size - 2))))
    checkpoint = Checkpoint.open(str(written(case, tmp_path, stretched)))
    original = Checkpoint.open(str(tmp_path / "checkpoint"))
    theirs, ours = (find_architecture(it.config, FAMILIES).read_config(it.config) for it in (original, checkpoint))
    assert ours.attention.rope
    assert theirs.attention.rope
    assert ours.attention.rope.theta == pytest.approx(theirs.attention.rope.theta, rel=1e-6)


SOFTMAX = ExpertGatingFuncType.SOFTMAX


@pytest.mark.parametrize(
    ("family", "values", "said"),
    [
        ("glm4_moe", {"expert_gating_func": SOFTMAX}, r"expert_gating_func = 1: experts are weighed by sigmoids only"),
        ("glm4_moe", {"expert_shared_feed_forward_length": 48}, r"= 48: shared experts are 32 wide, as the others are"),
        ("dots1", {"expert_gating_func": SOFTMAX}, r"experts are weighed by sigmoids only"),
        ("afmoe", {"expert_group_count": 2}, r"expert_group_count = 2: experts are in one group in this architecture"),
        ("minimax_m2", {"expert_weights_norm": False}, r"expert_weights_norm = False: the weights of experts add up"),
        ("minimax_m2", {"expert_weights_scale": 2.0}, r"expert_weights_scale = 2.0: experts are not scaled"),
        ("hunyuan_v1_moe", {"expert_shared_count": 2}, r"expert_shared_count = 2: one expert is shared"),
        ("hunyuan_v1_moe", {"expert_shared_feed_forward_length": 32}, r"= 32: experts are 64 wide, the shared one too"),
        ("ernie4_5_moe", {"expert_weights_scale": 2.0}, r"expert_weights_scale = 2.0: experts are not scaled"),
        (
            "exaone_moe",
            {"sliding_window_pattern": [True, False]},
            r"attention.sliding_window_pattern: 4 flags expected, found \[True, False\]",
        ),
    ],
)
def test_what_the_architecture_does_not_have_is_refused(
    family: str, values: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=said):
        Checkpoint.open(str(written(_base(family), tmp_path, _changed(family, says(**values)))))


def test_groups_without_how_many_are_chosen_are_refused(tmp_path: Path) -> None:
    plain = FAMILIES_OF_EXPERTS["glm4_moe"]
    grouped = Family(
        plain.arch, (*(_without_groups(it) for it in plain.describe), says(expert_group_count=4)), plain.rearrange
    )
    with pytest.raises(CheckpointError, match=r"glm4moe.expert_group_used_count: missing"):
        Checkpoint.open(str(written(_base("glm4_moe"), tmp_path, grouped)))


def _without_groups(describe: Describe) -> Describe:
    def quiet(writer: Any, config: Any) -> None:
        named: dict[str, Any] = {**config.__dict__}
        del named["n_group"], named["topk_group"]
        describe(writer, SimpleNamespace(**named))

    return quiet
