"""Keys of published ``config.json`` files that change nothing at a value, and why; at any other they are errors.

Whether a value changes nothing is judged by what the rest of the file means: another name of a size is harmless where
it says that size, a setting of rotary positions where nothing rotates. No class of transformers 5.24 reads these keys
for the types whose files have them; ``source`` says which files do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.learned_positions import LearnedPositions
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import every
from edgegen_export.architecture.training_keys import judge_training_key


@dataclass(frozen=True, slots=True)
class Meant:
    """Meaning of a file: its own words, and the model they make."""

    file: Mapping[str, Any]
    config: DecoderConfig

    @property
    def attending(self) -> tuple[Attention, ...]:
        return tuple(self.config.attentions.values())

    @property
    def rotates(self) -> bool:
        return any(layer.rope for layer in self.attending)

    @property
    def windows(self) -> tuple[int | None, ...]:
        return tuple(layer.window for layer in self.attending)


@dataclass(frozen=True, slots=True)
class Inert:
    """Under this key, ``value`` changes nothing where ``at`` holds for it; ``where`` says that in words.

    ``source``: who writes the key. ``model_types``: the only ones that it is known of; all if empty.
    """

    where: str
    source: str
    at: Callable[[Any, Meant], bool]
    model_types: frozenset[str] = frozenset()


def judge_unread(config: DecoderConfig, file: Mapping[str, Any], key: str) -> str | None:
    """Return the reason against ``key`` of the ``file`` that means ``config``, which its family did not read: None if
    it changes nothing, empty if it may change the result, and else where it would change nothing."""
    meant = Meant(file, config)
    rule = INERT.get(key) or (TOKEN if key.endswith(TOKEN_KEYS) else None)
    if rule is None or (rule.model_types and file.get("model_type") not in rule.model_types):
        return judge_training_key(key, file[key])
    try:
        harmless = rule.at(file[key], meant)
    except (TypeError, ValueError, IndexError):  # of a kind that the rule does not expect
        harmless = False
    return None if harmless else rule.where


# What rules say.


def _always(_value: object, _meant: Meant) -> bool:
    return True


def _says(size: Callable[[DecoderConfig], object]) -> Callable[[Any, Meant], bool]:
    """Whether a value is what the config says under another name."""
    return lambda value, meant: not isinstance(value, bool) and value == size(meant.config)


def _states(fact: Callable[[DecoderConfig], bool]) -> Callable[[Any, Meant], bool]:
    """Whether a truth value is what the config says under another name."""
    return lambda value, meant: isinstance(value, bool) and value == fact(meant.config)


def _truth(value: object, _meant: Meant) -> bool:
    return isinstance(value, bool)


def _off(value: object, _meant: Meant) -> bool:
    return value is False


def _positions(value: object, meant: Meant) -> bool:
    rotating = [layer.rope for layer in meant.attending if layer.rope]
    learned, alibi = meant.config.first(LearnedPositions), any(layer.alibi for layer in meant.attending)
    match value:
        case "rope":
            return bool(rotating)
        case "rope_gptj":
            return bool(rotating) and all(rope.interleaved for rope in rotating)
        case "absolute":
            return learned is not None
        case "alibi":
            return alibi
        case "none" | "nope":
            return not rotating and not alibi and learned is None
        case _:
            return False


def _thetas(value: object, meant: Meant) -> bool:
    if not meant.rotates:
        return isinstance(value, int | float)
    return any(layer.rope and layer.rope.theta == value for layer in meant.attending)


def _whole(value: object, meant: Meant) -> bool:
    """Whole heads rotate, as the value says, or none do."""
    dims = [layer.rope.dim == layer.head_dim and not isinstance(value, bool) for layer in meant.attending if layer.rope]
    return value == 1 and all(dims) if dims else isinstance(value, int | float)


def _activation(value: object, meant: Meant) -> bool:
    names = {
        "gelu": {"gelu", "gelu_python"},
        "gelu_tanh": {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"},
        "silu": {"silu", "swish", "swiglu"} if meant.config.mlp.gated else {"silu", "swish"},
    }
    activation = meant.config.mlp.activation
    return value in names.get(activation, {activation})


def _norm(value: object, meant: Meant) -> bool:
    names = {"rms": ("rms", "rmsnorm", "rms_norm"), "layer": ("layer", "layernorm", "layer_norm")}
    return str(value).lower() in names[meant.config.norm.kind]


def _without_windows(value: object, meant: Meant) -> bool:
    return not any(meant.windows) and meant.file.get("use_sliding_window") is False and isinstance(value, int)


def _token(value: object, _meant: Meant) -> bool:
    ids = cast("list[object]", value) if isinstance(value, list) else [value]
    return all(isinstance(each, int) and not isinstance(each, bool) for each in ids)


_OTHER_NAME = "it says what another key of the file says"
_BIASES = "the checkpoint's tensors show its biases"
_TRAINING = "it is of the training"
_DRAFTS = "it is of layers that propose further tokens, which are left out"

TOKEN_KEYS = ("_token_id", "_token_ids", "_token_index")
TOKEN = Inert("it is the id of a token", "transformers: ids of special tokens, and of those of other towers", _token)

INERT: Mapping[str, Inert] = {
    # Rotary positions.
    "rope_theta": Inert("nothing rotates", "Nemotron 3, whose attention has no positions", _thetas),
    "rope_local_base_freq": Inert(_OTHER_NAME, "Gemma 3, beside rope_parameters", _thetas),
    "partial_rotary_factor": Inert("whole heads rotate, or none", "Nemotron 3; a default, said", _whole),
    "rotary_pct": Inert("whole heads rotate, or none", "the first Cohere2", _whole),
    "rotary_dim": Inert(
        "it is how much of a head rotates",
        "the first Phi",
        lambda value, meant: {layer.rope.dim for layer in meant.attending if layer.rope} == {value},
    ),
    "position_embedding_type": Inert(_OTHER_NAME, "the first Cohere2", _positions),
    # Sizes by another name.
    "kv_channels": Inert(
        "it is the size of a head", "Nemotron-Mini: Megatron's name", _says(lambda c: c.attention.head_dim)
    ),
    "n_head": Inert(_OTHER_NAME, "Falcon, as RefinedWeb called it", _says(lambda c: c.attention.heads)),
    "n_layer": Inert(_OTHER_NAME, "Falcon, as RefinedWeb called it", _says(lambda c: c.num_layers)),
    "num_layers": Inert(_OTHER_NAME, "of the training's config", _says(lambda c: c.num_layers)),
    "num_kv_heads": Inert(_OTHER_NAME, "of the training's config", _says(lambda c: c.attention.kv_heads)),
    "max_sequence_length": Inert(_OTHER_NAME, "the first conversions of Llama", _says(lambda c: c.max_positions)),
    "model_max_length": Inert("it is a limit of the tokenizer", "Command R, Qwen1.5", lambda v, _: isinstance(v, int)),
    "dense_list": Inert(
        "it is [hidden_size, 0]",
        "Hunyuan: the sizes of a head for classification",
        lambda value, meant: value == [meant.config.hidden_size, 0],
        frozenset({"hunyuan_v1_dense"}),
    ),
    "shared_expert_intermediate_size": Inert(
        "it is 0, and no expert is shared",
        "Qwen3-Coder",
        lambda value, meant: value == 0 and not (meant.config.experts and meant.config.experts.shared_width),
    ),
    # Windows.
    "use_sliding_window": Inert("no layer has a window", "Qwen3-Next", lambda v, m: v is False and not any(m.windows)),
    "sliding_window": Inert("use_sliding_window is false", "Qwen", _without_windows),
    "max_window_layers": Inert("use_sliding_window is false", "Qwen", _without_windows),
    "sliding_window_size": Inert(
        "it is every window's size",
        "the first release of Gemma 2",
        lambda value, meant: {window for window in meant.windows if window} == {value},
    ),
    "layer_switch": Inert(
        "it is the distance of layers without a window",
        "the first Cohere2",
        lambda value, meant: (
            tuple(not window for window in meant.windows) == every(value, True, False, len(meant.windows))
        ),
    ),
    "order_of_interleaved_layers": Inert(
        "layers with a window come first",
        "the first Cohere2",
        lambda value, meant: value == "local_attn_first" and bool(meant.windows[0]),
    ),
    # Blocks.
    "activation": Inert(_OTHER_NAME, "Falcon3", _activation),
    "activation_function": Inert(
        "it is of StarCoder 2, which reads another key", "StarCoder2-15B", _always, frozenset({"starcoder2"})
    ),
    "hidden_act": Inert(_OTHER_NAME, "Nemotron-H and Gemma, which read another key", _activation),
    "hidden_activation": Inert(_OTHER_NAME, "Gemma, which reads another key", _activation),
    "norm_type": Inert(_OTHER_NAME, "of the training's config", _norm),
    "use_gated_activation": Inert(_OTHER_NAME, "the first Cohere2", _states(lambda c: c.mlp.gated)),
    "use_parallel_block": Inert(
        _OTHER_NAME, "the first Cohere2", _states(lambda c: c.block in ("parallel", "parallel_two_norms"))
    ),
    "use_embedding_sharing": Inert(_OTHER_NAME, "the first Cohere2", _states(lambda c: c.tied_head)),
    "use_parallel_embedding": Inert(_TRAINING, "the first Cohere2: how its table was divided", _truth),
    "use_qk_norm": Inert(_OTHER_NAME, "Qwen3-Coder", _states(lambda c: c.attention.qk_norm is not None)),
    "qk_norm": Inert(_OTHER_NAME, "of the training's config", _states(lambda c: c.attention.qk_norm is not None)),
    **dict.fromkeys(
        ("attention_bias", "attention_out_bias", "bias", "mlp_bias", "qkv_bias", "use_bias", "use_qkv_bias"),
        Inert(_BIASES, "Qwen3-Coder and others", _truth),
    ),
    # Of other programs, of drafts, and of the training.
    "transformers.js_config": Inert("it is of another program", "SmolLM2", _always),
    "language_model_only": Inert("it is of another program", "Qwen3.6 as NVIDIA writes it", _off),
    "internal_version": Inert("it is the name of a version", "ALLaM", lambda value, _: isinstance(value, str)),
    "mup_denominator": Inert("only drafts read it", "MiniCPM 4", _always, frozenset({"minicpm"})),
    **dict.fromkeys(
        (
            "mtp_hybrid_override_pattern",
            "mtp_layers_block_type",
            "mtp_num_hidden_layers",
            "mtp_use_dedicated_embeddings",
            "mtp_loss_scaling_factor",
            "mtp_share_layers",
            "num_mtp_layers",
            "num_nextn_predict_layers",
        ),
        Inert(_DRAFTS, "Nemotron 3, MiMo, EXAONE 4.5, Qwen3.5", _always),
    ),
    **dict.fromkeys(
        (
            "summary_activation",
            "summary_first_dropout",
            "summary_last_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
        ),
        Inert("it is of a head for classification", "HyperCLOVA X; transformers: PretrainedConfig of GPT-2", _always),
    ),
}
