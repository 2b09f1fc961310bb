"""The oracle: a model as transformers computes it, in float32 with torch. Tests skip where either is not installed.

transformers 4 and 5 both run this: the first in the tests' own process, the second where tests/second_oracle.py says.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]


def import_torch() -> Any:
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # BitNet's code would be compiled when it is first run
    torch: Any = pytest.importorskip("torch", reason="torch is the oracle here, and it is not installed")
    torch.set_num_threads(1)
    return torch


def import_transformers() -> Any:
    import_torch()
    transformers = pytest.importorskip(
        "transformers", reason="transformers is the oracle here, and it is not installed"
    )
    if transformers.__version__.startswith("4."):
        masks: Any = import_module("transformers.masking_utils")
        masks._vmap_for_bhqkv = _broadcast
    return transformers


def _broadcast(allows: Callable[..., Any], bh_indices: bool = True) -> Callable[..., Any]:
    """A mask of every batch, head, query and key at once, as transformers 5 makes it: transformers 4 maps ``allows``
    over each of the four by ``torch.vmap``, which takes more of a small model's time than the model."""
    assert bh_indices

    def mask(batch: Any, head: Any, query: Any, key: Any) -> Any:
        made = allows(batch[:, None, None, None], head[:, None, None], query[:, None], key)
        return made.expand(len(batch), len(head), len(query), len(key))

    return mask


