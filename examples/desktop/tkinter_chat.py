"""A chat window in tkinter: loading and answering in threads, progress, stop, several models, unload.

Run it with ``python examples/desktop/tkinter_chat.py [BUNDLE …]``, names or paths; without one, the embedded model.
"""

import sys
import tkinter as tk
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from tkinter import ttk

from edgegen import LLM, CancelToken, EdgegenError, LoadProgress

EMBEDDED = "stories"
POLL = 30
"""Milliseconds between two looks at what a thread has done. There are none while nothing runs: no CPU while idle."""


class LoadingStoppedError(EdgegenError):
    """Raised by what is told the progress, which ends loading."""


class Chat(ttk.Frame):
    """Only the main thread touches widgets; a thread leaves calls in ``self._calls``, which ``_poll`` makes."""

    def __init__(self, window: tk.Tk, models: list[str]) -> None:
        super().__init__(window, padding=8)
        if window.tk.call("tk", "windowingsystem") == "x11":
            ttk.Style(window).theme_use("clam")  # the one that looks best there
        self._window = window
        self._calls = SimpleQueue[Callable[[], None]]()
        self._running = 0
        self._closing = False
        self._cancel = CancelToken()
        self.llm: LLM | None = None
        self.messages: list[dict[str, str]] = []

        self.columnconfigure(0, weight=1)
        self.rowconfigure(1, weight=1)
        bar = ttk.Frame(self)
        bar.grid(row=0, sticky="ew", pady=(0, 8))
        bar.columnconfigure(1, weight=1)
        self.model = ttk.Combobox(bar, values=models, state="readonly", width=24)
        self.model.set(models[0])
        self.model.bind("<<ComboboxSelected>>", lambda event: self.load())
        self.model.grid(row=0, column=0)
        self.status = ttk.Label(bar, anchor="e")
        self.status.grid(row=0, column=1, sticky="ew", padx=8)
        self.unload_button = ttk.Button(bar, text="Unload", command=self.unload)
        self.unload_button.grid(row=0, column=2)

        shown = ttk.Frame(self)
        shown.grid(row=1, sticky="nsew")
        shown.columnconfigure(0, weight=1)
        shown.rowconfigure(0, weight=1)
        self.text = tk.Text(shown, wrap="word", state="disabled", padx=10, pady=8, relief="flat", font="TkTextFont")
        self.text.tag_configure("user", foreground="#1a5fb4", spacing1=8)
        self.text.tag_configure("note", foreground="#77767b", spacing1=8)
        self.text.grid(row=0, column=0, sticky="nsew")
        scroll = ttk.Scrollbar(shown, command=self.text.yview)
        scroll.grid(row=0, column=1, sticky="ns")
        self.text.configure(yscrollcommand=scroll.set)

        self.progress = ttk.Progressbar(self, maximum=1.0)
        foot = ttk.Frame(self)
        foot.grid(row=3, sticky="ew", pady=(8, 0))
        foot.columnconfigure(0, weight=1)
        self.entry = ttk.Entry(foot)
        self.entry.bind("<Return>", lambda event: self.send())
        self.entry.grid(row=0, column=0, sticky="ew", padx=(0, 8))
        self.button = ttk.Button(foot, text="Send", command=self.send)
        self.button.grid(row=0, column=1)
        window.protocol("WM_DELETE_WINDOW", self.quit_window)
        self.load()

    def load(self) -> None:
        """Load the chosen model in a thread. The one before it is closed first, so that both are never in memory."""
        self.unload()
        name = self.model.get()
        self.progress.grid(row=2, sticky="ew", pady=(8, 0))
        self._cancel = token = CancelToken()

        def told(progress: LoadProgress) -> None:
            if token.cancelled:
                raise LoadingStoppedError(f"{name} was not loaded")
            self._later(lambda: self.progress.configure(value=progress.fraction))

        def work() -> None:
            try:
                llm, said = LLM.load(name, on_progress=told), f"{name} is loaded"
            except EdgegenError as error:
                llm, said = None, str(error)
            self._later(lambda: self._loaded(llm, said))

        self._start(work, f"Loading {name} …")

    def unload(self) -> None:
        """Give the model's memory back."""
        if self.llm is not None:
            self.llm.close()
            self.llm = None
        self.messages.clear()
        self._show_state("No model is loaded")

    def send(self) -> None:
        """Send what was typed, or stop what runs: an answer, or loading."""
        if self._running:
            self._cancel.cancel()
            return
        said = self.entry.get().strip()
        llm = self.llm
        if not said or llm is None:
            return
        self.entry.delete(0, "end")
        self.messages.append({"role": "user", "content": said})
        self._write(f"{said}\n", "user")
        messages = [*self.messages]
        self._cancel = token = CancelToken()

        def work() -> None:
            try:
                with llm.stream_chat(messages, max_new_tokens=200, cancel=token) as stream:
                    for n, chunk in enumerate(stream):
                        text = chunk.text if n else chunk.text.lstrip()
                        self._later(lambda text=text: self._write(text))
                answer = stream.result.text
                said = "Stopped" if stream.result.finish_reason == "cancelled" else "Ready"
            except EdgegenError as error:
                answer, said = None, str(error)
            self._later(lambda: self._answered(answer, said))

        self._start(work, "Answering …")

    def quit_window(self) -> None:
        """Stop what runs, close the model, then the window."""
        self._closing = True
        self._cancel.cancel()
        if not self._running:
            self.unload()
            self._window.destroy()

    def _loaded(self, llm: LLM | None, said: str) -> None:
        self.llm = llm
        self.progress.grid_remove()
        if llm is None:
            self._write(f"{said}\n", "note")
            said = "No model is loaded"
        self._show_state(said)

    def _answered(self, answer: str | None, said: str) -> None:
        if answer is None:
            self.messages.pop()
            self._write(said, "note")
            said = "Failed"
        else:
            self.messages.append({"role": "assistant", "content": answer})
        self._write("\n")
        self._show_state(said)

    def _start(self, work: Callable[[], None], said: str) -> None:
        def run() -> None:
            try:
                work()
            finally:
                self._later(self._ended)

        self._running += 1
        self._show_state(said)
        Thread(target=run, daemon=True).start()
        if self._running == 1:
            self._window.after(POLL, self._poll)

    def _ended(self) -> None:
        self._running -= 1
        self._show_state()

    def _later(self, call: Callable[[], None]) -> None:
        self._calls.put(call)

    def _poll(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                break
            call()
        if self._running:
            self._window.after(POLL, self._poll)
        elif self._closing:
            self.quit_window()

    def _show_state(self, said: str | None = None) -> None:
        if said is not None:
            self.status.configure(text=said)
        able = self._running or self.llm is not None
        self.button.configure(text="Stop" if self._running else "Send", state="normal" if able else "disabled")
        self.unload_button.configure(state="normal" if self.llm and not self._running else "disabled")
        self.model.configure(state="disabled" if self._running else "readonly")

    def _write(self, text: str, *tags: str) -> None:
        self.text.configure(state="normal")
        self.text.insert("end", text, tags)
        self.text.configure(state="disabled")
        self.text.see("end")


def main() -> None:
    window = tk.Tk()
    window.title("edgegen")
    window.geometry("720x520")
    window.minsize(380, 260)
    chat = Chat(window, sys.argv[1:] or [EMBEDDED])
    chat.pack(fill="both", expand=True)
    chat.entry.focus()
    window.mainloop()


if __name__ == "__main__":
    main()
