"""Baichuan and Baichuan 2: Llama with fused queries, keys and values; 13B has ALiBi instead of rotations.

transformers does not have it: its checkpoints bring code of their own, which is never run.
"""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Alibi
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import UnitRows
from edgegen_export.families.bloom import LONGEST_CONTEXT
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.parts import alibi_slopes
from edgegen_export.reading.tensor_names import joined_qkv

_PLAIN_HEAD, _UNIT_HEAD = 64000, 125696
"""The vocabularies of Baichuan and Baichuan 2: only they tell whether the rows of the head are divided by their norms.
"""

_HIDDEN_OF_13B = 5120


def read_baichuan(read: ConfigReader) -> DecoderConfig:
    """``BaichuanConfig`` of 7B, whose files have ``max_position_embeddings``, or of 13B, whose files have not."""
    rotates = read.has("max_position_embeddings")
    if not rotates and read.has("model_max_length"):
        read.with_defaults({"max_position_embeddings": read.positive("model_max_length")})
    config = read_llama(read)
    read.refuse("rope_theta", (10000.0,), "this family rotates by 10000")
    read.refuse("rope_scaling", (), "this family does not scale rotations")
    read.refuse("rope_parameters", (), "this family does not scale rotations")
    read.refuse("num_key_value_heads", (config.attention.heads,), "this family has as many keys as queries")
    read.refuse("tie_word_embeddings", (False,), "this family has a head of its own")
    read.ignore("z_loss_weight")  # of the training
    if config.vocab_size not in (_PLAIN_HEAD, _UNIT_HEAD) and read.sound("vocab_size"):
        read.problem(
            f"vocab_size = {config.vocab_size}: {_PLAIN_HEAD} or {_UNIT_HEAD} expected, by which Baichuan and "
            "Baichuan 2 are told apart"
        )
    if rotates:
        if config.hidden_size == _HIDDEN_OF_13B:
            read.problem("max_position_embeddings: files of 13B, which has ALiBi, do not have this key; remove it")
        return config
    alibi = Alibi(alibi_slopes(config.attention.heads))
    config = config.each_attention(lambda own: replace(own, rope=None, alibi=alibi))
    return replace(config, longest_context=LONGEST_CONTEXT)


def tensors(config: DecoderConfig) -> TensorMap:
    head = "lm_head.weight"
    return {
        **_BESIDE_QKV,
        **joined_qkv("layers.{i}.self_attn.W_pack"),
        "head.weight": UnitRows(head) if config.vocab_size == _UNIT_HEAD else head,
    }


_QKV = tuple(f"layers.{{i}}.attn.{x}." for x in "qkv")
_BESIDE_QKV: TensorMap = {ours: theirs for ours, theirs in LLAMA_TENSORS.items() if not str(ours).startswith(_QKV)}

BAICHUAN = Architecture(
    model_types=("baichuan",),
    classes=("BaichuanForCausalLM", "BaiChuanForCausalLM"),
    read=read_baichuan,
    tensors=tensors,
    defaults={
        key: value for key, value in LLAMA_DEFAULTS.items() if key not in ("max_position_embeddings", "vocab_size")
    },
)
