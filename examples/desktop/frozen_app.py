"""An app to be frozen by ``pyinstaller examples/desktop/frozen_app.py``: a text, JSON, and an answer to a chat.

Frozen with ``--windowed`` it has no console, where nothing can be printed: it writes to the file that it is given.
"""

import sys
from pathlib import Path

from edgegen import LLM

JSON = {"type": "json_schema", "json_schema": {"name": "who", "schema": {"enum": ["Tom", "Lily"]}}}

with LLM.load() as llm:
    texts = [
        llm.generate("Once upon a time", max_new_tokens=8, seed=7).text,
        llm.generate("Once", max_new_tokens=40, seed=7, response_format=JSON).text,
        llm.chat([{"role": "user", "content": "Say hello."}], max_new_tokens=8, seed=7).text,
    ]
if sys.argv[1:]:
    Path(sys.argv[1]).write_text("\n".join(texts), encoding="utf-8")
else:
    print(*texts, sep="\n")
