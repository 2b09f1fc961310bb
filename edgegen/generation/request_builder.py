"""RequestBuilder: from a prompt and options to a request that is ready to run."""

import secrets
from collections.abc import Sequence as Ids
from functools import cached_property
from operator import index
from time import perf_counter
from typing import cast

from edgegen.constraint import (
    Constraint,
    ConstraintCompiler,
    ConstraintWatch,
    Grammar,
    RowConstraint,
    read_response_format,
)
from edgegen.constraint.compiler import CompiledConstraint
from edgegen.engine.beam_group import BeamGroup
from edgegen.engine.beam_search import BeamSearch, Stops
from edgegen.engine.finish import StopMatch
from edgegen.engine.guidance_group import GuidanceGroup
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams, Watch
from edgegen.errors import ConstraintError, OptionError, PromptTooLongError, UsageError
from edgegen.generation.beam_stops import BeamStops
from edgegen.generation.request import Answer, Request
from edgegen.generation.session import Session
from edgegen.options.generation import GenerationOptions
from edgegen.options.table import DEFAULT_ASSISTANT_TOKENS, DEFAULT_NGRAM_SIZE
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.logprobs import LogprobRecorder
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.draft_model import DraftModel
from edgegen.speculation.draft_proposer import DraftProposer
from edgegen.speculation.ngram_proposer import NGramProposer
from edgegen.speculation.proposer import Proposer
from edgegen.stopping.length_limit import LengthLimit, length_limit
from edgegen.stopping.text_watcher import TextWatcher
from edgegen.tokenizer import StreamingDetokenizer, Tokenizer

Prompt = str | Ids[int]
"""A text, or the token ids it would have."""


