"""The table of options: name, group, type, range and help of every generation and engine option.

It feeds the checks of :class:`~edgegen.GenerationOptions` and :class:`~edgegen.EngineOptions`, the flags of every verb
and ``docs/options.md``. Defaults are those of the two classes. None leaves any option out: it is at its default.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from edgegen.options.kinds import (
    Biases,
    BundleName,
    CheckedLater,
    Functions,
    Kind,
    Number,
    OneOf,
    Sha256,
    StartAndFactor,
    StopPattern,
    Switch,
    Texts,
    TokenId,
    TokenIds,
    TokenSequences,
)

Group = Literal[
    "Prompt",
    "Sampling",
    "Penalties",
    "Stopping",
    "Constrained output",
    "Several answers",
    "Speed and memory",
    "Output",
]
"""The groups of a help text."""

DEFAULT_NGRAM_SIZE = 5
"""More change nothing, fewer make copied texts come later (``python -m bench.studies.speculation --replay``)."""

DEFAULT_ASSISTANT_TOKENS = 8

MOST_PROPOSED = 32
"""Most tokens of a proposal. The cache of a layer with a sliding window keeps so many positions to go back to."""

MOST_TOP_LOGPROBS = 20
"""Alternatives that may be asked for at each position, as in OpenAI's API."""

MOST_SEQUENCES = 64
"""Beams, and answers to one prompt: each is a sequence with a KV cache of its own."""

_ANSWERING = ("generate", "chat", "batch")
_RUNNING = ("generate", "chat", "batch", "score", "eval", "bench", "serve")
_OPENING = ("generate", "chat", "batch", "score", "eval", "serve")


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """
    Attributes:
        name: in Python, in files and in JSON; the flag has dashes in place of underscores.
        help: one sentence.
        verbs: those of the command line that have it as a flag.
        note: what else is to know, for the documentation.
        default: what holds without it, where the default value does not say so itself.
        metavar: what stands for the value in a help text.
        flag: its flag, where that is not the name with dashes.
        short: the flag's one-letter name.
        common: whether the short help text has it.
        draws: whether it only matters for sampling, and so asks for it.
        caller_only: whether only Python can give it: no file may, and it is no plain value.
    """

    name: str
    group: Group
    kind: Kind
    help: str
    verbs: tuple[str, ...] = ()
    _: KW_ONLY
    note: str = ""
    default: str = ""
    metavar: str = ""
    flag: str = ""
    short: str = ""
    common: bool = False
    draws: bool = False
    caller_only: bool = False


