"""Session: a conversation with its KV cache, to continue later, also from a file and in another process.

The file is in the safetensors format: ids and KV cache as tensors, all else as metadata, with a SHA-256 over both. It
is written to a temporary file and renamed, so that the old file or the new one is there, whatever happens.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import SessionError, first_line, refuse_any
from edgegen.model.kv_snapshot import KVPrefix, KVSnapshot
from edgegen.strict_json import decode
from edgegen.system import open_regular, retry_in_use, sync_folder

_FORMAT = "edgegen session 1"
_STALE = 3600.0
"""Seconds after which a temporary file belongs to a process that was killed."""


@dataclass(slots=True, eq=False, repr=False)
class Session:
    """The token ids so far, and their KV cache.

    ``llm.generate(prompt, session=session)`` appends the prompt, answers, and leaves both in the session; with an empty
    prompt, an answer that was cut short goes on as if it had never stopped. ``llm.chat(messages,
    session=session)`` computes only what is new of a conversation. One request at a time may use it.

    Attributes:
        ids: the token ids of all prompts and answers.
        answer_start: where the last answer begins in them.
        finish_reason: why that ended; None while there is none.
        seed: the one it was sampled with, which later answers use where the options name none.
        messages: those of the conversation, the last answer included, if it is one.
    """

    ids: tuple[int, ...] = ()
    answer_start: int = 0
    finish_reason: str | None = None
    seed: int | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    _model: str = field(default="")
    _state: Mapping[str, float] = field(default_factory=dict[str, float])
    _snapshot: KVSnapshot | None = field(default=None)

    def __repr__(self) -> str:
        said = f", {len(self.messages)} messages" if self.messages else ""
        return f"Session({len(self.ids)} tokens{said}, finish_reason={self.finish_reason!r})"

    @property
    def can_continue(self) -> bool:
        """Whether the last answer was cut short."""
        return self.finish_reason in ("length", "time")

    @property
    def sampler_state(self) -> Mapping[str, float]:
        """The state of stateful logits processors at the end of the text, by their names."""
        return self._state

    @property
    def nbytes(self) -> int:
        """Bytes of KV cache."""
        return self._snapshot.nbytes if self._snapshot else 0

    def check(self, model: str, problem_of: Callable[[KVSnapshot], str | None]) -> None:
        """``problem_of`` says why a snapshot is not of this model.

        Raises:
            SessionError: it was begun with another bundle, or another variant of it; or its file was changed.
        """
        if self._model and self._model != model:
            raise SessionError(
                "the session was begun with another model, or with another kind of KV cache (--kv, --device): "
                "use the same bundle and options again, or begin a new session."
            )
        if self._snapshot is not None and (problem := problem_of(self._snapshot)):
            raise SessionError(f"the session was not saved by this model, though it says so: {problem}.")

    def prefix_of(self, ids: Ids[int], *, bit_exact: bool) -> KVPrefix | None:
        """The prefix of ``ids`` that the session's KV cache holds.

        ``bit_exact``: without what decode steps computed, as a prefill would give other bits; unless nothing is new.
        """
        if self._snapshot is None:
            return None
        if tuple(ids) == self.ids:
            return KVPrefix(self._snapshot, min(self._snapshot.length, len(ids) - 1))
        most = min(self._snapshot.length, len(ids) - 2, self.answer_start if bit_exact else len(ids))
        same = next((n for n in range(max(most, 0)) if ids[n] != self.ids[n]), max(most, 0))
        return KVPrefix(self._snapshot, same) if same else None

    def take(
        self,
        model: str,
        ids: Ids[int],
        answer_start: int,
        finish_reason: str,
        seed: int | None,
        state: Mapping[str, float],
        snapshot: KVSnapshot,
        messages: Ids[Mapping[str, Any]] = (),
    ) -> None:
        """Hold this from now on; ``snapshot`` is the KV cache of the first of ``ids``."""
        self.ids, self.answer_start, self.finish_reason = tuple(ids), answer_start, finish_reason
        self.seed = self.seed if seed is None else seed
        self.messages = tuple(messages)
        self._model, self._state, self._snapshot = model, dict(state), snapshot

    def save(self, path: str | Path) -> None:
        """Write the session to ``path``; a file that is there is replaced, or stays as it is.

        Raises:
            SessionError: nothing has been said yet, or the file cannot be written.
        """
        if self._snapshot is None:
            raise SessionError("the session is empty: there is nothing to save yet.")
        from safetensors import SafetensorError
        from safetensors import numpy as safetensors

        path = Path(path)
        tensors = {"ids": np.array(self.ids, np.int64)}
        tensors |= {f"kv.{n}": array for n, array in enumerate(self._snapshot.arrays)}
        for at, arrays in self._snapshot.states.items():
            tensors |= {f"state.{at}.{n}": array for n, array in enumerate(arrays)}
        record = {
            "ids": len(self.ids),
            "answer_start": self.answer_start,
            "finish_reason": self.finish_reason,
            "seed": self.seed,
            "messages": self.messages,
            "model": self._model,
            "state": self._state,
            "length": self._snapshot.length,
            "bases": self._snapshot.bases,
        }
        metadata = {"format": _FORMAT, "session": json.dumps(record)}
        metadata["sha256"] = digest(metadata["session"], tensors)
        temporary: Path | None = None
        try:
            _sweep(path)
            with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False) as file:
                temporary = Path(file.name)
            cast(Any, safetensors).save_file(tensors, temporary, metadata)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            retry_in_use(partial(temporary.replace, path))
            with suppress(OSError):
                sync_folder(path.parent)
        except (OSError, SafetensorError) as error:  # a full disk may be either
            reason = error.strerror if isinstance(error, OSError) else None
            raise SessionError(f"the session cannot be saved to {path}: {reason or first_line(error)}.") from error
        finally:
            if temporary is not None:  # gone where it was renamed
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The session saved in ``path``.

        Raises:
            SessionError: there is none, or it is damaged.
        """
        path = Path(path)
        try:
            metadata, tensors = _read(path)
            if metadata["format"] != _FORMAT:
                raise SessionError(f"{path} is of another version of edgegen: begin a new session.")
            if metadata["sha256"] != digest(metadata["session"], tensors):
                raise ValueError("its content does not have the hash it was saved with")
            record = _record(metadata["session"], tensors["ids"])
            arrays = tuple(tensors[f"kv.{n}"] for n in range(sum(name.startswith("kv.") for name in tensors)))
            return cls(
                ids=tuple(tensors["ids"].tolist()),
                answer_start=record.answer_start,
                finish_reason=record.finish_reason,
                seed=record.seed,
                messages=record.messages,
                _model=record.model,
                _state=record.state,
                _snapshot=KVSnapshot(record.length, record.bases, arrays, _states(tensors)),
            )
        except FileNotFoundError:
            raise SessionError(f"there is no session {path}.") from None
        except OSError as error:
            raise SessionError(f"the session {path} cannot be read: {error.strerror or error}.") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SessionError(f"{path} is no session, or a damaged one ({error}): begin a new one.") from error


