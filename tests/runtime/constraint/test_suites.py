"""The public suites: nothing invalid is let through, and what is refused is refused before any model runs."""

from collections import Counter
from pathlib import Path

import pytest

from edgegen.constraint import AnyJson
from tests.runtime.constraint.json_schema_suite import instances, outcome
from tests.runtime.constraint.vocabulary import Vocabulary


@pytest.mark.parametrize(("name", "additional_properties"), [("gpt2", True), ("qwen", False)])
def test_no_invalid_instance_of_the_schema_suite_is_let_through(
    name: str, additional_properties: bool, test_data: Path, request: pytest.FixtureRequest
) -> None:
    vocabulary: Vocabulary = request.getfixturevalue(name)
    outcomes = {
        str(instance): outcome(instance, vocabulary, additional_properties=additional_properties)[0]
        for instance in instances(test_data)
    }
    assert [instance for instance, what in outcomes.items() if what == "let through"] == []
    counts = Counter(outcomes.values())
    assert counts["right"] > 1650  # so that refusing everything would not pass
    assert counts["too strict"] < 60


def test_any_json_is_json(gpt2: Vocabulary, test_data: Path) -> None:
    """JSONTestSuite: ``y_`` is JSON, ``n_`` is not; files of no valid UTF-8 go in byte by byte."""
    constraint = AnyJson(any_value=True, whitespace="any")
    wrong: list[str] = []
    files = sorted((test_data / "suites" / "JSONTestSuite" / "test_parsing").glob("[yn]_*.json"))
    assert len(files) == 95 + 188
    for file in files:
        ids = [gpt2.id_of_byte(byte) for byte in file.read_bytes()]
        if gpt2.accepts(constraint, ids) != file.name.startswith("y_"):
            wrong.append(file.name)
    assert wrong == []
