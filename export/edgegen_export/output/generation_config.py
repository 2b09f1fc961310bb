"""The bundle's ``generation_config.json``: the checkpoint's, completed from ``config.json``, and checked."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from edgegen.errors import CheckpointError, OptionError
from edgegen.options.generation import CALLER_ONLY, GenerationOptions

_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")

# Keys without effect on the text of a decoder-only model, or whose default value is written out.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "length_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "typical_p": (1.0,),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "diversity_penalty": (0.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "min_length": (0,),
    "early_stopping": (False,),
    "renormalize_logits": (False,),
    "remove_invalid_values": (False,),
}
_WITHOUT_EFFECT = frozenset(
    """
    _from_model_config bos_token_id cache_implementation decoder_start_token_id output_attentions
    output_hidden_states output_logits output_scores pad_token_id return_dict_in_generate transformers_version
    trust_remote_code use_cache
    """.split()
)


def generation_config(
    from_file: Mapping[str, Any], config: Mapping[str, Any], max_context: int, eos_token_id: int | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The completed configuration, and the settings in it that edgegen does not honour, as ``key = value``.

    ``eos_token_id``: what the tokenizer's files say; it counts where the other files say nothing.

    Raises:
        CheckpointError: a value is of the wrong type or out of range.
    """
    completed = {key: config[key] for key in _TOKEN_IDS if config.get(key) is not None}
    completed |= {key: value for key, value in from_file.items() if value is not None}
    if eos_token_id is not None:
        completed.setdefault("eos_token_id", eos_token_id)
    try:
        GenerationOptions.from_config(completed, max_context)
    except OptionError as error:
        raise CheckpointError(f"generation_config.json: {error}") from None
    honoured = ({f.name for f in fields(GenerationOptions)} - set(CALLER_ONLY)) | _WITHOUT_EFFECT
    ignored = [
        f"{key} = {value!r}"
        for key, value in completed.items()
        if key not in honoured and value not in _NEUTRAL.get(key, ())
    ]
    return completed, ignored
