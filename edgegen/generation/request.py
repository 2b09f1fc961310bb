"""Request: one call of ``generate``, from its sequences in the engine to its chunks and results."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from edgegen.engine.sequence import Sequence, SequenceGroup, Update
from edgegen.generation.cancellation import CancelToken
from edgegen.generation.mailbox import Mailbox
from edgegen.generation.results import AnswerFinishReason, GenerationChunk, GenerationResult, PromptProgress, Timings
from edgegen.stopping.text_watcher import TextWatcher

if TYPE_CHECKING:
    from edgegen.chat.reply import Reply, ReplyParser
    from edgegen.generation.shown_logprobs import ShownLogprobs
    from edgegen.sampling.logprobs import LogprobRecorder, TokenLogprob


@dataclass(slots=True, eq=False)
class Answer:
    """One sequence, its text and the chunks that were given out."""

    sequence: Sequence
    watcher: TextWatcher
    recorder: "LogprobRecorder | None" = None
    parser: "ReplyParser | None" = None
    shown: "ShownLogprobs | None" = None
    chunks: list[GenerationChunk] = field(default_factory=list[GenerationChunk])

    def chunk(self, update: Update, index: int) -> GenerationChunk:
        """Return the chunk that ``update`` adds."""
        sequence = self.sequence
        if sequence.finish is not None and sequence.finish.reason in ("length", "time"):
            # What the end releases may turn out to hold a stop string.
            sequence.finish = self.watcher.finish() or sequence.finish
        reason = sequence.finish.reason if sequence.finish else None
        logprobs = self._logprobs(ended=reason is not None)
        text, reply = self.watcher.take_text(), None
        if self.parser is not None:
            reply = self.parser.push(text)
            if reason is not None:
                reply += self.parser.finish(cut=reason != "stop")
            reply = reply.with_joined_deltas()
        calls = reply is not None and (reply.tool_calls or any(chunk.tool_calls for chunk in self.chunks))
        ended: AnswerFinishReason | None = "tool_calls" if calls and reason == "stop" else reason
        return GenerationChunk(text, update.new_ids, ended, index, logprobs, reply=reply)

    def _logprobs(self, *, ended: bool) -> "tuple[TokenLogprob, ...]":
        """Return the log-probabilities of tokens whose text is shown now, where the text of some may never be."""
        entries = self.recorder.take() if self.recorder else ()
        if self.shown is None:
            return entries
        watcher = self.watcher
        taken = self.shown.push(entries, watcher.take_ends(), watcher.shown)
        return taken + self.shown.finish(watcher.shown, watcher.read) if ended else taken

    def result(self, seed: int | None, others: tuple[GenerationResult, ...] = ()) -> GenerationResult:
        """The answer as far as it got; raises what made it fail, if something did."""
        sequence, finish, times = self.sequence, self.sequence.finish, self.sequence.times
        if sequence.error is not None:
            raise sequence.error
        assert finish is not None
        chunks = tuple(self.chunks)  # after a cancellation, the engine may still be at its last one
        ids = tuple(token_id for chunk in chunks for token_id in chunk.token_ids)
        reply = None if self.parser is None else _joined(chunks)
        timings = Timings(
            prompt_tokens=sequence.params.prompt_length,
            cached_tokens=sequence.kv.reused,
            prompt_seconds=max(0.0, times.first_token - times.started),
            decode_tokens=max(0, len(ids) - 1),
            decode_seconds=max(0.0, times.last_token - times.first_token) if ids else 0.0,
        )
        return GenerationResult(
            text="".join(chunk.text for chunk in chunks),
            token_ids=ids,
            finish_reason="tool_calls" if finish.reason == "stop" and reply and reply.tool_calls else finish.reason,
            matched=finish.matched,
            stopped_by=finish.rule,
            seed=seed,
            timings=timings,
            logprobs=tuple(entry for chunk in chunks for entry in chunk.logprobs),
            score=sequence.score,
            speculation=sequence.speculation,
            others=others,
            reply=reply,
        )


class Request:
    """A sequence group that runs or waits, and the mailbox of its chunks.

    Attributes:
        mail: chunks, if it is ``streamed``; then the error that ended the request, or None.
        tokens: any of them cancels it.
        seed: of the answers, if they are sampled.
        dropped_messages: how many of a chat's messages its prompt has not.
        finished: whether nothing more is to come: all that was made has been noted, or something went wrong.
        on_success: called in the engine's thread when all answers have ended, before the result is given out.
    """

    def __init__(self, group: SequenceGroup, answers: Ids[Answer], seed: int | None) -> None:
        self.group = group
        self.streamed = False
        self.tokens: tuple[CancelToken, ...] = ()
        self.dropped_messages = 0
        self.on_success: Callable[[], None] = lambda: None
        self.mail = Mailbox[GenerationChunk | BaseException | None]()
        self._answers = tuple(answers)
        self._index = {answer.sequence: k for k, answer in enumerate(answers)}
        self._running = set(self._index.values())
        self.finished = False
        self.seed = seed
        group.emit = self._emit

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more is to come."""
        self.finished = True
        for token in self.tokens:
            token.detach(self)
        self.mail.put(error)

    @property
    def prompt_tokens(self) -> int:
        return self._answers[0].sequence.params.prompt_length

    @property
    def prompt_progress(self) -> PromptProgress:
        """Read from the engine's counters while it runs."""
        sequence = self._answers[0].sequence
        total, started = sequence.params.prompt_length, sequence.times.started
        until = sequence.times.first_token or perf_counter()
        return PromptProgress(
            total, min(total, sequence.kv.cached), sequence.kv.reused, until - started if started else 0.0
        )

    @property
    def text(self) -> str:
        """The first answer's, as far as it got."""
        return "".join(chunk.text for chunk in self._answers[0].chunks)

    @property
    def message(self) -> dict[str, Any]:
        """The first answer, as far as it got, as the assistant's message."""
        from edgegen.chat.reply import Reply

        parser, reply = self._answers[0].parser, _joined(self._answers[0].chunks)
        is_read = reply.tool_calls or (parser is not None and parser.reads_layout)
        return (reply if is_read else Reply(self.text)).to_message()

    def result(self) -> GenerationResult:
        """The first answer, with the others: fewer than asked for, where a beam search has found no more.

        Raises what made one fail, if something did.
        """
        first, *others = self._answers
        ranked = first.sequence.score is not None
        there = [other for other in others if not ranked or other.sequence.score is not None]
        result = first.result(self.seed, tuple(other.result(self.seed) for other in there))
        return replace(result, dropped_messages=self.dropped_messages) if self.dropped_messages else result

    def _emit(self, update: Update) -> None:
        """In the engine's thread: what a step did to one of the answers."""
        sequence, index = update.sequence, self._index[update.sequence]
        if sequence.error is None:
            try:
                self._note(self._answers[index].chunk(update, index))
            except BaseException as error:  # or the reader would wait forever
                sequence.error = error
        if sequence.error is not None:
            self.group.cancel()  # the other answers are not wanted any more
            self.end(sequence.error)

    def _note(self, chunk: GenerationChunk) -> None:
        if self.finished:  # cancelled while this was made: a result that has been read stays as it is
            return
        self._answers[chunk.index].chunks.append(chunk)
        if self.streamed:
            self.mail.put(chunk)
        if chunk.finish_reason is not None:
            self._running.discard(chunk.index)
            if not self._running:
                self.on_success()
                self.end()


def _joined(chunks: Iterable[GenerationChunk]) -> "Reply":
    """Join the pieces of an answer, of which each chunk has one."""
    from edgegen.chat.reply import Reply

    return sum((chunk.reply for chunk in chunks if chunk.reply), Reply())
