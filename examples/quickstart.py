"""Loads the model that comes with edgegen, and writes a story as it is generated."""

from edgegen import LLM

with LLM.load() as llm, llm.stream("Once upon a time", max_new_tokens=60) as stream:
    for chunk in stream:
        print(chunk.text, end="", flush=True)
print()
