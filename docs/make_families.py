"""Write docs/families.md: the families and variants that the tests hold against transformers, and the differences.

python docs/make_families.py [FAMILY ...]

Takes two minutes, or a moment for the families named and new variants; needs both oracles: `make check` installs them.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import Any

from docs.make_coverage import coverage
from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import Architecture, find_architecture
from edgegen_export.checkpoint.gguf.architectures import ARCHITECTURES
from edgegen_export.families import FAMILIES
from edgegen_export.families.refused import why_not
from edgegen_export.families.wrapped import LANGUAGE_MODELS
from tests.families.cases import CASES, Case
from tests.families.formulas import FORMULAS
from tests.families.harness import differences, subject_of
from tests.families.real_configs import REAL_CONFIGS
from tests.families.test_openelm import BASE as OPENELM
from tests.families.test_published_configs import CHECKPOINTS
from tests.families.test_wrapped import WRAPPED

PAGE = Path(__file__).with_name("families.md")

HEAD = """\
# Families

Every family that edgegen exports, and every variant of it that the tests compare with transformers. This page is made
by `python docs/make_families.py`; a test holds its lists against the tests' cases.

A variant is a tiny model with random weights that transformers wrote: 4.57 and 5.24 each write one, where they know the
family. It is exported to float32, and its logits are compared with those of the same transformers (float32; eager
attention, but for Falcon with ALiBi, where that adds the distances twice) over a sequence that crosses every window: at
once, in chunks of several sizes, and token by token. The figure is the greatest difference of any logit in any of
these ways, where logits have a deviation of about 3. 64 greedy ids are the same in every variant.

Where sizes are published, the gigabytes are those of the weights, which a bundle maps: 8.25 bits each in int8, about 5
in int4. A KV cache comes on top.

LACKING

WRAPPERS

FILES

Of the models that other packages know, these can be exported (`python docs/make_coverage.py` has how they are counted):

COVERAGE

| family (`model_type`) | variants compared | greatest difference |
|---|---|---|
"""


PUBLISHED = """\
## Published checkpoints

What edgegen makes of the `config.json` of COUNT published checkpoints, each read up to the weights by the tests, which
also compare the number of parameters. EXPORTED are exported; the others are refused for the reason that is given.