GENERATION_OPTIONS: tuple[Option, ...] = (
    Option(
        "repetition_penalty",
        "Penalties",
        Number(float, 0, above=True),
        "Above 1: repeat less.",
        _ANSWERING,
        note="Applies to the tokens of prompt and answer; 1 is off.",
        common=True,
    ),
    Option(
        "frequency_penalty",
        "Penalties",
        Number(float, -2, 2),
        "Subtract this for each time a token was generated.",
        _ANSWERING,
    ),
    Option(
        "presence_penalty",
        "Penalties",
        Number(float, -2, 2),
        "Subtract this once if a token was generated.",
        _ANSWERING,
    ),
    Option(
        "penalty_last_n",
        "Penalties",
        Number(int, 0),
        "The three penalties look at the last n tokens only.",
        _ANSWERING,
        note="Of prompt and answer; left out, each looks at what it is defined over.",
    ),
    Option(
        "dry_multiplier",
        "Penalties",
        Number(float, 0),
        "DRY: penalty on continuing a repetition; 0 is off.",
        _ANSWERING,
    ),
    Option("dry_base", "Penalties", Number(float, 1), "DRY: how fast it grows with the repetition.", _ANSWERING),
    Option(
        "dry_allowed_length",
        "Penalties",
        Number(int, 1),
        "DRY: the shortest repetition that is penalized.",
        _ANSWERING,
    ),
    Option(
        "dry_penalty_last_n",
        "Penalties",
        Number(int, 0),
        "DRY looks at the last n tokens only.",
        _ANSWERING,
        note="Of prompt and answer; left out, at all of them.",
    ),
    Option(
        "no_repeat_ngram_size",
        "Penalties",
        Number(int, 0),
        "No n tokens in a row twice; 0 is off.",
        _ANSWERING,
    ),
    Option("forced_bos_token_id", "Penalties", TokenId(), "The first token behind a prompt of one token."),
    Option("remove_invalid_values", "Sampling", Switch(), "Make NaN and infinite logits finite: no error."),
    Option(
        "temperature",
        "Sampling",
        Number(float, 0, 1e30),
        "Divide the logits by this; 0 is greedy.",
        _ANSWERING,
        common=True,
        draws=True,
    ),
    Option(
        "top_k",
        "Sampling",
        Number(int, 0),
        "Keep the k most likely tokens; 0 keeps all.",
        _ANSWERING,
        common=True,
        draws=True,
    ),
    Option(
        "top_p",
        "Sampling",
        Number(float, 0, 1),
        "Nucleus sampling up to this probability.",
        _ANSWERING,
        note="Keep the most likely tokens up to this total probability; 1 is off.",
        common=True,
        draws=True,
    ),
    Option(
        "min_p",
        "Sampling",
        Number(float, 0, 1),
        "Drop tokens below this share of the best.",
        _ANSWERING,
        note="That is, tokens less likely than this times the most likely one; 0 is off.",
        common=True,
        draws=True,
    ),
    Option(
        "typical_p",
        "Sampling",
        Number(float, 0, 1, above=True),
        "Locally typical sampling: keep the most typical tokens up to this total probability.",
        _ANSWERING,
        note="1 is off.",
        draws=True,
    ),
    Option(
        "epsilon_cutoff",
        "Sampling",
        Number(float, 0, 1, below=True),
        "Keep tokens at least this likely; 0 is off.",
        _ANSWERING,
        draws=True,
    ),
    Option(
        "eta_cutoff",
        "Sampling",
        Number(float, 0, 1, below=True),
        "Eta sampling: an epsilon cutoff that is lower where the distribution is flat.",
        _ANSWERING,
        note="0 is off.",
        draws=True,
    ),
    Option(
        "top_n_sigma",
        "Sampling",
        Number(float, 0),
        "Keep logits within n standard deviations of the highest; 0 is off.",
        _ANSWERING,
        draws=True,
    ),
    Option(
        "xtc_probability",
        "Sampling",
        Number(float, 0, 1),
        "XTC: how often the top choices but the last are left out; 0 is off.",
        _ANSWERING,
        draws=True,
    ),
    Option(
        "xtc_threshold",
        "Sampling",
        Number(float, 0, 0.5),
        "XTC: the probability from which a token is a top choice.",
        _ANSWERING,
        draws=True,
    ),
    Option(
        "mirostat",
        "Sampling",
        OneOf((0, 2), "0 (off) or 2, not"),
        "2: mirostat version 2 in place of all cutoffs; 0 is off.",
        _ANSWERING,
        note="It switches off the cutoffs that are not given beside it; a cutoff that is given contradicts it.",
        draws=True,
    ),
    Option(
        "mirostat_tau",
        "Sampling",
        Number(float, 0, above=True),
        "Mirostat: target surprise, in bits.",
        _ANSWERING,
        draws=True,
    ),
    Option(
        "mirostat_eta",
        "Sampling",
        Number(float, 0, 1, above=True),
        "Mirostat: learning rate.",
        _ANSWERING,
        draws=True,
    ),
    Option(
        "seed",
        "Sampling",
        Number(int, 0, 2**64 - 1),
        "Same seed, same text.",
        _ANSWERING,
        note="On the same bundle and machine. Left out, each request draws a new seed.",
        default="random",
        common=True,
        draws=True,
    ),
    Option(
        "do_sample",
        "Sampling",
        Switch(),
        "Sample, or take the most likely token (greedy).",
        _ANSWERING,
        note="Left out, it is on if any sampling option is not at its default.",
        default="on with a sampling option",
        flag="--do-sample/--no-do-sample",
    ),
    Option(
        "guidance_scale",
        "Sampling",
        Number(float, 0),
        "Classifier-free guidance: above 1 moves away from the negative prompt.",
        ("generate",),
        note="Below 1 moves towards it; 1 is off.",
    ),
    Option(
        "negative_prompt",
        "Sampling",
        CheckedLater("text or token ids"),
        "What guidance moves away from.",
        ("generate",),
        default="the prompt's last token",
        metavar="TEXT",
        caller_only=True,
    ),
    Option("renormalize_logits", "Sampling", Switch(), "Turn logits into log-probabilities in the end."),
    Option(
        "logit_bias",
        "Penalties",
        Biases(),
        "Add BIAS to the logit of token ID; may be repeated.",
        _ANSWERING,
        metavar="ID=BIAS",
    ),
    Option(
        "sequence_bias",
        "Penalties",
        Biases(sequences=True),
        "Add to the logit of a sequence's last token, behind its other tokens.",
        note="`[[ids, bias], …]` may stand for the mapping.",
    ),
    Option("dry_sequence_breakers", "Penalties", TokenIds(), "DRY: token ids that no repetition reaches across."),
    Option("bad_words_ids", "Penalties", TokenSequences(), "Token sequences that are never generated."),
    Option(
        "forced_eos_token_id",
        "Stopping",
        TokenIds(),
        "The token, or one of several, that must be the last within max_new_tokens.",
    ),
    Option(
        "exponential_decay_length_penalty",
        "Stopping",
        StartAndFactor(),
        "(start, factor): after start tokens, the end becomes likelier by the factor.",
    ),
    Option(
        "suppress_tokens",
        "Penalties",
        TokenIds(),
        "Never generate this token id; may be repeated.",
        _ANSWERING,
        metavar="ID",
    ),
    Option("begin_suppress_tokens", "Penalties", TokenIds(), "Token ids that are never generated first."),
    Option(
        "logits_processor",
        "Penalties",
        Functions(),
        "Your own functions: function(ids, logits) -> logits.",
        caller_only=True,
    ),
    Option(
        "max_new_tokens",
        "Stopping",
        Number(int, 1),
        "Most tokens to generate.",
        _ANSWERING,
        note="Clipped to what the model's context leaves.",
        short="-n",
        common=True,
    ),
    Option(
        "max_length",
        "Stopping",
        Number(int, 1),
        "Most tokens of prompt and answer; the smaller limit counts.",
        _ANSWERING,
        note="Given without max_new_tokens, it is the only limit.",
    ),
    Option(
        "max_time",
        "Stopping",
        Number(float, 0, above=True),
        "Stop after so many seconds.",
        _ANSWERING,
        note="The token that is being computed still counts.",
        metavar="SECONDS",
    ),
    Option("min_length", "Stopping", Number(int, 0), "Least tokens of prompt and answer together."),
    Option("min_new_tokens", "Stopping", Number(int, 0), "Least tokens to generate.", _ANSWERING),
    Option(
        "eos_token_id",
        "Stopping",
        TokenIds(),
        "Stop at this token id; may be repeated.",
        _ANSWERING,
        note="With an empty list, no such id stops it.",
        default="the bundle's",
        metavar="ID",
    ),
    Option(
        "stop_strings",
        "Stopping",
        Texts(),
        "Stop before this text; may be repeated.",
        _ANSWERING,
        metavar="TEXT",
        common=True,
    ),
    Option(
        "stop_token_ids",
        "Stopping",
        TokenIds(),
        "Stop at this token id too; may be repeated.",
        _ANSWERING,
        note="Beside eos_token_id.",
        metavar="ID",
    ),
    Option(
        "stop_regex",
        "Stopping",
        StopPattern(),
        "Stop where this regular expression matches.",
        _ANSWERING,
        note="Python's syntax, without lookaround, backreferences, conditional, atomic and possessive parts.",
        metavar="PATTERN",
        common=True,
    ),
    Option(
        "include_stop_str_in_output",
        "Stopping",
        Switch(),
        "Keep the stop string or the match in the text.",
        _ANSWERING,
    ),
    Option(
        "stopping_criteria",
        "Stopping",
        Functions(alone=True),
        "Your own functions: function(ids) -> bool, asked after each token.",
        caller_only=True,
    ),
    Option(
        "response_format",
        "Constrained output",
        CheckedLater("OpenAI's format, a pydantic class or a constraint"),
        "What the text must be, as OpenAI's API says it.",
        note="`{'type': 'json_object'}`, or a `json_schema`.",
        caller_only=True,
    ),
    Option(
        "grammar",
        "Constrained output",
        CheckedLater("text of a grammar, or a constraint"),
        "A Lark or GBNF grammar that the text must keep to.",
        note="On the command line: one of `--json-schema`, `--regex`, `--grammar` and `--choice`.",
        caller_only=True,
    ),
    Option(
        "num_return_sequences",
        "Several answers",
        Number(int, 1, MOST_SEQUENCES),
        "Number of answers.",
        ("generate",),
        note="Each is sampled with a seed of its own, or they are the best beams. Where a constraint leaves fewer "
        "beams, there are fewer answers.",
        common=True,
    ),
    Option(
        "num_beams",
        "Several answers",
        Number(int, 1, MOST_SEQUENCES),
        "Beam search with so many beams.",
        ("generate",),
        note="It does not sample; 1 is off.",
        common=True,
    ),
    Option(
        "length_penalty",
        "Several answers",
        Number(float, -20, 20),
        "Beam search: above 0 favours long answers.",
        ("generate",),
        note="A beam's score is divided by its length to this power.",
    ),
    Option(
        "early_stopping",
        "Several answers",
        OneOf((False, True, "never"), "True, False or 'never' expected, found"),
        "Beam search: when it may end.",
        ("generate",),
        note="True: with as many answers as beams; False: once a better one is unlikely; never: once it is impossible.",
        default="false",
    ),
    Option(
        "prompt_lookup_num_tokens",
        "Speed and memory",
        Number(int, 1, MOST_PROPOSED),
        "Prompt lookup: propose so many tokens where the text repeats itself.",
        ("generate", "chat"),
        note="Speculative decoding: the proposals are verified in one step, and the text stays the model's own.",
        default="off",
    ),
    Option(
        "max_matching_ngram_size",
        "Speed and memory",
        Number(int, 2, MOST_PROPOSED),
        "Prompt lookup: the longest n-gram to look for.",
        ("generate", "chat"),
        note="Then for shorter ones, down to 2.",
        default=str(DEFAULT_NGRAM_SIZE),
    ),
    Option(
        "num_assistant_tokens",
        "Speed and memory",
        Number(int, 1, MOST_PROPOSED),
        "Draft model: most tokens of a proposal.",
        ("generate", "chat"),
        default=str(DEFAULT_ASSISTANT_TOKENS),
    ),
    Option(
        "use_cache",
        "Speed and memory",
        Switch(),
        "Rebuild the KV cache at every step (slow, for debugging).",
        ("generate", "chat"),
        note="This is what False asks for.",
        flag="--no-use-cache",
    ),
    Option(
        "context_overflow",
        "Prompt",
        OneOf(("error", "drop_oldest"), "'error' or 'drop_oldest' expected, found"),
        "What to do with a chat that does not fit the context.",
        ("generate", "chat"),
        note="`drop_oldest` leaves out the oldest turns, keeps the system message, and keeps room for the answer: "
        "`max_new_tokens`, or a quarter of the context if that is less. The result says how many `dropped_messages`.",
    ),
    Option(
        "priority",
        "Speed and memory",
        Number(int, -(2**31), 2**31 - 1),
        "Which request is admitted and prefilled first: the lower.",
    ),
    Option(
        "logprobs",
        "Output",
        Switch(),
        "With --json: the log-probability of each token.",
        ("generate",),
        note="As the model gives it, before any sampling option.",
    ),
    Option(
        "top_logprobs",
        "Output",
        Number(int, 0, MOST_TOP_LOGPROBS),
        "With --json: log-probabilities of so many alternatives.",
        ("generate", "score"),
        note="It asks for logprobs.",
    ),
)

