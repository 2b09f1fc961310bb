"""What a client is told of a model before it uses it: how long its texts may be, and what it can do."""

from collections.abc import Mapping
from typing import Any

from edgegen.bundle.bundle import Bundle
from edgegen.chat import ChatTemplate, Conversation
from edgegen.errors import EdgegenError
from edgegen.generation.fill import fill_tokens


def capabilities(bundle: Bundle, template: ChatTemplate | None = None) -> list[str]:
    """What a model can do, in ollama's words: completion, tools, thinking, embedding, insert."""
    manifest, found = bundle.manifest, ["completion"]
    with_tools = Conversation([{"role": "user", "content": ""}], tools=({},))
    try:
        template = template or ChatTemplate.from_bundle(bundle)
        tools = template.capabilities(with_tools).tools
        thinks = template.reasoning() or template.thinking_switch().is_there
    except EdgegenError:  # a template that fails has neither
        tools = thinks = False
    found += [name for name, there in (("tools", tools), ("thinking", thinks)) if there]
    hidden = bundle.variant.hidden_states
    if hidden is not None and hidden.embedding_size is not None:
        found.append("embedding")
    if manifest.tokenizer is not None:
        added: list[dict[str, Any]] = bundle.json(manifest.tokenizer).get("added_tokens") or []
        if fill_tokens({token["content"]: token for token in added}):
            found.append("insert")
    return found


def description(bundle: Bundle) -> Mapping[str, Any]:
    """The fields of ``/v1/models`` beside OpenAI's: ``context_length``, vLLM's name of it, and the capabilities."""
    context = bundle.manifest.model.max_context
    return {"context_length": context, "max_model_len": context, "capabilities": capabilities(bundle)}
