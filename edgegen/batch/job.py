"""BatchJob: the lines of a batch, answered by one model, several at a time."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

from edgegen.batch.input import InputLine
from edgegen.batch.line import BatchLine, parse_line
from edgegen.batch.record import Entry, RecordWriter
from edgegen.batch.settings import BatchSettings
from edgegen.chat import Conversation
from edgegen.generation.stream import TextStream
from edgegen.llm import LLM
from edgegen.options.generation import GenerationOptions, GenerationOverrides

IN_FLIGHT = 4
"""Lines that are begun and not yet answered, for each running request: enough that the model never waits for one,
though answers come in order."""

_INTERRUPTIONS = (KeyboardInterrupt, SystemExit, GeneratorExit)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A line on its way: with a stream, or with the error that it ended with at once."""

    line: InputLine
    asked: BatchLine
    stream: TextStream | None = None
    error: BaseException | None = None


class BatchJob:
    """Answers lines in their order, whatever becomes of any of them."""

    def __init__(self, llm: LLM, settings: BatchSettings) -> None:
        """Check the settings against the model.

        Raises:
            OptionError: the options of ``settings`` contradict the bundle's.
        """
        self._llm = llm
        self._settings = settings
        self._defaults = llm.generation_options.override(cast(GenerationOverrides, settings.options))
        self._writer = RecordWriter(llm.bundle.manifest.name, settings.created)

    def answer(self, lines: Iterable[InputLine]) -> Iterator[Entry]:
        """An entry for each line, as soon as there is one; of ``lines`` no more are read than are in flight."""
        begun, in_flight = deque[_Begun](), IN_FLIGHT * self._settings.engine.max_batch_size
        try:
            for line in lines:
                begun.append(self._begin(line))
                if len(begun) == in_flight:
                    yield self._end(begun.popleft())
            while begun:
                yield self._end(begun.popleft())
        finally:
            for one in begun:
                if one.stream is not None:
                    one.stream.close()

    def _begin(self, line: InputLine) -> _Begun:
        asked = parse_line(line, self._defaults)
        if asked.problems:
            return _Begun(line, asked)
        try:
            return _Begun(line, asked, self._stream(asked, self._options(line, asked)))
        except _INTERRUPTIONS:
            raise
        except BaseException as error:  # the panic of a library is no Exception
            return _Begun(line, asked, error=error)

    def _options(self, line: InputLine, asked: BatchLine) -> GenerationOptions:
        """Return the options of the line, with a seed of its own where the batch has one."""
        seed = self._settings.line_seed(line.number)
        if seed is None or asked.seeded or not asked.options.do_sample:
            return asked.options
        return replace(asked.options, seed=seed)

    def _stream(self, asked: BatchLine, options: GenerationOptions) -> TextStream:
        assert asked.prompt is not None
        if isinstance(asked.prompt, Conversation):
            return self._llm.stream_chat(asked.prompt, options)
        return self._llm.stream(asked.prompt, options)

    def _end(self, one: _Begun) -> Entry:
        if one.stream is None:
            if one.error is None:
                return self._writer.problems(one.line, one.asked)
            return self._writer.error(one.line, one.asked, one.error)
        try:
            return self._writer.answer(one.line, one.asked, one.stream.wait())
        except _INTERRUPTIONS:
            raise
        except BaseException as error:
            return self._writer.error(one.line, one.asked, error)
