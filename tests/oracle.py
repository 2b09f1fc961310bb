"""The oracle: GPT-2 as transformers computes it, in float32 with torch. Tests skip where either is not installed."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]


def import_torch() -> Any:
    torch: Any = pytest.importorskip("torch", reason="torch is the oracle here, and it is not installed")
    torch.set_num_threads(1)
    return torch


def import_transformers() -> Any:
    import_torch()
    return pytest.importorskip("transformers", reason="transformers is the oracle here, and it is not installed")


class Oracle:
    """``GPT2LMHeadModel`` of a checkpoint folder.

    Its eager attention is used: the scaled-dot-product one does not read ``scale_attn_weights`` and
    ``scale_attn_by_inverse_layer_idx`` (transformers 4.57.6, ``modeling_gpt2.py``).
    """

    def __init__(self, folder: Path) -> None:
        self._torch = import_torch()
        transformers = import_transformers()
        self.model: Any = transformers.GPT2LMHeadModel.from_pretrained(
            str(folder), attn_implementation="eager", torch_dtype=self._torch.float32
        ).eval()

    def logits(self, ids: Ids) -> Logits:
        """ids [b, t] → logits [b, t, vocab]."""
        with self._torch.no_grad():
            return cast(Logits, self.model(self._torch.from_numpy(np.ascontiguousarray(ids))).logits.numpy())

    def greedy(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """The ``count`` most likely next ids of each prompt, one after the other; all prompts of one length at once."""
        torch = self._torch
        answers: list[list[int]] = [[] for _ in prompts]
        by_length: dict[int, list[int]] = {}
        for row, prompt in enumerate(prompts):
            by_length.setdefault(len(prompt), []).append(row)
        with torch.no_grad():
            for rows in by_length.values():
                ids, past = torch.tensor([prompts[row] for row in rows]), None
                for _ in range(count):
                    step = self.model(ids, past_key_values=past, use_cache=True)
                    ids, past = step.logits[:, -1:].argmax(dim=-1), step.past_key_values
                    for row, token in zip(rows, ids[:, 0].tolist(), strict=True):
                        answers[row].append(token)
        return answers


def write_random_gpt2(folder: Path, *, seed: int = 0, spread: float = 0.1, **config: Any) -> Path:
    """A random GPT-2 written by transformers' own ``save_pretrained``; every parameter moved off its initial value."""
    torch, transformers = import_torch(), import_transformers()
    settings: dict[str, Any] = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 96, "n_positions": 64}
    settings |= {"bos_token_id": 0, "eos_token_id": 0, **config}
    torch.manual_seed(seed)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * spread)
    model.save_pretrained(str(folder), safe_serialization=True)
    return folder


def edit_json(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file; the value ``...`` removes one."""
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not ...}))
