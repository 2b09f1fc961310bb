"""docs/figures.json has what docs/performance.md measured, and README and docs/service.md are made from it."""

import json

import pytest

from docs.make_figures import FILE, SOURCE, filled, measured, pages


def test_the_data_file_has_what_the_benchmarks_page_says() -> None:
    assert json.loads(FILE.read_text("utf-8")) == measured(SOURCE.read_text("utf-8")), "run python docs/make_figures.py"


def test_pages_have_the_figures_of_the_data_file() -> None:
    figures = json.loads(FILE.read_text("utf-8"))
    for path, text in pages(figures).items():
        assert path.read_text("utf-8") == text, f"run python docs/make_figures.py for {path.name}"


def test_another_measurement_would_be_other_pages() -> None:
    page = SOURCE.read_text("utf-8")
    row = next(line for line in page.split("\n") if line.startswith("| edgegen int8 | "))
    cells = row.split(" | ")
    other = measured(page.replace(row, " | ".join([*cells[:2], "143.5", *cells[3:]]), 1))
    assert other["shapes"]["G"]["edgegen int8"]["tokens_per_second_at_900"] == 143.5
    assert other != json.loads(FILE.read_text("utf-8"))


def test_a_page_without_marks_is_told() -> None:
    with pytest.raises(ValueError, match="substring not found"):
        filled("no marks", "speeds", "")
