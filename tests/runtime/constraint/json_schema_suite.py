"""The required part of the JSON-Schema-Test-Suite, and what a vocabulary makes of each of its instances."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgegen.constraint import JsonSchema
from edgegen.errors import ConstraintError
from tests.runtime.constraint.vocabulary import Vocabulary

DRAFTS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
Outcome = Literal["right", "too strict", "refused", "let through"]


@dataclass(frozen=True)
class Instance:
    """One instance of the suite; ``keyword`` is the name of its file."""

    draft: str
    keyword: str
    test: str
    schema: Any
    data: Any
    valid: bool

    def constraint(self, *, additional_properties: bool) -> JsonSchema:
        return JsonSchema.of(self.schema, "flexible", additional_properties=additional_properties)

    def __str__(self) -> str:
        return f"{self.draft}/{self.keyword}: {self.test}: {json.dumps(self.data)[:80]}"


def instances(test_data: Path) -> Iterator[Instance]:
    """All of them; a schema that does not say its draft is given it, as the suite's readers are to assume it."""
    for draft, uri in DRAFTS.items():
        folder = test_data / "suites" / "JSON-Schema-Test-Suite" / "tests" / draft
        for file in sorted(folder.glob("*.json")):
            for group in json.loads(file.read_text("utf-8")):
                schema: Any = group["schema"]
                if not isinstance(schema, bool):
                    schema = {"$schema": uri} | schema
                for test in group["tests"]:
                    name = f"{group['description']}: {test['description']}"
                    yield Instance(draft, file.stem, name, schema, test["data"], test["valid"])


def outcome(instance: Instance, vocabulary: Vocabulary, *, additional_properties: bool = True) -> tuple[Outcome, str]:
    """Return the outcome of the instance, written by ``json.dumps``, and the reason if its schema is refused."""
    constraint = instance.constraint(additional_properties=additional_properties)
    try:
        accepted = vocabulary.accepts(constraint, json.dumps(instance.data, ensure_ascii=False))
    except ConstraintError as error:
        return "refused", str(error)
    if accepted == instance.valid:
        return "right", ""
    return ("let through" if accepted else "too strict"), ""
