"""Gemma 4's assistants: a few of its layers without keys and values of their own, which read those that a Gemma 4 keeps
and propose its next tokens. They are no models of their own, and no family of those."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.draft_input import AssistantInput
from edgegen_export.architecture.components.per_layer import LayerScale
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.inert_keys import judge_unread
from edgegen_export.families.gemma4 import GEMMA4_DEFAULTS, GEMMA4_TENSORS, UNIFIED_DEFAULTS, read_gemma4

_DEFAULTS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "gemma4_assistant": (GEMMA4_DEFAULTS, 1536),
    "gemma4_unified_assistant": (UNIFIED_DEFAULTS, 3840),
}
"""Of the language model's config inside, and ``backbone_hidden_size``, by the type of the assistant."""

ASSISTANTS = tuple(_DEFAULTS)

OF_MODELS = ("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text")
"""The types of the models that they are for."""


@dataclass(frozen=True, slots=True)
class Gemma4Assistant:
    """``decoder``: its layers as a decoder, whose attention is that of a model with keys and values."""

    decoder: DecoderConfig

    @property
    def own(self) -> AssistantInput:
        return self.decoder.only(AssistantInput)

    def sources(self, model: DecoderConfig) -> list[int | None]:
        """The layer of ``model`` that each layer reads: the last of its kind, with a window or without, that has keys
        and values. ``model``: as its config describes it, with its windows whatever context it is exported for."""
        return [
            max((i for i in model.cached_layers if _windowed(model.attentions[i]) == _windowed(own)), default=None)
            for own in self.decoder.attentions.values()
        ]

    def of(self, model: DecoderConfig, sources: list[int]) -> DecoderConfig:
        """As the assistant of ``model``, whose layers ``sources`` it reads: they are numbered on from its own.

        A window counts the position of the token itself; of those before it, one more is read than the model's layer
        does there, as transformers has it.
        """
        config = replace(self.decoder, max_positions=model.max_positions, longest_context=model.longest_context)
        layers = list(config.layers)
        for i, source in enumerate(sources):
            window, own = model.attentions[source].window, layers[i].attention
            assert own, "each layer has attention"
            seen = None if window is None else window + 2
            reading = replace(own, window=seen, source=config.num_layers + source, value_is_key=False)
            layers[i] = replace(layers[i], attention=reading)
        return replace(config, layers=tuple(layers))


def _windowed(own: Attention) -> bool:
    return own.window is not None


def read_gemma4_assistant(config: Mapping[str, Any]) -> Gemma4Assistant:
    """The assistant that a ``config.json`` describes (``Gemma4AssistantConfig``, ``Gemma4UnifiedAssistantConfig``).

    Raises:
        UnsupportedModelError: it asks for what is not read; every problem is listed.
    """
    text = cast("Mapping[str, Any]", config.get("text_config") or {})
    defaults, backbone = _DEFAULTS[config["model_type"]]
    # All of its layers share what the model keeps; `read_gemma4` knows layers that share what one of them keeps.
    read = ConfigReader({**config, "text_config": {**text, "num_kv_shared_layers": 0}})
    layer = read.inner("text_config", defaults) or ConfigReader({}, defaults)
    decoder = read_gemma4(layer)
    shared = text.get("num_kv_shared_layers")
    if shared not in (None, 0, decoder.num_layers):
        read.problem(f"text_config.num_kv_shared_layers = {shared!r}: all layers of an assistant share")
    if decoder.experts or any(type(one) is not LayerScale for one in decoder.layers[0].extras):
        read.problem("text_config: an assistant with experts or embeddings of layers is not read")
    backbone = read.positive("backbone_hidden_size", backbone)
    clusters = chosen = 0
    if read.flag("use_ordered_embeddings"):
        clusters, chosen = read.positive("num_centroids", 2048), read.positive("centroid_intermediate_top_k", 32)
        if decoder.vocab_size % clusters or chosen > clusters:
            read.problem(
                f"num_centroids = {clusters}: it must divide vocab_size = {decoder.vocab_size}, and be at least "
                f"centroid_intermediate_top_k = {chosen}"
            )
    read.ignore("num_centroids", "centroid_intermediate_top_k")
    tied = read.flag("tie_word_embeddings", True)
    read.ignore("boi_token_id", "eoi_token_id", "image_token_id", "video_token_id")
    read.ignore("audio_token_id", "boa_token_id", "eoa_token_id", "eoa_token_index")
    read.finish(partial(judge_unread, decoder))
    own = AssistantInput(backbone, clusters, chosen)
    # Its embedding is its head alone, and its logits are used as they are.
    return Gemma4Assistant(
        replace(
            decoder,
            extras=(own,),
            tied_head=tied,
            embedding_multiplier=1.0,
            logit_softcap=None,
        )
    )


ORDERING = "masked_embedding.token_ordering"
"""The ids of each cluster of the vocabulary, one cluster after the other."""

GEMMA4_ASSISTANT = Architecture(
    model_types=ASSISTANTS,
    classes=("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"),
    read=read_gemma4,
    tensors={
        **GEMMA4_TENSORS,
        "draft_in.weight": "pre_projection.weight",
        "draft_out.weight": "post_projection.weight",
        "centroids.weight": "masked_embedding.centroids.weight",
    },
)
"""Where assistants have their tensors."""
