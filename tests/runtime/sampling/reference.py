"""The oracle of the processors: transformers' own, in transformers' own order."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline, LogitsSettings
from tests.oracle import import_torch, import_transformers

Logits = NDArray[np.float32]

SHARED = (
    "guidance_scale sequence_bias repetition_penalty no_repeat_ngram_size bad_words_ids min_length min_new_tokens "
    "forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens "
    "begin_suppress_tokens temperature top_k top_p min_p typical_p epsilon_cutoff eta_cutoff renormalize_logits"
).split()
"""The settings that transformers has, too."""


def transformers_logits(
    settings: LogitsSettings,
    logits: Logits,
    ids: list[int],
    *,
    prompt_length: int,
    do_sample: bool = True,
    eos: tuple[int, ...] = (),
    max_new_tokens: int = 1000,
    unconditional: Logits | None = None,
) -> Logits:
    """Return the result of ``generate`` for ``[vocab]`` logits after ``ids``; minus infinity for tokens that are
    gone."""
    torch, transformers = import_torch(), import_transformers()
    mixin = import_transformers().generation.GenerationMixin

    class Model:
        config = SimpleNamespace()
        _merge_criteria_processor_list = mixin._merge_criteria_processor_list

        def __call__(self, *_: Any, **__: Any) -> Any:
            outputs = transformers.modeling_outputs.CausalLMOutputWithPast
            return outputs(logits=torch.from_numpy(unconditional)[None, None])

    off = {f.name for f in fields(settings) if getattr(settings, f.name) in ((), {}, None)}
    given = {name: getattr(settings, name) for name in SHARED if name not in off}
    given["min_p"] = given["min_p"] or None
    if "bad_words_ids" in given:
        given["bad_words_ids"] = [list(word) for word in given["bad_words_ids"]]
    for name in ("suppress_tokens", "begin_suppress_tokens", "forced_eos_token_id"):
        if name in given:
            given[name] = list(given[name])
    config = transformers.GenerationConfig(
        **given, do_sample=do_sample, max_length=prompt_length + max_new_tokens, use_cache=True
    )
    config._eos_token_tensor = torch.tensor(eos) if eos else None
    processors = mixin._get_logits_processor(Model(), config, prompt_length)
    return processors(torch.tensor([ids]), torch.from_numpy(logits.copy())[None])[0].numpy()


def dense(candidates: Candidates, size: int) -> Logits:
    """``[size]`` logits, minus infinity for what is gone."""
    logits = np.full(size, -np.inf, dtype=np.float32)
    logits[np.arange(size) if candidates.ids is None else candidates.ids] = candidates.logits
    return logits


def edgegen_logits(
    settings: LogitsSettings,
    logits: Logits,
    ids: list[int],
    *,
    prompt_length: int,
    do_sample: bool = True,
    eos: tuple[int, ...] = (),
    max_new_tokens: int = 1000,
    unconditional: Logits | None = None,
) -> Logits:
    """As :func:`transformers_logits`, by the pipeline of the settings."""
    pipeline = LogitsPipeline.from_settings(
        settings, do_sample=do_sample, eos_token_ids=eos, max_new_tokens=max_new_tokens
    )
    left = pipeline(Candidates(logits), LogitsContext(ids, prompt_length, unconditional))
    return dense(left, logits.size)