class Oracle:
    """The causal language model of a checkpoint folder.

    Its eager attention is used: the scaled-dot-product one leaves out what it cannot express, GPT-2's
    ``scale_attn_weights`` and ``scale_attn_by_inverse_layer_idx`` and Gemma 2's capped scores. Falcon's eager
    attention adds ALiBi twice, in the mask and by itself; the other one once, as it was trained (transformers 4.57.6).
    """

    def __init__(self, folder: Path) -> None:
        self._torch = import_torch()
        transformers = import_transformers()
        config = transformers.AutoConfig.from_pretrained(str(folder))
        attention = "sdpa" if config.model_type == "falcon" and config.alibi else "eager"
        self.model: Any = (
            _auto_class(transformers, config.model_type)
            .from_pretrained(str(folder), config=config, attn_implementation=attention, dtype=self._torch.float32)
            .eval()
        )
        if not getattr(self.model, "is_quantized", False):
            self.model.float()  # Apertus makes the numbers of its activation in bfloat16, whatever is asked for

    def logits(self, ids: Ids) -> Logits:
        """ids [b, t] → logits [b, t, vocab]."""
        with self._torch.no_grad():
            return cast(Logits, self.model(self._torch.from_numpy(np.ascontiguousarray(ids))).logits.numpy())

    def hidden_states(self, ids: Ids) -> Logits:
        """ids [b, t] → what the head takes, [b, t, size]."""
        decoder = getattr(self.model, "model", self.model.base_model)  # Gemma 3's base_model is itself
        with self._torch.no_grad():
            return decoder(self._torch.from_numpy(ids)).last_hidden_state.numpy()

    def greedy(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """The ``count`` most likely next ids of each prompt, one after the other; all prompts of one length at once."""
        torch, keeps = self._torch, "past_key_values" in signature(self.model.forward).parameters
        answers: list[list[int]] = [[] for _ in prompts]
        by_length: dict[int, list[int]] = {}
        for row, prompt in enumerate(prompts):
            by_length.setdefault(len(prompt), []).append(row)
        with torch.no_grad():
            for rows in by_length.values():
                ids, past = torch.tensor([prompts[row] for row in rows]), None
                for _ in range(count):
                    step = self.model(ids, past_key_values=past, use_cache=True)
                    chosen, past = step.logits[:, -1:].argmax(dim=-1), step.past_key_values if keeps else None
                    # transformers 4 keeps nothing of a Granite 4, and models without attention have another name.
                    ids = chosen if past is not None else torch.cat([ids, chosen], dim=1)
                    for row, token in zip(rows, chosen[:, 0].tolist(), strict=True):
                        answers[row].append(token)
        return answers

    def proposed(self, assistant: Path, ids: list[int], count: int) -> tuple[list[int], Logits]:
        """Return the proposals of a Gemma 4's assistant, in a folder of its own, after ``ids``, the last of which is
        yet to run: ``count`` ids and their logits [count, vocab]. transformers 5 alone has it."""
        torch, transformers = self._torch, import_transformers()
        module: Any = import_module("transformers.generation.candidate_generator")
        helper: Any = transformers.AutoModelForCausalLM.from_pretrained(
            str(assistant), attn_implementation="eager", dtype=torch.float32
        ).eval()
        helper.generation_config.num_assistant_tokens = count
        room = transformers.GenerationConfig(max_length=len(ids) + count + 1)
        embeddings, whole = self.model.get_input_embeddings(), torch.tensor([ids])
        proposer = module.SinglePositionMultiTokenCandidateGenerator(helper, embeddings, room)
        with torch.no_grad():
            made = self.model(whole[:, :-1], output_hidden_states=True, return_shared_kv_states=True)
            found, logits = proposer.get_candidates(whole, {}, made, is_first_iteration=False, n_last_matches=0)
        return found[0, len(ids) :].tolist(), logits[0].numpy()


def _auto_class(transformers: Any, model_type: str) -> Any:
    """Return the class that makes the language model of this type; some are listed among those with vision only."""
    causal = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return getattr(transformers, "AutoModelForCausalLM" if model_type in causal else "AutoModelForMultimodalLM")


def write_random(folder: Path, model_type: str, config: Mapping[str, Any], *, seed: int = 0, quiet: str = "") -> Path:
    """A random model of any family, written by transformers' own ``save_pretrained``.

    No parameter keeps its initial value. Embeddings are small beside what the layers add, or a tied head would
    repeat its input forever; matrices keep the activations' size, but for those whose names have ``quiet`` in them,
    which are smaller; the final norm gives logits a deviation of 3.
    """
    torch, transformers = import_torch(), import_transformers()
    torch.manual_seed(seed)
    # Their own initialization fails where a norm has no bias (StableLM's qk_layernorm) or no weight (OPT's
    # layer_norm_elementwise_affine), and nothing of it is kept.
    moved = int(transformers.__version__.split(".")[0]) > 4
    with import_module(f"transformers.{'initialization' if moved else 'modeling_utils'}").no_init_weights():
        model = (
            _auto_class(transformers, model_type)
            .from_config(
                transformers.AutoConfig.for_model(model_type, **deepcopy(dict(config))),  # it writes into dictionaries
                attn_implementation="eager",
            )
            .eval()
        )
    model.tie_weights()
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
        elif "Norm" not in type(module).__name__:
            for parameter in module.parameters(recurse=False):
                parameter.data.zero_()  # sinks and biases of experts start as whatever was in memory
    seen: set[int] = set()
    with torch.no_grad():
        for path, module in model.named_modules():
            for parameter in module.parameters(recurse=False):
                if id(parameter) not in seen:  # not tied
                    seen.add(id(parameter))
                    small = bool(quiet) and quiet in path
                    _randomize(parameter, torch.randn_like(parameter), path, module, model.config, small=small)
        for path, buffer in model.named_buffers():
            if path.endswith("layer_scalar"):  # trained, though it is no parameter
                buffer.copy_(torch.rand_like(buffer) + 0.5)
            elif path.endswith(("expert_bias", "e_score_correction_bias")):  # so are these
                buffer.copy_(torch.randn_like(buffer) * 0.3)
            elif path.endswith("token_ordering"):
                buffer.copy_(torch.randperm(len(buffer)))
        if not model_type.endswith("_assistant"):  # which does not run by itself
            _spread_logits(model, torch, 3.0)
    model.save_pretrained(str(folder), safe_serialization=True)
    return folder


TINY_TOWER: Mapping[str, Any] = {
    **dict.fromkeys(("hidden_size", "intermediate_size", "embed_dim", "hidden_dim", "mlp_dim", "d_model"), 32),
    **dict.fromkeys(("encoder_ffn_dim", "dim_feedforward", "projection_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "depth", "encoder_layers"), 1),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "num_heads", "encoder_attention_heads"), 2),
    "image_size": 28,
    "patch_size": 14,
    "num_position_embeddings": 16,
    "out_hidden_size": 64,
    "output_dim": 64,
    "fullatt_block_indexes": [0],
    "deepstack_visual_indexes": [0],
}
"""Sizes of towers around a language model, by the keys of their config classes, of which each has some."""


def write_wrapped(
    folder: Path,
    model_type: str,
    text: Mapping[str, Any],
    towers: Mapping[str, Mapping[str, Any]],
    own: Mapping[str, Any],
    *,
    seed: int = 0,
) -> Path:
    """A random model with tiny towers around the language model that ``text`` describes, written by transformers 5.

    ``towers``: other values than :data:`TINY_TOWER` of the configs beside ``text_config``, by their keys; ``own``: keys
    beside these.
    """
    torch, transformers = import_torch(), import_transformers()
    torch.manual_seed(seed)
    config_class = transformers.CONFIG_MAPPING[model_type]
    configs: dict[str, Any] = {}
    for key in config_class.sub_configs:
        usual = getattr(config_class(), key, None)
        if key != "text_config" and usual is not None:
            known = {name: value for name, value in TINY_TOWER.items() if hasattr(usual, name)}
            configs[key] = {"model_type": usual.model_type, **known, **towers.get(key, {})}
    config = config_class(text_config=dict(text), **configs, **own)
    model = transformers.AutoModelForMultimodalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.nan_to_num() + torch.randn_like(parameter) * 0.2)
    model.save_pretrained(str(folder))
    return folder


def _randomize(parameter: Any, noise: Any, path: str, module: Any, config: Any, *, small: bool) -> None:
    """Give ``parameter`` of ``module`` at ``path`` a value off its initial one, by what kind of module it is."""
    kind = type(module).__name__
    if "Embedding" in kind:
        parameter.copy_(noise * 0.4 / _embedding_scale(config))
    elif parameter.dim() in (1, 4) and not (hasattr(module, "reset_parameters") or "Norm" in kind or kind == "Conv1D"):
        parameter.copy_(noise)  # a module of theirs, which has not been initialized: attention sinks, Kimi's rates
    elif parameter.dim() == 1 or "Norm" in kind:
        parameter.add_(noise * 0.3).mul_(0.4 if "embed" in path else 1.0)
    else:
        # [in, out], also of each expert; GraniteMoE's parallel experts are not, but their seeds were chosen with this.
        by_columns = kind == "Conv1D" or "Parallel" in kind or getattr(module, "is_transposed", False)
        fan_in = parameter.shape[-2 if by_columns else -1]
        gain = 0.6 if small else 2.5
        parameter.copy_(noise * gain / fan_in**0.5)


def _embedding_scale(config: Any) -> float:
    """By what the model multiplies its embeddings."""
    if config.model_type.startswith("gemma") or getattr(config, "mup_enabled", False):
        return float(config.get_text_config().hidden_size) ** 0.5
    return float(getattr(config, "embedding_multiplier", 1.0))


def _spread_logits(model: Any, torch: Any, deviation: float) -> None:
    """Scale the final norm, where there is one with weights; Gemma's, 1 to 3, stands for 1 + weight."""
    model_type = model.config.model_type
    # After Gemma 3n's stands a norm of embeddings of layers; Gemma 4's seeds were chosen with that one.
    inside = r"\d|embed|per_layer" if model_type == "gemma3n_text" else r"\d|embed"
    outside_layers = [(path, m) for path, m in model.named_modules() if not re.search(inside, path)]
    norms = [m for _, m in outside_layers if "Norm" in type(m).__name__]
    if not norms:
        return
    ids = torch.arange(16)[None] % model.config.vocab_size
    factor = deviation / model(ids).logits.std()
    offset = 1.0 if model_type.startswith("gemma") and not model_type.startswith(("gemma3n", "gemma4")) else 0.0
    # The norms of an nGPT have no weights, and its head has scales.
    scale = getattr(getattr(model, "lm_head", None), "logit_scale", None)
    for parameter in norms[-1].parameters() if scale is None else [scale]:
        parameter.add_(offset).mul_(factor).sub_(offset)


def config_json(model_type: str, config: Mapping[str, Any], *, use_diff: bool) -> dict[str, Any]:
    """Return a config as transformers writes it; ``use_diff``: without what its config class has as default."""
    return json.loads(import_transformers().CONFIG_MAPPING[model_type](**config).to_json_string(use_diff=use_diff))


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
