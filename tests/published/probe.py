"""Opens a bundle in a process of its own and compares it with goldens.

``python -m tests.published.probe BUNDLE CHECKPOINT CHECK,CHECK`` is that process, which the tests fork.

Prints one JSON object: ``wrong``, the sentences of what differs; ``compared``, the numbers of ids, chats and ends, and
the form of the tokenizer.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgegen import LLM, Conversation
from edgegen.tokenizer import Tokenizer
from tests.published.making import TOOLS

FORCED = 1000.0
"""A bias that no logit outdoes."""


def ids(llm: LLM, golden: Mapping[str, Any]) -> Iterator[str]:
    """Texts that are encoded otherwise than the library does."""
    assert llm.tokenizer
    for text, wanted in zip(golden["texts"], golden["ids"], strict=True):
        found = list(llm.tokenizer.encode(text, add_special_tokens=False))
        if found != wanted:
            yield f"ids of {text!r}: {found[:12]}, not {wanted[:12]}"


def greedy(llm: LLM, golden: Mapping[str, Any]) -> Iterator[str]:
    """Ids that are not those of transformers, up to a token that ends the text."""
    prompt: list[int] = golden["prompt"]
    wanted: list[int] = golden["greedy"]
    result = llm.generate(prompt, max_new_tokens=len(wanted), temperature=0, repetition_penalty=1.0)
    found = list(result.token_ids)
    if not found or found != wanted[: len(found)] or (len(found) < len(wanted) and result.stopped_by != "eos_token_id"):
        yield f"greedy: {found}, not {wanted}"


def ends(llm: LLM, golden: Mapping[str, Any], eos: list[int]) -> Iterator[str]:
    """Ids of the generation config after which the text goes on."""
    prompt: list[int] = golden["prompt"]
    for token_id in eos:
        result = llm.generate(prompt, logit_bias={token_id: FORCED}, temperature=0, max_new_tokens=4)
        if (result.finish_reason, result.matched) != ("stop", token_id):
            yield f"{token_id} does not end a text: {result.finish_reason}, {result.matched}, {result.token_ids}"


def chats(llm: LLM, golden: Mapping[str, Any], described: bool) -> Iterator[str]:
    """Conversations that are rendered otherwise than by ``apply_chat_template``.

    ``described``: the template lists no tools, so that a system message describes them.
    """
    assert llm.tokenizer
    plain = {
        json.dumps([chat["messages"], chat["variables"]]): chat.get("text")
        for chat in golden["chats"]
        if not chat["tools"]
    }
    for chat in golden["chats"]:
        said = json.dumps([chat["messages"], chat["variables"]])
        conversation = Conversation(chat["messages"], tools=chat["tools"], variables=chat["variables"])
        if "text" not in chat:
            continue
        if chat["tools"] and plain[said] == chat["text"]:
            if not described:
                yield f"{said}: tools change nothing, and the data do not say so"
            elif TOOLS[0]["function"]["name"] not in llm.decode(
                llm.encode_chat(chat["messages"], tools=chat["tools"]), skip_special_tokens=False
            ):
                yield f"{said}: the tools are nowhere"
            continue
        text = llm.chat_template.render(conversation)
        system = next((message["content"] for message in chat["messages"] if message["role"] == "system"), "")
        if system not in chat["text"]:  # the template leaves it out in silence: it is said in the user's message
            if system not in text:
                yield f"{said}: the system message is nowhere"
            continue
        if text != chat["text"]:
            yield f"{said}, tools {bool(chat['tools'])}: {text!r}, not {chat['text']!r}"
        found = list(llm.chat_template.encode(conversation, llm.tokenizer))
        if found != chat["ids"]:
            yield f"{said}, tools {bool(chat['tools'])}: {found}, not {chat['ids']}"


def form_of(tokenizer: Tokenizer) -> str:
    """The form of the tokenizer that makes ids of texts: compiled, or run by the library."""
    return "compiled" if tokenizer.is_compiled else "the library's"


def main() -> None:
    bundle, source, checks = sys.argv[1], Path(sys.argv[2]), sys.argv[3].split(",")
    golden = json.loads((source / "golden.json").read_bytes())
    said: int | list[int] = json.loads((source / "generation_config.json").read_bytes())["eos_token_id"]
    eos = [said] if isinstance(said, int) else said
    wrong = list[str]()
    with LLM.load(bundle) as llm:
        if "ids" in checks:
            wrong += ids(llm, golden)
        if "greedy" in checks:
            wrong += greedy(llm, golden)
        if "ends" in checks:
            wrong += ends(llm, golden, eos)
        if "chats" in checks:
            wrong += chats(llm, golden, "described" in checks)
        assert llm.tokenizer
        form = form_of(llm.tokenizer)
    counts = {"ids": len(golden["ids"]), "chats": sum("text" in chat for chat in golden["chats"]), "ends": len(eos)}
    compared = {name: counts[name] for name in counts if name in checks}
    print(json.dumps({"wrong": wrong, "compared": {**compared, "form": form}}))


if __name__ == "__main__":
    main()
