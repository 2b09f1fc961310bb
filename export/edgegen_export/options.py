"""ExportOptions: how a checkpoint becomes a bundle, as a frozen dataclass."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgegen.options.kinds import FilePath, Number, OneOf, Switch, Text
from edgegen.options.option import option
from edgegen.options.option_set import OptionSet, documented

if TYPE_CHECKING:  # the command line makes flags of the fields, and loads no array library for them
    from edgegen_export.quantize.recipe import Scheme
    from edgegen_export.source.model_source import Via

LEAST_BUDGET, MOST_BUDGET = 2.5, 10.0
"""Bits per weight that can be asked for; what a model takes at least is said when it is known."""

_EXPORT = ("export",)
_MAKING = ("export", "pull")


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(OptionSet):
    """How a checkpoint becomes a bundle: what is read of it, how weights are stored, and what is measured."""

    scheme: "Scheme" = option(
        "int8",
        "Export",
        OneOf(("int8", "int4", "fp16", "fp32")),
        "How weights are stored.",
        (),
    )
    fast: bool = option(
        False,
        "Export",
        Switch(),
        "Round weights plainly: seconds instead of minutes, and less like the model.",
        _MAKING,
    )
    calibration: Path | None = option(
        None, "Export", FilePath(), "Text to calibrate on.", _EXPORT, default="sampled from the model", metavar="FILE"
    )
    bits_budget: float | None = option(
        None,
        "Export",
        Number(float),
        "With --int4: bits per weight that matrices may take on average, embedding and scales included: 2.5 at "
        "least; fewer than 4.5 put 3 and 2 bits beside 4 and 8.",
        _EXPORT,
        default="4.7 for each of the layers', 7.25 of the embedding's, shared by all",
        metavar="N",
    )
    with_hidden: bool = option(
        False, "Export", Switch(), "Graphs that give the last hidden states too: for embeddings (LLM.embed).", _EXPORT
    )
    mtp: bool = option(
        True,
        "Export",
        Switch(),
        "Leave out the multi-token prediction head that some checkpoints have, for speculative decoding.",
        _EXPORT,
        note="A bundle that has it has the hidden states too.",
        flag="--no-mtp",
    )
    draft_head: str | None = option(
        None,
        "Export",
        Text(),
        "Checkpoint of an EAGLE-3 draft of this model, or of a Gemma 4's assistant, a folder or a hub id: exported "
        "with it, for speculative decoding.",
        _EXPORT,
        metavar="DIR",
    )
    eval_text: Path | None = option(
        None,
        "Export",
        FilePath(),
        "Text to compare the bundle with the checkpoint on; its first 512 tokens.",
        _EXPORT,
        default="a sample text",
        metavar="FILE",
    )
    via: "Via" = option(
        "edgegen",
        "Export",
        OneOf(("edgegen", "optimum")),
        "What builds the graphs: edgegen, or optimum, which traces the model in torch, for architectures that edgegen "
        "does not know.",
        _EXPORT,
    )
    adapter: str | None = option(
        None, "Export", Text(), "LoRA adapter to merge in: a folder or a hub id, saved by PEFT.", ()
    )
    max_context: int | None = option(
        None, "Export", Number(int), "Positions to export for.", _MAKING, default="those the model was made for"
    )
    revision: str | None = option(None, "Export", Text(), "Branch, tag or commit of a hub repository.", _MAKING)
    gguf_file: str | None = option(
        None,
        "Export",
        Text(),
        "GGUF file to take, or its quantization (Q4_K_M), where the source holds several.",
        _MAKING,
        metavar="NAME",
    )
    force: bool = option(False, "Export", Switch(), "Replace the bundle that is already there.", _MAKING)
    runs_here: bool = option(
        False,
        "Export",
        Switch(),
        "Refuse, before weights are downloaded, a model that this machine's memory cannot make or run.",
        (),
    )

    def _contradictions(self) -> list[str]:
        problems, budget = list[str](), self.bits_budget
        calibrates = self.scheme in ("int8", "int4") and not self.fast and self.via == "edgegen"
        if self.scheme == "int4" and self.via == "optimum":
            problems.append("optimum's graphs are stored in 8 bits or in floats: leave int4 or --via optimum out")
        if self.calibration is not None and not calibrates:
            problems.append("a calibration text is of no use to plain rounding: leave it, or --fast, --fp32, --via out")
        if budget is not None and (self.scheme != "int4" or not calibrates):
            problems.append("a bits budget is for int4 without --fast")
        elif budget is not None and not LEAST_BUDGET <= budget <= MOST_BUDGET:
            problems.append(f"a bits budget lies between {LEAST_BUDGET} and {MOST_BUDGET}, not at {budget:g}")
        if self.draft_head is not None and self.with_hidden:
            problems.append(
                "with a draft head, graphs give what it takes in the place of the last hidden states: leave "
                "--with-hidden or --draft-head out"
            )
        if self.draft_head is not None and not self.mtp:
            problems.append("a draft head takes the place of a multi-token prediction head: leave --no-mtp out")
        if self.via == "optimum":
            problems += self._not_traced()
        return problems

    def _not_traced(self) -> list[str]:
        """Return what optimum does not put into its graphs."""
        problems = list[str]()
        if self.adapter is not None:
            problems.append("optimum traces the model without its adapter: leave --via optimum or --adapter out")
        if self.draft_head is not None:
            problems.append("optimum traces the model without a draft head: leave --via optimum or --draft-head out")
        if self.with_hidden:
            problems.append(
                "optimum's graphs have no output of hidden states: leave --via optimum or --with-hidden out"
            )
        return problems
