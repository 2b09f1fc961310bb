"""docs/constrained-output.md says what becomes of every instance of the JSON-Schema-Test-Suite."""

from pathlib import Path

from docs.make_constrained_output import PAGE, measure, page


def test_page_is_current(test_data: Path) -> None:
    assert PAGE.read_text("utf-8") == page(measure(test_data)), "run python docs/make_constrained_output.py"
