"""EngineOptions: how a bundle is run, as a frozen dataclass."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgegen.bundle.manifest import KVDtype
from edgegen.options.option_set import OptionSet, documented


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions(OptionSet):
    """How a bundle is run: every option of the engine, which holds for all requests."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = None
    prefill_chunk: int = 128
    kernels: Literal["auto", "stock"] = "auto"
    kv: KVDtype | None = None
    max_batch_size: int = 8
    kv_budget: int | None = None
    prefix_cache: int | None = None
    deterministic: bool = False
    draft: str | Path | None = None
    verify: Literal["once", "always", "never"] = "once"
    expect_sha256: str | None = None
