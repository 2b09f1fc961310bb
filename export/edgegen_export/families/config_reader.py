"""ConfigReader: typed, strict access to a ``config.json``."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from edgegen.errors import UnsupportedModelError, did_you_mean, one_or_list

T = TypeVar("T")

# Keys that say nothing about the mathematics of a causal language model at inference; nor do those that begin with
# an underscore, the library's own notes (_name_or_path, _attn_implementation_autoset, _num_labels).
NEUTRAL_KEYS = frozenset(
    """
    architectures attn_pdrop auto_map bad_words_ids begin_suppress_tokens bos_token_id
    chunk_size_feed_forward custom_pipelines decoder_start_token_id diversity_penalty do_sample dtype early_stopping
    embd_pdrop encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task
    forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label initializer_range is_decoder
    is_encoder_decoder label2id length_penalty max_length max_new_tokens min_length model_type no_repeat_ngram_size
    num_beam_groups num_beams num_labels num_return_sequences output_attentions output_hidden_states output_past
    output_scores pad_token_id prefix problem_type remove_invalid_values repetition_penalty resid_pdrop
    return_dict return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss
    tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p
    unsloth_version use_bfloat16 use_cache
    """.split()
)

HEAD_DIM_STEP = 8
"""What GroupQueryAttention's head size must be a multiple of."""


class ConfigReader:
    """Reads a config key by key and remembers which; what nobody read or knows as neutral is an error at the end."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._read: set[str] = set()
        self._problems: list[str] = []

    def get(self, key: str, kind: type[T], default: T) -> T:
        """The value of ``key``; the class default where the key is absent or null."""
        self._read.add(key)
        value = self._config.get(key)
        if value is None:
            return default
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
            self._problems.append(f"{key}: {kind.__name__} expected, found {value!r}")
            return default
        return kind(value)  # type: ignore[call-arg]

    def positive(self, key: str, default: int) -> int:
        value = self.get(key, int, default)
        if value <= 0:
            self._problems.append(f"{key}: must be positive, found {value}")
            return default
        return value

    def choice(self, key: str, choices: Mapping[str, T], default: str) -> T:
        """The meaning of the string under ``key`` among ``choices``."""
        value = self.get(key, str, default)
        if value not in choices:
            self._problems.append(f"{key}: {value!r} is not supported{did_you_mean(value, choices)}")
        return choices.get(value, choices[default])

    def refuse(self, key: str, harmless: Iterable[object], reason: str) -> None:
        """Anything but ``harmless`` (or null) under ``key`` cannot be exported, for ``reason``."""
        self._read.add(key)
        value = self._config.get(key)
        if value is not None and value not in harmless:
            self._problems.append(f"{key} = {value!r}: {reason}")

    def head_dim(self, hidden_key: str, hidden: int, heads_key: str, heads: int) -> int:
        """``hidden / heads``: a whole number, and one that ONNX Runtime's fused attention takes."""
        size, rest = divmod(hidden, heads)
        if rest:
            self._problems.append(f"{hidden_key} = {hidden} is not a multiple of {heads_key} = {heads}")
        elif size % HEAD_DIM_STEP:
            self._problems.append(
                f"{hidden_key} / {heads_key} = {size}: heads of this size are not supported, only multiples of "
                f"{HEAD_DIM_STEP}"
            )
        return max(1, size)

    def agree(self, key: str, value: object) -> None:
        """``key``, where present, says the same as what was read elsewhere."""
        self.refuse(key, (value,), f"contradicts the value {value!r} of its other name")

    def ignore(self, *keys: str) -> None:
        """Keys of this family that do not change the result."""
        self._read.update(keys)

    def finish(self) -> None:
        """
        Raises:
            UnsupportedModelError: everything found wrong, and every key nobody understood.
        """
        self.refuse("quantization_config", (), "already quantized checkpoints cannot be exported; use the original one")
        self.refuse("add_cross_attention", (False,), "cross-attention is not part of a decoder-only model")
        self.refuse("pruned_heads", ({},), "pruned heads are not supported")
        unknown = set(self._config) - self._read - NEUTRAL_KEYS
        problems = self._problems + [
            f"{key} = {self._config[key]!r}: not understood, and it may change the result"
            f"{did_you_mean(key, self._read)}"
            for key in sorted(unknown)
            if self._config[key] is not None and not key.startswith("_")
        ]
        if problems:
            raise UnsupportedModelError(f"config.json asks for what edgegen cannot export: {one_or_list(problems)}")
