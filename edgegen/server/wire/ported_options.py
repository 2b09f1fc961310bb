"""Options that clients of other servers and libraries send on OpenAI's routes: taken, without effect, or refused."""

from collections.abc import Mapping
from typing import Any, cast

from edgegen.openai.request import UNLIMITED, whole
from edgegen.server.wire.schemas import no_op_schemas, refused_schemas
from edgegen.strict_json.schema import ANYTHING, BOOLEAN, INTEGER, NUMBER, Schema, described

TAKEN: Mapping[str, str] = {
    "n_predict": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "repeat_penalty": "repetition_penalty",
    "repeat_last_n": "penalty_last_n",
    "typ_p": "typical_p",
}
"""Other servers' names of options."""

NO_OPS: Mapping[str, tuple[Schema, str]] = {
    "cache_prompt": (BOOLEAN, "prefixes are always reused, with the same bits"),
    "id_slot": (INTEGER, "a request gets whatever slot has its prefix"),
    "n_keep": (INTEGER, "nothing is shifted out of a full context"),
    "keep_alive": (ANYTHING, "a model stays loaded until others need its memory; ollama's API has keep_alive"),
    "skip_special_tokens": (BOOLEAN, "control tokens are no part of an answer's text"),
    "spaces_between_special_tokens": (BOOLEAN, "control tokens are no part of an answer's text"),
    "add_special_tokens": (BOOLEAN, "a prompt has the tokens that the model puts before one"),
    "chat_format": (INTEGER, "the chat template says how calls and reasoning are written"),
    "dynatemp_exponent": (NUMBER, "there is no dynamic temperature"),
}
"""Checked, and of no effect: what happens instead."""

REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "reasoning_format": (("auto", "deepseek"), "reasoning comes as reasoning_content: leave it out"),
    "n_probs": ((0,), "ask with logprobs and top_logprobs"),
    "post_sampling_probs": ((False,), "log-probabilities are the model's, before any sampler: leave it out"),
    "samplers": ((), "/completion takes it; here leave out the options of those that are not wanted"),
    "dynatemp_range": ((0,), "dynamic temperature is not supported: leave it out"),
    "use_beam_search": ((False,), "ask for beams with num_beams"),
    "prompt_logprobs": ((0,), "/v1/completions gives them with echo and logprobs"),
    "truncate_prompt_tokens": ((), "a chat's oldest messages are left out with context_overflow: drop_oldest"),
    "use_cache": ((True,), "the KV cache is always used, and changes no text: leave it out"),
    "lora": (([],), "an adapter is a model of its own, kept by `edgegen export --keep-adapter`: name it as model"),
}
"""Not supported, but for values that ask for nothing: what to do."""


RETURN_PROGRESS = described(BOOLEAN, "A stream tells how much of the prompt has been read, as prompt_progress.")

_ELSEWHERE = ("ignore_eos", "timings_per_token", "return_progress")
"""Read by others, or below."""


def ported_schemas(own: Mapping[str, Schema]) -> dict[str, Schema]:
    """The schemas of all of them; ``own``: those of the options here, by name."""
    return {
        **{name: described(own[option], f"Another name of {option}.") for name, option in TAKEN.items()},
        "n_predict": described(
            {"type": "integer", "minimum": -2}, "llama-server's name of max_tokens; -1: all that fit."
        ),
        "repeat_last_n": described(
            {"type": "integer", "minimum": -1}, "Tokens that penalties look at: 0 none, -1 all."
        ),
        "ignore_eos": described(BOOLEAN, "No token that ends an answer is chosen."),
        "return_progress": RETURN_PROGRESS,
        "timings_per_token": described(BOOLEAN, "The answer, or each piece of its stream, has timings."),
        **no_op_schemas(NO_OPS),
        **refused_schemas(REFUSED),
    }


def read_biases(value: object, problems: list[str]) -> dict[Any, Any]:
    """llama-server's biases by token id, of pairs or of an object; false and null are minus infinity."""
    pairs: list[Any] = list(cast(dict[str, Any], value).items()) if isinstance(value, dict) else cast(list[Any], value)
    biases = dict[Any, Any]()
    for pair in pairs if isinstance(cast(object, pairs), list) else [None]:
        items = [*cast(tuple[Any, ...], pair)] if isinstance(pair, list | tuple) else []
        token, bias = items if len(items) == 2 else (None, None)
        if isinstance(token, str) and token.isascii() and token.isdecimal():
            token = int(token)
        token = whole(token)
        if isinstance(token, bool) or not isinstance(token, int):
            said = "pairs of a token id and a bias expected, such as [[15043, -1.0]]"
            problems.append(f"logit_bias: {said}" + (f"; found the text {token!r}" if isinstance(token, str) else ""))
            return {}
        biases[token] = float("-inf") if bias is False or bias == "-inf" else bias
    return biases


def with_own_names(body: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """``body``, which fits the schemas, under the names that options have here, without what has no effect."""
    params = dict[str, Any]()
    for name, value in body.items():
        if name in NO_OPS or name in REFUSED or name in _ELSEWHERE:
            continue
        option = TAKEN.get(name, name)
        if name == "logit_bias" and isinstance(value, list):
            biases = read_biases(cast(list[object], value), problems)
            params[name] = {str(token): bias for token, bias in biases.items()}  # as JSON has it
            continue
        if name == "repeat_last_n" and value < 0:
            continue
        if option in params or (option != name and option in body):
            problems.append(f"{option} and {name} would say the same: keep one of them")
        params[option] = (-1 if value < 0 else max(1, value)) if name == "n_predict" else value
    if body.get("ignore_eos"):
        if "min_new_tokens" in params:
            problems.append("ignore_eos and min_new_tokens would say the same: keep one of them")
        params["min_new_tokens"] = UNLIMITED
    return params
