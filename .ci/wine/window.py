"""Drives examples/desktop/pyside_chat.py on Windows: `window.py EXAMPLE`. Prints what the window shows at the end."""

import runpy
import sys
from collections.abc import Iterator
from typing import Any

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

app = QApplication([])
window: Any = runpy.run_path(sys.argv[1])["Window"]("stories")
window.show()


def steps() -> Iterator[bool]:
    """False as long as something is waited for."""
    while window.status.text() != "stories is loaded":
        yield False
    window.line.setText("Once upon a time")
    window.send()
    while len(window.text.toPlainText()) < 60:
        yield False
    window.send()  # which stops it
    while window.status.text() not in ("Stopped", "Ready"):
        yield False
    yield True


left = steps()


def follow() -> None:
    if next(left):
        timer.stop()
        window.close()


timer = QTimer()
timer.timeout.connect(follow)
timer.start(20)
app.exec()
roles = [message["role"] for message in window.messages]
print(window.status.text(), roles, window.model.llm)
