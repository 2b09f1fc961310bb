"""ParityReference: the unquantized model's outputs on a text, stored in the bundle to compare the bundle with.

Of each position it keeps the ``LIKELIEST`` ids and their log-probabilities, and the one of all others together: two
orders of magnitude less than all logits, and enough for a lower bound of the divergence (:meth:`ParityReference.kl`).
"""

import io
import math
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import BundleError, one_or_list
from edgegen.system import open_regular

LIKELIEST = 128
"""Of 50257 ids: finds nine tenths of the divergence that noise in the logits makes, 64 find 86%, 256 find 93%."""

_UNIX = 3
"""Of a member of a ZIP file: the system that made it."""

UNKNOWN = -1
"""In ``continuations``: where the unquantized model was not asked any more."""

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
LogProbabilities = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ParityReference:
    """The unquantized model's words. All log-probabilities are natural, from float32 logits.

    Attributes:
        ids: [windows, t], the text; each window begins without past.
        likeliest: [windows, t, k], the ids that the model finds likeliest after each position, the best first.
        logprobs: [windows, t, k], of these.
        rest: [windows, t], of all other ids together: see :func:`log_rest`.
        following: [windows, t - 1], of the id that follows in the text.
        prompts: [n, p], prompts to continue greedily.
        continuations: [n, c], what the model itself says then; ``UNKNOWN`` after what it was asked.
    """

    ids: Ids
    likeliest: Ids
    logprobs: Floats
    rest: Floats
    following: Floats
    prompts: Ids
    continuations: Ids

    def kl(
        self, window: int, places: slice, logprobs: LogProbabilities, rest: LogProbabilities | None = None
    ) -> LogProbabilities:
        """The divergence KL(model || logprobs) at each of n positions, in nats; ``logprobs`` [n, vocab] are what
        is compared with it, and ``rest`` [n], where it is known, their :func:`log_rest`.

        Over the likeliest ids, and the others as if they were one. Taking outcomes together never adds divergence (the
        data-processing inequality), so this is at most the divergence over the whole vocabulary, and equal to it where
        ``k`` is the vocabulary. The terms ``q - p``, whose sum is zero, keep rounding errors of ``p`` from mattering.
        """
        likeliest = self.likeliest[window, places]
        log_p = np.column_stack([self.logprobs[window, places], self.rest[window, places]]).astype(np.float64)
        rest = log_rest(logprobs, likeliest) if rest is None else rest
        log_q: LogProbabilities = np.column_stack([np.take_along_axis(logprobs, likeliest, axis=1), rest])
        p, q = np.exp(log_p), np.exp(log_q)
        divergences: LogProbabilities = (p * (log_p - log_q) - p + q).sum(axis=1)
        return np.maximum(0.0, divergences)

    def to_bytes(self, vocab_size: int) -> bytes:
        """As an uncompressed ``.npz``, as NumPy writes it on Linux: equal arrays are equal bytes on every system."""
        of_ids = np.min_scalar_type(vocab_size - 1)
        arrays: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays |= {name: arrays[name].astype(of_ids) for name in ("ids", "likeliest", "prompts")}
        arrays["continuations"] = self.continuations.astype(np.int32)
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as members:
            for name, array in arrays.items():
                member = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
                member.create_system = _UNIX  # elsewhere the system of this process, whatever that is
                member.external_attr = 0o600 << 16
                with members.open(member, "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
        return file.getvalue()

    @classmethod
    def load(cls, path: Path, vocab_size: int, max_context: int) -> "ParityReference":
        """Read the reference from a bundle's file, and check it against the model's sizes.

        Raises:
            BundleError: it is no such file, or not one for a model of that vocabulary and context.
        """
        try:
            with open_regular(path) as opened, np.load(opened, allow_pickle=False) as file:
                arrays: dict[str, NDArray[Any]] = {field.name: file[field.name] for field in fields(cls)}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise BundleError(f"{path} is no parity reference: {error}. Export the model again.") from error
        if problems := _problems(arrays, vocab_size, max_context):
            raise BundleError(f"{path} is no parity reference of this model: {one_or_list(problems)}")
        typed: dict[str, Any] = {n: x if x.dtype.kind == "f" else x.astype(np.int64) for n, x in arrays.items()}
        return cls(**typed)


def log_softmax(logits: Floats, likeliest: Ids) -> tuple[LogProbabilities, LogProbabilities]:
    """The log-probabilities of logits [n, vocab], in double precision, and their :func:`log_rest`."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    likely = np.exp(shifted)
    total: LogProbabilities = likely.sum(axis=1)
    shifted -= _logs(total)[:, None]
    return shifted, _log_others(likely, likeliest, total)


def log_rest(found: LogProbabilities, likeliest: Ids) -> LogProbabilities:
    """The log-probabilities [n] of all ids but the ``likeliest`` [n, k], of ``found`` [n, vocab]; the log of the
    smallest float where nothing is left."""
    return _log_others(np.exp(found), likeliest, np.ones(len(found)))


def _log_others(likely: LogProbabilities, likeliest: Ids, total: LogProbabilities) -> LogProbabilities:
    np.put_along_axis(likely, likeliest, 0, axis=1)
    return _logs(np.maximum(likely.sum(axis=1) / total, np.finfo(np.float64).tiny))


def _logs(values: LogProbabilities) -> LogProbabilities:
    """Logarithms of the C library: NumPy's own differ by the processor."""
    return np.array([math.log(value) for value in values.tolist()])


def _problems(arrays: dict[str, NDArray[Any]], vocab_size: int, max_context: int) -> list[str]:
    """Return the problems of arrays that do not fit together, so that nothing wrong reaches a graph."""
    windows, length = (*arrays["ids"].shape, 0, 0)[:2]
    prompts, prompt = (*arrays["prompts"].shape, 0, 0)[:2]
    kept, asked = (arrays[name].shape[-1] if arrays[name].ndim else 0 for name in ("likeliest", "continuations"))
    shapes = {
        "ids": (windows, length),
        "likeliest": (windows, length, kept),
        "logprobs": (windows, length, kept),
        "rest": (windows, length),
        "following": (windows, length - 1),
        "prompts": (prompts, prompt),
        "continuations": (prompts, asked),
    }
    problems = [f"{name} has the shape {arrays[name].shape}" for name in shapes if arrays[name].shape != shapes[name]]
    if not (windows and 0 < length <= max_context and kept):
        problems.append(f"{windows} windows of {length} positions and {kept} ids, in a context of {max_context}")
    if prompts and not (prompt and asked and prompt + asked <= max_context):
        problems.append(f"prompts of {prompt} ids with {asked} to follow, in a context of {max_context}")
    for name in ("ids", "likeliest", "prompts", "continuations"):
        least = UNKNOWN if name == "continuations" else 0
        if arrays[name].dtype.kind not in "iu":
            problems.append(f"{name} has the type {arrays[name].dtype}")
        elif arrays[name].size and not (least <= arrays[name].min() and arrays[name].max() < vocab_size):
            problems.append(f"{name} has ids outside the vocabulary of {vocab_size}")
    floats = ("logprobs", "rest", "following")
    return problems + [f"{x} has the type {arrays[x].dtype}" for x in floats if arrays[x].dtype != np.float32]
