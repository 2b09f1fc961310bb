"""Description of a model for clients, before they use it: how long its texts may be, and what it can do."""

from collections.abc import Mapping
from typing import Any

from edgegen.bundle.bundle import Bundle
from edgegen.chat import ChatTemplate, Conversation
from edgegen.errors import EdgegenError
from edgegen.generation.fill import fill_tokens
from edgegen.tokenizer.compiled_format import COMPILED, added_tokens


def capabilities(bundle: Bundle, template: ChatTemplate | None = None) -> list[str]:
    """Return the capabilities of a model, in ollama's words: completion, tools, thinking, embedding, insert."""
    names = ["completion"]
    with_tools = Conversation([{"role": "user", "content": ""}], tools=({},))
    try:
        template = template or ChatTemplate.from_bundle(bundle)
        tools = template.capabilities(with_tools).tools
        thinks = template.reasoning() or template.thinking_switch().is_there
    except EdgegenError:  # a template that fails has neither
        tools = thinks = False
    names += [name for name, there in (("tools", tools), ("thinking", thinks)) if there]
    hidden = bundle.variant.hidden_states
    if hidden is not None and hidden.embedding_size is not None:
        names.append("embedding")
    if fill_tokens({token["content"]: token for token in _added_tokens(bundle)}):
        names.append("insert")
    return names


def _added_tokens(bundle: Bundle) -> list[dict[str, Any]]:
    """Return the added tokens, from the compiled tokenizer if there is one: parsing a vocabulary takes a tenth of a
    second and more."""
    name, files = bundle.manifest.tokenizer, bundle.manifest.files
    if name is None:
        return []
    compiled = added_tokens(bundle.file(COMPILED), files[name].sha256) if COMPILED in files else None
    return bundle.json(name).get("added_tokens") or [] if compiled is None else compiled


def description(bundle: Bundle) -> Mapping[str, Any]:
    """The fields of ``/v1/models`` beside OpenAI's: ``context_length``, vLLM's name of it, and the capabilities."""
    context = bundle.manifest.model.max_context
    return {"context_length": context, "max_model_len": context, "capabilities": capabilities(bundle)}
