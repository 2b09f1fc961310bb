"""Real checkpoints' config.json files, with the expected sizes, windows and RoPE of each.

The files in ``real_configs/`` are what stands on the hub, written down by hand. Each, given to transformers' own
class, makes a model of the published number of parameters; only the digits of long tables were not compared.
LFM3's is what its class has as default, and its number of parameters what the class makes of that; so are those of LFM2
MoE, of which only rounded numbers were at hand.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("real_configs")

Windows = tuple[int | None, ...]
"""Of each layer: how many positions a query sees, itself included, or all of them."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """``dim`` of a head's values rotate; ``scaling`` is its kind; ``layers`` that do so (all, if None)."""

    theta: float
    dim: int
    scaling: str | None = None
    layers: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RealConfig:
    """A checkpoint and what its config means.

    ``parameters``: how many are published (tied ones once). ``context``: what it is exported for unless asked
    otherwise. ``positions``: ``learned``, ``alibi``, or the rotations in the order of the first layers that have them.
    """

    checkpoint: str
    parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    tied: bool
    positions: str | tuple[Rotation, ...]
    windows: Windows | None = None

    def __str__(self) -> str:
        return self.checkpoint

    def read(self) -> Mapping[str, Any]:
        return json.loads((FOLDER / f"{self.checkpoint.replace('/', '--')}.json").read_text("utf-8"))


def _rope(theta: float, dim: int, scaling: str | None = None, layers: tuple[int, ...] | None = None) -> Any:
    return (Rotation(theta, dim, scaling, layers),)


def _every(step: int, layers: int) -> tuple[int, ...]:
    """Layers step - 1, 2 · step - 1, …"""
    return tuple(range(step - 1, layers, step))


def _others(chosen: tuple[int, ...], layers: int) -> tuple[int, ...]:
    return tuple(i for i in range(layers) if i not in chosen)


def _gemma3(layers: int) -> Any:
    full = _every(6, layers)
    return (Rotation(1e4, 256, None, _others(full, layers)), Rotation(1e6, 256, None, full))


