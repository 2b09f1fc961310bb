"""Adapter folders written by hand, whole and broken, for a base of GPT-2's names."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from edgegen_export.checkpoint import BaseNames
from tests.export.checkpoint.layouts import Arrays, write_safetensors

GPT2_NAMES = BaseNames(
    "wte",
    "lm_head",
    ("h.{i}.attn.c_attn", "h.{i}.attn.c_proj", "h.{i}.mlp.c_fc", "h.{i}.mlp.c_proj"),
    prefixes=("", "transformer."),
)
LLAMA_NAMES = BaseNames("embed_tokens", "lm_head", prefixes=("", "model."))
RANK = 2
PREFIX = "base_model.model.transformer."
C_ATTN = f"{PREFIX}h.0.attn.c_attn"


def lora_config(**changes: Any) -> dict[str, Any]:
    """``adapter_config.json`` of a plain adapter; the value ``...`` removes a key."""
    config: dict[str, Any] = {
        "base_model_name_or_path": "org/base",
        "bias": "none",
        "lora_alpha": 4,
        "peft_type": "LORA",
        "r": RANK,
        "target_modules": ["c_attn"],
        "task_type": "CAUSAL_LM",
    }
    return {key: value for key, value in {**config, **changes}.items() if value is not ...}


def factors(module: str, fan_in: int, fan_out: int, rank: int = RANK, seed: int = 0) -> Arrays:
    """A [rank, in] and B [out, rank] of a module, by the adapter's names."""
    rng = np.random.default_rng(seed)
    return {
        f"{module}.lora_A.weight": rng.standard_normal((rank, fan_in)).astype(np.float32),
        f"{module}.lora_B.weight": rng.standard_normal((fan_out, rank)).astype(np.float32),
    }


def write_lora(folder: Path, tensors: Arrays, **changes: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(lora_config(**changes)))
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    return folder
