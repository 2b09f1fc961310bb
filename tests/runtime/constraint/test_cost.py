"""Limits of a grammar's cost: it is refused before it is compiled, whatever kind of constraint it was made of."""

import json
import time
from collections.abc import Callable

import pytest

from edgegen.constraint import Choice, Constraint, Grammar, JsonSchema, Regex
from edgegen.constraint.cost import MOST_FORCED, check_cost, check_schema_cost
from edgegen.errors import ConstraintError
from tests.runtime.constraint.vocabulary import Vocabulary

_LETTERS = "a b c d e f g h i j k l m n o p q r s t u v w x y z "
_DOUBLED = "".join(f"r{n}: r{n + 1} r{n + 1}\n" for n in range(30)) + 'r30: "x"\n'


def _properties(count: int) -> dict[str, object]:
    return {f"p{n}": {"type": "string"} for n in range(count)}


_TOO_MUCH: dict[str, tuple[Callable[[], Constraint], str]] = {
    "alternatives in one rule": (lambda: Grammar("start: " + "|".join(["a"] * 3000) + '\na: "x"'), "alternatives"),
    "optional parts": (lambda: Grammar("start: " + "a? " * 2000 + '\na: "x"'), "optional parts"),
    "empty parts": (lambda: Grammar("start: " + "a " * 2000 + '\na: "x" |'), "optional parts"),
    "alternatives": (lambda: Grammar("start: " + "|".join(["a"] * 120_000) + '\na: "x"'), "symbols"),
    "words": (lambda: Grammar("start: " + " | ".join(f'"w{n}"' for n in range(20_000))), "symbols"),
    "a sequence": (lambda: Grammar("start: " + "a? " * 20_000 + '\na: "x"'), "symbols"),
    "many rules": (
        lambda: Grammar("".join(f"r{n}: {'a ' * 20}\n" for n in range(1000)) + 'a: "x"\nstart: r0'),
        "symbols",
    ),
    "GBNF alternatives": (lambda: Grammar("root ::= " + "|".join(["a"] * 30_000) + '\na ::= "x"'), "words"),
    "a terminal": (lambda: Grammar("start: T\nT: " + " | ".join(['"w"'] * 120_000)), "parts of terminals"),
    "conditions": (lambda: Grammar("start: T\nT: " + " & ".join(f"/.*{n}.*/" for n in range(40))), "'&' and '~'"),
    "forced text": (lambda: Grammar(f'root ::= "{_LETTERS}"{{2000,2000}}'), "104,000 characters"),
    "forced by rules": (lambda: Grammar(f"start: r0\n{_DOUBLED}"), "characters"),
    "forced by nested repetitions": (lambda: Grammar('start: (("x" y){300}){300}\ny: "y"'), "characters"),
    "forced after a choice": (lambda: Grammar('start: "a" | b\nb: "y"{70000}'), "characters"),
    "forced by an expression": (lambda: Grammar("start: /(abc){100000}/"), "characters"),
    "an expression": (lambda: Regex("[a-z]?" * 10_000), "quantifiers"),
    "a repetition": (lambda: Regex("(abc){1000000}"), "characters"),
    "a text of many characters": (lambda: Regex("a" * 100_000), "characters"),
    "choices": (lambda: Choice.of([f"w{n}" for n in range(30_000)]), "texts"),
    "a long choice": (lambda: Choice.of(["x" * 100_000]), "characters"),
    "choices of many characters": (lambda: Choice.of([f"{n:0600}" for n in range(2000)]), "characters"),
    "properties": (lambda: JsonSchema.of({"properties": _properties(5000)}), "names in one object"),
    "parts": (lambda: JsonSchema.of({"anyOf": [{"items": {"enum": [n]}} for n in range(9000)]}), "objects, lists"),
    "pattern properties": (
        lambda: JsonSchema.of({"patternProperties": {f"^w{n}$": True for n in range(200)}}),
        "patternProp",
    ),
    "a pattern": (lambda: JsonSchema.of({"type": "string", "pattern": "^(abc){100000}$"}), "characters"),
    "patterns": (lambda: JsonSchema.of({"items": [{"pattern": "a?" * 500} for _ in range(20)]}), "quantifiers"),
    "items": (lambda: JsonSchema.of({"type": "array", "items": {"const": "x" * 1000}, "minItems": 1000}), "characters"),
    "items in items": (
        lambda: JsonSchema.of({"items": {"items": {"const": "x" * 40}, "minItems": 90}, "minItems": 90}),
        "characters",
    ),
    "items by a reference": (
        lambda: JsonSchema.of(
            {"$defs": {"a": {"const": "x" * 1000}}, "items": {"$ref": "#/$defs/a"}, "minItems": 1000}
        ),
        "characters",
    ),
    "a constant": (lambda: JsonSchema.of({"const": "x" * 100_000}), "characters"),
    "a schema in a grammar": (
        lambda: Grammar('start: %json {"items": {"const": "xyzzy plugh"}, "minItems": 90000}'),
        "characters",
    ),
}


