"""A chat window in PySide6: the model in threads, its chunks as signals, progress, stop, unload.

Run it with ``python examples/desktop/pyside_chat.py [BUNDLE]``, after ``pip install PySide6``.
"""

import sys
from collections.abc import Callable
from threading import Thread

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from edgegen import LLM, CancelToken, EdgegenError


class Model(QObject):
    """A model whose work is done in threads. Signals that they emit are delivered in the window's thread."""

    progress = Signal(float)
    loaded = Signal()
    chunk = Signal(str)
    answered = Signal(str)
    failed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.llm: LLM | None = None
        self.token: CancelToken | None = None
        self._thread: Thread | None = None

    def load(self, name: str) -> None:
        def work() -> None:
            try:
                self.llm = LLM.load(name, on_progress=lambda told: self.progress.emit(told.fraction))
            except EdgegenError as error:
                self.failed.emit(str(error))
            else:
                self.loaded.emit()

        self._start(work)

    def ask(self, messages: list[dict[str, str]]) -> None:
        """Emits ``chunk`` for each piece, then ``answered`` with the reason of its end."""
        llm, token = self.llm, CancelToken()
        assert llm is not None
        self.token = token

        def work() -> None:
            try:
                with llm.stream_chat(messages, max_new_tokens=200, cancel=token) as stream:
                    for chunk in stream:
                        self.chunk.emit(chunk.text)
            except EdgegenError as error:
                self.failed.emit(str(error))
            else:
                self.answered.emit(stream.result.finish_reason)

        self._start(work)

    def stop(self) -> None:
        if self.token is not None:
            self.token.cancel()

    def unload(self) -> None:
        """Stop what runs, and give the memory back."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self.llm is not None:
            self.llm.close()
            self.llm = None

    def _start(self, work: Callable[[], None]) -> None:
        self._thread = Thread(target=work, daemon=True)
        self._thread.start()


class Window(QWidget):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.setWindowTitle("edgegen")
        self.messages: list[dict[str, str]] = []
        self.answer: list[str] = []
        self.text = QPlainTextEdit()
        self.text.setReadOnly(True)
        self.line = QLineEdit()
        self.line.setPlaceholderText("Say something")
        self.button = QPushButton("Send")
        self.bar = QProgressBar()
        self.bar.setMaximum(1000)
        self.status = QLabel(f"Loading {name} …")
        foot = QHBoxLayout()
        foot.addWidget(self.line)
        foot.addWidget(self.button)
        box = QVBoxLayout(self)
        for widget in (self.status, self.text, self.bar):
            box.addWidget(widget)
        box.addLayout(foot)
        self.resize(720, 520)
        for widget in (self.line, self.button):
            widget.setEnabled(False)

        self.model = Model()
        self.model.progress.connect(lambda fraction: self.bar.setValue(int(1000 * fraction)))
        self.model.loaded.connect(lambda: self._ready(f"{name} is loaded"))
        self.model.chunk.connect(self._write)
        self.model.answered.connect(self._answered)
        self.model.failed.connect(self._failed)
        self.button.clicked.connect(self.send)
        self.line.returnPressed.connect(self.send)
        self.model.load(name)

    def send(self) -> None:
        """Send what was typed, or stop the answer."""
        if self.button.text() == "Stop":
            self.model.stop()
            return
        if said := self.line.text().strip():
            self.line.clear()
            self.text.appendPlainText(f"> {said}\n\n")
            self.messages.append({"role": "user", "content": said})
            self.answer.clear()
            self.button.setText("Stop")
            self.status.setText("Answering …")
            self.model.ask([*self.messages])

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: N802
        self.model.unload()
        event.accept()

    def _write(self, text: str) -> None:
        self.answer.append(text)
        cursor = self.text.textCursor()
        cursor.movePosition(cursor.MoveOperation.End)
        cursor.insertText(text)
        self.text.ensureCursorVisible()

    def _answered(self, reason: str) -> None:
        self.messages.append({"role": "assistant", "content": "".join(self.answer)})
        self._ready("Stopped" if reason == "cancelled" else "Ready")

    def _failed(self, said: str) -> None:
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages.pop()
        self._ready(said)

    def _ready(self, said: str) -> None:
        able = self.model.llm is not None
        self.bar.hide()
        self.status.setText(said)
        self.button.setText("Send")
        self.button.setEnabled(able)
        self.line.setEnabled(able)


if __name__ == "__main__":
    app = QApplication(sys.argv[:1])
    window = Window(sys.argv[1] if len(sys.argv) > 1 else "stories")
    window.show()
    sys.exit(app.exec())