class RequestBuilder:
    """Knows the model's limits and its tokenizer.

    Attributes:
        bos_token_id: what an empty prompt stands for.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        vocab_size: int,
        max_context: int,
        eos_token_ids: Ids[int],
        bos_token_id: int | None,
        draft: DraftModel | None = None,
        *,
        sure: bool = False,
    ) -> None:
        """
        Args:
            eos_token_ids: those of the model, where the options name none.
            draft: who guesses, if somebody.
            sure: of a session, take over only what would be computed with the same bits.
        """
        self.sure = sure
        self.bos_token_id = bos_token_id
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._max_context = max_context
        self._eos_token_ids = tuple(eos_token_ids)
        self._draft = draft
        self._spelled: dict[int, str] = {}

    def encode(self, prompt: Prompt, what: str = "the prompt") -> list[int]:
        """The ids of a prompt; those of an empty one are the model's beginning-of-sequence id.

        ``what`` is what messages call it.

        Raises:
            UsageError: neither text nor ids, a text without a tokenizer, an empty prompt without such an id, or ids
                outside the vocabulary.
        """
        return self.begin(self.read(prompt, what), what)

    def read(self, text: Prompt, what: str, *, framed: bool = True) -> list[int]:
        """The ids of a text, none of an empty one; ``what`` names it in errors.

        ``framed``: between the tokens that the tokenizer puts around a text.

        Raises:
            UsageError: neither text nor ids, a text without a tokenizer, or ids outside the vocabulary.
        """
        if isinstance(text, str):
            if self._tokenizer is None:
                raise UsageError(f"this bundle has no tokenizer: give {what} as a list of token ids.")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise UsageError(f"{what} is no Unicode text: character {error.start} is half of one.") from None
            ids = self._tokenizer.encode(text, add_special_tokens=framed)
        else:
            try:
                if isinstance(text, bytes | bytearray):  # whole numbers too, but nobody's token ids
                    raise TypeError
                ids = [index(token) for token in text]
            except TypeError:
                raise UsageError(f"{what} must be a text or a list of token ids.") from None
        outside = [token for token in ids if not 0 <= token < self._vocab_size]
        if outside:
            raise UsageError(
                f"token id {outside[0]} of {what} is outside the model's vocabulary of {self._vocab_size}."
            )
        return ids

    def begin(self, ids: list[int], what: str) -> list[int]:
        """``ids``, or where there are none the model's beginning-of-sequence id.

        Raises:
            UsageError: it has none.
        """
        if ids:
            return ids
        if self.bos_token_id is None:
            raise UsageError(f"{what} is empty, and this model has no token to begin a text with: give some text.")
        return [self.bos_token_id]

    def encode_behind(self, session: Session, prompt: Prompt) -> list[int]:
        """The ids of all that a session holds, and of ``prompt`` behind it.

        Raises:
            UsageError: as :meth:`encode`; or there is no prompt, and the last answer ended by itself.
        """
        if not session.ids:
            return self.encode(prompt)
        new = self.read(prompt, "the prompt", framed=False)
        if not new and not session.can_continue:
            raise UsageError("the session's last answer ended by itself: give a prompt to go on with.")
        return [*session.ids, *new]

    def build(self, prompt: Prompt, options: GenerationOptions, session: Session | None = None) -> Request:
        """``session`` lends the keys and values of what it has in common with the prompt.

        If they are the same, and its last answer was cut short, that goes on.

        Raises:
            OptionError: a session has one answer, and more are asked for.
            UsageError: the prompt cannot be encoded, or the options need a tokenizer that the bundle lacks.
            PromptTooLongError: the prompt does not fit the model's context.
            OptionError: an option does not fit the vocabulary, or a constraint cannot be enforced.
        """
        ids = self.encode(prompt)
        negative = self._negative(ids, options)
        # The last token generated is never fed back, so it needs no room.
        room = self._max_context - max(len(ids), len(negative)) + 1
        if room < 1:
            longer = "prompt" if len(ids) >= len(negative) else "negative prompt"
            raise PromptTooLongError(
                f"the {longer} has {max(len(ids), len(negative))} tokens, but this model's context is "
                f"{self._max_context}: shorten it."
            )
        for name in ("stop_strings", "stop_regex"):
            if getattr(options, name) and self._tokenizer is None:
                raise UsageError(f"{name} needs a tokenizer, and this bundle has none.")
        if options.num_assistant_tokens is not None and self._draft is None:
            raise UsageError(
                "num_assistant_tokens is for a draft model, and there is none: load one with EngineOptions(draft=…), "
                "or leave it out."
            )
        options.check_vocabulary(self._vocab_size)
        limit = length_limit(
            len(ids),
            len(ids) + room - 1,
            max_new_tokens=options.max_new_tokens,
            max_length=options.max_length,
        )
        if session is not None and (options.num_beams > 1 or options.num_return_sequences > 1 or negative):
            raise OptionError(
                "a session goes on with one answer: leave out num_beams, num_return_sequences and guidance"
            )
        request = _Assembly(self, ids, negative, options, limit, session).request()
        request.group.priority = options.priority
        return request

    def end_of_text(self, options: GenerationOptions) -> tuple[int, ...]:
        """The ids that end a text under ``options``."""
        return self._eos_token_ids if options.eos_token_id is None else options.eos_token_id

    def watcher(self, ids: Ids[int], options: GenerationOptions) -> TextWatcher:
        """For an answer to the prompt ``ids``."""
        return TextWatcher(
            StreamingDetokenizer(self._tokenizer, prompt_ids=ids) if self._tokenizer else None,
            options.stop_strings,
            self.end_of_text(options),
            stop_token_ids=options.stop_token_ids,
            stop_regex=options.stop_regex,
            include_stop_str_in_output=options.include_stop_str_in_output,
            stopping_criteria=options.stopping_criteria,
            prompt_ids=ids,
        )

    def constraint(self, options: GenerationOptions) -> CompiledConstraint | None:
        """What the text must be; compiled once for each constraint.

        Raises:
            ConstraintError: it cannot be enforced, or is none.
        """
        grammar = options.grammar
        if isinstance(grammar, str):
            constraint = Grammar(grammar)
        elif grammar is None:
            constraint = read_response_format(options.response_format)
        elif callable(getattr(grammar, "source", None)):
            constraint = cast(Constraint, grammar)
        else:
            raise ConstraintError(
                f"grammar is the text of a grammar or a constraint, not {type(grammar).__name__}; schemas and models "
                "are for response_format"
            )
        return None if constraint is None else self._compiler.compile(constraint)

    def guessers(
        self, ids: Ids[int], options: GenerationOptions, pipeline: LogitsPipeline, sampler: Sampler
    ) -> list[Proposer]:
        """Who guesses an answer to the prompt ``ids``, chosen by ``pipeline`` and ``sampler``."""
        proposers = list[Proposer]()
        if options.prompt_lookup_num_tokens is not None:
            size = options.max_matching_ngram_size or DEFAULT_NGRAM_SIZE
            proposers.append(NGramProposer(options.prompt_lookup_num_tokens, size))
        if self._draft is not None:
            draft = DraftProposer(
                self._draft,
                pipeline,
                sampler,
                prompt_length=len(ids),
                vocab_size=self._vocab_size,
                longest=options.num_assistant_tokens or DEFAULT_ASSISTANT_TOKENS,
            )
            proposers.append(draft)
        return proposers

    def spell(self, token_id: int) -> str:
        """The text of a token by itself."""
        if token_id not in self._spelled:
            tokenizer = self._tokenizer
            self._spelled[token_id] = tokenizer.decode([token_id], skip_special_tokens=False) if tokenizer else ""
        return self._spelled[token_id]

    @cached_property
    def _compiler(self) -> ConstraintCompiler:
        if self._tokenizer is None:
            raise UsageError("a constraint needs a tokenizer, and this bundle has none.")
        return ConstraintCompiler(self._tokenizer, self._vocab_size)

    def _negative(self, ids: list[int], options: GenerationOptions) -> list[int]:
        """The ids of the negative prompt; without one, as in transformers, the prompt's last."""
        if options.guidance_scale == 1:
            return []
        return (
            ids[-1:] if options.negative_prompt is None else self.encode(options.negative_prompt, "the negative prompt")
        )


