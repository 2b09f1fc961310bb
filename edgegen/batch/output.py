"""BatchOutput: the output file of a batch, atomic and resumable whenever the process is killed.

Until all lines are answered, the answers are in ``OUTPUT.part``: a header line that records what the answers depend on,
then one line for each answer, ``DIGEST+ RECORD`` with the digest of the input line (``-`` for ``+`` if that failed). A
line counts once its newline is written; half a line of a killed process is removed. At the end the records are written
to a file beside the output, synced, and renamed into place.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from time import time
from typing import Any, BinaryIO, Protocol, Self

from edgegen.batch.input import InputLine
from edgegen.batch.record import Entry
from edgegen.errors import UsageError, one_or_list
from edgegen.system import locked, open_regular, retry_in_use, sync_folder

_HEADER = b'{"edgegen batch": 1, '
_ANSWERED = re.compile(rb"([0-9a-f]{32})([+-]) (\{.*\}\n)")


class BatchOutput(Protocol):
    """Where entries go, in a ``with`` block.

    Attributes:
        created: when the batch was begun, in seconds since 1970.
        answered: lines that have an answer.
        failed: lines whose answer is an error.
    """

    created: int
    answered: int
    failed: int

    def unanswered(self, lines: Iterator[InputLine]) -> Iterator[InputLine]:
        """Yield the lines that have no answer yet; to be called once, before the first entry."""
        return lines

    def append(self, entry: Entry) -> None: ...

    def finish(self) -> None:
        """Every line is answered."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """The end of the block, whether or not every line is answered."""


class StreamOutput(BatchOutput):
    """Standard output, or what stands for it: nothing can be resumed."""

    def __init__(self, file: BinaryIO) -> None:
        self.created, self.answered, self.failed = int(time()), 0, 0
        self._file = file

    def append(self, entry: Entry) -> None:
        self._file.write(entry.record + b"\n")
        self._file.flush()
        self.answered += 1
        self.failed += entry.failed


class FileOutput(BatchOutput):
    """A file, and beside it ``.part`` and ``.lock`` until it is complete. For one process at a time."""

    def __init__(self, path: Path, fingerprint: Mapping[str, str], *, force: bool = False) -> None:
        """Lock ``path``, and see what there is.

        ``fingerprint``: what the answers depend on beside their lines. ``force``: replace a finished output, and
        answers that are of another input or depend on other things.

        Raises:
            UsageError: there is something at ``path`` that must not be replaced, or no folder for it; an incomplete
                batch depends on other things; or another process is at it.
        """
        self._path = Path(os.path.realpath(path))
        self._part = self._beside(".part")
        self._force = force
        self.created, self.answered, self.failed = int(time()), 0, 0
        if self._path.is_dir():
            raise UsageError(f"{self._path} is a folder: give a file.")
        if not self._path.parent.is_dir():
            raise UsageError(f"there is no folder {self._path.parent} to write {self._path.name} to: make it first.")
        self._file: BinaryIO | None = None
        self._stack = ExitStack()
        if not self._stack.enter_context(locked(self._path)):
            self._stack.close()
            raise UsageError(f"another process writes {self._path}: wait for it, or give another output.")
        try:
            self._open(dict(fingerprint))
        except BaseException:
            self._stack.close()
            raise

    def unanswered(self, lines: Iterator[InputLine]) -> Iterator[InputLine]:
        """The lines that have no answer in the file yet, in order.

        Raises:
            UsageError: what has been answered is not what stands in ``lines``.
        """
        rest: list[InputLine] = []
        with open_regular(self._part) as file:
            end = len(file.readline())
            for text in file:
                if not (entry := _ANSWERED.fullmatch(text)):
                    break
                line = next(lines, None)
                if line is None or line.digest != entry[1].decode():
                    self._refuse_change(line)
                    rest = [line] if line else []
                    break
                self.answered += 1
                self.failed += entry[2] == b"-"
                end += len(text)
        self._file = self._part.open("r+b")
        self._file.truncate(end)
        self._file.seek(end)
        return chain(rest, lines)

    def append(self, entry: Entry) -> None:
        assert self._file is not None
        self._file.write(b"%s%s %s\n" % (entry.digest.encode(), b"-" if entry.failed else b"+", entry.record))
        self._file.flush()
        self.answered += 1
        self.failed += entry.failed

    def finish(self) -> None:
        new = self._beside(".new")
        with open_regular(self._part) as part, new.open("wb") as file:
            part.readline()
            for text in part:
                entry = _ANSWERED.fullmatch(text)
                assert entry
                file.write(entry[3])
            file.flush()
            os.fsync(file.fileno())
        retry_in_use(lambda: new.replace(self._path))
        with suppress(OSError):
            sync_folder(self._path.parent)
        if self._file is not None:
            self._file.close()
        retry_in_use(self._part.unlink)

    def __exit__(self, *exc: object) -> None:
        with self._stack:
            if self._file is not None:
                self._file.close()  # Windows removes no file that is open
            if self._part.exists() and self._begun() is None:
                with suppress(OSError):
                    retry_in_use(self._part.unlink)

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _open(self, fingerprint: dict[str, str]) -> None:
        """Have ``.part`` begin as it should."""
        incomplete = self._part.exists()
        if self._path.exists() and not self._force:
            more = ", and resume the incomplete batch" if incomplete else ""
            raise UsageError(f"{self._path} exists: add --force to replace it{more}, or give another output.")
        begun = self._begun() if incomplete else None
        if begun is not None:
            differences = _differences(begun["fingerprint"], fingerprint)
            if not differences:
                self.created = int(begun["created"])
                return
            if not self._force:
                raise UsageError(
                    f"{self._part} was begun otherwise: {one_or_list(differences)}\nGo on as it was begun, or add "
                    "--force to begin anew."
                )
        text = json.dumps({"edgegen batch": 1, "created": self.created, "fingerprint": fingerprint})
        self._part.write_bytes(text.encode() + b"\n")

    def _begun(self) -> dict[str, Any] | None:
        """How ``.part`` begins; None if it has no answer, and nothing is lost with it."""
        with open_regular(self._part) as file:
            text, first = file.readline(), file.readline()
        if text.startswith(_HEADER) or _HEADER.startswith(text):
            return json.loads(text) if _ANSWERED.fullmatch(first) else None
        raise UsageError(f"{self._part} is not an incomplete batch: move it away, or give another output.")

    def _refuse_change(self, line: InputLine | None) -> None:
        if not self._force:
            where = f"line {line.number} of the input is not" if line else "the input has less lines than were"
            raise UsageError(
                f"{where} what {self._part} has answered: go on with the input as it was, or add --force to answer "
                "anew from there."
            )


def _differences(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    names = [name for name in (*here, *there) if there.get(name) != here.get(name)]
    return [
        f"{name} was {there.get(name, 'not given')} and is {here.get(name, 'not given')}"
        for name in dict.fromkeys(names)
    ]
