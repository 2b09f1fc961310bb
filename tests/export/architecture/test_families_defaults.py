"""Defaults of every family are those of transformers' config class, and all keys it writes are understood."""

import difflib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.checkpoint import BaseNames
from edgegen_export.families import FAMILIES
from edgegen_export.graph.decoder import kv_spec, rotary_tables
from tests.export.checkpoint.adapters import GPT2_NAMES, LLAMA_NAMES
from tests.oracle import import_transformers
from tests.second_oracle import FIRST, SECOND, config_json, judged

ELSEWHERE = {
    *("gemma3", "gemma3n", "gemma4", "mistral3", "qwen3_5", "qwen3_5_moe", "granitemoehybrid", "bamba", "nemotron_h"),
    *("baichuan", "openelm", "internlm2", "mimo", "minicpm", "gemma4_text", "gemma4_unified", "gemma4_unified_text"),
    *("lfm2_moe", "lfm3_vl", "telechat3", "dots1", "bailing_moe", "glm4_moe", "deepseek_v2", "kimi_k2"),
    *("orion", "qwen", "deepseek", "nanbeige", "hrm_text", "rwkv7", "iquestloopcoder", "phi4flash", "inkling2_text"),
}
"""Model types compared elsewhere, or not at all. Those with vision have the config of their language model inside:
tests/families/test_vision.py, test_mistral3.py, test_qwen3_5.py, test_gemma3n.py, test_gemma4.py, test_lfm.py. By
default, all layers of Granite 4 and Bamba are mixers, and Nemotron-H has experts, which is refused:
test_mixer_configs.py. transformers does not have Baichuan, OpenELM, InternLM 2, IQuest-Coder Loop, MiMo, MiniCPM,
Nanbeige, Orion, Phi-4-mini-flash, the first Qwen, RWKV-7, TeleChat 3 and Ling, and writes what each layer of Gemma 4
has: test_baichuan.py, test_openelm.py, test_renamed.py, test_iquestloopcoder.py, test_minicpm.py, test_nanbeige.py,
test_phi4flash.py, test_rwkv7.py, test_gemma4.py. HRM-Text's attention to the prompt is not causal by default, which is
refused. LFM2 MoE has no kinds of layers by default: test_lfm.py; dots.llm1 has no number of experts, DeepSeek-V2 not
that of those that a token uses, Kimi K2 is DeepSeek-V3 by another name, the heads of GLM-4.5 do not divide its width,
and Inkling 2 has more experts than one graph holds: test_inkling.py."""

LATER = {
    *("granite_swa", "granitemoe_swa", "hyperclovax", "internlm3", "lfm3", "ministral3", "qwen3_5_text"),
    *("qwen3_5_moe_text", "ministral", "cwm", "iquestcoder", "exaone", "jais2", "vaultgemma", "apertus1p5_text"),
    *("nanochat", "solar_open", "sarvam_moe", "minimax_m2", "afmoe", "mellum", "exaone_moe", "hy_v3", "flint"),
    *("laguna", "lara_mini", "cohere2_moe", "kolibri1", "minicpm3", "glm4_moe_lite", "youtu", "mistral4"),
    *("olmo_hybrid", "kimi_linear", "bailing_hybrid", "dory", "diffllama", "inkling_text"),
    "inkling2_loop_text",
}
"""Types that transformers 4 does not know."""

ALL = {
    model_type: family
    for family in FAMILIES
    if family.inside is None  # tests/families/test_wrapped.py
    for model_type in family.model_types
    if model_type not in ELSEWHERE
}
BY_TYPE = {model_type: family for model_type, family in ALL.items() if model_type not in LATER}

SIZES: dict[str, tuple[str, int]] = {
    "gpt2": ("n_embd", 96),
    "gptj": ("n_embd", 512),
    "gpt_bigcode": ("n_embd", 96),
    "mpt": ("d_model", 256),
    "dbrx": ("d_model", 256),
}
"""A size that others follow from, where it is not called ``hidden_size``: its key and another value."""


HEADS: dict[str, tuple[str, int]] = {
    "gpt_neo": ("num_heads", 4),
    "mamba2": ("num_heads", 16),
    **dict.fromkeys(("mamba", "falcon_mamba"), ("state_size", 4)),
}
"""A number of heads, of attention or of mixers, where it is not called ``num_attention_heads``, or is not 4; or, where
there are none, another number."""