@dataclass(frozen=True, slots=True)
class _Record:
    """Contents of a file beside its tensors."""

    ids: int
    answer_start: int
    finish_reason: str | None
    seed: int | None
    messages: tuple[dict[str, Any], ...]
    model: str
    state: dict[str, Any]
    length: int
    bases: dict[str, int]


def _record(text: str, ids: NDArray[Any]) -> _Record:
    """The record of a session in ``text``, whose ids are ``ids``.

    Raises:
        ValueError: that is no record, or not one of these ids.
    """
    problems = list[str]()
    record = cast(_Record, decode(_Record, json.loads(text), "", problems))
    if not problems:
        if ids.dtype != np.int64 or ids.shape != (record.ids,):
            problems.append("ids: as many expected as it says")
        if not 0 <= record.answer_start <= record.ids:
            problems.append("answer_start: a place among the ids expected")
        if not 0 <= record.length <= record.ids:
            problems.append("length: at most the number of ids expected")
        if record.seed is not None and record.seed < 0:
            problems.append("seed: 0 or more expected")
        if not all(type(value) in (int, float) and math.isfinite(value) for value in record.state.values()):
            problems.append("state: finite numbers expected")
    refuse_any(problems, ValueError)
    return record


def _states(tensors: Mapping[str, NDArray[Any]]) -> dict[int, tuple[NDArray[Any], ...]]:
    """The fixed states in a file, by position."""
    found: dict[int, dict[int, NDArray[Any]]] = {}
    for name, array in tensors.items():
        if name.startswith("state."):
            at, n = map(int, name.split(".")[1:])
            found.setdefault(at, {})[n] = array
    return {at: tuple(arrays[n] for n in range(len(arrays))) for at, arrays in found.items()}


def _read(path: Path) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """Metadata and arrays of a safetensors file.

    Raises:
        ValueError: that is no such file.
    """
    from safetensors import SafetensorError, safe_open

    open_regular(path).close()  # whose errors have the system's words
    try:
        with cast(Any, safe_open)(str(path), framework="numpy") as file:
            return dict(file.metadata() or {}), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def digest(record: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    """The SHA-256 of a file's record and tensors. It tells damage, not forgery: a forged file can have it too."""
    sha = hashlib.sha256(record.encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        sha.update(f"{name} {array.dtype} {array.shape}\n".encode())
        sha.update(array.data if array.size else b"")
    return sha.hexdigest()


def _sweep(path: Path) -> None:
    """Delete temporary files of processes that were killed."""
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE:
                left.unlink()
