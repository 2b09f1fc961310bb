"""without_panic_text(): keeps what Rust prints when it panics off the standard error.

The tokenizers library raises a panic as an exception, whose message says all; a hook within it has printed it before,
with a backtrace, right to the file descriptor.
"""

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Lock

_STDERR = 2
_PANIC = b"\nthread '"
_one_at_a_time = Lock()


@contextmanager
def without_panic_text() -> Generator[None]:
    """Hold back what is written to the standard error meanwhile, and write it afterwards, but for a panic's text.

    Of what other threads write meanwhile nothing is lost, unless it comes after the panic.
    """
    with _one_at_a_time:
        try:
            kept = os.dup(_STDERR)
        except OSError:  # there is none
            kept = None
        if kept is None:
            yield
            return
        try:
            with tempfile.TemporaryFile() as held:
                _flush()
                os.dup2(held.fileno(), _STDERR)
                try:
                    yield
                finally:
                    _flush()
                    os.dup2(kept, _STDERR)
                    held.seek(0)
                    _write(held.read())
        finally:
            os.close(kept)


def _flush() -> None:
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison] (pythonw has none)
        with suppress(OSError, ValueError):  # closed
            sys.stderr.flush()


def _write(text: bytes) -> None:
    at = (b"\n" + text).find(_PANIC)
    if at >= 0 and b" panicked at " in text[at:]:
        before = text[:at]
        text = before[:-1] if before == b"\n" or before.endswith(b"\n\n") else before  # an empty line is of the panic
    while text:
        try:
            text = text[os.write(_STDERR, text) :]
        except OSError:
            return
