"""Bundles of models whose layers keep different things, or a latent, a small random one of each family."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.every_case import EVERY
from tests.families.cases import CASES
from tests.families.cases.kept import Kept
from tests.families.formulas import FORMULAS
from tests.families.harness import checkpoint_of
from tests.runtime.models import VOCAB_SIZE, byte_tokenizer
from tests.second_oracle import judged

CONTEXT = 1024
"""That of the bundles, for conversations."""

CASES_OF = {
    case.family: replace(
        case,
        config={**case.config, "vocab_size": VOCAB_SIZE, "max_position_embeddings": CONTEXT, **case.kept.config},
    )
    for case in CASES
    if case.kept
}
KEPT: Mapping[str, Kept] = {case.family: case.kept for case in CASES if case.kept} | {
    family: formulas.kept for family, formulas in FORMULAS.items()
}
"""By family: states, and how exact the graphs are."""


def judged_families(families: Iterable[str]) -> list[Any]:
    """Parameters of tests: families, each with the oracle that writes its checkpoint."""
    return judged(families, lambda family: CASES_OF[family].oracles[0] if family in CASES_OF else None)


JUDGED = judged_families(KEPT)

_ONE_OF_EACH = {(frozenset(kind for _, kind in kept.states), kept.rolled_back): family for family, kept in KEPT.items()}

OF_EACH_KIND = judged_families(KEPT if EVERY else _ONE_OF_EACH.values())
"""A family for each set of kinds of states that a cache may hold, and way to take tokens back: scheduling and caches
know nothing else of a family."""

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
        if family in FORMULAS:
            FORMULAS[family].written("base", checkpoint, vocab_size=VOCAB_SIZE, max_position_embeddings=CONTEXT)
        else:
            checkpoint_of(CASES_OF[family], checkpoint)
        return export(str(_write_tokenizer(checkpoint)), folder / "bundle", ExportOptions(fast=True))[0]

    return bundle_of


def _write_tokenizer(checkpoint: Path) -> Path:
    byte_tokenizer(checkpoint / "tokenizer.json")
    (checkpoint / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE)
    return checkpoint
