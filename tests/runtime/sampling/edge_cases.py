"""Outcomes of the last values that are allowed and the first that are not: one table.

``left`` are the tokens that can still be drawn, and ``error`` is what the refusal says. Cases without logits are
refused before there are any.
"""

from dataclasses import dataclass, field
from typing import Any

INF, NAN = float("inf"), float("nan")
LOWEST, HIGHEST = -3.4028234663852886e38, 3.4028234663852886e38

FIVE = (1.0, 5.0, 3.0, 4.0, 2.0)
TIES = (2.0, 2.0, 2.0, 1.0)
ONE = (7.0,)
TWO = (0.0, 1.0)
ALL = {0, 1, 2, 3, 4}
ONE_BROKEN = "logits are NaN or infinite"
NONE_LEFT = "no token is left"


@dataclass(frozen=True)
class EdgeCase:
    """Settings, the logits they meet, the text before, and what comes of it."""

    name: str
    settings: dict[str, Any]
    logits: tuple[float, ...] = ()
    left: set[int] = field(default_factory=set[int])
    error: str = ""
    ids: tuple[int, ...] = (0,)
    step: int = 0
    do_sample: bool = True
    eos: tuple[int, ...] = (4,)
    max_new_tokens: int = 10
    unconditional: tuple[float, ...] | None = None


