"""Write docs/constrained-output.md: which JSON schemas are enforced, keyword by keyword of the JSON-Schema-Test-Suite.

EDGEGEN_TEST_DATA=… python docs/make_constrained_output.py
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.runtime.constraint.json_schema_suite import DRAFTS, Instance, Outcome, instances, outcome
from tests.runtime.constraint.vocabulary import Vocabulary

PAGE = Path(__file__).with_name("constrained-output.md")

HEAD = """\
# Constrained output

**Constrained decoding** masks every token that would leave a grammar, so that the output is valid whenever it ends with
`stop`. Four kinds of constraints are compiled before the model runs:

| constraint | command line | Python |
|---|---|---|
| JSON Schema, a pydantic model, any JSON object | `--json-schema FILE` | `response_format` |
| regular expression | `--regex PATTERN` | `response_format` |
| one of several choices | `--choice TEXT`, repeated | `response_format` |
| Lark or GBNF grammar | `--grammar FILE` | `grammar` |

```sh
edgegen generate "Call " --regex "[0-9]{3}-[0-9]{4}"
edgegen generate "I feel" --choice " happy" --choice " sad"
```

Tokens that the constraint forces are [verified several at a time](performance.md#forced-tokens).

## JSON Schema

This page is made by `python docs/make_constrained_output.py` from the required part of the
[JSON-Schema-Test-Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite) (drafts 7, 2019-09 and 2020-12); a
test compares it with the code. A schema that cannot be enforced is refused by keyword and place. Each instance of the
suite is fed token by token, as `json.dumps` writes it:

- **right**: a valid instance can be generated, an invalid one cannot;
- **too strict**: a valid instance cannot be generated; everything that can be generated is valid;
- **refused**: the schema is refused, so none of its instances counts;
- **let through**: an invalid instance can be generated. No instance does, and a test checks it.

The counts are those of open objects (`additional_properties=True`, below).

## Objects are closed

An object whose schema lists names has these properties and no others, as in llama.cpp and in OpenAI's strict mode:
`{"type": "object", "properties": {"name": {"type": "string"}}}` allows `{"name": "Tom"}` and no second property. In the
standard it allows any, and a small model goes on naming new ones until its tokens run out. What is generated is valid
under the schema as it stands.

- Names are listed by `properties`, `patternProperties` and, beside one of these, `required`. `"properties": {}` alone
  is `{}`; an object whose schema lists no names, such as `{"type": "object"}`, is free.
- `"additionalProperties": true`, or a schema there, opens that object. So does what the names cannot fulfil:
  `minProperties` of more names than are listed, `const` and `enum`.
- Keywords that describe one object together count together: each of `allOf`, what a `$ref` leads to, and what stands
  beside them. A branch of `anyOf` or `oneOf` has its own names and those beside it; branches of `oneOf` must differ in
  the schema as it stands.
- A reference by `$anchor` or `$id` beside other keywords leaves the schema open.
- The arguments of tools are closed in the same way.

To open all objects, as the standard has it, say so in Python. A request, and the file of `--json-schema`, say
`additionalProperties` in the schema itself:

```python
from edgegen.constraint import JsonSchema

schema = {"type": "object", "properties": {"name": {"type": "string"}}}
anything = JsonSchema.of(schema, additional_properties=True)
```

**An answer ends** if the schema bounds its values: `maxLength` for strings, `maxItems` for arrays, `minimum` and
`maximum` for numbers, or `enum`. Without bounds, and in `{"type": "json_object"}`, a string, a list or an object may go
on until `max_new_tokens`; then `finish_reason` is `length` and the text is the beginning of a valid one.

## Stricter than the standard

- Properties come in the schema's order: those of `properties`, then those that only `required` names, then others.
- A string has one spelling: letters as themselves, never `\\u`, so that a name cannot come twice in two spellings.
  Control characters other than tab, line breaks, backspace and form feed therefore never come, and a schema that asks
  for one is refused.
- Whole numbers are written whole: `1`, not `1.0` or `1e0`.
- `format` is enforced where it is known (date-time, date, time, duration, email, hostname, ipv4, ipv6, uuid, uri) and
  refused otherwise; in the standard it is a comment. Dates are calendar dates, without leap seconds; host names are not
  resolved.
- Patterns have no lookaround and no backreferences; dot, classes and anchors are ECMA-262's.
- `minProperties` counts names that `required` lists, and one more: other names may come twice.
- Numbers in a schema are at most 2**53.
- Nothing is fetched: `$ref` must point into the schema.

## White space

JSON is compact: no white space at all, as models would otherwise spend up to half of their tokens on it. The option
`json_whitespace` (`--json-whitespace`, a parameter of every API) says otherwise:

| `json_whitespace` | white space |
|---|---|
| `compact` | none; the default |
| `flexible` | what models write by themselves, as below |
| `any` | what JSON allows, without a bound |

Flexible white space may be missing, or is one space after commas and colons as `json.dumps` has it, or line breaks. A
line break may stand beside any comma, colon or bracket, one in each place. Its indentation has up to four spaces or
two tabs for each level of the schema, ten levels at most, and five where the schema does not say how many there are.
No space stands around the whole.

A call of a tool that must be made (`tool_choice`) is compact too. One that a model begins by itself may have one space
after commas and colons, as templates write calls. `JsonSchema(…, whitespace=…)` in Python says it for one schema. Over
HTTP `guided_whitespace_pattern`, and `whitespace_pattern` in `structured_outputs`, are regular expressions of the space
that may stand in one place, as in vLLM.

Means of 16 answers and 16 calls that had to be made, of the embedded model, greedy, by
study `json_whitespace` of commit 34e8a18f. With `flexible`, 4 of the calls were cut short by their limit:

| `json_whitespace` | tokens of an answer | white space in it, % | tokens of a call |
|---|---:|---:|---:|
| `compact` | 29.3 | 0 | 68.6 |
| `flexible` | 75.0 | 43 | 144.5 |

## Spellings of other servers

`response_format`, in Python and in a request, is what OpenAI's API has, and what other servers have in its place. A
schema is enforced whether `strict` is true, false or missing. A key that is not known is an error, with the nearest
one that is.

| `response_format` | as in |
|---|---|
| `{"type": "text"}`, `{"type": "json_object"}` | OpenAI |
| `{"type": "json_schema", "json_schema": {"name": …, "description": …, "strict": …, "schema": …}}` | OpenAI, vLLM |
| `{"type": "json_schema", "schema": …}`, `{"type": "json_object", "schema": …}` | llama.cpp, Together, Fireworks |
| `{"type": "json", "schema": …}`, `{"type": "ebnf", "ebnf": …}`, `{"type": "regex", "regex": …}` | TensorRT-LLM |
| `{"type": "regex", "pattern": …}` | Together |
| `{"type": "grammar", "grammar": …}` | Fireworks |
| `{"type": "json", "value": …}`, `{"type": "json_schema", "value": …}`, `{"type": "regex", "value": …}` | TGI |

`structural_tag` is not supported. Tools have `type` and `function`, a function `name`, `description`, `parameters`,
`strict` and `return`; `cache_control` is accepted and changes nothing, as prefix caching needs no marks.
"""

_REASONS = (
    (r"'oneOf' at .* may overlap", "oneOf: the branches may overlap"),
    (r"format '(.*?)' at", "format: not known"),
    (r"'([$\w]+)' at \S* cannot be enforced", r"\1 is not implemented"),
    (r"is not in the schema, and nothing is fetched", "$ref or $schema leads out of the schema"),
    (r"nothing satisfies it", "nothing satisfies the schema"),
    (r"control character", "a control character"),
    (r"'minProperties' of more", "minProperties over names that may come twice"),
    (r"beyond 2\*\*53|too many digits", "a number with too many digits"),
    (r"in 'patternProperties' at .* may both fit", "patternProperties: two patterns for one name"),
    (r"the pattern '.*cannot be enforced: ", "pattern: not ECMA-262's, or with look-around"),
    (r"min/maxProperties only", "minProperties, maxProperties: with optional properties"),
    (r"circular references", "$ref: circular beside other keywords"),
    (r".*", "other"),
)


def page(results: Iterable[tuple[Instance, Outcome, str]]) -> str:
    """The page about what became of each instance."""
    counts: Counter[tuple[str, str, Outcome]] = Counter()
    reasons: Counter[str] = Counter()
    for instance, what, why in results:
        counts[instance.keyword, instance.draft, what] += 1
        if what == "refused":
            reasons[_reason(why)] += 1
    return "\n".join([HEAD, _totals(counts), _keywords(counts), _refusals(reasons)])


def measure(test_data: Path) -> list[tuple[Instance, Outcome, str]]:
    """Return the outcome of each instance with GPT-2's vocabulary."""
    file = test_data / "tokenizers" / "gpt2" / "tokenizer.json"
    vocabulary = Vocabulary.read(file, 50257, "<|endoftext|>")
    return [(instance, *outcome(instance, vocabulary)) for instance in instances(test_data)]


def _totals(counts: Counter[tuple[str, str, Outcome]]) -> str:
    lines = ["## Drafts", "", "| draft | right | too strict | refused | let through |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {draft} | {_cells(lambda what, d=draft: _sum(counts, None, d, what))} |" for draft in DRAFTS]
    return "\n".join([*lines, ""])


def _keywords(counts: Counter[tuple[str, str, Outcome]]) -> str:
    lines = ["## Keywords", "", "Named after the files of the suite; all drafts together.", ""]
    lines += ["| keyword | right | too strict | refused | let through |", "|---|---:|---:|---:|---:|"]
    keywords = sorted({keyword for keyword, _, _ in counts})
    lines += [f"| {keyword} | {_cells(lambda what, k=keyword: _sum(counts, k, None, what))} |" for keyword in keywords]
    return "\n".join([*lines, ""])


def _refusals(reasons: Counter[str]) -> str:
    lines = ["## Why schemas are refused", "", "| reason, the first of several | instances |", "|---|---:|"]
    lines += [f"| {reason} | {count} |" for reason, count in sorted(reasons.items(), key=lambda r: (-r[1], r[0]))]
    return "\n".join([*lines, ""])


def _cells(count: Callable[[Outcome], int]) -> str:
    outcomes: tuple[Outcome, ...] = ("right", "too strict", "refused", "let through")
    return " | ".join(str(count(what)) for what in outcomes)


def _sum(counts: Counter[tuple[str, str, Outcome]], keyword: str | None, draft: str | None, what: Outcome) -> int:
    return sum(n for (k, d, w), n in counts.items() if w == what and keyword in (None, k) and draft in (None, d))


def _reason(error: str) -> str:
    for pattern, reason in _REASONS:
        if match := re.search(pattern, error):
            return match.expand(reason)
    raise AssertionError("the last pattern matches everything")


if __name__ == "__main__":
    PAGE.write_text(page(measure(Path(os.environ["EDGEGEN_TEST_DATA"]))), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