# checkpoint, parameters, layers, hidden, heads, kv heads, head size, context, tied, positions, windows
REAL_CONFIGS = [
    RealConfig("openai-community/gpt2", 124_439_808, 12, 768, 12, 12, 64, 1024, True, "learned"),
    RealConfig("facebook/opt-125m", 125_239_296, 12, 768, 12, 12, 64, 2048, True, "learned"),
    RealConfig("facebook/opt-350m", 331_196_416, 24, 1024, 16, 16, 64, 2048, True, "learned"),
    RealConfig("EleutherAI/gpt-neo-125m", 125_198_592, 12, 768, 12, 12, 64, 2048, True, "learned", (None, 256) * 6),
    RealConfig("EleutherAI/pythia-70m", 70_426_624, 6, 512, 8, 8, 64, 2048, False, _rope(1e4, 16)),
    RealConfig("EleutherAI/pythia-160m", 162_322_944, 12, 768, 12, 12, 64, 2048, False, _rope(1e4, 16)),
    RealConfig("EleutherAI/gpt-j-6b", 6_050_882_784, 28, 4096, 16, 16, 256, 2048, False, _rope(1e4, 64)),
    RealConfig("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1_100_048_384, 22, 2048, 32, 4, 64, 2048, False, _rope(1e4, 64)),
    RealConfig("meta-llama/Llama-2-7b-hf", 6_738_415_616, 32, 4096, 32, 32, 128, 4096, False, _rope(1e4, 128)),
    RealConfig(
        "meta-llama/Llama-3.1-8B", 8_030_261_248, 32, 4096, 32, 8, 128, 131072, False, _rope(5e5, 128, "llama3")
    ),
    RealConfig("meta-llama/Llama-3.2-1B", 1_235_814_400, 16, 2048, 32, 8, 64, 131072, True, _rope(5e5, 64, "llama3")),
    RealConfig("HuggingFaceTB/SmolLM-135M", 134_515_008, 30, 576, 9, 3, 64, 2048, True, _rope(1e4, 64)),
    RealConfig("HuggingFaceTB/SmolLM2-135M", 134_515_008, 30, 576, 9, 3, 64, 8192, True, _rope(1e5, 64)),
    RealConfig("HuggingFaceTB/SmolLM2-360M", 361_821_120, 32, 960, 15, 5, 64, 8192, True, _rope(1e5, 64)),
    RealConfig("HuggingFaceTB/SmolLM2-1.7B", 1_711_376_384, 24, 2048, 32, 32, 64, 8192, True, _rope(1.3e5, 64)),
    RealConfig(
        "mistralai/Mistral-7B-v0.1",
        7_241_732_096,
        32,
        4096,
        32,
        8,
        128,
        32768,
        False,
        _rope(1e4, 128),
        (4096,) * 32,
    ),
    RealConfig("mistralai/Mistral-7B-v0.3", 7_248_023_552, 32, 4096, 32, 8, 128, 32768, False, _rope(1e6, 128)),
    RealConfig("Qwen/Qwen2.5-0.5B", 494_032_768, 24, 896, 14, 2, 64, 32768, True, _rope(1e6, 64)),
    RealConfig("Qwen/Qwen2.5-1.5B", 1_543_714_304, 28, 1536, 12, 2, 128, 131072, True, _rope(1e6, 128)),
    RealConfig("Qwen/Qwen3-0.6B", 596_049_920, 28, 1024, 16, 8, 128, 40960, True, _rope(1e6, 128)),
    RealConfig(
        "HuggingFaceTB/SmolLM3-3B",
        3_075_098_624,
        36,
        2048,
        16,
        4,
        128,
        65536,
        True,
        _rope(5e6, 128, None, _others(_every(4, 36), 36)),
    ),
    RealConfig("google/gemma-2b", 2_506_172_416, 18, 2048, 8, 1, 256, 8192, True, _rope(1e4, 256)),
    RealConfig("google/gemma-2-2b", 2_614_341_888, 26, 2304, 8, 4, 256, 8192, True, _rope(1e4, 256), (4096, None) * 13),
    RealConfig(
        "google/gemma-3-270m",
        268_098_176,
        18,
        640,
        4,
        1,
        256,
        32768,
        True,
        _gemma3(18),
        (512, 512, 512, 512, 512, None) * 3,
    ),
    RealConfig(
        "google/gemma-3-1b-pt",
        999_885_952,
        26,
        1152,
        4,
        1,
        256,
        32768,
        True,
        _gemma3(26),
        (512, 512, 512, 512, 512, None) * 4 + (512, 512),
    ),
    RealConfig("microsoft/phi-1_5", 1_418_270_720, 24, 2048, 32, 32, 64, 2048, False, _rope(1e4, 32)),
    RealConfig("microsoft/phi-2", 2_779_683_840, 32, 2560, 32, 32, 80, 2048, False, _rope(1e4, 32)),
    RealConfig(
        "microsoft/Phi-3-mini-4k-instruct",
        3_821_079_552,
        32,
        3072,
        32,
        32,
        96,
        4096,
        False,
        _rope(1e4, 96),
        (2047,) * 32,
    ),
    # Their contexts are those of the short factors; longer ones have to be asked for.
    RealConfig(
        "microsoft/Phi-3-mini-128k-instruct",
        3_821_079_552,
        32,
        3072,
        32,
        32,
        96,
        4096,
        False,
        _rope(1e4, 96, "longrope"),
    ),
    RealConfig(
        "microsoft/Phi-3.5-mini-instruct", 3_821_079_552, 32, 3072, 32, 32, 96, 4096, False, _rope(1e4, 96, "longrope")
    ),
    RealConfig(
        "microsoft/Phi-4-mini-instruct", 3_836_021_760, 32, 3072, 24, 8, 128, 4096, True, _rope(1e4, 96, "longrope")
    ),
    RealConfig("tiiuae/falcon-7b", 6_921_720_704, 32, 4544, 71, 1, 64, 2048, True, _rope(1e4, 64)),
    RealConfig("tiiuae/falcon-40b", 41_303_293_952, 60, 8192, 128, 8, 64, 2048, True, _rope(1e4, 64)),
    RealConfig("tiiuae/falcon-rw-1b", 1_311_625_216, 24, 2048, 32, 32, 64, 2048, True, "alibi"),
    RealConfig("bigcode/gpt_bigcode-santacoder", 1_124_886_528, 24, 2048, 16, 1, 128, 2048, True, "learned"),
    RealConfig("bigcode/starcoderbase-1b", 1_137_207_296, 24, 2048, 16, 1, 128, 8192, True, "learned"),
    RealConfig(
        "bigcode/starcoder2-3b",
        3_030_371_328,
        30,
        3072,
        24,
        2,
        128,
        16384,
        True,
        _rope(999999.4420358813, 128),
        (4096,) * 30,
    ),
    RealConfig("stabilityai/stablelm-2-1_6b", 1_644_515_328, 24, 2048, 32, 32, 64, 4096, False, _rope(1e4, 16)),
    RealConfig("stabilityai/stablelm-3b-4e1t", 2_795_443_200, 32, 2560, 32, 32, 80, 4096, False, _rope(1e4, 20)),
    RealConfig("allenai/OLMo-1B-hf", 1_176_764_416, 16, 2048, 16, 16, 128, 2048, True, _rope(1e4, 128)),
    RealConfig("allenai/OLMo-2-0425-1B", 1_484_916_736, 16, 2048, 16, 16, 128, 4096, False, _rope(5e5, 128)),
    RealConfig("ibm-granite/granite-3.0-2b-base", 2_533_531_648, 40, 2048, 32, 8, 64, 4096, True, _rope(1e4, 64)),
    RealConfig("ibm-granite/granite-3.1-2b-base", 2_533_531_648, 40, 2048, 32, 8, 64, 131072, True, _rope(5e6, 64)),
    RealConfig("CohereForAI/c4ai-command-r-v01", 34_980_831_232, 40, 8192, 64, 64, 128, 8192, True, _rope(8e6, 128)),
    RealConfig("bigscience/bloom-560m", 559_214_592, 24, 1024, 16, 16, 64, 2048, True, "alibi"),
    RealConfig("ibm-granite/granite-4.0-micro", 3_402_836_480, 40, 2560, 40, 8, 64, 131072, True, _rope(1e7, 64)),
    # The parameters of its language model.
    RealConfig(
        "mistralai/Ministral-3-3B-Base-2512",
        3_429_006_336,
        26,
        3072,
        32,
        8,
        128,
        262144,
        True,
        _rope(1e6, 128, "yarn"),
    ),
    RealConfig("baidu/ERNIE-4.5-0.3B-PT", 360_748_032, 18, 1024, 16, 2, 128, 131072, True, _rope(5e5, 128)),
    RealConfig(
        "LGAI-EXAONE/EXAONE-4.0-1.2B", 1_279_391_488, 30, 2048, 32, 8, 64, 65536, True, _rope(1e6, 64, "llama3")
    ),
    RealConfig(
        "allenai/Olmo-3-1025-7B",
        7_298_011_136,
        32,
        4096,
        32,
        32,
        128,
        65536,
        False,
        (
            Rotation(5e5, 128, None, _others(_every(4, 32), 32)),
            Rotation(5e5, 128, "yarn", _every(4, 32)),
        ),
        (4096, 4096, 4096, None) * 8,
    ),
    RealConfig("zai-org/GLM-4-9B-0414", 9_400_279_040, 40, 4096, 32, 2, 128, 32768, False, _rope(1e4, 64)),
    # With the two numbers of each activation that are not trained.
    RealConfig(
        "swiss-ai/Apertus-8B-2509", 8_053_338_240, 32, 4096, 32, 8, 128, 65536, False, _rope(1.2e7, 128, "llama3")
    ),
    RealConfig(
        "ByteDance-Seed/Seed-OSS-36B-Instruct", 36_151_104_512, 64, 5120, 80, 8, 128, 524288, False, _rope(1e7, 128)
    ),
    # With a number of each expert for the choice.
    RealConfig(
        "LiquidAI/LFM2-8B-A1B",
        8_339_930_560,
        24,
        2048,
        32,
        8,
        64,
        128000,
        True,
        _rope(1e6, 64, None, (2, 6, 10, 14, 18, 21)),
    ),
    RealConfig(
        "LiquidAI/LFM2.5-8B-A1B",
        8_467_856_832,
        24,
        2048,
        32,
        8,
        64,
        128000,
        True,
        _rope(5e6, 64, None, (2, 6, 10, 14, 18, 21)),
    ),
    RealConfig(
        "LiquidAI/LFM3-1.7B",
        1_728_801_536,
        24,
        2048,
        16,
        4,
        128,
        128000,
        True,
        (
            Rotation(1e6, 128, "proportional", (2, 6, 10, 14, 18, 22)),
            Rotation(1e4, 128, None, (4, 8, 12, 16, 20)),
        ),
        (None,) * 4 + (256, None, None, None) * 5,
    ),
]
