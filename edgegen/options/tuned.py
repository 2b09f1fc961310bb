"""TunedOptions: the engine options that ``edgegen tune`` found fastest for a bundle on this machine, kept in a file."""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype
from edgegen.errors import OptionError
from edgegen.options.engine import EngineOptions
from edgegen.strict_json import decode
from edgegen.system import (
    LOCAL,
    Source,
    cores,
    home_folder,
    processor_features,
    read_regular_text,
    replace_text,
    retry_in_use,
)


@dataclass(frozen=True, slots=True)
class TunedOptions:
    """
    Attributes:
        threads, prefill_chunk, kv: as in :class:`~edgegen.EngineOptions`.
    """

    threads: int
    prefill_chunk: int
    kv: KVDtype

    @classmethod
    def read(cls, bundle: Bundle, source: Source = LOCAL) -> Self | None:
        """Read the stored options of a bundle of this content on a machine like this; None if there are none, or they
        are broken."""
        try:
            told: Any = json.loads(read_regular_text(path_of(bundle, source)))
            problems = list[str]()
            read = decode(cls, told, "", problems)
            if problems or read is None:
                return None
            EngineOptions(threads=read.threads, prefill_chunk=read.prefill_chunk, kv=read.kv)
        except (OSError, ValueError, RecursionError, OptionError):
            return None
        return read if any(variant.kv.dtype == read.kv for variant in bundle.manifest.variants) else None

    def write(self, bundle: Bundle, source: Source = LOCAL) -> Path:
        """Store them in the user's data folder; returns the file.

        Raises:
            OSError: it cannot be written.
        """
        path = path_of(bundle, source)
        replace_text(path, json.dumps(asdict(self)))
        return path

    def applied(self, options: EngineOptions, given: set[str], *, keep_kv: bool = False) -> EngineOptions:
        """``options`` with these in place of what is not among the ``given`` names.

        ``keep_kv``: leave the type of the KV cache as it is, for what must be continued later: sessions, batch jobs.
        Stock operators have not been measured: with them nothing changes.
        """
        if options.kernels != "auto":
            return options
        chosen = {name: value for name, value in asdict(self).items() if name not in given}
        if keep_kv:
            chosen.pop("kv", None)
        return replace(options, **chosen)


def forget_tuned(bundle: Bundle, source: Source = LOCAL) -> bool:
    """Remove what is stored for a bundle; False if nothing was."""
    with suppress(FileNotFoundError):
        retry_in_use(path_of(bundle, source).unlink)
        return True
    return False


def path_of(bundle: Bundle, source: Source = LOCAL) -> Path:
    """The file for a bundle's content, and for the processor and the cores that this process may use."""
    machine = hashlib.sha256(f"{processor_features(source)}\n{cores(source)}".encode()).hexdigest()
    return home_folder() / "tuned" / f"{bundle.digest[:32]}-{machine[:16]}.json"
