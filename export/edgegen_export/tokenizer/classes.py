"""The tokenizer classes of transformers as data: which files each reads, and its defaults."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from edgegen_export.tokenizer.longest_match import END_OF_TEXT
from edgegen_export.tokenizer.sentencepiece_model import SentencePieceModel
from edgegen_export.tokenizer.sentencepiece_tokenizer import (
    gemma_tokenizer,
    gpt_sw3_tokenizer,
    llama_tokenizer,
    plain_tokenizer,
    t5_tokenizer,
)
from edgegen_export.tokenizer.settings import TokenizerSettings
from edgegen_export.tokenizer.tokenizer_json import TokenizerJson
from edgegen_export.tokenizer.vocabulary_files import (
    Vocabulary,
    gpt2_tokenizer,
    neox_tokenizer,
    openai_gpt_tokenizer,
    qwen2_tokenizer,
)


@dataclass(frozen=True, slots=True)
class TokenizerClass:
    """``specials``: the special tokens by role where no file names them.

    ``ends``: whether ``add_bos_token`` and ``add_eos_token`` apply ``always``, ``when made`` from other files (and then
    only the first), or ``never``: then the post-processor of ``tokenizer.json`` stays. ``add_bos``: the default.

    ``rebuilt_for_prefix``: with ``add_prefix_space`` set, ``tokenizer.model`` replaces ``tokenizer.json``.
    """

    from_sentencepiece: Callable[[SentencePieceModel, TokenizerSettings], TokenizerJson] | None = None
    from_vocabulary: Callable[[Vocabulary, TokenizerSettings], TokenizerJson] | None = None
    specials: Mapping[str, str] = field(default_factory=dict[str, str])
    more_special: tuple[str, ...] = ()
    ends: Literal["always", "when made", "never"] = "never"
    add_bos: bool = False
    rebuilt_for_prefix: bool = False


def _plain(model: SentencePieceModel, settings: TokenizerSettings) -> TokenizerJson:
    return plain_tokenizer(model)


UNNAMED = "PreTrainedTokenizer"
"""The class used if a tokenizer has no specific one."""

_S = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_PADDED = {**_S, "pad_token": "<pad>"}
_END_OF_TEXT: Mapping[str, str] = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
_LLAMA = TokenizerClass(llama_tokenizer, specials=_S, ends="always", add_bos=True, rebuilt_for_prefix=True)
_GPT2 = TokenizerClass(from_vocabulary=gpt2_tokenizer, specials=_END_OF_TEXT, ends="when made")

TOKENIZER_CLASSES: Mapping[str, TokenizerClass] = {
    "LlamaTokenizer": _LLAMA,
    "Phi3Tokenizer": _LLAMA,
    "CodeLlamaTokenizer": TokenizerClass(
        llama_tokenizer, specials=_S, more_special=("▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"), ends="always", add_bos=True
    ),
    "GemmaTokenizer": TokenizerClass(
        gemma_tokenizer,
        specials={"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"},
        ends="always",
        add_bos=True,
    ),
    "T5Tokenizer": TokenizerClass(
        t5_tokenizer, specials={"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    ),
    "GPTSw3Tokenizer": TokenizerClass(gpt_sw3_tokenizer, specials={**_PADDED, "eos_token": "<|endoftext|>"}),
    "GPT2Tokenizer": _GPT2,
    "CodeGenTokenizer": _GPT2,
    "GPTNeoXTokenizer": TokenizerClass(from_vocabulary=neox_tokenizer, specials=_END_OF_TEXT, ends="always"),
    "RwkvTokenizer": TokenizerClass(specials=dict.fromkeys(("bos_token", "eos_token", "unk_token"), END_OF_TEXT)),
    "CohereTokenizer": TokenizerClass(
        specials={"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>", "unk_token": "<UNK>"},
        ends="always",
        add_bos=True,
    ),
    "Qwen2Tokenizer": TokenizerClass(
        from_vocabulary=qwen2_tokenizer,
        specials={"eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
    ),
    "OpenAIGPTTokenizer": TokenizerClass(from_vocabulary=openai_gpt_tokenizer, specials={"unk_token": "<unk>"}),
    "BloomTokenizer": TokenizerClass(specials=_PADDED),
    UNNAMED: TokenizerClass(_plain),
}
"""By class name without the suffix ``Fast``."""

NOT_READ: Mapping[str, str] = {"biogpt": "BioGptTokenizer", "gpt_neox_japanese": "GPTNeoXJapaneseTokenizer"}
"""Classes that split words by code of their own, which no ``tokenizer.json`` can say: such files are refused."""

CLASS_OF_MODEL_TYPE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "gpt2 gpt_neo gptj gpt_bigcode starcoder2 opt dbrx granite granitemoe granitemoehybrid granitemoeshared "
            "exaone4 olmo3 flex_olmo"
        ).split(),
        "GPT2Tokenizer",
    ),
    **dict.fromkeys(
        "gpt_neox mpt olmo olmo2 olmoe stablelm mamba mamba2 falcon_mamba rwkv".split(), "GPTNeoXTokenizer"
    ),
    **dict.fromkeys(
        (
            "llama mistral mistral3 ministral mixtral phi3 phimoe deepseek_v2 deepseek_v3 persimmon jamba jetmoe "
            "ernie4_5 ernie4_5_moe arcee deepseek_vl deepseek_vl_hybrid diffllama idefics2 idefics3 janus llava "
            "llava_next llava_next_video llava_onevision video_llava vipllava zamba2"
        ).split(),
        "LlamaTokenizer",
    ),
    **dict.fromkeys("gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma".split(), "GemmaTokenizer"),
    **dict.fromkeys(
        (
            "qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next internvl qwen2_vl qwen2_5_vl qwen2_audio qwen3_vl qwen3_vl_moe"
        ).split(),
        "Qwen2Tokenizer",
    ),
    **dict.fromkeys("codegen phi".split(), "CodeGenTokenizer"),
    **dict.fromkeys("cohere cohere2 aya_vision".split(), "CohereTokenizer"),
    "code_llama": "CodeLlamaTokenizer",
    "openai-gpt": "OpenAIGPTTokenizer",
    "bloom": "BloomTokenizer",
    "gpt-sw3": "GPTSw3Tokenizer",
    **NOT_READ,
}
"""The class by model type, used where no config names one, as in transformers."""


def class_name(settings: TokenizerSettings, config: Mapping[str, object]) -> str | None:
    """The class name without ``Fast``, from the tokenizer's config, the model's config or its type; None if unknown."""
    model_type = config.get("model_type")
    named = settings.tokenizer_class or config.get("tokenizer_class")
    if not isinstance(named, str):
        named = CLASS_OF_MODEL_TYPE.get(model_type) if isinstance(model_type, str) else None
    return named.removesuffix("Fast") if named else None
