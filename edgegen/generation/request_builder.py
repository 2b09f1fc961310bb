"""RequestBuilder: turns a prompt and generation options into a request that the engine can run."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import replace
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, cast

from edgegen.engine.finish import StopMatch
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams, Watch
from edgegen.errors import ConstraintError, OptionError, PromptTooLongError, UsageError
from edgegen.generation.prompt_encoder import Prompt, PromptEncoder
from edgegen.generation.request import Answer, Request
from edgegen.model.kv_snapshot import KVSnapshot
from edgegen.options.generation import GenerationOptions
from edgegen.options.table import DEFAULT_ASSISTANT_TOKENS, DEFAULT_NGRAM_SIZE
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.proposer import Proposer
from edgegen.stopping.length_limit import LengthLimit, length_limit
from edgegen.stopping.text_watcher import TextWatcher
from edgegen.tokenizer import StreamingDetokenizer

if TYPE_CHECKING:  # what only some requests need is imported where they ask for it
    from edgegen.chat import Message
    from edgegen.chat.reply import ReplyFormat
    from edgegen.constraint import Constraint, ConstraintCompiler, RowConstraint
    from edgegen.constraint.compiler import CompiledConstraint
    from edgegen.engine.beam_search import BeamSearch, Stops
    from edgegen.generation.session import Session
    from edgegen.speculation.draft_model import DraftModel


class RequestBuilder:
    """Turns a prompt and options into a request of one model."""

    def __init__(
        self,
        encoder: PromptEncoder,
        max_context: int,
        eos_token_ids: Ids[int],
        draft: DraftModel | None = None,
        *,
        bit_exact: bool = False,
        model: str = "",
        snapshot_problem: Callable[[KVSnapshot], str | None] = lambda snapshot: None,
        runs_again: bool = False,
    ) -> None:
        """
        Args:
            eos_token_ids: those of the model, where the options name none.
            draft: the draft model of speculative decoding, if there is one.
            bit_exact: from a session, reuse only what a new prefill would compute with the same bits.
            model: what tells sessions of this model from those of others.
            snapshot_problem: why the snapshot of a session is none of this model's, if it is none.
            runs_again: whether tokens accepted before a rejected one are run again (speculative decoding).
        """
        self.encoder = encoder
        self.bit_exact = bit_exact
        self._tokenizer = encoder.tokenizer
        self._vocab_size = encoder.vocab_size
        self._max_context = max_context
        self._eos_token_ids = tuple(eos_token_ids)
        self._draft = draft
        self._model = model
        self._snapshot_problem = snapshot_problem
        self._runs_again = runs_again

    def check(self, session: Session) -> None:
        """
        Raises:
            SessionError: the session was begun with another model.
        """
        session.check(self._model, self._snapshot_problem)

    def build_behind(self, session: Session, prompt: Prompt, options: GenerationOptions) -> Request:
        """The request for ``prompt`` behind all that ``session`` holds.

        Raises:
            SessionError: the session was begun with another model.
            UsageError: as :meth:`build`; or there is no prompt, and the last answer ended by itself.
        """
        session.check(self._model, self._snapshot_problem)
        self._refuse_longer(prompt)
        return self.build(self.encoder.encode_behind(session, prompt), options, session)

    def _refuse_longer(self, prompt: Prompt) -> None:
        """
        Raises:
            PromptTooLongError: the prompt surely does not fit the model's context.
        """
        if isinstance(prompt, str) and self._tokenizer is not None:
            self._tokenizer.refuse_longer(prompt, self._max_context)

    def build(
        self,
        prompt: Prompt,
        options: GenerationOptions,
        session: Session | None = None,
        messages: Ids[Message] = (),
        form: ReplyFormat | None = None,
    ) -> Request:
        """The request for ``prompt``, the text of ``messages`` if there are any, and ``form`` what to read in answers.

        A ``session`` lends the KV cache of the prefix that it shares with the prompt, and takes over prompt and answer
        at the end. If prompt and session are the same, and its last answer was cut short, that answer goes on.

        Raises:
            SessionError: the session was begun with another model.
            OptionError: a session has one answer, and more are asked for.
            UsageError: the prompt cannot be encoded, or the options need a tokenizer that the bundle lacks.
            PromptTooLongError: the prompt does not fit the model's context.
            OptionError: an option does not fit the vocabulary, or a constraint cannot be enforced.
        """
        if session is not None:
            session.check(self._model, self._snapshot_problem)
        self._refuse_longer(prompt)
        ids = self.encoder.encode(prompt)
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
        request = _Assembly(self, ids, negative, options, limit, session, form).request()
        request.group.priority = options.priority
        if session is not None:
            self._remember(request, session, messages)
        return request

    def end_of_text(self, options: GenerationOptions) -> tuple[int, ...]:
        """The end-of-sequence ids under ``options``."""
        return self._eos_token_ids if options.eos_token_id is None else options.eos_token_id

    def watcher(self, ids: Ids[int], options: GenerationOptions, form: ReplyFormat | None = None) -> TextWatcher:
        """For an answer to the prompt ``ids``, whose text shows the control tokens that ``form`` reads."""
        shown = self.encoder.control_ids(form.markers) if form else {}
        return TextWatcher(
            StreamingDetokenizer(self._tokenizer, prompt_ids=ids, shown_ids=shown.values())
            if self._tokenizer
            else None,
            options.stop_strings,
            self.end_of_text(options),
            stop_token_ids=options.stop_token_ids,
            stop_regex=options.stop_regex,
            include_stop_str_in_output=options.include_stop_str_in_output,
            stopping_criteria=options.stopping_criteria,
            prompt_ids=ids,
        )

    def tool_constraint(self, options: GenerationOptions, form: ReplyFormat | None) -> CompiledConstraint | None:
        """The constraint on the answer's tool calls; None where it has none, or where they cannot be constrained.

        Raises:
            ConstraintError: a call must be made, and cannot be constrained.
        """
        if form is None or form.tools is None:
            return None
        if options.grammar is not None or options.response_format is not None:
            if not form.tools.required:
                return None
            raise ConstraintError(
                "tool_choice asks for a tool call, and response_format or grammar for another text: leave one out"
            )
        from edgegen.constraint import ToolCallConstraint

        try:
            return self._compiler.compile(ToolCallConstraint.of(form, self.encoder.control_ids(form.markers)))
        except ConstraintError:
            if form.tools.required:
                raise
            return None

    def constraint(self, options: GenerationOptions) -> CompiledConstraint | None:
        """The constraint on the answer that the options ask for, compiled once for each that is given.

        Raises:
            ConstraintError: it cannot be enforced, or is none.
        """
        grammar = options.grammar
        if grammar is None and options.response_format is None:
            return None
        from edgegen.constraint import Grammar, read_response_format

        if isinstance(grammar, str):
            constraint = Grammar(grammar)
        elif grammar is None:
            constraint = read_response_format(options.response_format)
        elif callable(getattr(grammar, "source", None)):
            constraint = cast("Constraint", grammar)
        else:
            raise ConstraintError(
                f"grammar is the text of a grammar or a constraint, not {type(grammar).__name__}; schemas and models "
                "are for response_format"
            )
        return None if constraint is None else self._compiler.compile(constraint)

    def proposers(
        self, ids: Ids[int], options: GenerationOptions, pipeline: LogitsPipeline, sampler: Sampler
    ) -> list[Proposer]:
        """Speculative decoding for an answer to the prompt ``ids``: prompt lookup, a draft model, both or none."""
        proposers = list[Proposer]()
        if options.prompt_lookup_num_tokens is not None:
            from edgegen.speculation.ngram_proposer import NGramProposer

            size = options.max_matching_ngram_size or DEFAULT_NGRAM_SIZE
            proposers.append(NGramProposer(options.prompt_lookup_num_tokens, size, runs_again=self._runs_again))
        if self._draft is not None:
            from edgegen.speculation.draft_proposer import DraftProposer

            draft = DraftProposer(
                self._draft,
                pipeline,
                sampler,
                prompt_length=len(ids),
                vocab_size=self._vocab_size,
                longest=options.num_assistant_tokens or DEFAULT_ASSISTANT_TOKENS,
                runs_again=self._runs_again,
            )
            proposers.append(draft)
        return proposers

    def _remember(self, request: Request, session: Session, messages: Ids[Message]) -> None:
        """Have ``session`` take over what ``request`` comes to, if it comes to its end."""
        (row,) = request.group.sequences

        def take() -> None:
            if row.kv.kept is not None and row.finish is not None:
                said = (*messages, request.message) if messages else ()
                begin, why, state = row.answer_start, row.finish.reason, row.params.pipeline.state(row.ids)
                session.take(self._model, row.ids, begin, why, request.seed, state, row.kv.kept, said)

        request.on_success = take

    @cached_property
    def _compiler(self) -> ConstraintCompiler:
        if self._tokenizer is None:
            raise UsageError("a constraint needs a tokenizer, and this bundle has none.")
        from edgegen.constraint import ConstraintCompiler

        return ConstraintCompiler(self._tokenizer, self._vocab_size)

    def _negative(self, ids: list[int], options: GenerationOptions) -> list[int]:
        """The ids of the negative prompt; without one, as in transformers, the prompt's last."""
        if options.guidance_scale == 1:
            return []
        return (
            ids[-1:]
            if options.negative_prompt is None
            else self.encoder.encode(options.negative_prompt, "the negative prompt")
        )


