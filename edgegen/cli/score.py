"""``edgegen score``: log-probabilities of continuations, or the perplexity of a file."""

import json
from typing import TYPE_CHECKING, Any

import click

from edgegen.bundle.store import DEFAULT_MODEL
from edgegen.cli.grouped_help import GroupedCommand, in_group
from edgegen.cli.option_flags import given_engine_options, given_options, option_flags
from edgegen.cli.progress_bar import progress_bar
from edgegen.cli.text_source import read_text
from edgegen.errors import UsageError
from edgegen.generation.result_json import finite_or_null, logprob_record
from edgegen.options.engine import EngineOptions

if TYPE_CHECKING:
    from edgegen.scoring.scores import Perplexity, Score

_INPUT = in_group("Prompt")


@click.command("score", cls=GroupedCommand)
@click.argument("context", required=False)
@click.option(
    "-m", "--model", metavar="BUNDLE", default=DEFAULT_MODEL, show_default=True, cls=_INPUT, help="A name or a path."
)
@click.option(
    "-c",
    "--continuation",
    metavar="TEXT",
    multiple=True,
    cls=_INPUT,
    help="Text that may follow CONTEXT; may be repeated.",
)
@click.option("-f", "--file", metavar="FILE", cls=_INPUT, help="Perplexity of a file's text; - is standard input.")
@click.option(
    "--window",
    type=int,
    metavar="N",
    cls=_INPUT,
    help="With -f: tokens the model sees at once.  [its context, 2048 at most]",
)
@click.option(
    "--stride", type=int, metavar="N", cls=_INPUT, help="With -f: tokens from a window to the next.  [half a window]"
)
@option_flags("score")
@click.option("--json", "as_json", is_flag=True, cls=in_group("Output"), help="Print one JSON object.")
def command(
    context: str | None,
    model: str,
    continuation: tuple[str, ...],
    file: str | None,
    window: int | None,
    stride: int | None,
    as_json: bool,
) -> None:
    """Score continuations (-c) of CONTEXT, likeliest first, or the whole text of a file (-f).

    CONTEXT may be empty (""), or - for standard input. White space at its end counts as the continuation's. Of a file,
    every token but the first is scored once, in windows that slide over it.

    Log-probabilities are natural logarithms, and a text's is the sum over its tokens. Perplexity is e to the mean
    negative log-probability of a token: 1 for what is certain, the vocabulary's size for a uniform choice.
    """
    top_logprobs: int | None = given_options().get("top_logprobs")
    if problem := _problem(context, continuation, file, window, stride, top_logprobs, as_json):
        raise UsageError(problem)
    options = EngineOptions(**given_engine_options())
    text = read_text(file, "text") if file is not None else _context(context or "")
    if file is not None and not text:
        raise UsageError(f"{'standard input' if file == '-' else file} is empty: there is nothing to score.")

    from edgegen.llm import LLM

    llm = LLM.load(model, options=options)
    if file is not None:
        with progress_bar() as show:
            perplexity = llm.perplexity(text, window=window, stride=stride, on_progress=show)
        click.echo(json.dumps(perplexity_record(perplexity)) if as_json else _facts(perplexity))
        return
    scores = llm.score(text, [*continuation], top_logprobs=top_logprobs or 0)
    if as_json:
        records = [score_record(one, score) for one, score in zip(continuation, scores, strict=True)]
        click.echo(json.dumps({"scores": records}, ensure_ascii=False))
        return
    click.echo("log-prob  per token  tokens  greedy  continuation")
    for one, score in sorted(zip(continuation, scores, strict=True), key=lambda pair: -pair[1].logprob):
        click.echo(_row(one, score))


def _problem(
    context: str | None,
    continuations: tuple[str, ...],
    file: str | None,
    window: int | None,
    stride: int | None,
    top_logprobs: int | None,
    as_json: bool,
) -> str:
    """Return what is wrong with the arguments, whatever the model."""
    if file is not None:
        if context is not None or continuations:
            return "give a file (-f), or CONTEXT with continuations (-c), not both."
        return "--top-logprobs goes with continuations (-c): leave it out." if top_logprobs is not None else ""
    if context is None and not continuations:
        return "nothing to score: give CONTEXT with continuations (-c), or a file (-f)."
    if context is None:
        return 'a continuation needs CONTEXT before it: give it, or "" for none.'
    if not continuations:
        return "nothing to score after CONTEXT: give continuations with -c, or a whole text with -f."
    if window is not None or stride is not None:
        return "--window and --stride go with a file (-f): leave them out."
    if top_logprobs is not None and not as_json:
        return "--top-logprobs is shown with --json only: add it, or leave it out."
    return ""


def _context(argument: str) -> str:
    if argument != "-":
        return argument
    # A shell's pipe ends in a newline that is not part of the context.
    return read_text("-", "context").removesuffix("\n").removesuffix("\r")


def perplexity_record(perplexity: "Perplexity") -> dict[str, Any]:
    return {
        "perplexity": finite_or_null(perplexity.perplexity),
        "nll_per_token": finite_or_null(perplexity.nll_per_token),
        "tokens": perplexity.tokens,
        "window": perplexity.window,
        "stride": perplexity.stride,
    }


def _facts(found: "Perplexity") -> str:
    return (
        f"   perplexity  {found.perplexity:.6g}\n"
        f"nll per token  {found.nll_per_token:.6g} nats\n"
        f"       tokens  {found.tokens}, in windows of {found.window} with stride {found.stride}"
    )


def score_record(continuation: str, score: "Score") -> dict[str, Any]:
    return {
        "continuation": continuation,
        "logprob": finite_or_null(score.logprob),
        "perplexity": finite_or_null(score.perplexity),
        "is_greedy": score.is_greedy,
        "token_ids": score.token_ids,
        "logprobs": [logprob_record(entry) for entry in score.logprobs],
    }


def _row(continuation: str, score: "Score") -> str:
    tokens = len(score.token_ids)
    greedy = "yes" if score.is_greedy else "no"
    shown = json.dumps(continuation, ensure_ascii=False)
    return f"{score.logprob:8.3f}  {score.logprob / tokens:9.3f}  {tokens:6}  {greedy:6}  {shown}"
