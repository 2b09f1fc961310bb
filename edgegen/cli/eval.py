"""``edgegen eval``: compare bundles on perplexity, multiple choice and minimal pairs."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.cli.check import Check
from edgegen.cli.flag import complete_bundle
from edgegen.cli.grouped_help import GroupedCommand, in_group
from edgegen.cli.option_flags import given_engine_options, option_flags
from edgegen.cli.printable import aligned
from edgegen.cli.progress_bar import progress_bar
from edgegen.cli.text_source import read_text
from edgegen.errors import EdgegenError
from edgegen.evaluation.items import Records, read_pairs, read_questions
from edgegen.generation.result_json import finite_or_null
from edgegen.options.engine import EngineOptions
from edgegen.options.validation import number

if TYPE_CHECKING:
    from edgegen.bundle.kv_format import KVDtype
    from edgegen.evaluation.tasks import Evaluation, Figure

Item = TypeVar("Item")

_COLUMNS = ("test", "figure", "bundle", "items", "value", "error", "difference", "error", "verdict")
_WORDS = (0, 1, 2, 8)

_TESTS = in_group("Tests")


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of a bundle; ``first``: that of the first one, unless it is this one."""

    test: str
    bundle: str
    figure: "Figure"
    first: "Figure | None" = None


@click.command("eval", cls=GroupedCommand)
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...", shell_complete=complete_bundle)
@click.option(
    "--text", "text_file", metavar="FILE", cls=_TESTS, help="Perplexity of a file's text; - is standard input."
)
@click.option(
    "--choices",
    "choices_file",
    metavar="FILE",
    cls=_TESTS,
    help="Multiple choice: ctx, endings and label in each line.",
)
@click.option(
    "--pairs", "pairs_file", metavar="FILE", cls=_TESTS, help="Pairs: sentence_good and sentence_bad in each line."
)
@click.option("--limit", type=int, metavar="N", cls=_TESTS, help="Only the first so many questions and pairs.  [all]")
@option_flags("eval")
@click.option("--json", "as_json", is_flag=True, cls=in_group("Output"), help="Print one JSON object.")
def command(
    bundles: tuple[str, ...],
    text_file: str | None,
    choices_file: str | None,
    pairs_file: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Put every BUNDLE (a name or a path) to the same tests, and show how it differs from the first.

    A text is a file of its own; questions and pairs are JSON objects, one in each line.

    An error is a standard error: by about so much another sample of such items would move the value. That of a
    difference is of the differences item by item. Differences below two of their errors, or of less than 30 items, are
    noise.
    """
    names = tuple(dict.fromkeys(bundles)) or (DEFAULT_MODEL,)
    check = _Check()
    options = check.attempt(lambda: EngineOptions(**given_engine_options()))
    text = check.text(text_file)
    questions = check.records(choices_file, "choices", read_questions)
    pairs = check.records(pairs_file, "pairs", read_pairs)
    if text_file is None and choices_file is None and pairs_file is None:
        check.problems.append("nothing to test: give a text (--text), questions (--choices) or pairs (--pairs).")
    if limit is not None:
        check.problems += number("limit", limit, int, 1)
        if choices_file is None and pairs_file is None:
            check.problems.append("--limit goes with --choices and --pairs: leave it out.")
    for name in names:
        check.bundle(name, given_engine_options().get("kv"))
    check.finish()

    from edgegen.evaluation.tasks import MinimalPairs, MultipleChoice, Reading

    tests: list[Evaluation] = [
        *([Reading(text)] if text else []),
        *([MultipleChoice(questions[:limit])] if questions else []),
        *([MinimalPairs(pairs[:limit])] if pairs else []),
    ]
    rows = _rows([_measured(name, tests, options) for name in names])
    if as_json:
        click.echo(json.dumps({"results": [_record(row) for row in rows]}, ensure_ascii=False))
    else:
        click.echo("\n".join(aligned([_COLUMNS, *map(_cells, rows)], _WORDS)))


class _Check(Check):
    """Validates texts, questions and bundles."""

    def text(self, file: str | None) -> str:
        text = "" if file is None else self.attempt(lambda: read_text(file, "text"))
        if text == "" and file is not None:
            self.problems.append(f"{_spoken(file)} is empty: there is nothing to read.")
        return text or ""

    def records(self, file: str | None, what: str, read: Callable[[str, str], Records[Item]]) -> tuple[Item, ...]:
        text = None if file is None else self.attempt(lambda: read_text(file, what))
        if file is None or text is None:
            return ()
        records = read(text, _spoken(file))
        self.problems += records.problems
        return records.items

    def bundle(self, name: str, kv: "KVDtype | None") -> None:
        bundle = self.attempt(lambda: Bundle.open(BundleStore().resolve(name)))
        if bundle is not None and bundle.manifest.tokenizer is None:
            self.problems.append(f"{name} has no tokenizer, and what it would be tested on is text.")
        if bundle is not None and kv is not None:
            self.attempt(lambda: bundle.variant_with(kv))


def _spoken(file: str) -> str:
    return "standard input" if file == "-" else file


def _measured(name: str, tests: "Sequence[Evaluation]", options: EngineOptions | None) -> list[Row]:
    """The figures of a bundle, which is then unloaded."""
    from edgegen.llm import LLM

    llm, rows = LLM.load(name, options=options), list[Row]()
    for test in tests:
        try:
            with progress_bar(f"{name} {test.name}") as show:
                rows += [Row(test.name, name, figure) for figure in test.run(llm, show)]
        except EdgegenError as error:
            raise type(error)(f"{test.name} with {name}: {error}") from None
    return rows


def _rows(measured: Sequence[Sequence[Row]]) -> list[Row]:
    """Figure by figure, all bundles."""
    return [
        row if row is first else replace(row, first=first.figure)
        for first, *others in zip(*measured, strict=True)
        for row in (first, *others)
    ]


def _record(row: Row) -> dict[str, Any]:
    estimate = row.figure.estimate
    difference = row.figure.compared_with(row.first) if row.first else None
    return {
        "test": row.test,
        "figure": row.figure.name,
        "bundle": row.bundle,
        "items": estimate.count,
        "value": finite_or_null(estimate.mean),
        "error": finite_or_null(estimate.error),
        "difference": None
        if difference is None
        else {
            "value": finite_or_null(difference.estimate.mean),
            "error": finite_or_null(difference.estimate.error),
            "verdict": difference.verdict,
        },
    }


def _cells(row: Row) -> tuple[str, ...]:
    """As ``_COLUMNS``."""
    estimate = row.figure.estimate
    cells = (
        row.test,
        row.figure.name,
        row.bundle,
        str(estimate.count),
        _spelled(estimate.mean),
        _spelled(estimate.error),
    )
    if row.first is None:
        return (*cells, "", "", "")
    difference = row.figure.compared_with(row.first)
    if difference is None:
        return (*cells, "", "", "other tokens")
    value, error = difference.estimate.mean, difference.estimate.error
    return (*cells, f"{value:+.4f}", _spelled(error), difference.verdict)


def _spelled(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"
