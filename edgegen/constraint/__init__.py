"""Constrained decoding: JSON schemas, regular expressions, choices, Lark and GBNF grammars.

A constraint says what a text must be; it is a value, compared and hashed by what it says::

    constraint = JsonSchema.of({"type": "object", "properties": {"name": {"type": "string"}}})

A ``ConstraintCompiler`` makes of it, once for a vocabulary, a ``CompiledConstraint``; whatever cannot be
enforced is refused here, before a model runs. Each sequence then has a ``ConstraintState`` of its own, which
knows the tokens that may come next, and a ``RowConstraint`` around it that speaks the engine's protocols:
logits processor, watch, proposer.

**The promise.** A text that ends with ``stop`` because its grammar was complete, or at an end-of-sequence
token, is one of the grammar's; end-of-sequence tokens are allowed there only. A text cut short (by length, by
a stop string) is a prefix of one.

**The first token** continues the prompt with no space or anything else that the grammar does not have: after
``"Answer:"`` a vocabulary's ``" yes"`` is not the choice ``"yes"``. Where a model wants the space, write it
in the prompt, the choice or the grammar. A prompt is never cut back to complete its last token.

**Forced tokens.** Where the grammar leaves no choice of text, the mask leaves none of tokens: only the usual
ones of that text are allowed, up to where later text could change them. ``ConstraintState.forced`` proposes
them in advance; verified like any other proposal, token by token under the mask, they leave the ids as they
are without.
"""

from edgegen.constraint.any_json import AnyJson
from edgegen.constraint.choice import Choice
from edgegen.constraint.compiler import CompiledConstraint, ConstraintCompiler
from edgegen.constraint.constraint import Constraint, Whitespace
from edgegen.constraint.grammar import Grammar
from edgegen.constraint.json_schema import JsonSchema
from edgegen.constraint.regex import Regex
from edgegen.constraint.response_format import read_response_format
from edgegen.constraint.row import ConstraintWatch, RowConstraint
from edgegen.constraint.state import ConstraintState
from edgegen.constraint.structured_output import STRUCTURED_OUTPUT, read_structured_output
from edgegen.constraint.tool_calls import ToolCallConstraint

__all__ = [
    "STRUCTURED_OUTPUT",
    "AnyJson",
    "Choice",
    "CompiledConstraint",
    "Constraint",
    "ConstraintCompiler",
    "ConstraintState",
    "ConstraintWatch",
    "Grammar",
    "JsonSchema",
    "Regex",
    "RowConstraint",
    "ToolCallConstraint",
    "Whitespace",
    "read_response_format",
    "read_structured_output",
]