CASES = (
    # temperature
    EdgeCase("temperature 1e-4", {"temperature": 1e-4}, FIVE, ALL),
    EdgeCase("temperature 1e30 makes all alike", {"temperature": 1e30}, FIVE, ALL),
    EdgeCase("temperature 1e-30", {"temperature": 1e-30}, FIVE, ALL),
    EdgeCase("temperature that overflows", {"temperature": 1e-4}, (1e36, HIGHEST, 0.0), {1}),
    EdgeCase("temperature on a finite mask", {"temperature": 0.5}, (1.0, LOWEST, 2.0), {0, 2}),
    EdgeCase("temperature 0 is for greedy", {"temperature": 0}, FIVE, ALL, do_sample=False),
    EdgeCase("temperature 0 cannot be drawn with", {"temperature": 0}, FIVE, error="temperature must be a positive"),
    EdgeCase("temperature below 0", {"temperature": -1.0}, error="temperature: must be between 0 and 1e+30"),
    EdgeCase("temperature above 1e30", {"temperature": 1e31}, error="temperature: must be between 0 and 1e+30"),
    EdgeCase("temperature NaN", {"temperature": NAN}, error="temperature: must be between"),
    EdgeCase("temperature infinite", {"temperature": INF}, error="temperature: must be between"),
    EdgeCase("temperature as text", {"temperature": "hot"}, error="temperature: float expected, found 'hot'"),
    EdgeCase("temperature as a switch", {"temperature": True}, error="temperature: float expected, found True"),
    # top-k
    EdgeCase("top-k 0 is off", {"top_k": 0}, FIVE, ALL),
    EdgeCase("top-k 1", {"top_k": 1}, FIVE, {1}),
    EdgeCase("top-k of the vocabulary", {"top_k": 5}, FIVE, ALL),
    EdgeCase("top-k over the vocabulary", {"top_k": 6}, FIVE, ALL),
    EdgeCase("top-k over every vocabulary", {"top_k": 10**30}, FIVE, ALL),
    EdgeCase("top-k with ties", {"top_k": 2}, TIES, {0, 1, 2}),
    EdgeCase("top-k below 0", {"top_k": -1}, error="top_k: must be at least 0, found -1"),
    EdgeCase("half a token", {"top_k": 1.5}, error="top_k: int expected, found 1.5"),
    # top-p
    EdgeCase("top-p 0", {"top_p": 0.0}, FIVE, {1}),
    EdgeCase("top-p 1 is off", {"top_p": 1.0}, FIVE, ALL),
    EdgeCase("top-p just below 1", {"top_p": 0.9999999}, FIVE, ALL),
    EdgeCase("top-p above 1", {"top_p": 1.01}, error="top_p: must be between 0 and 1"),
    EdgeCase("top-p below 0", {"top_p": -0.01}, error="top_p: must be between 0 and 1"),
    # min-p
    EdgeCase("min-p 0 is off", {"min_p": 0.0}, FIVE, ALL),
    EdgeCase("min-p 1", {"min_p": 1.0}, FIVE, {1}),
    EdgeCase("min-p 1 with ties", {"min_p": 1.0}, TIES, {0, 1, 2}),
    EdgeCase("min-p as small as can be", {"min_p": 5e-324}, FIVE, ALL),
    EdgeCase("min-p above 1", {"min_p": 1.05}, error="min_p: must be between 0 and 1"),
    # typical-p, epsilon, eta
    EdgeCase("typical-p 1 is off", {"typical_p": 1.0}, FIVE, ALL),
    EdgeCase("typical-p with ties", {"typical_p": 0.1}, (1.0, 1.0, 1.0, 1.0), {0, 1, 2, 3}),
    EdgeCase("typical-p 0", {"typical_p": 0.0}, error="typical_p: must be above 0 and at most 1"),
    EdgeCase("epsilon that nothing reaches", {"epsilon_cutoff": 0.99}, FIVE, {1}),
    EdgeCase("epsilon that nothing reaches, with ties", {"epsilon_cutoff": 0.99}, TIES, {0, 1, 2}),
    EdgeCase("epsilon 1", {"epsilon_cutoff": 1.0}, error="epsilon_cutoff: must be at least 0 and below 1"),
    EdgeCase("eta as small as can be", {"eta_cutoff": 1e-300}, FIVE, ALL),
    EdgeCase("eta 1", {"eta_cutoff": 1}, error="eta_cutoff: must be at least 0 and below 1, found 1"),
    # top-n-sigma, XTC, mirostat
    EdgeCase("top-n-sigma without deviation", {"top_n_sigma": 1.0}, (2.0, 2.0), {0, 1}),
    EdgeCase("top-n-sigma very small", {"top_n_sigma": 1e-30}, FIVE, {1}),
    EdgeCase("top-n-sigma very large", {"top_n_sigma": 1e30}, FIVE, ALL),
    EdgeCase("top-n-sigma below 0", {"top_n_sigma": -1.0}, error="top_n_sigma: must be at least 0"),
    EdgeCase("XTC with threshold 0", {"xtc_probability": 1.0, "xtc_threshold": 0.0}, FIVE, {0}),
    EdgeCase("XTC with one top choice", {"xtc_probability": 1.0, "xtc_threshold": 0.5}, FIVE, ALL),
    EdgeCase("XTC with ties", {"xtc_probability": 1.0, "xtc_threshold": 0.2}, TIES, {2, 3}),
    EdgeCase("XTC above one half", {"xtc_threshold": 0.6}, error="xtc_threshold: must be between 0 and 0.5"),
    EdgeCase("mirostat that only takes the best", {"mirostat": 2, "mirostat_tau": 1e-9}, FIVE, {1}),
    EdgeCase("mirostat that takes all", {"mirostat": 2, "mirostat_tau": 1e9}, FIVE, ALL),
    EdgeCase("mirostat 1", {"mirostat": 1}, error="mirostat: 0 (off) or 2, not 1"),
    EdgeCase("mirostat, tau 0", {"mirostat": 2, "mirostat_tau": 0}, error="mirostat_tau: must be above 0"),
    EdgeCase("mirostat and top-k", {"mirostat": 2, "top_k": 5, "min_p": 0.1}, error="leave top_k, min_p out"),
    # penalties
    EdgeCase("repetition penalty on nothing", {"repetition_penalty": 2.0}, FIVE, ALL, ids=()),
    EdgeCase("repetition penalty very strong", {"repetition_penalty": 1e38}, (-1e30, 1.0), {1}, ids=(0,)),
    EdgeCase("repetition penalty 0", {"repetition_penalty": 0}, error="repetition_penalty: must be above 0"),
    EdgeCase("a window of no tokens", {"repetition_penalty": 5.0, "penalty_last_n": 0}, FIVE, ALL),
    EdgeCase("frequency penalty above 2", {"frequency_penalty": 2.1}, error="frequency_penalty: must be between -2"),
    EdgeCase("presence penalty below -2", {"presence_penalty": -3}, error="presence_penalty: must be between -2"),
    EdgeCase("no unigram twice", {"no_repeat_ngram_size": 1}, FIVE, {2, 4}, ids=(0, 1, 3, 0)),
    EdgeCase("no unigram twice, all used", {"no_repeat_ngram_size": 1}, TWO, error=NONE_LEFT, ids=(0, 1)),
    EdgeCase("an n-gram longer than the text", {"no_repeat_ngram_size": 10**6}, FIVE, ALL, ids=(1, 1, 1)),
    EdgeCase("DRY without a text", {"dry_multiplier": 1.0}, FIVE, ALL, ids=()),
    EdgeCase("DRY, base below 1", {"dry_base": 0.9}, error="dry_base: must be at least 1"),
    EdgeCase(
        "guidance without numbers", {"guidance_scale": NAN}, error="guidance_scale: must be finite and at least 0"
    ),
    EdgeCase("guidance", {"guidance_scale": 2.0}, TWO, {0, 1}, unconditional=(1.0, 0.0)),
    EdgeCase("guidance by a broken row", {"guidance_scale": 2.0}, TWO, error=ONE_BROKEN, unconditional=(NAN, 0.0)),
    # tokens that must or must not be
    EdgeCase("a bias that forbids", {"logit_bias": {1: -INF}}, FIVE, ALL - {1}),
    EdgeCase("a bias on no token of this vocabulary", {"logit_bias": {99: 3.0}}, FIVE, ALL),
    EdgeCase("a bias that is infinite", {"logit_bias": {1: INF}}, error="logit_bias of 1: must be finite"),
    EdgeCase("a bias on a word", {"logit_bias": {"the": 1.0}}, error="a token id is a whole number from 0 to"),
    EdgeCase("an empty bad word", {"bad_words_ids": [[]]}, error="bad_words_ids: at least 1 token id expected"),
    EdgeCase("the end is no bad word", {"bad_words_ids": [[4], [1]]}, FIVE, ALL - {1}),
    EdgeCase("all suppressed", {"suppress_tokens": [0, 1, 2, 3, 4]}, FIVE, error=NONE_LEFT),
    EdgeCase("all suppressed, greedily", {"suppress_tokens": [0, 1]}, TWO, error=NONE_LEFT, do_sample=False),
    EdgeCase("all suppressed and cut", {"suppress_tokens": [0, 1], "top_k": 1, "min_p": 0.1}, TWO, error=NONE_LEFT),
    EdgeCase("all suppressed, typical", {"suppress_tokens": [0, 1], "typical_p": 0.5}, TWO, error=NONE_LEFT),
    EdgeCase("all suppressed, sigma", {"suppress_tokens": [0, 1], "top_n_sigma": 1}, TWO, error=NONE_LEFT),
    EdgeCase("suppressed as the first token", {"begin_suppress_tokens": [1]}, FIVE, ALL - {1}),
    EdgeCase("and not after", {"begin_suppress_tokens": [1]}, FIVE, ALL, ids=(0, 0), step=1),
    EdgeCase("negative ids", {"suppress_tokens": [-1]}, error="suppress_tokens: a token id is a whole number"),
    EdgeCase("no end yet", {"min_new_tokens": 2}, FIVE, ALL - {4}, ids=(0, 0), step=1),
    EdgeCase("an end at last", {"min_new_tokens": 2}, FIVE, ALL, ids=(0, 0, 0), step=2),
    EdgeCase("no end to hold back", {"min_new_tokens": 2}, FIVE, ALL, eos=()),
    EdgeCase("nothing but the end", {"min_length": 5}, ONE, error=NONE_LEFT, eos=(0,)),
    EdgeCase("the end forced", {"forced_eos_token_id": 4}, FIVE, {4}, ids=(0,) * 10, step=9),
    EdgeCase("not yet forced", {"forced_eos_token_id": 4}, FIVE, ALL, ids=(0,) * 9, step=8),
    EdgeCase("a forced first token", {"forced_bos_token_id": 2}, FIVE, {2}),
    EdgeCase("forced and suppressed", {"forced_bos_token_id": 2, "suppress_tokens": [2]}, error="is one of suppress"),
    EdgeCase(
        "the end as certain as numbers go",
        {"exponential_decay_length_penalty": (0, 10.0), "temperature": 0.1},
        FIVE,
        {4},
        ids=(0,) * 500,
        step=499,
    ),
    EdgeCase(
        "an end held back is not made likelier",
        {"exponential_decay_length_penalty": (0, 2.0), "min_new_tokens": 50, "remove_invalid_values": True},
        FIVE,
        ALL - {4},
        ids=(0,) * 10,
        step=9,
    ),
    EdgeCase("half a decay", {"exponential_decay_length_penalty": (3,)}, error="a start and a factor expected"),
    # numbers that broke down
    EdgeCase("NaN", {"top_k": 1}, (1.0, NAN, 3.0), error=ONE_BROKEN),
    EdgeCase("NaN, greedily", {}, (1.0, NAN, 3.0), error=ONE_BROKEN, do_sample=False),
    EdgeCase("plus infinity", {"top_p": 0.5}, (1.0, INF), error=ONE_BROKEN),
    EdgeCase("minus infinity is a mask", {"top_k": 3}, (1.0, -INF), {0}),
    EdgeCase("nothing but minus infinity", {"min_p": 0.5}, (-INF, -INF), error=NONE_LEFT),
    EdgeCase("NaN removed", {"remove_invalid_values": True}, (1.0, NAN, -1.0), {0, 1, 2}),
    EdgeCase("infinity removed", {"remove_invalid_values": True, "temperature": 0.5}, (1.0, INF), {1}),
    EdgeCase("all of it removed", {"remove_invalid_values": True}, (-INF, -INF), {0, 1}),
    # tiny vocabularies
    *(
        EdgeCase(f"a vocabulary of {len(logits)}, {name} {value}", {name: value}, logits, left)
        for logits, left in ((ONE, {0}), ((0.0, 0.0), {0, 1}))
        for name, value in {
            "temperature": 0.1,
            "top_k": 1,
            "top_n_sigma": 2.0,
            "min_p": 0.9,
            "typical_p": 0.5,
            "epsilon_cutoff": 0.9,
            "eta_cutoff": 0.9,
            "mirostat": 2,
            "repetition_penalty": 1e-3,
            "renormalize_logits": True,
        }.items()
    ),
)
