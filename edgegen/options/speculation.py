"""Which bundles propose tokens by their own multi-token prediction head."""

from edgegen.bundle.bundle import Bundle
from edgegen.options.engine import EngineOptions

LEAST_READ = 50_000_000
"""Bytes that a step of a model has to read for a head to pay: a smaller one is done before a proposal is made."""


def uses_mtp_head(bundle: Bundle, options: EngineOptions) -> bool:
    """Whether the multi-token prediction head of ``bundle`` is to propose tokens, where that runs on the CPU."""
    there = bundle.manifest.mtp is not None and options.draft is None
    return options.speculate == "mtp" or (options.speculate == "auto" and there)