@pytest.mark.parametrize("case", _TOO_MUCH)
def test_what_would_cost_too_much_is_refused_before_it_is_compiled(case: str, gpt2: Vocabulary) -> None:
    make, said = _TOO_MUCH[case]
    begin = time.process_time()
    with pytest.raises(ConstraintError, match=r"too large|too long|are allowed") as found:
        gpt2.compiler.compile(make())
    assert said in str(found.value)
    assert time.process_time() - begin < 5  # generous: compiling some of them takes minutes


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (Grammar("start: " + " | ".join(f'"w{n}"' for n in range(1900))), "w77"),
        (Grammar("start: " + "a? " * 600 + '\na: "x"'), "xx"),
        (Grammar("start: " + "a? b " * 600 + '\na: "x"\nb: "y"'), None),
        (Grammar("start: T\nT: " + " | ".join(f'"w{n}"' for n in range(15_000))), "w14999"),
        (Choice.of([f"w{n}" for n in range(15_000)]), "w14999"),
        (Grammar(f'root ::= "{_LETTERS}"{{2,2}}'), _LETTERS * 2),
        (Grammar('root ::= ("a" | "b"){3,40000}'), "abab"),
        (Regex("(a|b){4}c?" * 100), "abab" * 100),
        (Grammar('start: a\na: "x" | a "y"'), "xyy"),
        (Grammar("start: a // and | so on {70000}\n" + 'a: "[{70000}"'), "[{70000}"),
        (JsonSchema.of({"properties": _properties(900), "required": [f"p{n}" for n in range(3)]}), None),
        (
            JsonSchema.of({"$defs": {"t": {"items": {"$ref": "#/$defs/t"}, "type": "array"}}, "$ref": "#/$defs/t"}),
            "[[]]",
        ),
    ],
)
def test_what_is_within_the_bounds_is_compiled(constraint: Constraint, text: str | None, gpt2: Vocabulary) -> None:
    assert text is None or gpt2.accepts(constraint, text)
    gpt2.compiler.compile(constraint)


def test_schemas_count_together() -> None:
    one = {"anyOf": [{"type": "string"} for _ in range(6000)]}
    check_schema_cost([one], "the tools")
    with pytest.raises(ConstraintError, match="the tools is too large: it has more than 10,000 objects"):
        check_schema_cost([one, one], "the tools")


@pytest.mark.parametrize("least", [MOST_FORCED, MOST_FORCED + 1])
def test_the_longest_text_that_may_be_forced(least: int) -> None:
    source = json.dumps({"grammars": [{"lark_grammar": f'start: "x"{{{least}}}'}]})
    if least == MOST_FORCED:
        check_cost(source, "the grammar")
    else:
        with pytest.raises(ConstraintError, match="no text of fewer than 16,385 characters"):
            check_cost(source, "the grammar")


def test_a_step_tokenizes_a_part_of_a_long_forced_text(gpt2: Vocabulary) -> None:
    state = gpt2.compiler.compile(Grammar(f'start: "{_LETTERS * 300}"')).start(())
    forced = state.forced()
    assert 16 < len(forced) < 1200
    assert (_LETTERS * 300).startswith(gpt2.tokenizer.decode(forced))
    state.accept(forced[0])
    assert state.forced()[0] == forced[1]
