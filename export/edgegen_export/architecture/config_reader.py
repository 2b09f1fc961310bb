"""ConfigReader: typed, strict access to a ``config.json``."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar, cast

from edgegen.errors import UnsupportedModelError, did_you_mean, one_or_list, suggestions
from edgegen_export.checkpoint import read_quantization
from edgegen_export.files.fields import Fields, is_a

T = TypeVar("T")

# Keys that do not change the logits of a causal language model. Keys with a leading underscore are transformers' own
# notes (_name_or_path, _attn_implementation_autoset, _num_labels) and do not either.
NEUTRAL_KEYS = frozenset(
    """
    architectures attention_dropout attention_probs_dropout_prob attn_implementation attn_pdrop auto_map
    bad_words_ids begin_suppress_tokens bos_token_id cache_implementation chunk_size_feed_forward classifier_dropout
    custom_pipelines decoder_start_token_id diversity_penalty do_sample dtype early_stopping embd_pdrop
    encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id
    forced_eos_token_id gradient_checkpointing hidden_dropout hidden_dropout_prob id2label initializer_range
    is_decoder is_encoder_decoder label2id length_penalty max_length max_new_tokens min_length mlp_pdrop model_type
    no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences output_attentions
    output_hidden_states output_past output_scores pad_token_id prefix pretraining_tp problem_type
    remove_invalid_values repetition_penalty resid_pdrop residual_dropout return_dict return_dict_in_generate
    sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder tokenizer_class
    top_k top_p torch_dtype torchscript transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16
    use_cache
    """.split()
)

HEAD_DIM_STEP = 8
"""GroupQueryAttention requires a head size that is a multiple of this."""

Judge = Callable[[Mapping[str, Any], str], str | None]
"""Reason against a key of a config that nothing read: None if it changes nothing, empty if it may change the
result, and else where it would change nothing."""

LARGEST_SIZE, LARGEST_COUNT = (1 << 31) - 1, 1 << 12
"""Upper limits for sizes, and for numbers of layers or heads; no real model exceeds them."""


class ConfigReader(Fields):
    """Reads a config key by key and records every problem; keys that were neither read nor known as neutral are
    problems too.

    ``defaults``: values of the family's config class for keys missing in the file. A null in the file means "none" and
    is not replaced. ``aliases``: other names of keys, each with the name by which it is read here.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__({**(defaults or {}), **config})
        self._file = config
        self._whole = True  # a config, not an object in one
        self._stated = config.keys()
        self._refused: set[str] = set()
        self._inner: dict[str, ConfigReader] = {}
        self.with_aliases(aliases or {})

    # Values.

    def has(self, key: str) -> bool:
        """Whether ``key`` has a value in the file or in the defaults."""
        return self._values.get(key) is not None

    def stated(self, key: str) -> bool:
        """Whether the file itself says something under ``key``."""
        return key in self._stated and bool(self._values[key])

    def names(self) -> frozenset[str]:
        """The keys of the file."""
        return frozenset(self._file)

    def positive(self, key: str, default: int | None = None, most: int = LARGEST_SIZE) -> int:
        """The positive whole number under ``key``, or ``default``; without a default the key is required."""
        value = self._required(key, int, default)
        if value is not None and value <= 0:
            self.problem(f"{key}: must be positive, found {value}", key)
        elif value is not None and value > most:
            self.problem(f"{key}: must be at most {most}, found {value}", key)
        return value if value is not None and 0 < value <= most else default or 1

    def count(self, key: str) -> int:
        """The number of layers or heads under ``key``."""
        return self.positive(key, most=LARGEST_COUNT)

    def number(self, key: str, default: float | None = None, *, least: float | None = None) -> float:
        """The number under ``key``, or ``default``; without a default the key is required."""
        value = self._required(key, float, default)
        if value is not None and least is not None and value < least:
            self.problem(f"{key}: must be at least {least:g}, found {value}", key)
            return least
        return 1.0 if value is None else value

    def above_zero(self, key: str) -> float:
        """The positive number under ``key``, which is required."""
        value = self.number(key)
        if value <= 0:
            self.problem(f"{key}: must be positive, found {value}", key)
        return value if value > 0 else 1.0

    def limit(self, key: str) -> float | None:
        """The positive number under ``key``, or None where it is absent or null."""
        value = self.optional(key, float)
        if value is not None and value <= 0:
            self.problem(f"{key}: must be positive, found {value}", key)
            return None
        return value

    def _required(self, key: str, kind: type[T], default: T | None) -> T | None:
        problems = len(self.problems)
        value = self.optional(key, kind)
        if value is None and default is None and len(self.problems) == problems:
            self.problem(f"{key}: missing", key)
        return default if value is None else value

    def flag(self, key: str, default: bool = False) -> bool:
        return self.get(key, bool, default)

    def choice(self, key: str, choices: Mapping[str, T], default: str) -> T:
        """The meaning of the string under ``key`` among ``choices``."""
        value = self.get(key, str, default)
        if value not in choices:
            self.problem(f"{key}: {value!r} is not supported{did_you_mean(value, choices)}")
        return choices.get(value, choices[default])

    def sizes(self, key: str, layers: int) -> tuple[int, ...]:
        """The positive whole number of each layer under ``key``: a list, or one for all; the key is required."""
        values = self._values.get(key)
        if not isinstance(values, list):
            return (self.positive(key),) * layers
        self._read.add(key)
        found = cast("list[Any]", values)
        if len(found) != layers or not all(is_a(size, int) and 0 < size <= LARGEST_SIZE for size in found):
            self.problem(f"{key}: {layers} positive numbers expected, found {len(found)}: {found!r}", key)
            return (1,) * layers
        return tuple(found)

    def factors(self, key: str, count: int) -> tuple[float, ...]:
        """A list of ``count`` positive numbers; the key is required."""
        values = cast("list[Any] | None", self._required(key, list, None))
        if values is None:
            return (1.0,) * count
        if len(values) != count or not all(is_a(v, float) and v > 0 for v in values):
            self.problem(f"{key}: a list of {count} positive numbers expected, found {len(values)}: {values!r}", key)
            return (1.0,) * count
        return tuple(float(v) for v in values)

    def per_layer(self, key: str, choices: Mapping[Any, T], layers: int) -> tuple[T, ...] | None:
        """The meanings of a list with one entry per layer, or None where the key is absent or null."""
        values = cast("list[Any] | None", self.optional(key, list))
        if values is None:
            return None
        if len(values) != layers or not all(isinstance(v, Hashable) and v in choices for v in values):
            allowed = ", ".join(repr(c) for c in choices)
            self.problem(f"{key}: {layers} entries out of {allowed} expected, found {len(values)}: {values!r}", key)
            return None
        return tuple(choices[v] for v in values)

    def inner(self, key: str, defaults: Mapping[str, Any] | None = None) -> "ConfigReader | None":
        """The reader of the object under ``key``, or None where it is absent, null or empty. Its problems are listed
        with this reader's. With ``defaults`` the object is a config of its own, with neutral keys."""
        value = cast("dict[str, Any] | None", self.optional(key, dict))
        if not value:
            return None
        if key not in self._inner:
            inner = self._inner[key] = ConfigReader(value, defaults)
            inner._whole = defaults is not None
            if inner._whole:
                inner._settle()
        return self._inner[key]

    def of_layer(self, number: int) -> "ConfigReader | None":
        """The reader of the object under a layer's number, which may have zeros before it."""
        key = next((key for key in self._stated if key.isdecimal() and int(key) == number), None)
        return None if key is None else self.inner(key)

    def with_aliases(self, aliases: Mapping[str, str]) -> "ConfigReader":
        """This reader, with other names of keys."""
        for alias, name in aliases.items():
            if self._file.get(name) is not None:
                self.agree(alias, self._file[name], name)
            elif self._file.get(alias) is not None:
                self._values[name] = self._file[alias]
            self._read.add(alias)
        return self

    def with_defaults(self, defaults: Mapping[str, Any]) -> "ConfigReader":
        """This reader, with values for keys that its file does not have."""
        self._values = {**defaults, **self._values}
        return self

    # Rules.

    def problem(self, text: str, *keys: str) -> None:
        """Record a problem; values that depend on ``keys`` are not checked any further."""
        self.problems.append(text)
        self._refused.update(keys)

    def wrong(self, key: str, text: str) -> None:
        self.problem(f"{key}: {text}", key)

    def sound(self, *keys: str) -> bool:
        """Whether ``keys`` have no problems so far."""
        return self._refused.isdisjoint(keys)

    def refuse(self, key: str, harmless: Iterable[object], reason: str) -> None:
        """Record a problem for ``reason`` unless ``key`` is one of ``harmless`` or null."""
        self._read.add(key)
        value = self._values.get(key)
        if value is not None and value not in harmless:
            self.problem(f"{key} = {value!r}: {reason}")

    def head_dim(self, heads: int, given: int | None, hidden: int, hidden_key: str, heads_key: str) -> int:
        """The given head size, or ``hidden / heads``, checked against what ONNX Runtime's fused attention supports."""
        if not self.sound(hidden_key, heads_key, "head_dim"):
            return HEAD_DIM_STEP
        size = hidden // heads if given is None else given
        if given is None and hidden % heads:
            self.problem(f"{hidden_key} = {hidden} is not a multiple of {heads_key} = {heads}", "head_dim")
            return HEAD_DIM_STEP
        if not 0 < size <= LARGEST_COUNT or size % HEAD_DIM_STEP:
            said = f"{hidden_key} / {heads_key}" if given is None else "head_dim"
            self.problem(
                f"{said} = {size}: heads of this size are not supported, only multiples of {HEAD_DIM_STEP}", "head_dim"
            )
            return HEAD_DIM_STEP
        return size

    def kv_heads(self, heads: int, heads_key: str, key: str) -> int:
        """The number of key and value heads (GQA); it must divide ``heads``."""
        count = self.positive(key, heads)
        if heads % count and self.sound(key, heads_key):
            self.problem(f"{key} = {count} does not divide {heads_key} = {heads}", key)
        return heads if heads % count else count

    def agree(self, key: str, value: object, name: str) -> None:
        """Record a problem if the file's ``key`` differs from ``value``, which was read under ``name``."""
        self._read.add(key)
        if key in self._stated:
            self.refuse(key, (value,), f"contradicts the value {value!r} of its other name, {name}")

    def ignore_rest(self) -> None:
        """Mark all other keys as read, since a larger problem makes them meaningless."""
        self._read.update(self._stated)

    def finish(self, judge: Judge = lambda _file, _key: "") -> None:
        """``judge``: of the keys that nothing read, here and in the configs inside.

        Raises:
            UnsupportedModelError: lists every problem and every unknown key.
        """
        self._settle()
        if problems := self._found(judge):
            raise UnsupportedModelError(f"config.json asks for what edgegen cannot export: {one_or_list(problems)}")

    def _settle(self) -> None:
        """The checks that apply to every model."""
        self._judge_quantization()
        self.refuse("add_cross_attention", (False,), "cross-attention is not part of a decoder-only model")
        self.refuse("pruned_heads", ({},), "pruned heads are not supported")
        self._read |= NEUTRAL_KEYS

    def _judge_quantization(self) -> None:
        self._read.update(("quantization_config", "quantization"))
        problems = read_quantization(self._values)
        for text in problems if isinstance(problems, list) else ():
            self.problem(text, "quantization_config")

    def _found(self, judge: Judge) -> list[str]:
        """All problems, those of inner objects included, and the unknown keys."""
        unread = [
            key
            for key in sorted(self._stated - self._read)
            if self._values[key] is not None and not key.startswith("_")
        ]
        verdicts = {key: judge(self._file, key) if self._whole else "" for key in unread}
        unknown = [key for key, verdict in verdicts.items() if verdict is not None]
        hints = suggestions(unknown, self._read)
        return [
            *dict.fromkeys(self.problems),
            *(f"{key}.{problem}" for key, inner in self._inner.items() for problem in inner._found(judge)),
            *(
                f"{key} = {self._values[key]!r}: not understood, and it may change the result"
                + (f"; it changes nothing only where {where}" if (where := verdicts[key]) else near)
                for key, near in zip(unknown, hints, strict=True)
            ),
        ]


def every(period: int, at: T, otherwise: T, layers: int) -> tuple[T, ...]:
    """``at`` for each ``period``-th layer, counted from one, ``otherwise`` for the rest."""
    return tuple(at if (i + 1) % period == 0 else otherwise for i in range(layers))
