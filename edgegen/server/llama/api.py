"""llama-server's ``/completion``, ``/completions`` and ``/infill``."""

from edgegen.server.llama.request import read_completion, read_infill
from edgegen.server.llama.response import LlamaWriter
from edgegen.server.llama.schema import COMPLETION, COMPLETIONS, INFILL
from edgegen.server.wire.wire import Wire

LLAMA_WIRES = (
    Wire(COMPLETION, read_completion, LlamaWriter),
    Wire(COMPLETIONS, read_completion, LlamaWriter),
    Wire(INFILL, read_infill, LlamaWriter),
)
