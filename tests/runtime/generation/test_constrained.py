"""Constrained answers through LLM and the command line, over a random model."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.constraint import Choice, ConstraintCompiler, ConstraintState, JsonSchema, Regex
from edgegen.errors import ConstraintError, OptionError, UsageError
from edgegen.generation.session import Session
from edgegen.llm import LLM
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.runtime.models import write_checkpoint

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def llm(int8_bundle: Bundle) -> LLM:
    return LLM.load(int8_bundle.path)


@pytest.mark.parametrize("seed", range(5))
def test_a_schema_holds_whatever_is_drawn(llm: LLM, seed: int) -> None:
    answer = llm.generate("Zoë", response_format=FORMAT, max_new_tokens=400, temperature=1.5, seed=seed)
    assert answer.finish_reason == "stop"
    value = json.loads(answer.text)
    assert set(value) == {"a", "b"}
    assert value["a"] in range(10)
    assert value["b"] in ("x", "yy")


def test_greedy_with_penalties_and_stop_strings_holds_as_well(llm: LLM) -> None:
    answer = llm.generate("Zoë", grammar=Regex("[0-9]{3}-[0-9]{4}"), repetition_penalty=1.3, do_sample=False)
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", answer.text)
    cut = llm.generate("Zoë", grammar=Regex("[0-9]{3}-[0-9]{4}"), stop_strings="-", seed=1)
    assert re.fullmatch("[0-9]{3}", cut.text)
    assert cut.matched == "-"


def test_the_same_seed_gives_the_same_ids_streamed_or_not(llm: LLM) -> None:
    options: Any = {"response_format": FORMAT, "seed": 7, "max_new_tokens": 200}
    whole = llm.generate("Zoë", **options)
    with llm.stream("Zoë", **options) as stream:
        streamed = "".join(chunk.text for chunk in stream)
    assert streamed == whole.text
    assert llm.generate("Zoë", **options).token_ids == whole.token_ids


def test_a_lark_grammar_and_a_choice(llm: LLM) -> None:
    assert llm.generate("Zoë", grammar='start: "ab" | "cd"', seed=3).text in ("ab", "cd")
    assert llm.chat([{"role": "user", "content": "Hi"}], grammar=Choice.of(["yes", "no"])).text in ("yes", "no")


def test_what_cannot_be_enforced_is_refused_before_anything_runs(llm: LLM) -> None:
    unsupported = {"type": "json_schema", "json_schema": {"schema": {"not": {"type": "string"}}}}
    with pytest.raises(ConstraintError, match="not"):
        llm.generate("Zoë", response_format=unsupported)
    with pytest.raises(ConstraintError):
        llm.generate("Zoë", grammar=Regex("("))
    with pytest.raises(OptionError, match="leave one out"):
        llm.generate("Zoë", grammar=Regex("a"), response_format=FORMAT)
    assert llm.generate("Zoë", max_new_tokens=2).token_ids  # the model stays usable


def test_a_grammar_that_is_none_is_refused_by_its_own_name(llm: LLM) -> None:
    with pytest.raises(ConstraintError, match="grammar is the text of a grammar or a constraint, not int; schemas and"):
        llm.generate("x", grammar=5)


def test_a_constraint_needs_a_tokenizer(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    (checkpoint / "tokenizer.json").unlink()
    bundle, _ = export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32"))
    with pytest.raises(UsageError, match="a constraint needs a tokenizer"):
        LLM.load(bundle.path).generate([1, 2], grammar=Choice.of(["a"]))


WORDS = {"type": "string", "pattern": r"^(?:\S+\s+){0,29}\S+$", "maxLength": 300}
"""llguidance meets its limit on expressions when it takes a text of this without computing masks."""


def test_a_session_goes_on_in_the_midst_of_a_schema(tmp_path: Path) -> None:
    options: Any = {"response_format": {"type": "json_schema", "json_schema": {"schema": WORDS}}, "do_sample": False}
    whole = LLM.load().generate("Once upon", max_new_tokens=64, **options)
    session = Session()
    LLM.load().generate("Once upon", session=session, max_new_tokens=60, **options)
    session.save(tmp_path / "cut")

    resumed = LLM.load().generate("", session=Session.load(tmp_path / "cut"), max_new_tokens=4, **options)

    assert resumed.token_ids == whole.token_ids[60:]


def _accept_without_masks(state: ConstraintState, ids: list[int]) -> None:
    for token_id in ids:
        state.accept(token_id)


def test_a_constraint_that_failed_is_compiled_anew() -> None:
    llm = LLM.load()
    assert llm.tokenizer is not None
    compiler = ConstraintCompiler(llm.tokenizer, llm.bundle.manifest.model.vocab_size)
    ids = llm.tokenizer.encode('"That was a little girl named Lily who loved', add_special_tokens=False)
    broken = compiler.compile(schema := JsonSchema.of(WORDS, "compact")).start(())
    with pytest.raises(ConstraintError):
        _accept_without_masks(broken, ids)

    anew = compiler.compile(schema).start(())

    anew.follow(ids)
    assert anew.ids == ids
