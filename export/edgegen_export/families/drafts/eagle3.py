"""EAGLE-3 drafts of Llama's kind: one layer that reads hidden states of three of another model's (Li et al. 2025,
arXiv:2503.01840), as vLLM and SGLang read them. They are no models of their own, and no family of those."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.draft_input import EagleAttention, EagleInput
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama

SPECULATORS = "speculators_model_type"
"""Key in the config of a draft that vLLM's ``speculators`` wrote."""

_TAKEN = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True, slots=True)
class EagleDraft:
    """``decoder``: the draft's layer as a decoder, its attention that of a model; ``rows``: tokens that it proposes.

    ``taken``: what the file says of the layers whose states it takes, in the two ways of counting. ``verifier``, and
    its classes: the model that it was trained for, where the file says it.
    """

    decoder: DecoderConfig
    rows: int
    normed_residual: bool
    taken: tuple[Sequence[object] | None, Sequence[object] | None]
    verifier: str = ""
    verifier_classes: tuple[str, ...] = ()

    def of(self, layers: int) -> DecoderConfig:
        """As the draft of a model with ``layers`` layers."""
        own = EagleInput(layers_taken(layers), self.rows, self.normed_residual)
        attention = self.decoder.attention
        wide = EagleAttention(
            attention.heads, attention.kv_heads, attention.head_dim, attention.scale, rope=attention.rope
        )
        return replace(self.decoder.each_attention(lambda _: wide), extras=(own,))

    def counts_as(self, layers: int) -> bool:
        """Whether the layers that the file names are those that are read of a model with ``layers`` layers."""
        before, after = self.taken
        usual = layers_taken(layers)
        return (before is None or tuple(before) == usual) and (
            after is None or tuple(after) == tuple(layer - 1 for layer in usual)
        )


def layers_taken(layers: int) -> tuple[int, ...]:
    """The layers before which the residual stream is read, of a model with ``layers`` layers."""
    return 2, layers // 2, layers - 3


def read_eagle3(config: Mapping[str, Any]) -> EagleDraft:
    """The draft that a ``config.json`` describes, in the words of EAGLE, or of vLLM's ``speculators``.

    Raises:
        UnsupportedModelError: it asks for what is not read; every problem is listed.
    """
    read = ConfigReader(config, LLAMA_DEFAULTS)
    layer, verifier, classes = read, "", tuple[str, ...]()
    if read.optional(SPECULATORS, str) is not None:
        layer = read.inner("transformer_layer_config", LLAMA_DEFAULTS) or ConfigReader({}, LLAMA_DEFAULTS)
        layer.refuse("model_type", ("llama",), "drafts of Llama's kind are read")
        read.ignore("embed_requires_grad", "enable_sp_ulysses", "speculators_version")  # of the training
        read.refuse("tie_word_embeddings", (False,), "a draft has a head of its own")
        verifier, classes = _verifier(read)
    decoder = read_llama(layer)
    if decoder.num_layers != 1:
        read.problem(f"num_hidden_layers = {decoder.num_layers}: drafts of one layer are read")
    rows = read.positive("draft_vocab_size", decoder.vocab_size)
    read.agree("target_hidden_size", decoder.hidden_size, "hidden_size")
    read.refuse("logit_scale", (1, 1.0), "logits are used as the draft's head gives them")
    read.refuse("norm_before_fc", (False,), "hidden states are taken as the model gives them")
    read.ignore("target_model_type")
    before = cast("list[object] | None", read.optional(_TAKEN, list))
    after: list[object] | None = None
    if inner := read.inner("eagle_config", {}):
        inner.refuse("use_aux_hidden_state", (True,), "a draft takes the hidden states of three layers")
        after = cast("list[object] | None", inner.optional(_TAKEN, list))
    normed_residual = read.get("norm_before_residual", bool, False)
    read.finish()
    return EagleDraft(replace(decoder, tied_head=True), rows, normed_residual, (before, after), verifier, classes)


def _verifier(read: ConfigReader) -> tuple[str, tuple[str, ...]]:
    """The name and the classes of the model that ``speculators`` trained it for, as far as they are said."""
    settings = read.inner("speculators_config")
    if settings is None:
        return "", ()
    settings.refuse("algorithm", ("eagle3",), "drafts of EAGLE-3 are read")
    settings.ignore("default_proposal_method", "proposal_methods")  # how many tokens are proposed
    verifier = settings.inner("verifier")
    if verifier is None:
        return "", ()
    classes = cast("list[object]", verifier.optional("architectures", list) or [])
    return verifier.get("name_or_path", str, ""), tuple(map(str, classes))


EAGLE3 = Architecture(
    model_types=("llama",),
    classes=("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator", "Eagle3DraftModel"),
    read=read_llama,
    tensors={
        **{ours: theirs for ours, theirs in LLAMA_TENSORS.items() if ours != "head.weight"},
        "draft_fuse.weight": "fc.weight",
        "draft_hidden_norm.weight": "layers.0.hidden_norm.weight",
        "draft_head.weight": "lm_head.weight",
    },
    renamed={"midlayer.": "layers.0."},
    ignored=("d2t", "t2d"),
)
"""Where drafts have their tensors."""