class _Assembly:
    """Puts one request together."""

    def __init__(
        self,
        builder: RequestBuilder,
        ids: list[int],
        negative: list[int],
        options: GenerationOptions,
        limit: LengthLimit,
        session: Session | None,
        form: ReplyFormat | None,
    ) -> None:
        self._builder, self._ids, self._negative, self._options = builder, ids, negative, options
        self._eos = builder.end_of_text(options)
        self._session = session
        goes_on = session is not None and session.can_continue and session.ids == tuple(ids)
        self._answer_start = session.answer_start if session is not None and goes_on else len(ids)
        self._seed = self._chosen_seed() if options.do_sample else None
        self._max_new_tokens = limit.new_tokens
        self._limit = StopMatch("length", None, limit.rule)
        self._deadline = None if options.max_time is None else perf_counter() + options.max_time
        calls = builder.tool_constraint(options, form)
        self._constraint = calls or builder.constraint(options)
        self._form = replace(form, constrained=calls is not None) if form else None

    def request(self) -> Request:
        options = self._options
        rows = [self._answer(n) for n in range(max(options.num_beams, options.num_return_sequences))]
        sequences = _sharing([row.sequence for row in rows])
        if options.num_beams > 1:
            from edgegen.engine.beam_group import BeamGroup

            beams = BeamGroup(sequences, self._search(), options.num_return_sequences)
            answers = [
                Answer(choice, row.watcher, parser=row.parser) for choice, row in zip(beams.choices, rows, strict=False)
            ]
            return Request(beams, answers, self._seed)
        if self._negative:
            from edgegen.engine.guidance_group import GuidanceGroup

            unconditional = _sharing([self._unconditional() for _ in rows])
            return Request(GuidanceGroup(sequences, unconditional), rows, self._seed)
        return Request(SequenceGroup(sequences), rows, self._seed)

    def _answer(self, n: int) -> Answer:
        """The ``n``-th answer, as a row."""
        options, builder = self._options, self._builder
        watcher = builder.watcher(self._ids[: self._answer_start], options, self._form)
        constraint, recorder, parser = self._row_constraint(), None, None
        if options.logprobs:
            from edgegen.sampling.logprobs import LogprobRecorder

            recorder = LogprobRecorder(builder.encoder.spell, options.top_logprobs)
        if self._form is not None:
            from edgegen.chat.reply import ReplyParser

            parser = ReplyParser(self._form)
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
            prefix=self._session.prefix_of(self._ids, bit_exact=builder.bit_exact) if self._session else None,
            keep=self._session is not None,
            use_cache=options.use_cache,
            record=recorder.record if recorder else None,
            deadline=self._deadline,
            limit=self._limit,
        )
        sequence = Sequence(list(self._ids), params, proposers=self._proposers(constraint, pipeline, sampler))
        return Answer(sequence, watcher, recorder, parser)

    def _catch_up(self, watch: Watch, pipeline: LogitsPipeline) -> None:
        """Show the stop conditions and the pipeline what an answer has so far, before it goes on.

        Raises:
            UsageError: with these options it has ended already.
        """
        assert self._session is not None
        if match := watch(self._ids[self._answer_start :]):
            raise UsageError(f"with these options ({match.rule}) the session's last answer has ended: give a prompt.")
        pipeline.resume(self._session.sampler_state)

    def _chosen_seed(self) -> int:
        """The options' seed, or the session's, or a new one."""
        if self._options.seed is not None:
            return self._options.seed
        known = self._session.seed if self._session else None
        return int.from_bytes(os.urandom(8)) >> 1 if known is None else known

    def _proposers(
        self, constraint: RowConstraint | None, pipeline: LogitsPipeline, sampler: Sampler
    ) -> tuple[Proposer, ...]:
        """Tokens that a constraint forces come first. Beams and guided rows advance together, and have no proposals."""
        if self._negative or self._options.num_beams > 1 or pipeline.stateful:
            return ()
        proposers = self._builder.proposers(self._ids, self._options, pipeline, sampler)
        return (*([constraint] if constraint else []), *proposers)

    def _unconditional(self) -> Sequence:
        """The unconditional sequence of guidance: the negative prompt, followed by the ids of the answer."""
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
        from edgegen.engine.beam_search import BeamSearch

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
        from edgegen.generation.beam_stops import BeamStops

        stops = BeamStops(self._builder.watcher(self._ids, options))
        if constraint is None:
            return stops
        return lambda ids: stops(ids) or constraint.is_complete(ids)

    def _row_constraint(self) -> RowConstraint | None:
        if self._constraint is None:
            return None
        from edgegen.constraint import RowConstraint

        return RowConstraint(self._constraint.start(self._eos), self._answer_start)


def _watch(watcher: TextWatcher, constraint: RowConstraint | None) -> Watch:
    if constraint is None:
        return watcher.watch
    from edgegen.constraint import ConstraintWatch

    return ConstraintWatch(watcher, constraint).watch


def _sharing(rows: list[Sequence]) -> list[Sequence]:
    """Have sequences with the same prompt share the first one's prefill."""
    for row in rows[1:]:
        row.prefill_source = rows[0]
    return rows
