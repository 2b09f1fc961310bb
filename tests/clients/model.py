"""The model that the clients talk to: random, with a chat template for tools, and answers that end by themselves."""

import json
from pathlib import Path

from edgegen.bundle.bundle import Bundle
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.checkpoint.layouts import write_gpt2
from tests.runtime.models import EOS, VOCAB_SIZE, byte_tokenizer

NAME = "chatml"
CONTEXT = 4096

TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- 'Call functions to help. Their signatures:\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' + tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools>\\nA call is a JSON object within tags:\\n<tool_call>\\n' }}
    {{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.role != 'system' or not loop.first %}
        {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""ChatML with tools, as Qwen 2.5 has it."""

_LETTERS = range(0x21, 0x7F)
_FREQUENCY_PENALTY = 2.0
_NEXT_CALL, _END, _OTHERS = -200.0, -206.0, -300.0
"""Biases. A random model would put any amount of space between the tokens of JSON, and call tools forever. This one
writes space only where a format has it, and ends its answer after two calls: a call has ``<`` twice, so the penalty has
brought it from -200 to -204 after the first call, and to -208 after the second."""


def write_bundle(folder: Path) -> Bundle:
    """The bundle in ``folder``, named ``chatml``."""
    checkpoint = folder / "checkpoint"
    write_gpt2(
        checkpoint,
        layout="original",
        n_positions=CONTEXT,
        vocab_size=VOCAB_SIZE,
        tokenizer=byte_tokenizer(folder / "tokenizer.json"),
        seed=4,
    )
    biases = {token: _OTHERS for token in range(VOCAB_SIZE) if token not in _LETTERS}
    biases |= {ord("<"): _NEXT_CALL, EOS: _END}
    config = {
        "eos_token_id": EOS,
        "frequency_penalty": _FREQUENCY_PENALTY,
        "sequence_bias": [[[token], bias] for token, bias in biases.items()],
    }
    (checkpoint / "generation_config.json").write_text(json.dumps(config))
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE)
    return export(str(checkpoint), folder / NAME, ExportOptions(scheme="fp32"))[0]