ENGINE_OPTIONS: tuple[Option, ...] = (
    Option(
        "device",
        "Speed and memory",
        OneOf(("auto", "cpu", "cuda"), "'auto', 'cpu' or 'cuda', not"),
        "Run on the CPU, or on a GPU with CUDA.",
        _OPENING,
        note="`auto` takes a GPU where ONNX Runtime was built for one, and says why where it cannot. On a GPU the KV "
        "cache is float16: `--kv` and `--kernels` are the CPU's. See [GPUs](gpus.md).",
    ),
    Option(
        "threads",
        "Speed and memory",
        Number(int, 1, 1024),
        "Threads to compute with.",
        _RUNNING,
        note="One per physical core is the fastest.",
        default="physical cores",
        common=True,
    ),
    Option(
        "prefill_chunk",
        "Speed and memory",
        Number(int, 2),
        "Chunked prefill: most prompt tokens per step.",
        ("generate", "chat", "bench", "serve"),
        note="Smaller chunks need less memory, and others wait less for the next step.",
    ),
    Option(
        "kernels",
        "Speed and memory",
        OneOf(("auto", "stock"), "'auto' or 'stock', not"),
        "Use edgegen's own kernels, or 'stock': ONNX Runtime's.",
        _RUNNING,
        note="`auto` uses them where there is a library for this platform, also for a draft model. "
        "See [Kernels](kernels.md).",
    ),
    Option(
        "draft",
        "Speed and memory",
        BundleName(),
        "Draft model for speculative decoding.",
        ("generate", "chat", "serve"),
        note="A smaller model with the same tokenizer; its proposals are verified, and the text stays the model's own.",
        metavar="BUNDLE",
        common=True,
    ),
    Option(
        "kv",
        "Speed and memory",
        OneOf(("float32", "int8"), "'float32' or 'int8', not"),
        "KV cache type; int8 is 4x smaller.",
        _RUNNING,
        note="With int8, a text does not depend on how its prompt was chunked.",
        default="the bundle's",
        common=True,
    ),
    Option(
        "max_batch_size",
        "Speed and memory",
        Number(int, 1, MOST_SEQUENCES),
        "Continuous batching: most sequences that run together.",
        ("batch", "serve"),
        note="Beams and several answers count each; a request of more runs by itself.",
        common=True,
    ),
    Option(
        "kv_budget",
        "Speed and memory",
        Number(int, 1),
        "Most bytes of KV cache of all running requests.",
        note="A request that does not fit waits.",
        default="half the memory that is free when the model is loaded",
    ),
    Option(
        "prefix_cache",
        "Speed and memory",
        Number(int, 0),
        "Prefix caching: bytes of KV cache to keep of finished requests.",
        ("serve",),
        note="0 is off. Left out, a finished request's KV cache serves new prompts that share a prefix with it for as "
        "long as its slot is not needed; a number keeps so many bytes beyond that. `edgegen serve` keeps half as many "
        "bytes as the KV cache has.",
    ),
    Option(
        "deterministic",
        "Speed and memory",
        Switch(),
        "Bit-reproducible output whatever else is in the batch.",
        (*_ANSWERING, "serve"),
        note="Always on with edgegen's kernels or an int8 KV cache, where it costs nothing. With ONNX Runtime's "
        "operators and float32, proposals are not used, and of an answer that goes on only the prompt's KV cache is "
        "used again.",
        default="off",
        flag="--deterministic/--no-deterministic",
    ),
    Option(
        "verify",
        "Prompt",
        OneOf(("once", "always", "never"), "'once', 'always' or 'never', not"),
        "Compare the bundle's files with their hashes.",
        _OPENING,
        note="`once` does not read files again that have passed before and have not changed since.",
    ),
    Option(
        "expect_sha256",
        "Prompt",
        Sha256(),
        "Run no bundle but the one with this hash.",
        _OPENING,
        note="`edgegen info` and `edgegen list --json` show it. A draft model is not compared; a server "
        "serves that bundle alone. See [Security](security.md).",
        metavar="HASH",
    ),
)

OPTIONS = {option.name: option for option in (*GENERATION_OPTIONS, *ENGINE_OPTIONS)}
"""Every option by its name."""
