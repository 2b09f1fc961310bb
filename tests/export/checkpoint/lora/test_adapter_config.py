"""adapter_config.json: PEFT's defaults and rules of names, and everything refused by its name."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.checkpoint.lora.config import INPUT_EMBEDDING, LoraConfig, read_lora_config
from tests.export.checkpoint.adapters import lora_config
from tests.peft_oracle import import_peft


def read(**changes: Any) -> LoraConfig:
    return read_lora_config(lora_config(**changes), "here")


def problems(**changes: Any) -> list[str]:
    with pytest.raises(UnsupportedModelError) as caught:
        read(**changes)
    first, *rest = str(caught.value).removeprefix("here asks for what cannot be merged at export: ").splitlines()
    return [line.removeprefix("  - ") for line in rest] or [first]


def test_absent_keys_take_the_defaults_of_peft() -> None:
    found = read_lora_config({"peft_type": "LORA"}, "here")
    wanted = import_peft().LoraConfig()
    assert (found.rank, found.alpha, found.rank_stabilized) == (wanted.r, wanted.lora_alpha, wanted.use_rslora)
    assert (found.base, found.modules_to_save, found.token_indices, found.keeps_ties) == (None, (), {}, False)


def test_every_key_that_peft_writes_is_understood(tmp_path: Path) -> None:
    import_peft().LoraConfig(task_type="CAUSAL_LM").save_pretrained(str(tmp_path))
    raw = json.loads((tmp_path / "adapter_config.json").read_text())
    assert len(raw) > 30
    assert read_lora_config(raw, "here").rank == raw["r"]


def test_scaling() -> None:
    assert read(r=8, lora_alpha=32).scaling_of("x") == 4
    assert read(r=16, lora_alpha=8, use_rslora=True).scaling_of("x") == 2
    assert read(r=5, lora_alpha=7, use_rslora=True).scaling_of("x") == 7 / math.sqrt(5)


PATTERNS = [
    ["q_proj"],
    ["proj"],
    [r".*_proj"],
    ["layers.1.self_attn.q_proj"],
    [r"model\.layers\.\d\.self_attn\..*"],
    ["self_attn"],
    ["^model.layers.0.*q_proj"],
    ["q_proj|v_proj"],
    [r".*\.1\..*", "q_proj"],
    ["q_proj", r".*\.1\..*"],
    ["lm_head"],
    ["head"],
]


@pytest.mark.parametrize("key", ["(a+)+b", "(a|a)*b", "(a*)*(a*)*b", ".*.*.*.*.*.*.*.*b"])
def test_an_expression_of_a_stranger_takes_no_longer_than_others(key: str) -> None:
    """``re`` would take longer than anybody waits."""
    config = read(rank_pattern={key: 7})
    assert config.rank_of("model." + "a" * 200) == 2
    assert config.rank_of("model." + "a" * 200 + "b") == 7


@pytest.mark.parametrize("keys", PATTERNS, ids=str)
def test_patterns_match_as_in_peft(keys: list[str]) -> None:
    get_pattern_key = import_peft().utils.other.get_pattern_key
    names = [f"model.layers.{i}.self_attn.{x}_proj" for i in (0, 1, 11) for x in "qv"] + ["lm_head", "q_proj"]
    pattern = {key: 10 + k for k, key in enumerate(keys)}
    config = read(rank_pattern=pattern, alpha_pattern=pattern)
    for name in names:
        wanted = pattern.get(get_pattern_key(keys, name))
        assert config.rank_of(name) == (wanted or 2), name
        assert config.scaling_of(name) == (1 if wanted else 2), name


@pytest.mark.parametrize(
    "kind", ["IA3", "PREFIX_TUNING", "PROMPT_TUNING", "P_TUNING", "ADALORA", "LOHA", "LOKR", "OFT"]
)
def test_other_methods_are_refused(kind: str) -> None:
    (problem,) = problems(peft_type=kind)
    assert f"peft_type is {kind!r}; only LoRA adapters (LORA) can be merged" in problem


def test_a_config_of_no_method_is_refused() -> None:
    assert "it has no peft_type" in problems(peft_type=...)[0]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("use_dora", True, "DoRA"),
        ("use_qalora", True, "QA-LoRA"),
        ("use_bdlora", {"nblocks": 2}, "block-diagonal"),
        ("alora_invocation_tokens", [1, 2], "invocation tokens"),
        ("arrow_config", {"top_k": 3}, "Arrow"),
        ("kasa_config", {"beta": 1}, "KaSA"),
        ("monteclora_config", {"num_samples": 4}, "MonteCLoRA"),
        ("velora_config", {"num_groups": 4}, "VeLoRA"),
        ("layer_replication", [[0, 4], [2, 5]], "adds layers"),
        ("megatron_config", {"x": 1}, "Megatron"),
        ("target_parameters", ["mlp.experts.gate_up_proj"], "no module of their own"),
        ("enable_lora", [True, False, True], "parts of its matrices"),
        ("task_type", "SEQ_CLS", "edgegen exports causal language models"),
        ("task_type", "SEQ_2_SEQ_LM", "edgegen exports causal language models"),
        ("bias", "some", "not none, all or lora_only"),
        ("init_lora_weights", "pissa", "path_initial_model_for_weight_conversion"),
        ("init_lora_weights", "pissa_niter_16", "path_initial_model_for_weight_conversion"),
        ("init_lora_weights", "olora", "path_initial_model_for_weight_conversion"),
        ("init_lora_weights", "corda", "path_initial_model_for_weight_conversion"),
        ("init_lora_weights", "loftq", "merge it into the base it was trained on"),
        ("init_lora_weights", "lora_ga", "path_initial_model_for_weight_conversion"),
        ("init_lora_weights", "brand_new", "may have changed the base weights"),
        ("use_new_trick", True, "not understood, and it may change the result"),
        ("lora_alfa", 5, "did you mean 'lora_alpha'?"),
        ("r", 0, "a positive whole number expected, found 0"),
        ("r", 2.5, "a positive whole number"),
        ("r", True, "a positive whole number"),
        ("lora_alpha", "16", "a number expected, found '16'"),
        ("lora_alpha", math.inf, "a number expected"),
        ("lora_alpha", -(10**400), "a number expected"),
        ("r", 10**400, "a positive whole number expected"),
        ("use_rslora", "yes", "true or false expected"),
        ("rank_pattern", {"q_proj": -1}, "names and numbers"),
        ("rank_pattern", ["q_proj"], "names and numbers"),
        ("alpha_pattern", {"q_proj": None}, "names and numbers"),
        ("alpha_pattern", {"q_proj(": 4}, "'q_proj(' is not a regular expression"),
        ("alpha_pattern", {"(?=a)b": 4}, "'(?=a)b' cannot be used"),
        ("rank_pattern", {r"(q)\1": 4}, r"cannot be used"),
        ("rank_pattern", {"(a{999}){999}": 4}, "cannot be used"),
        ("rank_pattern", {5000 * "(" + "a" + 5000 * ")": 4}, "cannot be used: it is nested or repeated too much"),
        ("alpha_pattern", {"a{99999999999999}": 4}, "cannot be used: it is nested or repeated too much"),
        ("rank_pattern", {str(n): 4 for n in range(10_001)}, "at most 10000 names expected, found 10001"),
        ("modules_to_save", "lm_head", "a list of names"),
        ("modules_to_save", [3], "a list of names"),
        ("trainable_token_indices", [-1], "token ids expected"),
        ("trainable_token_indices", {"wte": 4}, "token ids expected"),
        ("trainable_token_indices", {"wte": [4, 4]}, "occurs twice for wte"),
    ],
)
def test_what_cannot_be_merged_is_refused_by_name(key: str, value: Any, said: str) -> None:
    (problem,) = problems(**{key: value})
    assert key in problem
    assert said in problem


def test_everything_wrong_is_told_at_once() -> None:
    assert len(problems(use_dora=True, init_lora_weights="pissa", r=-1, task_type="SEQ_CLS", new_key=1)) == 5


@pytest.mark.parametrize(
    "changes",
    [
        {"use_dora": False, "use_new_trick": False, "megatron_core": "megatron.core", "layer_replication": None},
        {"init_lora_weights": "gaussian"},
        {"init_lora_weights": False},
        {"task_type": None},
        {"new_key": None, "newer_key": {}, "_note": "x"},
        {"auto_mapping": {"base_model_class": "X", "unsloth_fixed": True}},
        {"rank_pattern": {}, "alpha_pattern": None, "modules_to_save": [], "trainable_token_indices": None},
    ],
    ids=str,
)
def test_what_changes_nothing_is_taken(changes: dict[str, Any]) -> None:
    assert read(**changes).rank == 2


def test_token_indices_have_names_or_mean_the_input_embedding() -> None:
    assert read(trainable_token_indices=[3, 1]).token_indices == {INPUT_EMBEDDING: (3, 1)}
    assert read(trainable_token_indices={"wte": [3]}).token_indices == {"wte": (3,)}