class _Assembly:
    """The parts of one request."""

    def __init__(
        self,
        builder: RequestBuilder,
        ids: list[int],
        negative: list[int],
        options: GenerationOptions,
        limit: LengthLimit,
        session: Session | None,
    ) -> None:
        self._builder, self._ids, self._negative, self._options = builder, ids, negative, options
        self._eos = builder.end_of_text(options)
        self._session = session
        goes_on = session is not None and session.can_continue and session.ids == tuple(ids)
        self._answer_start = session.answer_start if session is not None and goes_on else len(ids)
        self._seed = self._drawn_seed() if options.do_sample else None
        self._max_new_tokens = limit.new_tokens
        self._limit = StopMatch("length", None, limit.rule)
        self._deadline = None if options.max_time is None else perf_counter() + options.max_time
        self._constraint = builder.constraint(options)

    def request(self) -> Request:
        options = self._options
        rows = [self._answer(n) for n in range(max(options.num_beams, options.num_return_sequences))]
        sequences = _sharing([row.sequence for row in rows])
        if options.num_beams > 1:
            beams = BeamGroup(sequences, self._search(), options.num_return_sequences)
            answers = [Answer(choice, row.watcher) for choice, row in zip(beams.choices, rows, strict=False)]
            return Request(beams, answers, self._seed)
        if self._negative:
            companions = _sharing([self._companion() for _ in rows])
            return Request(GuidanceGroup(sequences, companions), rows, self._seed)
        return Request(SequenceGroup(sequences), rows, self._seed)

    def _answer(self, n: int) -> Answer:
        """The ``n``-th answer, as a row."""
        options, builder = self._options, self._builder
        watcher, constraint = builder.watcher(self._ids[: self._answer_start], options), self._row_constraint()
        recorder = LogprobRecorder(builder.spell, options.top_logprobs) if options.logprobs else None
        seed = (self._seed or 0) + (n << 64)  # an option's seed has 64 bits; those above tell the rows apart
        pipeline = LogitsPipeline.from_settings(
            options,
            do_sample=bool(options.do_sample),
            eos_token_ids=self._eos,
            max_new_tokens=self._max_new_tokens,
            seed=seed,
            first=[constraint] if constraint else [],
        )
        watch = _watch(watcher, constraint)
        if self._answer_start < len(self._ids):
            self._catch_up(watch, pipeline)
            watcher.take_text()
        sampler = Sampler(seed=seed, do_sample=bool(options.do_sample))
        params = SequenceParams(
            prompt_length=len(self._ids),
            answer_start=self._answer_start,
            max_new_tokens=self._max_new_tokens,
            pipeline=pipeline,
            sampler=sampler,
            watch=watch,
            prefix=self._session.beginning(self._ids, sure=builder.sure) if self._session else None,
            keep=self._session is not None,
            use_cache=options.use_cache,
            record=recorder.record if recorder else None,
            deadline=self._deadline,
            limit=self._limit,
        )
        sequence = Sequence(list(self._ids), params, proposers=self._proposers(constraint, pipeline, sampler))
        return Answer(sequence, watcher, recorder)

    def _catch_up(self, watch: Watch, pipeline: LogitsPipeline) -> None:
        """Show what was said of an answer to those who watch it, before it goes on.

        Raises:
            UsageError: with these options it has ended already.
        """
        assert self._session is not None
        if match := watch(self._ids[self._answer_start :]):
            raise UsageError(f"with these options ({match.rule}) the session's last answer has ended: give a prompt.")
        pipeline.resume(self._session.sampler_state)

    def _drawn_seed(self) -> int:
        """The options' seed, or the session's, or a new one."""
        if self._options.seed is not None:
            return self._options.seed
        known = self._session.seed if self._session else None
        return secrets.randbits(63) if known is None else known

    def _proposers(
        self, constraint: RowConstraint | None, pipeline: LogitsPipeline, sampler: Sampler
    ) -> tuple[Proposer, ...]:
        """What is forced comes before what is guessed. Rows that go hand in hand have neither."""
        if self._negative or self._options.num_beams > 1 or pipeline.stateful:
            return ()
        guessers = self._builder.guessers(self._ids, self._options, pipeline, sampler)
        return (*([constraint] if constraint else []), *guessers)

    def _companion(self) -> Sequence:
        """A row behind the negative prompt, which takes over what is chosen beside it."""
        params = SequenceParams(
            prompt_length=len(self._negative),
            max_new_tokens=self._max_new_tokens,
            pipeline=LogitsPipeline(),
            sampler=Sampler(seed=0, do_sample=False),
            watch=lambda ids: None,
            use_cache=self._options.use_cache,
        )
        return Sequence(list(self._negative), params)

    def _search(self) -> BeamSearch:
        options = self._options
        return BeamSearch(
            options.num_beams,
            self._max_new_tokens,
            self._stops(),
            length_penalty=options.length_penalty,
            early_stopping=options.early_stopping,
            num_eos=len(self._eos),
        )

    def _stops(self) -> Stops:
        """Whether a beam ends: by its last id alone, or, where its text counts, by all of them."""
        options, constraint = self._options, self._row_constraint()
        if constraint is None and not (options.stop_strings or options.stop_regex or options.stopping_criteria):
            ends = {*self._eos, *options.stop_token_ids}
            return lambda ids: ids[-1] in ends
        stops = BeamStops(self._builder.watcher(self._ids, options))
        if constraint is None:
            return stops
        return lambda ids: stops(ids) or constraint.is_complete(ids)

    def _row_constraint(self) -> RowConstraint | None:
        return RowConstraint(self._constraint.start(self._eos), self._answer_start) if self._constraint else None


def _watch(watcher: TextWatcher, constraint: RowConstraint | None) -> Watch:
    return watcher.watch if constraint is None else ConstraintWatch(watcher, constraint).watch


def _sharing(rows: list[Sequence]) -> list[Sequence]:
    """Rows with the same prompt, of which the first computes it."""
    for row in rows[1:]:
        row.prefill_source = rows[0]
    return rows
