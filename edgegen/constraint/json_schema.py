"""JsonSchema: constrains the output to JSON that validates against a schema."""

import json
import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Self, cast

from edgegen.constraint.closed_schema import closed
from edgegen.constraint.constraint import (
    COLON,
    COMMA,
    FREE_LEVELS,
    SPACE,
    Whitespace,
    check_size,
    check_whitespace,
    line_break,
    read_whitespace_pattern,
)
from edgegen.constraint.cost import check_schema_cost
from edgegen.constraint.schema_levels import value_levels
from edgegen.constraint.schema_rules import enforceable, places_of, places_where
from edgegen.errors import ConstraintError, one_or_list

_COMMON = ("not", "if", "contains", "uniqueItems", "propertyNames")
"""Unimplemented keywords of every draft: llguidance names those of one place, and all should be heard of at once."""

_MOST_LEVELS = 10
"""Levels that are indented by four spaces each; deeper ones have as much as these."""

_UNIMPLEMENTED = re.compile(r"Unimplemented keys: (\[.*\])")
_BOUNDS, _NAMES = ("minLength", "maxLength"), "patternProperties"
_NOT_DISJOINT = re.compile(r"patternProperty regexes /(.*)/ and /(.*)/ are not disjoint")
_BROKEN_PATTERN = re.compile(r"regex parse error:\n    (.*)\n *\^+\nerror: (.*)")


