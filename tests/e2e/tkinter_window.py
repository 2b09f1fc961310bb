"""Drives examples/desktop/tkinter_chat.py: `tkinter_window.py EXAMPLE`. Ends with 0 where all is as it should.

A program of its own: `.ci/windows` runs it on Windows too.
"""

import runpy
import sys
import tkinter
from collections.abc import Callable, Iterator
from typing import Any

window = tkinter.Tk()
chat: Any = runpy.run_path(sys.argv[1])["Chat"](window, ["stories", "nowhere"])
chat.pack(fill="both", expand=True)
failed: list[tuple[Any, ...]] = []


def shown() -> str:
    return chat.text.get("1.0", "end")


def steps() -> Iterator[Callable[[], bool]]:
    """Yield the condition to wait for before each next step."""
    yield lambda: chat.status.cget("text") == "stories is loaded"
    chat.entry.insert(0, "Once upon a time")
    chat.send()
    assert str(chat.button.cget("text")) == "Stop"
    assert str(chat.model.cget("state")) == "disabled"
    yield lambda: len(shown()) > 40
    chat.send()  # which stops it
    yield lambda: chat.status.cget("text") in ("Stopped", "Ready") and not chat._running
    assert [message["role"] for message in chat.messages] == ["user", "assistant"]
    assert chat.messages[1]["content"].strip() in shown()
    chat.unload()
    assert chat.llm is None
    assert str(chat.button.cget("state")) == "disabled"
    chat.model.set("nowhere")
    chat.load()
    yield lambda: not chat._running
    assert "no bundle named or at 'nowhere'" in shown()
    chat.model.set("stories")
    chat.load()
    chat.send()  # which stops loading, if it has not ended
    yield lambda: not chat._running
    chat.quit_window()


def follow(left: Iterator[Callable[[], bool]], until: Callable[[], bool] | None) -> None:
    if until is not None and until():
        until = next(left, None)
    if until is not None:
        window.after(10, follow, left, until)


def told(*error: Any) -> None:
    failed.append(error)
    sys.excepthook(*error)
    window.destroy()


left = steps()
window.report_callback_exception = told
window.after(10, follow, left, next(left))
window.mainloop()
sys.exit(bool(failed))
