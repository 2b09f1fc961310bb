"""Model types without a family: the reason is read from the config, and only what helps is offered."""

from typing import Any

import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.families import FAMILIES
from edgegen_export.families.refused import REFUSED, why_not
from edgegen_export.source.optimum.trace import check_traceable
from tests.oracle import import_transformers
from tests.second_oracle import second_oracle

KNOWN = {model_type for family in FAMILIES for model_type in family.model_types}


def refusal(**config: Any) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        find_architecture(config, FAMILIES, why_not)
    return str(caught.value)


def test_no_family_is_refused() -> None:
    assert not REFUSED.keys() & KNOWN


def test_every_causal_type_of_transformers_5_has_a_family_or_a_reason() -> None:
    assert sorted(set(second_oracle().ask("causal types")) - KNOWN - REFUSED.keys()) == []


def test_reasons_go_into_one_sentence() -> None:
    for reason in REFUSED.values():
        assert reason[0].islower()
        assert not reason.endswith(".")


def traced_by_optimum(model_type: str) -> bool:
    try:
        check_traceable({"model_type": model_type})
    except UnsupportedModelError:
        return False
    return not import_transformers().CONFIG_MAPPING[model_type]().is_encoder_decoder


@pytest.mark.filterwarnings("ignore")  # optimum's, when it is imported
def test_optimum_has_no_type_that_could_be_exported_and_has_no_family() -> None:
    pytest.importorskip("optimum.exporters.onnx", reason="optimum is what is asked here, and it is not installed")
    assert not [model_type for model_type in REFUSED if traced_by_optimum(model_type)]


@pytest.mark.parametrize(
    "model_type", ["no_such_type", "olmo4", "qwen9", "glmm", "llamba", "granite5", "phi-tiny", "mistral_large"]
)
def test_the_name_of_another_architecture_is_not_suggested(model_type: str) -> None:
    message = refusal(model_type=model_type)
    assert message.startswith(f"model_type {model_type!r} is not supported; supported: afmoe, apertus, ")
    assert "optimum" not in message


@pytest.mark.parametrize(("written", "meant"), [("gpt_2", "gpt2"), ("GPT-NeoX", "gpt_neox"), ("Qwen-3", "qwen3")])
def test_another_spelling_of_a_name_is_recognized(written: str, meant: str) -> None:
    assert f"model_type {written!r} is not supported (did you mean {meant!r}?); " in refusal(model_type=written)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear attention"),
        ({"layer_types": ["conv", "full_attention"]}, "convolutions over tokens"),
        ({"layer_types": ["mamba", "attention"]}, "Mamba layers"),
        ({"mamba_d_state": 16}, "Mamba layers"),
        ({"kv_lora_rank": 512, "n_routed_experts": 8}, "latent attention, whose KV cache is compressed"),
        ({"kv_lora_rank": 512, "index_topk": 64}, "sparse attention that chooses keys by an index"),
        ({"num_experts": 8}, "a mixture of experts"),
        ({"vision_config": {"depth": 3}}, "a vision tower"),
    ],
)
def test_types_that_are_not_listed_are_judged_by_their_keys(keys: dict[str, Any], reason: str) -> None:
    said = f"model_type 'of_next_year' cannot be exported: edgegen has no family for of_next_year, which has {reason}."
    assert refusal(model_type="of_next_year", **keys) == said


def test_an_encoder_is_known_by_its_key() -> None:
    assert "it is an encoder and a decoder" in refusal(model_type="of_next_year", is_encoder_decoder=True)


@pytest.mark.parametrize(
    "keys",
    [
        {"kv_lora_rank": None, "num_experts": 0, "vision_config": None, "is_encoder_decoder": False},
        {"layer_types": ["full_attention", 7, None]},
        {"layer_types": "mamba"},
    ],
)
def test_keys_that_say_nothing_are_no_reason(keys: dict[str, Any]) -> None:
    assert refusal(model_type="of_next_year", **keys).startswith("model_type 'of_next_year' is not supported; ")


@pytest.mark.parametrize("model_type", ["git", "of_next_year"])
def test_a_language_model_inside_is_pointed_to_where_it_has_a_family(model_type: str) -> None:
    inside = refusal(model_type=model_type, vision_config={"depth": 3}, text_config={"model_type": "llama"})
    assert inside.endswith("; its language model, of model_type 'llama', may be exported from a checkpoint of its own.")


def test_a_language_model_that_has_more_than_its_type_is_not_pointed_to() -> None:
    message = refusal(model_type="kimi_k3", vision_config={}, text_config={"model_type": "kimi_linear"})
    assert message.endswith("inside a latent, which the type of its language model has not alone.")


@pytest.mark.parametrize("text_config", [None, {}, [], {"model_type": "qwen2_vl_text"}, {"model_type": ["llama"]}])
def test_a_language_model_inside_without_a_family_is_not(text_config: Any) -> None:
    message = refusal(model_type="kosmos-2", vision_config={"depth": 3}, text_config=text_config)
    assert message.endswith("it needs a reader of the language model inside, whose type has no family either.")


def test_what_is_missing_is_said() -> None:
    assert refusal(model_type="zamba") == (
        "model_type 'zamba' cannot be exported: edgegen has no family for zamba yet: it needs attention blocks that "
        "several layers share, beside Mamba-1 with heads."
    )


def test_a_wrapper_says_what_the_language_model_inside_needs() -> None:
    message = refusal(model_type="llava", text_config={"model_type": "zamba"})
    assert message == (
        "model_type 'llava' cannot be exported: its language model is of model_type 'zamba': edgegen has no family "
        "for zamba yet: it needs attention blocks that several layers share, beside Mamba-1 with heads."
    )
    assert "of model_type 'of_next_year'" in refusal(model_type="llava", text_config={"model_type": "of_next_year"})
