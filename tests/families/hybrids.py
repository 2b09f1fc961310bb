"""Bundles of models whose layers keep different things, or a latent, a small random one of each family."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.families import iquestloopcoder, phi4flash, rwkv7
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of
from tests.runtime.models import VOCAB_SIZE, byte_tokenizer
from tests.second_oracle import judged

SHARING: tuple[str, ...] = ("gemma3n_text", "gemma4_text")
FAMILIES = (
    *("lfm2", "lfm2_moe", "lfm3", "granitemoehybrid", "falcon_h1", "qwen3_5_text", "qwen3_next", "nemotron_h"),
    *("mamba2", "mamba", "falcon_mamba", "jamba", "olmo_hybrid", "kimi_linear", "bailing_hybrid"),
    *("zamba2", "hrm_text", "dory", "iquestloopcoder", "phi4flash", "inkling_text"),
    *SHARING,
    "deepseek_v3",
    "rwkv7",
)
_NAMES: dict[str, str] = {**dict.fromkeys(SHARING, "E2B"), "nemotron_h": "experts"}
_ROWS = {"gemma3n_text": {"vocab_size_per_layer_input": 250}, "gemma4_text": {"vocab_size_per_layer_input": VOCAB_SIZE}}

WRITTEN: dict[str, Callable[..., Any]] = {
    "rwkv7": rwkv7.written,
    "iquestloopcoder": iquestloopcoder.written,
    "phi4flash": phi4flash.written,
}
"""Writers of models that transformers does not have, by type."""

CONTEXT = 1024
"""That of the bundles, for conversations."""

CASES_OF = {
    case.family: replace(
        case,
        config={**case.config, "vocab_size": VOCAB_SIZE, "max_position_embeddings": CONTEXT}
        | _ROWS.get(case.family, {}),
    )
    for case in CASES
    if case.family in FAMILIES and case.name == _NAMES.get(case.family, "base")
}


def judged_families(families: Iterable[str]) -> list[Any]:
    """Parameters of tests: families, each with the oracle that writes its checkpoint."""
    return judged(families, lambda family: CASES_OF[family].oracles[0] if family in CASES_OF else None)


JUDGED = judged_families(FAMILIES)

CASE = CASES_OF["lfm2"]
"""For its vocabulary, which all have."""

TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}]{{ message.content.split('</think>')[-1] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
"""As those of models that think aloud: the thoughts of earlier answers are left out."""

BundleOf = Callable[[str], Bundle]
"""The bundle of a family."""


def bundles_in(folders: pytest.TempPathFactory) -> BundleOf:
    """Exports each bundle when it is first asked for."""

    @cache
    def bundle_of(family: str) -> Bundle:
        folder = folders.mktemp("hybrid")
        checkpoint = folder / "checkpoint"
        if write := WRITTEN.get(family):
            write("base", checkpoint, vocab_size=VOCAB_SIZE, max_position_embeddings=CONTEXT)
        else:
            checkpoint_of(CASES_OF[family], checkpoint)
        return export(str(_write_tokenizer(checkpoint)), folder / "bundle", ExportOptions(fast=True))[0]

    return bundle_of


def _write_tokenizer(checkpoint: Path) -> Path:
    byte_tokenizer(checkpoint / "tokenizer.json")
    (checkpoint / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE)
    return checkpoint
