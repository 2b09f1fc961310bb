"""Outcomes of bad and of extreme input, from the call of ``generate`` on: one table.

The model has a context of 32 tokens and a random distribution after every text (``RandomGraphs``). Each case says
what is asked for beside ``DEFAULTS``, and what comes of it: an error, which for options is raised before any run, or an
answer. What single settings do to given logits stands in a table of its own, ``LOGITS_CASES``, which belongs to this
one.
"""

from dataclasses import dataclass, field
from typing import Any

from edgegen.constraint import Choice, Regex
from edgegen.errors import EdgegenError, LogitsError, OptionError, OptionLogitsError, PromptTooLongError, UsageError
from tests.runtime.models import EOS, VOCAB_SIZE
from tests.runtime.sampling.edge_cases import CASES as LOGITS_CASES

__all__ = ["CASES", "CONTEXT", "DEFAULTS", "LOGITS_CASES", "PROMPT", "EdgeCase"]

CONTEXT = 32
PROMPT = (72, 105, 33)
DEFAULTS: dict[str, Any] = {"max_new_tokens": 6}
GREEDY: dict[str, Any] = {}
INF, NAN = float("inf"), float("nan")
ALL = tuple(range(VOCAB_SIZE))


@dataclass(frozen=True)
class EdgeCase:
    """A call, and what comes of it.

    Attributes:
        like: other options, which give the same ids.
        ids: what the answer is, where it can be said.
        count: how many ids each answer has.
        end: why, and by which option, the first answer ended.
        answers: how many there are.
        error: what the refusal says, all of these, and ``kind`` its class.
        wrong: a logit of the model that is put out of order after ``at`` ids of the answer.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    prompt: Any = PROMPT
    like: dict[str, Any] | None = None
    ids: tuple[int, ...] | None = None
    count: int | None = None
    end: tuple[str, str | None] | None = None
    answers: int = 1
    error: tuple[str, ...] = ()
    kind: type[EdgegenError] = OptionError
    wrong: float | None = None
    at: int = 0


def refused(name: str, options: dict[str, Any], *error: str) -> EdgeCase:
    return EdgeCase(name, options, error=error)


CASES = (
    # temperature and the cuts of sampling
    EdgeCase("temperature 0", {"temperature": 0}, like=GREEDY),
    EdgeCase("temperature 0.0 beside other options of sampling", {"temperature": 0.0, "top_k": 3, "seed": 1}, like={}),
    EdgeCase("temperature 1e-4", {"temperature": 1e-4, "seed": 1}, like=GREEDY),
    EdgeCase("temperature 1e-30", {"temperature": 1e-30, "seed": 1}, like=GREEDY),
    EdgeCase("temperature 1e30", {"temperature": 1e30, "seed": 1}, count=6),
    EdgeCase("temperature 1e30 of one token", {"temperature": 1e30, "top_k": 1, "seed": 1}, count=6),
    refused("temperature above 1e30", {"temperature": 1.1e30}, "temperature: must be between 0 and 1e+30"),
    refused("temperature below 0", {"temperature": -1e-9}, "temperature: must be between"),
    refused("temperature NaN", {"temperature": NAN}, "temperature: must be between"),
    refused("temperature infinite", {"temperature": INF}, "temperature: must be between"),
    EdgeCase("temperature None", {"temperature": None}, like={}),
    EdgeCase("top-p 0", {"top_p": 0, "seed": 1}, like=GREEDY),
    EdgeCase("top-p 1", {"top_p": 1, "seed": 1}, like={"seed": 1}),
    EdgeCase("top-p as small as can be", {"top_p": 5e-324, "seed": 1}, like=GREEDY),
    refused("top-p above 1", {"top_p": 1.0000001}, "top_p: must be between 0 and 1"),
    EdgeCase("top-k 0", {"top_k": 0, "seed": 1}, like={"top_k": VOCAB_SIZE, "seed": 1}),
    EdgeCase("top-k 1", {"top_k": 1, "seed": 1}, like=GREEDY),
    EdgeCase("top-k over the vocabulary", {"top_k": VOCAB_SIZE + 1, "seed": 1}, like={"top_k": 0, "seed": 1}),
    EdgeCase("top-k over every vocabulary", {"top_k": 10**30, "seed": 1}, like={"top_k": 0, "seed": 1}),
    refused("top-k below 0", {"top_k": -1}, "top_k: must be at least 0"),
    EdgeCase("min-p 1", {"min_p": 1, "seed": 1}, like=GREEDY),
    EdgeCase("typical-p that takes one", {"typical_p": 5e-324, "seed": 1}, count=6),
    EdgeCase("epsilon that nothing reaches", {"epsilon_cutoff": 0.999, "seed": 1}, like=GREEDY),
    EdgeCase("mirostat in a long answer", {"mirostat": 2, "seed": 1, "max_new_tokens": 25}, count=25),
    # seeds
    EdgeCase("seed 0", {"seed": 0}, count=6),
    EdgeCase("seed 2**64 - 1", {"seed": 2**64 - 1}, count=6),
    refused("seed 2**64", {"seed": 2**64}, "seed: must be between 0 and 1.84467e+19"),
    refused("a negative seed", {"seed": -1}, "seed: must be between 0"),
    refused("a seed of another kind", {"seed": 1.0}, "seed: int expected, found 1.0"),
    refused("a seed that is a switch", {"seed": True}, "seed: int expected, found True"),
    EdgeCase("no seed, greedily", {"seed": None}, like=GREEDY),
    # prompts
    EdgeCase("an empty prompt", prompt="", count=6),
    EdgeCase("a prompt of no ids", prompt=(), count=6),
    EdgeCase("a prompt exactly as long as the context", prompt=[1] * CONTEXT, count=1, end=("length", "context")),
    EdgeCase("one that leaves two tokens", prompt=[1] * (CONTEXT - 1), count=2, end=("length", "context")),
    EdgeCase(
        "one longer than the context",
        prompt=[1] * (CONTEXT + 1),
        error=("the prompt has 33 tokens, but this model's context is 32: shorten it",),
        kind=PromptTooLongError,
    ),
    EdgeCase("a text longer than the context", prompt="x" * 33, error=("33 tokens",), kind=PromptTooLongError),
    EdgeCase("no prompt", prompt=None, error=("the prompt must be a text or a list of token ids",), kind=UsageError),
    EdgeCase("ids beyond the vocabulary", prompt=[VOCAB_SIZE], error=("outside the model's",), kind=UsageError),
    EdgeCase("negative ids", prompt=[-1], error=("token id -1 of the prompt is outside",), kind=UsageError),
    EdgeCase("half a character", prompt="\ud800", error=("no Unicode text",), kind=UsageError),
    EdgeCase("a prompt of special tokens", prompt=[EOS] * 3, count=6),
    # limits
    EdgeCase("one token", {"max_new_tokens": 1}, count=1, end=("length", "max_new_tokens")),
    EdgeCase("all the context leaves", {"max_new_tokens": 30}, count=30, end=("length", "max_new_tokens")),
    EdgeCase("more than the context leaves", {"max_new_tokens": 31}, count=30, end=("length", "context")),
    EdgeCase("more than there are numbers", {"max_new_tokens": 10**400}, count=30, end=("length", "context")),
    refused("no token", {"max_new_tokens": 0}, "max_new_tokens: must be at least 1"),
    EdgeCase("less than no token", {"max_new_tokens": -5}, error=("max_new_tokens: must be at least 1, found -5",)),
    # ends
    EdgeCase("an end at once", {"eos_token_id": ALL}, count=1, end=("stop", "eos_token_id")),
    EdgeCase("no end", {"eos_token_id": ()}, count=6, end=("length", "max_new_tokens")),
    EdgeCase("an end beyond the vocabulary", {"eos_token_id": 10**6}, like=GREEDY, end=("length", "max_new_tokens")),
    refused("an end that is no id", {"eos_token_id": -1}, "eos_token_id: a token id is a whole number"),
    refused("an end that is a word", {"eos_token_id": "</s>"}, "eos_token_id: a token id is a whole number"),
    EdgeCase(
        "the first token an end, forced", {"forced_bos_token_id": EOS, "eos_token_id": EOS}, prompt=[1], ids=(EOS,)
    ),
    EdgeCase("ends held back throughout", {"eos_token_id": 7, "min_new_tokens": 99, "logit_bias": {7: 99}}, count=6),
    EdgeCase(
        "nothing but ends, held back",
        {"eos_token_id": ALL, "min_new_tokens": 1},
        error=("at token 1 of the answer, no token is left",),
        kind=OptionLogitsError,
    ),
    refused("an empty stop string", {"stop_strings": ["x", ""]}, "stop_strings: an empty string would stop at once"),
    refused("a stop string that is a number", {"stop_strings": 5}, "stop_strings: text expected, found 5"),
    EdgeCase("a stop string as long as a book", {"stop_strings": "x" * 10**5}, like=GREEDY),
    # numbers that broke down, masks
    *(
        EdgeCase(
            f"{value} in the logits of token {at + 1}{', drawn' if options else ''}",
            options,
            error=(f"at token {at + 1} of the answer, the model's logits are NaN or infinite",),
            kind=LogitsError,
            wrong=value,
            at=at,
        )
        for value in (NAN, INF)
        for at in (0, 4)
        for options in ({}, {"seed": 1, "top_p": 0.9})
    ),
    EdgeCase("NaN, removed", {"remove_invalid_values": True}, wrong=NAN, at=2, count=6),
    EdgeCase("infinity, removed", {"remove_invalid_values": True}, wrong=INF, at=2, count=6),
    EdgeCase("NaN, removed, and its logprobs", {"remove_invalid_values": True, "top_logprobs": 2}, wrong=NAN, count=6),
    EdgeCase("minus infinity is a mask", wrong=-INF, at=2, count=6),
    EdgeCase("NaN in a beam", {"num_beams": 3}, error=("at token 3 of",), kind=LogitsError, wrong=NAN, at=2),
    EdgeCase("NaN, removed, in a beam", {"num_beams": 3, "remove_invalid_values": True}, wrong=NAN, at=2, count=6),
    EdgeCase(
        "NaN beside guidance", {"guidance_scale": 2.0}, error=("at token 3 of",), kind=LogitsError, wrong=NAN, at=2
    ),
    EdgeCase("NaN in several", {"num_return_sequences": 2, "seed": 1}, error=("NaN",), kind=LogitsError, wrong=NAN),
    *(
        EdgeCase(
            f"all masked, {name}",
            {"suppress_tokens": ALL, **options},
            error=("at token 1 of the answer, no token is left to choose from: all of them are masked",),
            kind=OptionLogitsError,
        )
        for name, options in {
            "greedily": {},
            "drawn": {"seed": 1, "top_k": 5, "top_p": 0.5},
            "beams": {"num_beams": 3},
            "several": {"num_return_sequences": 3, "seed": 1},
            "guided": {"guidance_scale": 2.0},
        }.items()
    ),
    EdgeCase(
        "all masked after two",
        {"suppress_tokens": ALL[2:], "no_repeat_ngram_size": 1},
        error=("at token 3 of the answer, no token is left",),
        kind=OptionLogitsError,
    ),
    EdgeCase("all but one masked", {"suppress_tokens": ALL[1:]}, ids=(0,) * 6),
    EdgeCase("all but one masked, drawn", {"suppress_tokens": ALL[1:], "temperature": 1e30}, ids=(0,) * 6),
    EdgeCase("all but one masked, beams", {"suppress_tokens": ALL[1:], "num_beams": 3}, ids=(0,) * 6),
    # beams, several answers, guidance, log-probabilities
    EdgeCase("one beam", {"num_beams": 1}, like=GREEDY),
    EdgeCase("as many beams as there may be", {"num_beams": 64, "num_return_sequences": 64}, count=6, answers=64),
    EdgeCase("more beams than continuations", {"num_beams": 64, "suppress_tokens": ALL[2:]}, count=6),
    EdgeCase("a beam of one token", {"num_beams": 3, "max_new_tokens": 1}, like={"max_new_tokens": 1}),
    EdgeCase("beams where the context ends", {"num_beams": 3}, prompt=[1] * 32, count=1, end=("length", "context")),
    EdgeCase(
        "beams that all end at once", {"num_beams": 3, "eos_token_id": ALL}, count=1, end=("stop", "eos_token_id")
    ),
    EdgeCase("a penalty of 20", {"num_beams": 3, "length_penalty": 20}, count=6),
    EdgeCase(
        "a penalty of -20", {"num_beams": 3, "length_penalty": -20, "num_return_sequences": 3}, count=6, answers=3
    ),
    refused("no beam", {"num_beams": 0}, "num_beams: must be between 1 and 64, found 0"),
    refused("too many beams", {"num_beams": 65}, "num_beams: must be between 1 and 64, found 65"),
    refused("half a beam", {"num_beams": 1.5}, "num_beams: int expected"),
    refused("a penalty beyond numbers", {"num_beams": 2, "length_penalty": 1e5}, "length_penalty: must be between -20"),
    refused("a penalty that is not a number", {"length_penalty": NAN}, "length_penalty: must be between -20 and 20"),
    refused("stopping early by halves", {"early_stopping": 0.5}, "early_stopping: True, False or 'never' expected"),
    refused("stopping early by a number", {"early_stopping": 1}, "early_stopping: True, False or 'never' expected"),
    refused("stopping early sometimes", {"early_stopping": "sometimes"}, "early_stopping: True, False or 'never'"),
    refused("beams that draw", {"num_beams": 2, "temperature": 0.5}, "num_beams: a beam search draws nothing"),
    refused(
        "guided beams", {"num_beams": 2, "guidance_scale": 2.0}, "num_beams: guidance goes with sampling or greedy"
    ),
    refused("beams' logprobs", {"num_beams": 2, "logprobs": True}, "num_beams: log-probabilities are kept of single"),
    refused(
        "more answers than beams", {"num_beams": 2, "num_return_sequences": 3}, "no more answers than the 2 num_beams"
    ),
    EdgeCase("as many answers as there may be", {"num_return_sequences": 64, "seed": 1}, count=6, answers=64),
    EdgeCase("several answers of one token", {"num_return_sequences": 3, "top_k": 1, "seed": 1}, like={}, answers=3),
    refused("the same answer twice", {"num_return_sequences": 2}, "without sampling or num_beams all answers"),
    refused("twice at temperature 0", {"num_return_sequences": 2, "temperature": 0}, "all answers would be the same"),
    refused("no answer", {"num_return_sequences": 0}, "num_return_sequences: must be between 1 and 64"),
    refused("too many answers", {"num_return_sequences": 65, "seed": 1}, "num_return_sequences: must be between 1"),
    EdgeCase("guidance of 1", {"guidance_scale": 1}, like=GREEDY),
    EdgeCase("guidance of 0 is the negative prompt", {"guidance_scale": 0, "negative_prompt": PROMPT}, like=GREEDY),
    EdgeCase("guidance of the same prompt", {"guidance_scale": 1e6, "negative_prompt": PROMPT}, like=GREEDY),
    EdgeCase(
        "guidance as strong as numbers are", {"guidance_scale": 3.4e38}, kind=OptionLogitsError, error=("infinite",)
    ),
    EdgeCase(
        "a penalty as small as numbers are", {"repetition_penalty": 5e-324}, kind=OptionLogitsError, error=("infinite",)
    ),
    EdgeCase(
        "biases as large as numbers are",
        {"logit_bias": {2: 3.4e38}, "sequence_bias": {(2,): 3.4e38}},
        kind=OptionLogitsError,
        error=("at token 1 of the answer, the request's options make logits NaN or infinite",),
    ),
    EdgeCase(
        "biases as large as numbers are, in beams", {"logit_bias": dict.fromkeys(ALL, 3.4e38), "num_beams": 3}, count=6
    ),
    refused("negative guidance", {"guidance_scale": -1}, "guidance_scale: must be at least 0"),
    refused("a negative prompt for nothing", {"negative_prompt": "x"}, "negative_prompt is for guidance"),
    EdgeCase(
        "a negative prompt longer than the context",
        {"guidance_scale": 2.0, "negative_prompt": [1] * 33},
        error=("the negative prompt has 33 tokens",),
        kind=PromptTooLongError,
    ),
    EdgeCase(
        "a negative prompt as long as the context",
        {"guidance_scale": 2.0, "negative_prompt": [1] * 32},
        count=1,
        end=("length", "context"),
    ),
    EdgeCase("an empty negative prompt", {"guidance_scale": 2.0, "negative_prompt": ""}, count=6),
    EdgeCase(
        "a negative prompt of another vocabulary",
        {"guidance_scale": 2.0, "negative_prompt": [999]},
        error=("token id 999 of the negative prompt is outside",),
        kind=UsageError,
    ),
    EdgeCase("most logprobs", {"top_logprobs": 20}, like=GREEDY),
    EdgeCase("logprobs off beside alternatives", {"top_logprobs": 1, "logprobs": False}, like=GREEDY),
    refused("too many logprobs", {"top_logprobs": 21}, "top_logprobs: must be between 0 and 20"),
    refused("logprobs by number", {"logprobs": 5}, "logprobs: True or False expected, found 5"),
    # grammars
    EdgeCase("a choice of one", {"grammar": Choice.of(["ab"])}, ids=(97, 98), end=("stop", "grammar")),
    EdgeCase("a grammar cut short", {"grammar": Regex("a{9}"), "max_new_tokens": 3}, ids=(97,) * 3, count=3),
    EdgeCase("a choice of one, beams", {"grammar": Choice.of(["ab"]), "num_beams": 5}, ids=(97, 98)),
    EdgeCase("a choice of one, guided", {"grammar": Choice.of(["ab"]), "guidance_scale": 9.0}, ids=(97, 98)),
    refused("two grammars", {"grammar": Regex("a"), "response_format": {"type": "json_object"}}, "leave one out"),
    # several problems at once
    refused(
        "many values out of range",
        {"num_beams": 0, "length_penalty": 99, "early_stopping": 3, "seed": -1, "top_logprobs": 99, "top_p": 2},
        *("6 problems:", "num_beams:", "length_penalty:", "early_stopping:", "seed:", "top_logprobs:", "top_p:"),
    ),
    refused(
        "many contradictions",
        {"num_beams": 2, "seed": 1, "guidance_scale": 2.0, "logprobs": True, "num_return_sequences": 3},
        *("4 problems:", "draws nothing", "guidance goes with", "log-probabilities are kept", "no more answers"),
    ),
    refused(
        "contradictions of several kinds",
        {"negative_prompt": "x", "num_return_sequences": 2, "forced_bos_token_id": 3, "suppress_tokens": [3]},
        *("3 problems:", "negative_prompt is for guidance", "all answers would be the same", "is one of suppress"),
    ),
    refused(
        "names of no option", {"num_beam": 2, "nbest": 3}, "'num_beam' is not an option (did you mean 'num_beams'?)"
    ),
    refused("a name that others have", {"stop": "a"}, "stop: texts that end the answer are stop_strings here"),
    refused("several answers by another name", {"n": 2}, "n: several answers are num_return_sequences here"),
    refused("time without end", {"max_time": INF}, "max_time: must be finite and above 0, found inf"),
    refused(
        "sampling switched off and asked for", {"do_sample": False, "top_k": 3, "seed": 1}, "contradicts top_k, seed"
    ),
    refused("what is not supported", {"num_beams": 4, "num_beam_groups": 2}, "diverse beam search is not supported"),
    refused(
        "ids of several options beyond the vocabulary",
        {"logit_bias": {300: 1.0}, "suppress_tokens": [400], "bad_words_ids": [[500]]},
        *("3 problems:", "logit_bias: token id 300", "suppress_tokens: token id 400", "bad_words_ids: token id 500"),
    ),
)
