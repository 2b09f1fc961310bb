"""Tiny configurations of every family: a base case each, and one variant for each thing its config class can say."""

from importlib import import_module

from tests.families.cases.case import CONTEXT, Case, variants

FAMILIES = (
    "gpt2 opt gpt_neo gpt_neox gptj llama arcee helium hyperclovax internlm3 mistral ministral3 nemotron qwen2 qwen3 "
    "smollm3 gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text phi phi3 falcon gpt_bigcode "
    "gpt_oss starcoder2 stablelm olmo olmo2 olmo3 granite granitemoehybrid cohere cohere2 bloom mixtral qwen2_moe "
    "qwen3_moe olmoe granitemoe granite_swa granitemoeshared granitemoe_swa ernie4_5 hunyuan_v1_dense exaone4 glm "
    "glm4 apertus seed_oss lfm2 lfm2_moe lfm3 qwen3_5_text qwen3_next falcon_h1 nemotron_h bamba mamba2 mamba "
    "falcon_mamba qwen3_5_moe_text ministral cwm iquestcoder exaone jais2 vaultgemma apertus1p5_text nanochat glm4_moe "
    "dots1 solar_open sarvam_moe ernie4_5_moe hunyuan_v1_moe minimax_m2 afmoe mellum exaone_moe hy_v3 flint laguna "
    "lara_mini persimmon mpt codegen biogpt openai-gpt gpt_neox_japanese flex_olmo aria_text dbrx cohere2_moe kolibri1 "
    "jamba olmo_hybrid kimi_linear bailing_hybrid minicpm3 deepseek_v2 deepseek_v3 glm4_moe_lite youtu mistral4 "
    "hrm_text dory diffllama zamba2 bitnet inkling_text inkling2_text inkling2_loop_text"
).split()
"""The values of ``model_type``; each has a module of its own here."""

CASES: list[Case] = [case for name in FAMILIES for case in import_module(f"{__name__}.{name.replace('-', '_')}").CASES]

__all__ = ["CASES", "CONTEXT", "FAMILIES", "Case", "variants"]
