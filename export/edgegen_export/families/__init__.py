"""The supported model families, each as data in its own file."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.families.afmoe import AFMOE
from edgegen_export.families.apertus import APERTUS, APERTUS1P5
from edgegen_export.families.arcee import ARCEE
from edgegen_export.families.aria import ARIA
from edgegen_export.families.baichuan import BAICHUAN
from edgegen_export.families.bailing_hybrid import BAILING_HYBRID
from edgegen_export.families.bailing_moe import BAILING_MOE, SARVAM_MOE
from edgegen_export.families.bamba import BAMBA
from edgegen_export.families.biogpt import BIOGPT
from edgegen_export.families.bitnet import BITNET
from edgegen_export.families.bloom import BLOOM
from edgegen_export.families.codegen import CODEGEN
from edgegen_export.families.cohere import COHERE, COHERE2
from edgegen_export.families.cohere2_moe import COHERE2_MOE
from edgegen_export.families.cwm import CWM
from edgegen_export.families.dbrx import DBRX
from edgegen_export.families.deepseek import DEEPSEEK
from edgegen_export.families.deepseek_v2 import DEEPSEEK_V2
from edgegen_export.families.deepseek_v3 import DEEPSEEK_V3
from edgegen_export.families.diffllama import DIFFLLAMA
from edgegen_export.families.dory import DORY
from edgegen_export.families.dots1 import DOTS1
from edgegen_export.families.ernie4_5 import ERNIE4_5
from edgegen_export.families.ernie4_5_moe import ERNIE4_5_MOE
from edgegen_export.families.exaone import EXAONE
from edgegen_export.families.exaone4 import EXAONE4
from edgegen_export.families.exaone_moe import EXAONE_MOE
from edgegen_export.families.falcon import FALCON
from edgegen_export.families.falcon_h1 import FALCON_H1
from edgegen_export.families.flint import FLINT
from edgegen_export.families.gemma import GEMMA, GEMMA2, GEMMA3, GEMMA3_WITH_VISION, VAULTGEMMA
from edgegen_export.families.gemma3n import GEMMA3N, GEMMA3N_WITH_VISION
from edgegen_export.families.gemma4 import GEMMA4, GEMMA4_UNIFIED, GEMMA4_UNIFIED_WITH_VISION, GEMMA4_WITH_VISION
from edgegen_export.families.glm import GLM, GLM4
from edgegen_export.families.glm4_moe import GLM4_MOE
from edgegen_export.families.glm4_moe_lite import GLM4_MOE_LITE
from edgegen_export.families.gpt2 import GPT2
from edgegen_export.families.gpt_bigcode import GPT_BIGCODE
from edgegen_export.families.gpt_neo import GPT_NEO
from edgegen_export.families.gpt_neox import GPT_NEOX, GPT_NEOX_JAPANESE
from edgegen_export.families.gpt_oss import GPT_OSS
from edgegen_export.families.gptj import GPTJ
from edgegen_export.families.granite import GRANITE
from edgegen_export.families.granite4 import GRANITE4
from edgegen_export.families.granite_swa import GRANITE_SWA
from edgegen_export.families.granitemoe import GRANITE_MOE, GRANITE_MOE_SHARED, GRANITE_MOE_SWA
from edgegen_export.families.helium import HELIUM
from edgegen_export.families.hrm_text import HRM_TEXT
from edgegen_export.families.hunyuan import HUNYUAN
from edgegen_export.families.hunyuan_moe import HUNYUAN_MOE
from edgegen_export.families.hy_v3 import HY_V3
from edgegen_export.families.hyperclovax import HYPERCLOVAX
from edgegen_export.families.inkling import INKLING
from edgegen_export.families.inkling2 import INKLING2, INKLING2_LOOP
from edgegen_export.families.internlm2 import INTERNLM2
from edgegen_export.families.internlm3 import INTERNLM3
from edgegen_export.families.iquestcoder import IQUESTCODER
from edgegen_export.families.iquestloopcoder import IQUESTLOOPCODER
from edgegen_export.families.jais2 import JAIS2
from edgegen_export.families.jamba import JAMBA
from edgegen_export.families.kimi_linear import KIMI_LINEAR
from edgegen_export.families.kolibri1 import KOLIBRI1
from edgegen_export.families.laguna import LAGUNA
from edgegen_export.families.lara_mini import LARA_MINI
from edgegen_export.families.lfm2 import LFM2
from edgegen_export.families.lfm2_moe import LFM2_MOE
from edgegen_export.families.lfm3 import LFM3, LFM3_WITH_VISION
from edgegen_export.families.llama import LLAMA
from edgegen_export.families.mamba import FALCON_MAMBA, MAMBA
from edgegen_export.families.mamba2 import MAMBA2
from edgegen_export.families.mellum import MELLUM
from edgegen_export.families.mimo import MIMO
from edgegen_export.families.minicpm import MINICPM
from edgegen_export.families.minicpm3 import MINICPM3
from edgegen_export.families.minimax_m2 import MINIMAX_M2
from edgegen_export.families.ministral3 import MINISTRAL3, MISTRAL3_WITH_VISION
from edgegen_export.families.mistral import MINISTRAL, MISTRAL
from edgegen_export.families.mistral4 import MISTRAL4
from edgegen_export.families.mixtral import MIXTRAL
from edgegen_export.families.mpt import MPT
from edgegen_export.families.nanbeige import NANBEIGE
from edgegen_export.families.nanochat import NANOCHAT
from edgegen_export.families.nemotron import NEMOTRON
from edgegen_export.families.nemotron_h import NEMOTRON_H
from edgegen_export.families.olmo import OLMO, OLMO2
from edgegen_export.families.olmo3 import OLMO3
from edgegen_export.families.olmo_hybrid import OLMO_HYBRID
from edgegen_export.families.olmoe import FLEX_OLMO, OLMOE
from edgegen_export.families.openai_gpt import OPENAI_GPT
from edgegen_export.families.openelm import OPENELM
from edgegen_export.families.opt import OPT
from edgegen_export.families.orion import ORION
from edgegen_export.families.persimmon import PERSIMMON
from edgegen_export.families.phi import PHI, PHI3
from edgegen_export.families.phi4flash import PHI4FLASH
from edgegen_export.families.qwen import QWEN2, QWEN3
from edgegen_export.families.qwen1 import QWEN
from edgegen_export.families.qwen2_moe import QWEN2_MOE
from edgegen_export.families.qwen3_5 import QWEN3_5, QWEN3_5_WITH_VISION
from edgegen_export.families.qwen3_5_moe import QWEN3_5_MOE, QWEN3_5_MOE_WITH_VISION
from edgegen_export.families.qwen3_moe import QWEN3_MOE
from edgegen_export.families.qwen3_next import QWEN3_NEXT
from edgegen_export.families.rwkv7 import RWKV7
from edgegen_export.families.seed_oss import SEED_OSS
from edgegen_export.families.smollm3 import SMOLLM3
from edgegen_export.families.solar_open import SOLAR_OPEN
from edgegen_export.families.stablelm import STABLELM
from edgegen_export.families.starcoder2 import STARCODER2
from edgegen_export.families.telechat3 import TELECHAT3
from edgegen_export.families.wrapped import wrappers
from edgegen_export.families.youtu import YOUTU
from edgegen_export.families.zamba2 import ZAMBA2

_FAMILIES: tuple[Architecture, ...] = (
    GPT2,
    OPT,
    GPT_NEO,
    GPT_NEOX,
    GPTJ,
    GPT_BIGCODE,
    GPT_OSS,
    BITNET,
    BLOOM,
    FALCON,
    LLAMA,
    ARCEE,
    HELIUM,
    HYPERCLOVAX,
    INTERNLM3,
    MISTRAL,
    MIXTRAL,
    NEMOTRON,
    QWEN2,
    QWEN2_MOE,
    QWEN3,
    QWEN3_MOE,
    SMOLLM3,
    GEMMA,
    GEMMA2,
    GEMMA3,
    GEMMA3_WITH_VISION,
    GEMMA3N,
    GEMMA3N_WITH_VISION,
    GEMMA4,
    GEMMA4_WITH_VISION,
    GEMMA4_UNIFIED,
    GEMMA4_UNIFIED_WITH_VISION,
    PHI,
    PHI3,
    PHI4FLASH,
    STARCODER2,
    STABLELM,
    OLMO,
    OLMO2,
    OLMOE,
    GRANITE,
    GRANITE_MOE,
    GRANITE_MOE_SHARED,
    GRANITE_MOE_SWA,
    GRANITE_SWA,
    COHERE,
    COHERE2,
    GRANITE4,
    MINICPM,
    MINISTRAL3,
    MISTRAL3_WITH_VISION,
    ERNIE4_5,
    HUNYUAN,
    EXAONE4,
    OLMO3,
    GLM,
    GLM4,
    APERTUS,
    SEED_OSS,
    LFM2,
    LFM2_MOE,
    LFM3,
    LFM3_WITH_VISION,
    QWEN3_5,
    QWEN3_5_WITH_VISION,
    QWEN3_5_MOE,
    QWEN3_5_MOE_WITH_VISION,
    QWEN3_NEXT,
    FALCON_H1,
    BAMBA,
    NEMOTRON_H,
    MAMBA,
    MAMBA2,
    RWKV7,
    FALCON_MAMBA,
    JAMBA,
    OLMO_HYBRID,
    KIMI_LINEAR,
    BAILING_HYBRID,
    MINISTRAL,
    CWM,
    IQUESTCODER,
    IQUESTLOOPCODER,
    APERTUS1P5,
    EXAONE,
    JAIS2,
    VAULTGEMMA,
    INTERNLM2,
    MIMO,
    BAICHUAN,
    OPENELM,
    NANOCHAT,
    TELECHAT3,
    GLM4_MOE,
    DOTS1,
    SOLAR_OPEN,
    BAILING_MOE,
    SARVAM_MOE,
    ERNIE4_5_MOE,
    HUNYUAN_MOE,
    MINIMAX_M2,
    AFMOE,
    MELLUM,
    EXAONE_MOE,
    HY_V3,
    FLINT,
    LAGUNA,
    LARA_MINI,
    GPT_NEOX_JAPANESE,
    FLEX_OLMO,
    ARIA,
    BIOGPT,
    CODEGEN,
    DBRX,
    MPT,
    OPENAI_GPT,
    PERSIMMON,
    ORION,
    QWEN,
    DEEPSEEK,
    COHERE2_MOE,
    KOLIBRI1,
    MINICPM3,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    GLM4_MOE_LITE,
    YOUTU,
    MISTRAL4,
    NANBEIGE,
    HRM_TEXT,
    DIFFLLAMA,
    DORY,
    ZAMBA2,
    INKLING,
    INKLING2,
    INKLING2_LOOP,
)

FAMILIES: tuple[Architecture, ...] = (*_FAMILIES, *wrappers(_FAMILIES))
