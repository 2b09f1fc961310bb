"""A process forked from one with a loaded model: it is refused what it cannot do, never hangs, and ends in peace."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import gc, os, signal, sys, threading
from edgegen import LLM, EngineOptions, EdgegenError

forked = threading.Event()

def wait_amid_the_text(ids, logits):
    lengths.append(len(ids))
    assert len(lengths) < 10 or forked.wait(60)
    return logits

lengths = []
llm = LLM.load(options=EngineOptions(threads=4))
llm.generate("Once upon", max_new_tokens=3)
stream = llm.stream("Once upon", max_new_tokens=40, logits_processor=[wait_amid_the_text])
next(stream)

def generate():
    try:
        llm.generate("Once upon", max_new_tokens=3)
    except EdgegenError as error:
        assert "forked after the model was loaded" in str(error), error
    else:
        raise AssertionError("not refused")

def read():
    try:
        stream.wait()
    except EdgegenError as error:
        assert "forked while the text was generated" in str(error), error
    else:
        raise AssertionError("not refused")

def close():
    stream.close()
    llm.close()

def forget():
    global llm, stream
    del llm, stream
    gc.collect()

def load():
    assert LLM.load().generate("Once upon", max_new_tokens=3).token_ids

for does in (generate, read, close, forget, load, lambda: None):
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends one that hangs
        does()
        sys.exit(7)  # not os._exit: the interpreter frees what there is
    assert os.waitpid(child, 0)[1] == 7 << 8, does
forked.set()
assert stream.wait().token_ids and llm.generate("Once upon", max_new_tokens=3).token_ids
print("whole")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_is_refused_the_model_and_ends() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100)

    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr
