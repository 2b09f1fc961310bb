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

from tests.families.cases import CASES, Case
from tests.families.harness import differences, subject_of

PAGE = Path(__file__).with_name("families.md")

HEAD = """\
# Families

Every family that edgegen exports, and every variant of it that the tests compare with transformers. This page is made
by `python docs/make_families.py`; a test holds its lists against the tests' cases.

A variant is a tiny model with random weights that transformers wrote: 4.57 and 5.23 each write one, where they know the
family. It is exported to float32, and its logits are compared with those of the same transformers (float32; eager
attention, but for Falcon with ALiBi, where that adds the distances twice) over a sequence that crosses every window: at
once, in chunks of several sizes, and token by token. The figure is the greatest difference of any logit in any of
these ways, where logits have a deviation of about 3. 64 greedy ids are the same in every variant.

Where sizes are published, the gigabytes are those of the weights, which a bundle maps: 8.25 bits each in int8, about 5
in int4. A KV cache comes on top.

| family (`model_type`) | variants compared | greatest difference |
|---|---|---|
"""


def page(figures: Mapping[str, float]) -> str:
    """The page with ``figures`` by case; refused cases need none."""
    sections = [HEAD + "".join(_summary(family, figures) for family in dict.fromkeys(c.family for c in CASES))]
    for family, cases in groupby(CASES, key=lambda case: case.family):
        sections.append(f"## {family}\n\n{description(family)}\n\n{_table(list(cases), figures)}")
    return "\n".join(sections)


def description(family: str) -> str:
    """What the family's cases say of it, as one line."""
    return re.sub(r"\s+", " ", import_module(f"tests.families.cases.{family}").__doc__ or "").strip()


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
