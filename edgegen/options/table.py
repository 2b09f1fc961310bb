"""The table of options: every field of :class:`~edgegen.GenerationOptions` and :class:`~edgegen.EngineOptions`.

It feeds the flags of every verb, OpenAPI's schemas and ``docs/options.md``. None leaves any option out: it is at its
default.
"""

from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions
from edgegen.options.hints import PLACES
from edgegen.options.option_set import options_of

GENERATION_OPTIONS = options_of(GenerationOptions)
ENGINE_OPTIONS = options_of(EngineOptions)

OPTIONS = {option.name: option for option in (*GENERATION_OPTIONS, *ENGINE_OPTIONS)}
"""Every option by its name."""

for _one in ENGINE_OPTIONS:
    PLACES[_one.name] = f"an option of the engine: load the model with options=EngineOptions({_one.name}=…)"
for _one in GENERATION_OPTIONS:
    PLACES[_one.name] = f"an option of a request: give it to llm.generate(…, {_one.name}=…)"