@pytest.fixture(params=judged(BY_TYPE, lambda _: FIRST))
def model_type(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def family(model_type: str) -> Architecture:
    return BY_TYPE[model_type]


def theirs(model_type: str, **config: Any) -> Any:
    return import_transformers().CONFIG_MAPPING[model_type](**config)


def test_class_defaults_are_filled_in(model_type: str, family: Architecture) -> None:
    assert family.read_config({"model_type": model_type}) == family.read_config(theirs(model_type).to_dict())


def test_every_key_that_transformers_writes_is_understood(model_type: str, family: Architecture) -> None:
    config = theirs(model_type)
    for only_differences in (True, False):
        written = json.loads(config.to_json_string(use_diff=only_differences))
        assert family.read_config(written) == family.read_config({"model_type": model_type})


@pytest.mark.parametrize("model_type", judged(sorted(LATER), lambda _: SECOND))
def test_class_defaults_of_transformers_5_are_filled_in(model_type: str) -> None:
    defaults = ALL[model_type].read_config({"model_type": model_type})
    for only_differences in (True, False):
        written = config_json(model_type, {}, use_diff=only_differences, version=SECOND)
        assert ALL[model_type].read_config(written) == defaults


def test_defaults_that_follow_from_other_keys_follow(model_type: str, family: Architecture) -> None:
    key, value = SIZES.get(model_type, ("hidden_size", 512))
    heads, count = HEADS.get(model_type, ("num_attention_heads", 4))
    given = {key: value, heads: count}
    given |= {k: v for k, v in {"num_key_value_heads": 2, "rotary_dim": 32}.items() if k in family.defaults}
    read = family.read_config({"model_type": model_type, **given})
    assert read == family.read_config(theirs(model_type, **given).to_dict())
    assert read.hidden_size == value
    assert all(attention.heads == count for attention in read.attentions.values())


def test_a_misspelt_key_is_refused_with_the_nearest_name(model_type: str, family: Architecture) -> None:
    written = theirs(model_type).to_dict()
    for key in ("vocab_size", "tie_word_embeddings", "initializer_range"):
        wrong = key.replace("i", "ii")
        value = written.get(key, 1)
        with pytest.raises(UnsupportedModelError) as caught:
            family.read_config({**written, wrong: value})
        assert f"{wrong} = {value!r}: not understood, and it may change the result" in str(caught.value)
        assert f"(did you mean {key!r}?)" in str(caught.value)
        assert "problems" not in str(caught.value)


def test_a_key_of_another_spelling_is_not_mistaken_for_a_note(model_type: str, family: Architecture) -> None:
    keys = theirs(model_type).to_dict().keys() - {"model_type"}
    sizes = sorted(key for key in keys if key.endswith(("_size", "_layers", "_heads", "n_embd", "n_layer", "n_head")))
    for key in sizes:
        wrong = key + "s" if not key.endswith("s") else key[:-1]
        assert difflib.get_close_matches(wrong, [key])
        # GPT-2's n_head beside n_heads is another name that must agree.
        with pytest.raises(UnsupportedModelError, match=r"did you mean|what another key of the file says"):
            family.read_config({"model_type": model_type, wrong: 64})


@pytest.mark.parametrize(
    ("model_type", "names"),
    [
        ("llama", LLAMA_NAMES),
        ("gpt2", GPT2_NAMES),
        ("gpt_bigcode", BaseNames("wte", "lm_head", prefixes=("", "transformer."))),
        ("gpt_neox", BaseNames("embed_in", "embed_out", prefixes=("", "gpt_neox."))),
        ("falcon", BaseNames("word_embeddings", "lm_head", prefixes=("", "transformer."))),
    ],
)
def test_what_an_adapter_changes_in_its_own_way(model_type: str, names: BaseNames) -> None:
    family = BY_TYPE[model_type]
    assert family.base_names(family.read_config({})) == names


YARN = {"rope_type": "yarn", "factor": 1e30, "original_max_position_embeddings": 1}
ODD_SCALARS: list[Any] = [None, True, False, 0, -1, 1, 2, 3, 7, 8, 1 << 67, 0.0, -0.5, 1e-30, 1e30, float("nan"), "x"]
ODD_LISTS: list[Any] = [[], [1], [[1]], [["a"], 2]]
ODD_OBJECTS: list[Any] = [
    {},
    {"a": 1},
    YARN,
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "longrope", "short_factor": [1.0]},
    {"full_attention": YARN},
    {"full_attention": []},
]
ODD_VALUES = [*ODD_SCALARS, *ODD_LISTS, *ODD_OBJECTS]


@pytest.mark.parametrize("model_type", judged(BY_TYPE, lambda _: FIRST))
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_no_config_breaks_a_family(model_type: str, data: st.DataObject) -> None:
    config = theirs(model_type).to_dict()
    keys = [*config, "head_dim", "rope_scaling", "rope_parameters", "partial_rotary_factor", "layer_types"]
    config |= data.draw(st.dictionaries(st.sampled_from(keys), st.sampled_from(ODD_VALUES), min_size=1, max_size=3))
    try:
        read = BY_TYPE[model_type].read_config(config)
    except UnsupportedModelError:
        return
    read = read.for_context(read.max_positions)
    assert len(kv_spec(read).layers) == len(read.cached_layers)
    assert all(len(table.inverse_frequencies) for table in rotary_tables(read).values())
    assert decoder_tensors(read)[0]
