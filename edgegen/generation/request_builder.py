"""RequestBuilder: turns a prompt and generation options into a request that the engine can run."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from edgegen.engine.finish import StopMatch
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams, Watch
from edgegen.errors import ConstraintError, OptionError, PromptTooLongError, UsageError
from edgegen.generation.prompt_encoder import Prompt, PromptEncoder
from edgegen.generation.request import Answer, Request
from edgegen.model.kv_snapshot import KVSnapshot
from edgegen.options.generation import GenerationOptions
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.proposer import OnHiddenAt, Proposer
from edgegen.speculation.sources import NO_DRAFTS, SpeculationSources
from edgegen.stopping.length_limit import length_limit
from edgegen.stopping.text_watcher import TextWatcher
from edgegen.system import Deadline
from edgegen.tokenizer import StreamingDetokenizer

if TYPE_CHECKING:  # what only some requests need is imported where they ask for it
    from edgegen.chat import Message
    from edgegen.chat.reply import ReplyFormat, ReplyParser
    from edgegen.constraint import Constraint, ConstraintCompiler, RowConstraint
    from edgegen.constraint.compiler import CompiledConstraint
    from edgegen.engine.beam_search import Stops
    from edgegen.generation.session import Session
    from edgegen.sampling.processors.thinking_budget import ThinkingBudget


class RequestBuilder:
    """Turns a prompt and options into a request of one model."""

    def __init__(
        self,
        encoder: PromptEncoder,
        max_context: int,
        eos_token_ids: Ids[int],
        speculation: SpeculationSources = NO_DRAFTS,
        *,
        bit_exact: bool = False,
        model: str = "",
        snapshot_problem: Callable[[KVSnapshot], str | None] = lambda snapshot: None,
    ) -> None:
        """
        Args:
            eos_token_ids: those of the model, where the options name none.
            speculation: what proposes tokens for speculative decoding.
            bit_exact: from a session, reuse only what a new prefill would compute with the same bits.
            model: what tells sessions of this model from those of others.
            snapshot_problem: why the snapshot of a session is not of this model, if it is not.
        """
        self.encoder = encoder
        self.bit_exact = bit_exact
        self._tokenizer = encoder.tokenizer
        self._vocab_size = encoder.vocab_size
        self.max_context = max_context
        self._eos_token_ids = tuple(eos_token_ids)
        self._speculation = speculation
        self._model = model
        self._snapshot_problem = snapshot_problem

    def check(self, session: Session) -> None:
        """Refuse a session of another model.

        Raises:
            SessionError: the session was begun with another model.
        """
        session.check(self._model, self._snapshot_problem)

    def check_options(self, options: GenerationOptions) -> None:
        """Refuse options that no prompt could be answered with.

        Raises:
            OptionError: an option does not fit the vocabulary, or a constraint cannot be enforced.
            UsageError: the negative prompt cannot be encoded, or an option needs a tokenizer that the bundle lacks.
        """
        self._refuse_unusable(options)
        self._negative([], options)
        self._text_constraint(options)

    def build_continuation(self, session: Session, prompt: Prompt, options: GenerationOptions) -> Request:
        """The request for ``prompt`` after all that ``session`` holds.

        Raises:
            SessionError: the session was begun with another model.
            UsageError: as :meth:`build`; or there is no prompt, and the last answer ended by itself.
        """
        session.check(self._model, self._snapshot_problem)
        self._refuse_longer(prompt)
        return self.build(self.encoder.encode_continuation(session, prompt), options, session)

    def _refuse_longer(self, prompt: Prompt) -> None:
        """Refuse a text that is too long before it is tokenized.

        Raises:
            PromptTooLongError: the prompt surely does not fit the model's context.
        """
        if isinstance(prompt, str) and self._tokenizer is not None:
            self._tokenizer.refuse_longer(prompt, self.max_context)

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
        room = self.max_context - max(len(ids), len(negative)) + 1
        if room < 1:
            longer = "prompt" if len(ids) >= len(negative) else "negative prompt"
            raise PromptTooLongError(
                f"the {longer} has {max(len(ids), len(negative))} tokens, but this model's context is "
                f"{self.max_context}: shorten it."
            )
        self._refuse_unusable(options)
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
        goes_on = session is not None and session.can_continue and session.ids == tuple(ids)
        deadline = None if options.max_time is None else Deadline.after(options.max_time)
        calls = self._tool_constraint(options, form)
        special = frozenset(self.encoder.control_ids(form.markers)) if form else frozenset[str]()
        plan = _Plan(
            ids=ids,
            negative=negative,
            options=options,
            session=session,
            form=replace(form, constrained=calls is not None, special=special) if form else None,
            eos=self._end_of_text(options),
            answer_start=session.answer_start if session is not None and goes_on else len(ids),
            seed=_chosen_seed(options, session) if options.do_sample else None,
            max_new_tokens=limit.new_tokens,
            limit=StopMatch("length", None, limit.rule),
            deadline=deadline,
            constraint=calls or self._text_constraint(options),
        )
        request = self._request(plan)
        request.group.priority = options.priority
        if session is not None:
            self._remember(request, session, messages)
        return request

    def _refuse_unusable(self, options: GenerationOptions) -> None:
        """Refuse options that this model cannot honour.

        Raises:
            UsageError: an option needs a tokenizer or a draft model, and there is none.
            OptionError: an option does not fit the vocabulary.
        """
        for name in ("stop_strings", "stop_regex"):
            if getattr(options, name) and self._tokenizer is None:
                raise UsageError(f"{name} needs a tokenizer, and this bundle has none.")
        if options.num_assistant_tokens is not None and not self._speculation.drafts:
            raise UsageError(
                "num_assistant_tokens is for a draft model or a multi-token prediction head, and there is none: load a "
                "draft model with EngineOptions(draft=…), or leave it out."
            )
        if options.prompt_lookup_num_tokens is not None and self._speculation.speculate == "off":
            raise UsageError("prompt_lookup_num_tokens: the model was loaded with speculate='off'. Leave it out.")
        options.check_vocabulary(self._vocab_size)

    def _end_of_text(self, options: GenerationOptions) -> tuple[int, ...]:
        """The end-of-sequence ids under ``options``."""
        return self._eos_token_ids if options.eos_token_id is None else options.eos_token_id

    def _watcher(self, ids: Ids[int], options: GenerationOptions, form: ReplyFormat | None = None) -> TextWatcher:
        """For an answer to the prompt ``ids``, whose text shows the control tokens that ``form`` reads."""
        shown = self.encoder.control_ids(form.markers) if form else {}
        return TextWatcher(
            StreamingDetokenizer(self._tokenizer, prompt_ids=ids, shown_ids=shown.values())
            if self._tokenizer
            else None,
            options.stop_strings,
            self._end_of_text(options),
            stop_token_ids=options.stop_token_ids,
            stop_regex=options.stop_regex,
            include_stop_str_in_output=options.include_stop_str_in_output,
            stopping_criteria=options.stopping_criteria,
            prompt_ids=ids,
        )

    def _tool_constraint(self, options: GenerationOptions, form: ReplyFormat | None) -> CompiledConstraint | None:
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
            special = self.encoder.control_ids(form.markers)
            return self._compiler.compile(ToolCallConstraint.of(form, special, options.json_whitespace))
        except ConstraintError:
            if form.tools.required:
                raise
            return None

    def _thinking_budget(self, options: GenerationOptions, form: ReplyFormat | None) -> ThinkingBudget | None:
        """Return the processor that ends the thoughts of one answer at their limit; None without a limit or without
        thoughts."""
        tokenizer = self._tokenizer
        if options.max_thinking_tokens is None or form is None or form.reasoning is None or tokenizer is None:
            return None
        from edgegen.sampling.processors.thinking_budget import ThinkingBudget, ThoughtMarks

        marks = ThoughtMarks(
            form.reasoning.opening,
            form.reasoning.closing,
            form.in_reasoning,
            tuple(tokenizer.encode(form.reasoning.forced_end, add_special_tokens=False)),
            lambda token_id: self.encoder.spell(token_id)[0],
            *([tokenizer.token_bytes] if tokenizer.spells_bytes else []),
        )
        return ThinkingBudget(options.max_thinking_tokens, marks)

    def _text_constraint(self, options: GenerationOptions) -> CompiledConstraint | None:
        """The constraint on the answer that the options ask for, compiled once for each that is given.

        Raises:
            ConstraintError: it cannot be enforced, or is no constraint.
        """
        grammar = options.grammar
        if grammar is None and options.response_format is None:
            return None
        from edgegen.constraint import Grammar, read_response_format

        if isinstance(grammar, str):
            constraint = Grammar(grammar)
        elif grammar is None:
            constraint = read_response_format(options.response_format, options.json_whitespace)
        elif callable(getattr(grammar, "source", None)):
            constraint = cast("Constraint", grammar)
        else:
            raise ConstraintError(
                f"grammar is the text of a grammar or a constraint, not {type(grammar).__name__}; schemas and models "
                "are for response_format"
            )
        return None if constraint is None else self._compiler.compile(constraint)

    def _request(self, plan: _Plan) -> Request:
        options = plan.options
        answers = [self._answer(plan, n) for n in range(max(options.num_beams, options.num_return_sequences))]
        sequences = _sharing([answer.sequence for answer in answers])
        if options.num_beams > 1:
            from edgegen.engine.beam_group import BeamGroup
            from edgegen.engine.beam_search import BeamSearch

            search = BeamSearch(
                options.num_beams,
                plan.max_new_tokens,
                self._stops(plan),
                length_penalty=options.length_penalty,
                early_stopping=options.early_stopping,
                num_eos=len(plan.eos),
            )
            beams = BeamGroup(sequences, search, options.num_return_sequences)
            best = [
                Answer(choice, one.watcher, parser=one.parser)
                for choice, one in zip(beams.choices, answers, strict=False)
            ]
            return Request(beams, best, plan.seed)
        if plan.negative:
            from edgegen.engine.guidance_group import GuidanceGroup

            params = SequenceParams(len(plan.negative), plan.max_new_tokens)
            unconditional = _sharing([Sequence(list(plan.negative), params) for _ in answers])
            return Request(GuidanceGroup(sequences, unconditional), answers, plan.seed)
        return Request(SequenceGroup(sequences), answers, plan.seed)

    def _answer(self, plan: _Plan, n: int) -> Answer:
        """The ``n``-th answer, and the sequence that computes it."""
        options = plan.options
        watcher = self._watcher(plan.ids[: plan.answer_start], options, plan.form)
        constraint, recorder, shown, parser = plan.sequence_constraint(), None, None, None
        if options.logprobs:
            from edgegen.generation.shown_logprobs import ShownLogprobs
            from edgegen.sampling.logprobs import LogprobRecorder

            recorder = LogprobRecorder(self.encoder.spell, options.top_logprobs)
            shown = ShownLogprobs() if watcher.keep_ends() else None
        if plan.form is not None:
            from edgegen.chat.reply import ReplyParser

            parser = ReplyParser(plan.form)
        seed = (plan.seed or 0) + (n << 64)  # an option's seed has 64 bits; those above tell the answers apart
        budget = self._thinking_budget(options, plan.form)
        pipeline = LogitsPipeline.from_settings(
            options,
            do_sample=bool(options.do_sample),
            eos_token_ids=plan.eos,
            max_new_tokens=plan.max_new_tokens,
            seed=seed,
            first=[constraint] if constraint else [],
            last=[budget] if budget else [],
        )
        watch = _watch(watcher, constraint)
        if parser is not None and plan.form is not None and plan.form.tools is not None and plan.form.tools.required:
            watch = _unless_repeated(watch, parser)
        if plan.session is not None and plan.answer_start < len(plan.ids):
            _catch_up(plan.session, plan.ids[plan.answer_start :], watch, pipeline)
            watcher.take_text()
            if shown is not None:
                shown.begin(watcher.take_ends())
        sampler = Sampler(seed=seed, do_sample=bool(options.do_sample))
        params = SequenceParams(
            prompt_length=len(plan.ids),
            answer_start=plan.answer_start,
            max_new_tokens=plan.max_new_tokens,
            pipeline=pipeline,
            sampler=sampler,
            watch=watch,
            prefix=plan.session.prefix_of(plan.ids, bit_exact=self.bit_exact) if plan.session else None,
            keep=plan.session is not None,
            record=recorder.record if recorder else None,
            deadline=plan.deadline,
            limit=plan.limit,
        )
        proposers, on_hidden = self._proposers(plan, constraint, pipeline, sampler)
        sequence = Sequence(list(plan.ids), params, proposers=proposers, on_hidden=on_hidden)
        return Answer(sequence, watcher, recorder, parser, shown)

    def _proposers(
        self, plan: _Plan, constraint: RowConstraint | None, pipeline: LogitsPipeline, sampler: Sampler
    ) -> tuple[tuple[Proposer, ...], OnHiddenAt | None]:
        """Speculative decoding: tokens that a constraint forces come first. And what hears the model's hidden states.

        Beams and guided sequences advance together, and have no proposals.
        """
        options = plan.options
        if plan.negative or options.num_beams > 1 or pipeline.stateful:
            return (), None
        proposers, on_hidden = self._speculation.proposers(
            options,
            pipeline,
            sampler,
            prompt_length=len(plan.ids),
            vocab_size=self._vocab_size,
        )
        return (*([constraint] if constraint is not None else []), *proposers), on_hidden

    def _stops(self, plan: _Plan) -> Stops:
        """Whether a beam ends: by its last id alone, or, where its text counts, by all of them."""
        options, constraint = plan.options, plan.sequence_constraint()
        if constraint is None and not (options.stop_strings or options.stop_regex or options.stopping_criteria):
            ends = {*plan.eos, *options.stop_token_ids}
            return lambda ids: ids[-1] in ends
        stops = _BeamStops(self._watcher(plan.ids, options))
        if constraint is None:
            return stops
        return lambda ids: stops(ids) or constraint.is_complete(ids)

    def _remember(self, request: Request, session: Session, messages: Ids[Message]) -> None:
        """Have ``session`` take over what ``request`` comes to, if it comes to its end."""
        (one,) = request.group.sequences

        def take() -> None:
            if one.kv.kept is not None and one.finish is not None:
                said = (*messages, request.message) if messages else ()
                begin, why, state = one.answer_start, one.finish.reason, one.params.pipeline.state(one.ids)
                session.take(self._model, one.ids, begin, why, request.seed, state, one.kv.kept, said)

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plan:
    """Parameters that all sequences of one request share.

    Attributes:
        negative: the ids of the negative prompt; empty without guidance.
        eos: the end-of-sequence ids.
        answer_start: where the answer starts in ``ids``: before their end if it goes on.
        constraint: on the answer's tool calls, or on its text.
    """

    ids: list[int]
    negative: list[int]
    options: GenerationOptions
    session: Session | None
    form: ReplyFormat | None
    eos: tuple[int, ...]
    answer_start: int
    seed: int | None
    max_new_tokens: int
    limit: StopMatch
    deadline: Deadline | None
    constraint: CompiledConstraint | None

    def sequence_constraint(self) -> RowConstraint | None:
        """The constraint, followed along one sequence."""
        if self.constraint is None:
            return None
        from edgegen.constraint import RowConstraint

        return RowConstraint(self.constraint.start(self.eos), self.answer_start)


def _chosen_seed(options: GenerationOptions, session: Session | None) -> int:
    """The options' seed, or the session's, or a new one."""
    known = session.seed if options.seed is None and session is not None else options.seed
    return int.from_bytes(os.urandom(8)) >> 1 if known is None else known


def _catch_up(session: Session, answer: Ids[int], watch: Watch, pipeline: LogitsPipeline) -> None:
    """Show the stop conditions and the pipeline what an answer has so far, before it goes on.

    Raises:
        UsageError: with these options it has ended already.
    """
    if match := watch(answer):
        raise UsageError(f"with these options ({match.rule}) the session's last answer has ended: give a prompt.")
    pipeline.resume(session.sampler_state)


def _watch(watcher: TextWatcher, constraint: RowConstraint | None) -> Watch:
    if constraint is None:
        return watcher.watch
    from edgegen.constraint import ConstraintWatch

    return ConstraintWatch(watcher, constraint).watch


def _unless_repeated(watch: Watch, parser: ReplyParser) -> Watch:
    """``watch``, and the end of an answer that has begun to repeat its calls."""
    return lambda new_ids: watch(new_ids) or (StopMatch("stop", None, "grammar") if parser.has_repeated else None)


def _sharing(sequences: list[Sequence]) -> list[Sequence]:
    """Have sequences with the same prompt share the first one's prefill."""
    for one in sequences[1:]:
        one.prefill_source = sequences[0]
    return sequences


class _BeamStops:
    """A watcher for every beam, forked from its parent's: an id costs the same however long the beam."""

    def __init__(self, watcher: TextWatcher) -> None:
        """``watcher`` has seen no id yet."""
        self._parents: dict[tuple[int, ...], TextWatcher | None] = {}  # None of those that have ended
        self._beams: dict[tuple[int, ...], TextWatcher | None] = {(): watcher}

    def __call__(self, ids: Ids[int]) -> bool:
        """Whether the beam of ``ids`` has ended; its parent was asked about before."""
        beam = tuple(ids)
        if beam[:-1] in self._beams:  # the first of a new length
            self._parents, self._beams = self._beams, {}
        parent = self._parents[beam[:-1]]
        watcher = parent and parent.fork()
        ended = watcher is None or watcher.watch(beam[-1:]) is not None
        self._beams[beam] = None if ended else watcher
        return ended
