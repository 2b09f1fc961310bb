"""docs/families.md lists the families and variants that the tests compare, with figures that they would accept."""

import pytest

from docs.make_families import PAGE, description, page, rows
from tests.families.cases import CASES
from tests.families.harness import TOLERANCE


def test_page_lists_every_family_and_variant() -> None:
    listed = [(family, variant) for family, variant, _ in rows(PAGE.read_text("utf-8"))]
    assert listed == [(case.family, case.name) for case in CASES], "run python docs/make_families.py"


def test_page_is_current_but_for_its_figures() -> None:
    text = PAGE.read_text("utf-8")
    figures = {
        f"{family}: {variant}": 0.0 if figure == "refused" else float(figure) for family, variant, figure in rows(text)
    }
    assert text == page(figures), "run python docs/make_families.py"


def test_figures_are_those_of_a_passing_test() -> None:
    refused = {str(case) for case in CASES if case.refused}
    for family, variant, figure in rows(PAGE.read_text("utf-8")):
        if f"{family}: {variant}" in refused:
            assert figure == "refused"
        else:
            assert float(figure) <= TOLERANCE


@pytest.mark.parametrize("family", sorted({case.family for case in CASES}))
def test_every_family_is_described(family: str) -> None:
    assert description(family).endswith(".")