| checkpoint | model type | |
|---|---|---|
"""
_REASON = re.compile(
    r"(?:config\.json asks for what edgegen cannot export: |model_type '.*?' (?:cannot be exported: |is ))"
    r"(.*?)(?:; supported: .*)?\.?"
)


def page(figures: Mapping[str, float]) -> str:
    """The page with ``figures`` by case; refused cases need none."""
    sections = [
        HEAD.replace("LACKING", lacking())
        .replace("WRAPPERS", wrappers())
        .replace("FILES", gguf_files())
        .replace("COVERAGE", "\n".join(coverage()))
        + "".join(_summary(family, figures) for family in dict.fromkeys(c.family for c in CASES))
    ]
    sections.append(published())
    for family, cases in groupby(CASES, key=lambda case: case.family):
        sections.append(f"## {family}\n\n{description(family)}\n\n{_table(list(cases), figures)}")
    return "\n".join(sections)


def lacking() -> str:
    """Describe families that transformers does not have."""
    formulas = sorted((*FORMULAS, OPENELM["model_type"]))
    types = [name for one in _without_case() if not _is_wrapper(one) for name in one.model_types]
    said = (
        f"transformers does not have {_listed(sorted(types))}: tests compare {_listed(formulas)} with their published "
        "formulas, and each other with a model of another family that computes the same of the same weights."
    )
    return "\n".join(wrap(said, 120, break_on_hyphens=False))


def _without_case() -> list[Architecture]:
    """The families that have no case and that the list of language models inside others does not name."""
    known = {case.family for case in CASES} | {one.model_type for one in WRAPPED if one.left} | LANGUAGE_MODELS.keys()
    return [family for family in FAMILIES if not known.intersection(family.model_types)]


def _is_wrapper(family: Architecture) -> bool:
    """Whether it is a model with towers around a language model."""
    return any(name.endswith("ForConditionalGeneration") for name in family.classes)


def _listed(names: list[str]) -> str:
    """Code words with commas, and an "and" before the last."""
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def wrappers() -> str:
    """Describe models with towers around a language model."""
    left = sorted(wrapped.model_type for wrapped in WRAPPED if wrapped.left)
    types = ", ".join(f"`{model_type}`" for model_type in LANGUAGE_MODELS if model_type not in left)
    others = ", ".join(f"`{model_type}`" for model_type in left)
    elsewhere = [name for one in _without_case() if _is_wrapper(one) for name in one.model_types]
    said = (
        "Of a model with towers for pictures or sound around one of these, the language model is exported, for text "
        "only: the export says which tower is left out. Tests compare a tiny one of each of these types with "
        f"transformers' own class: {types}; and of {_listed(sorted(elsewhere))}. That of "
        f"{others} is compared with the class of its language model."
    )
    return "\n".join(wrap(said, 120, break_on_hyphens=False))


def published() -> str:
    """The table of published checkpoints."""
    configs = {name: checkpoint["config"] for name, checkpoint in CHECKPOINTS.items()}
    configs |= {real.checkpoint: real.read() for real in REAL_CONFIGS}
    verdicts = {name: verdict(configs[name]) for name in sorted(configs, key=str.lower)}
    exported = sum(said == "exported" for said in verdicts.values())
    lines = (f"| {name} | {configs[name]['model_type']} | {said} |\n" for name, said in verdicts.items())
    return PUBLISHED.replace("COUNT", str(len(configs))).replace("EXPORTED", str(exported)) + "".join(lines)


def verdict(config: Mapping[str, Any]) -> str:
    """Whether a checkpoint with this config is exported, or why not."""
    try:
        find_architecture(config, FAMILIES, why_not).read_config(config)
    except UnsupportedModelError as error:
        found = _REASON.fullmatch(str(error))
        return found[1] if found else str(error)
    return "exported"


def gguf_files() -> str:
    """Describe GGUF files."""
    names = ", ".join(f"`{name}`" for name in sorted(ARCHITECTURES))
    said = (
        f"GGUF files of these architectures (`general.architecture`) are read: {names}. Where a file beside the model "
        "(mmproj) has a tower for pictures or sound, the language model is exported. Tests write a tiny file of each "
        "as llama.cpp's converter does, and compare its tensors, its config and its logits with the original's."
    )
    return "\n".join(wrap(said, 120, break_on_hyphens=False))


def description(family: str) -> str:
    """Return the description of a family in its cases, as one line."""
    return re.sub(r"\s+", " ", import_module(f"tests.families.cases.{family.replace('-', '_')}").__doc__ or "").strip()


def _summary(family: str, figures: Mapping[str, float]) -> str:
    compared = [figures[str(case)] for case in CASES if case.family == family and not case.refused]
    return f"| [{family}](#{family}) | {len(compared)} | {max(compared):.0e} |\n"


def _table(cases: list[Case], figures: Mapping[str, float]) -> str:
    rows = "".join(
        f"| {case.name} | {'refused' if case.refused else f'{figures[str(case)]:.0e}'} |\n" for case in cases
    )
    return f"| variant | greatest difference |\n|---|---|\n{rows}"


def rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Family, variant and figure of each line of a page's tables."""
    family = ""
    for line in text.split("\n"):
        if line.startswith("## "):
            family = line.removeprefix("## ")
        elif (cells := line.strip("|").split(" | ")) and len(cells) == 2 and not line.startswith("| variant"):
            yield family, cells[0].strip(), cells[1].strip()


def measure(case: Case) -> float:
    """The greatest difference from any oracle."""
    greatest = 0.0
    for oracle in case.oracles:
        with TemporaryDirectory() as folder:
            greatest = max(greatest, differences(subject_of(case, Path(folder), oracle)).greatest)
    return greatest


def known(before: Mapping[str, str], case: Case) -> bool:
    """Whether the page has a figure of the case: a new one has no line, and what was refused has none."""
    return before.get(str(case), "refused") != "refused"


if __name__ == "__main__":
    named = set(sys.argv[1:])
    before = {f"{family}: {variant}": figure for family, variant, figure in rows(PAGE.read_text("utf-8"))}
    measured = {
        str(case): float(before[str(case)])
        if named and case.family not in named and known(before, case)
        else measure(case)
        for case in CASES
        if not case.refused
    }
    PAGE.write_text(page(measured), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
