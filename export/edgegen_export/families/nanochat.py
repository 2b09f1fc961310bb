"""nanochat: norms without weights, QK norm after a rotation that turns backwards, a squared ReLU, capped logits."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import SwappedHalves
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.parts import with_qk_norm, without_gate
from edgegen_export.reading.tensor_names import named


def read_nanochat(read: ConfigReader) -> DecoderConfig:
    """``NanoChatConfig``."""
    norm = Norm("rms", read.number("rms_norm_eps", least=0), weight=False)
    config = without_gate(read_llama(read, norm=norm))
    config = with_qk_norm(config, after_rotation=True)
    return replace(config, embedding_norm=True, logit_softcap=read.limit("final_logit_softcapping"))


def tensors(config: DecoderConfig) -> TensorMap:
    """Queries and keys that turn forwards: without weights of their norm, scores are the same."""
    names = ("embed.weight", "head.weight")
    rotating = {"q": config.attention.heads, "k": config.attention.kv_heads}
    return {
        **{name: LLAMA_TENSORS[name] for name in names},
        **{
            f"layers.{{i}}.attn.{x}.{kind}": SwappedHalves(f"layers.{{i}}.self_attn.{x}_proj.{kind}", heads)
            for x, heads in rotating.items()
            for kind in ("weight", "bias")
        },
        **named("layers.{i}.attn.v", "layers.{i}.self_attn.v_proj"),
        **named("layers.{i}.attn.o", "layers.{i}.self_attn.o_proj"),
        **named("layers.{i}.mlp.up", "layers.{i}.mlp.fc1"),
        **named("layers.{i}.mlp.down", "layers.{i}.mlp.fc2"),
    }


NANOCHAT = Architecture(
    model_types=("nanochat",),
    classes=("NanoChatForCausalLM",),
    read=read_nanochat,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 50304,
        "hidden_size": 768,
        "intermediate_size": 8192,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "hidden_act": "relu2",
        "final_logit_softcapping": 15.0,
    },
)
