"""An app to be frozen by ``pyinstaller examples/desktop/frozen_app.py``: a text, JSON, and an answer to a chat."""

from edgegen import LLM

JSON = {"type": "json_schema", "json_schema": {"name": "who", "schema": {"enum": ["Tom", "Lily"]}}}

with LLM.load() as llm:
    print(llm.generate("Once upon a time", max_new_tokens=8, seed=7).text)
    print(llm.generate("Once", max_new_tokens=40, seed=7, response_format=JSON).text)
    print(llm.chat([{"role": "user", "content": "Say hello."}], max_new_tokens=8, seed=7).text)