@dataclass(frozen=True)
class JsonSchema:
    """JSON that validates against a schema (draft 7, 2019-09, 2020-12 by its ``$schema``; the last without one).

    Properties come in the schema's order. Strings are spelled in one way each, letters as themselves and
    ``\\u`` nowhere, so that a name cannot come back in disguise. ``format`` is enforced where it is known,
    dates to the day. A schema that cannot be enforced is refused.

    Attributes:
        schema: its JSON text.
        additional_properties: whether objects may have properties that the schema does not list, as the standard has
            it. Otherwise those only may whose schema says ``additionalProperties``, so that an answer ends.
        whitespace_pattern: a regular expression of the space that may stand in one place; it takes the place of
            ``whitespace``.
    """

    name = "the JSON schema"

    schema: str
    whitespace: Whitespace = "compact"
    additional_properties: bool = False
    whitespace_pattern: str | None = None

    def __post_init__(self) -> None:
        check_whitespace(self.whitespace, self.whitespace_pattern)

    @classmethod
    def of(cls, schema: object, whitespace: Whitespace = "compact", *, additional_properties: bool = False) -> Self:
        """From a schema as a text, as Python values, or as a class with ``model_json_schema`` (pydantic's models).

        Raises:
            ConstraintError: it is something else.
        """
        if isinstance(schema, str):
            return cls(schema, whitespace, additional_properties)
        describe = getattr(schema, "model_json_schema", None)
        if callable(describe):
            schema = describe()
        if not isinstance(schema, (bool, Mapping)):
            raise ConstraintError(
                f"a JSON schema is an object, its text, or a pydantic model, not {type(schema).__name__}"
            )
        try:
            return cls(json.dumps(schema, ensure_ascii=False, allow_nan=False), whitespace, additional_properties)
        except RecursionError:
            raise ConstraintError("the JSON schema is nested too deeply") from None
        except (TypeError, ValueError) as error:
            raise ConstraintError(f"the JSON schema holds what is not JSON: {error}") from None

    def source(self) -> str:
        schema = self.rule()
        if self.whitespace != "any" or self.whitespace_pattern is not None:
            return json.dumps({"grammars": [{"json_schema": schema}]})
        space = SPACE[self.whitespace]
        grammar = f"start: SPACE? json SPACE?\njson: %json {json.dumps(schema)}\nSPACE: /{space}/\n"
        return json.dumps({"grammars": [{"lark_grammar": grammar}]})

    def rule(self, within: int = 0, *, spaced: bool = False) -> dict[str, Any]:
        """The schema as llguidance reads it, for ``%json`` in a grammar.

        ``within``: how many objects and arrays it stands in there, which indent it further; ``spaced``: one space may
        stand after commas and colons of a compact one.

        Raises:
            ConstraintError: it is broken, or cannot be enforced.
        """
        parsed = self._parsed()
        check_size(self.name, self.schema)
        schema = enforceable(parsed)
        check_schema_cost([parsed], self.name)
        if self.additional_properties:
            return schema | {"x-guidance": self._options(schema, within, spaced)}
        coerced = bool(places_of(schema, "oneOf"))
        if coerced:
            # Branches that only closing tells apart are not apart in the schema: what validates as one does as both.
            self._check(schema | {"x-guidance": self._options(schema, within, spaced)})
        schema = closed(schema)
        return schema | {"x-guidance": self._options(schema, within, spaced) | {"coerce_one_of": coerced}}

    def _options(self, schema: Mapping[str, Any], within: int, spaced: bool) -> dict[str, Any]:
        pattern = self.whitespace_pattern
        flexible = self.whitespace == "flexible" and pattern is None
        levels = value_levels(schema, FREE_LEVELS, _MOST_LEVELS) + within if flexible else 0
        space = SPACE["any"] if self.whitespace == "any" else line_break(levels) if levels else None
        space = space if pattern is None else read_whitespace_pattern(pattern)
        return {
            "whitespace_flexible": bool(space),
            "whitespace_pattern": space,
            "item_separator": COMMA if flexible or spaced else ",",
            "key_separator": COLON if flexible or spaced else ":",
            "json_allowed_escapes": 'nrbtf\\"',
            "json_allow_general_unicode_escapes": False,
            "coerce_one_of": False,
            "lenient": False,
        }

    def _check(self, schema: Mapping[str, Any]) -> None:
        from llguidance import LLMatcher

        complaint = LLMatcher.validate_grammar(json.dumps({"grammars": [{"json_schema": schema}]}), None)
        if complaint:
            raise ConstraintError(f"{self.name} cannot be used: {self.explain(complaint).strip()}")

    def explain(self, complaint: str) -> str:
        unimplemented = _UNIMPLEMENTED.search(complaint)
        if unimplemented:
            keywords = cast(list[str], json.loads(unimplemented[1]))
            others = [keyword for keyword in _COMMON if keyword not in keywords]
            found = [(word, place) for word in [*keywords, *others] for place in places_of(self._parsed(), word)]
            return one_or_list([f"{word!r} at {place} cannot be enforced" for word, place in found])
        if "oneOf constraints" in complaint:
            places = ", ".join(places_of(self._parsed(), "oneOf"))
            return (
                f"the branches of 'oneOf' at {places} may overlap, which cannot be enforced: "
                "tell them apart by a required property with a 'const', or write 'anyOf'"
            )
        if unknown := re.search(r"Unknown format: (.*)", complaint):
            places = [f"{place}" for place in places_of(self._parsed(), "format", unknown[1])]
            return f"format {unknown[1]!r} at {', '.join(places)} cannot be enforced: leave it out"
        if "is not present in a registry" in complaint:
            return (
                f"{complaint.partition(' is not')[0]} is not in the schema, and nothing is fetched: put it in '$defs'"
            )
        if "Unable to determine if regex is empty" in complaint:
            places = self._places(lambda part: "pattern" in part and not part.keys().isdisjoint(_BOUNDS)) or "#"
            return (
                f"the pattern at {places} is too complex beside a bound on the length, which cannot be enforced: "
                "leave out one of the two, or put the length into the pattern"
            )
        if found := _NOT_DISJOINT.search(complaint):
            places = self._places(lambda part: {found[1], found[2]} <= _names_of(part)) or "#"
            return (
                f"the names {found[1]!r} and {found[2]!r} in '{_NAMES}' at {places} may both fit one property, which "
                "cannot be enforced: write expressions that exclude each other"
            )
        if found := _BROKEN_PATTERN.search(complaint):
            places = self._places(lambda part: part.get("pattern") == found[1] or found[1] in _names_of(part))
            where = f" at {places}" if places else ""
            return f"the pattern {found[1]!r}{where} cannot be enforced: {found[2]}"
        return complaint.replace("Unsatisfiable schema", "nothing satisfies it")

    def _places(self, holds: Callable[[Mapping[str, Any]], bool]) -> str:
        return ", ".join(places_where(self._parsed(), holds))

    def _parsed(self) -> Any:
        try:
            return json.loads(self.schema, parse_constant=_refuse_constant)
        except RecursionError:
            raise ConstraintError("the JSON schema is nested too deeply") from None
        except ValueError as error:
            raise ConstraintError(f"the JSON schema is not JSON: {error}") from None


def _names_of(part: Mapping[str, Any]) -> Set[str]:
    """The expressions in a schema's ``patternProperties``; none where that is data of another kind."""
    names = part.get(_NAMES)
    return cast(dict[str, Any], names).keys() if isinstance(names, dict) else frozenset()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
