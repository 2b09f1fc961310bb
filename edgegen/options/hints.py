"""Hints for names that are no options, or stand in the wrong place: what to use instead."""

from collections.abc import Collection, Iterable

from edgegen.errors import OptionError, did_you_mean, refuse_any

_HINTS = {
    "num_beam_groups": "diverse beam search is not supported: use num_beams, or num_return_sequences with sampling",
    "diversity_penalty": "diverse beam search is not supported: use num_beams, or num_return_sequences with sampling",
    "constraints": "constrained beam search is not supported: say what the text must be with grammar",
    "force_words_ids": "constrained beam search is not supported: say what the text must be with grammar",
    "penalty_alpha": "contrastive search is not supported: use top_k, or repetition_penalty",
    "dola_layers": "decoding by contrasting layers (DoLa) is not supported: leave it out",
    "use_cache": "the KV cache is always used, and changes no text: leave it out",
    "assistant_model": "a draft model is loaded with the model: EngineOptions(draft=…), or --draft",
    "n": "several answers are num_return_sequences here",
    "stop": "texts that end the answer are stop_strings here",
    "json_schema": "a schema goes into response_format, as {'type': 'json_schema', 'json_schema': {'schema': …}}",
    "regex": "an expression to keep to goes into grammar, as edgegen.constraint.Regex(…)",
    "choices": "texts to choose from go into grammar, as edgegen.constraint.Choice.of([…])",
    "stream": "an answer in pieces comes from llm.stream(…), or llm.stream_chat(…)",
    "streamer": "an answer in pieces comes from llm.stream(…), or llm.stream_chat(…)",
    "enable_thinking": "whether the model thinks is thinking=True or thinking=False here",
    "thinking_budget": "the most tokens of thinking are max_thinking_tokens here",
    "messages": "a conversation goes to llm.chat(messages)",
    "tools": "tools belong to the conversation: llm.chat(Conversation(messages, tools=…))",
    "n_threads": "the number of threads is EngineOptions(threads=…)",
    "num_threads": "the number of threads is EngineOptions(threads=…)",
}
"""Options of other libraries that edgegen lacks, or has under another name or elsewhere, with what to use instead."""

PLACES: dict[str, str] = {}
"""Where each option belongs; the table of options fills it in."""


def refuse_unknown(names: Iterable[str], known: Collection[str]) -> None:
    """Refuse names of options that do not exist.

    Raises:
        OptionError: some of ``names`` are not ``known``; it says what to use in place of each.
    """
    refuse_any([_hint(name, known) for name in names if name not in known], OptionError)


def _hint(name: str, known: Collection[str]) -> str:
    if name in _HINTS:
        return f"{name}: {_HINTS[name]}"
    if name in PLACES:
        return f"{name}: {PLACES[name]}"
    return f"{name!r} is not an option{did_you_mean(name, known)}"
