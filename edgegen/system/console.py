"""heed_console(): on Windows, Ctrl-Break and a console that is closed interrupt a program as Ctrl-C does."""

import ctypes
import signal
import sys
import threading
from collections.abc import Callable

BREAK, CLOSE, LOGOFF, SHUTDOWN = 1, 2, 5, 6
"""Events of Windows' console; Ctrl-C, which is 0, is left to Python."""

_kept = list[object]()
"""Handlers that Windows calls, and that must live as long."""


def heed_console() -> None:
    """Have SIGBREAK raise ``KeyboardInterrupt`` unless it has a handler, and a closed console bring it about.

    To be called by the main thread of a program; on other systems nothing happens.
    """
    if sys.platform != "win32":
        return
    import _thread

    signal.signal(signal.SIGBREAK, signal.default_int_handler)

    def handle(event: int) -> bool:
        return answer_console(event, lambda: _thread.interrupt_main(signal.SIGBREAK), threading.Event().wait)

    handler = ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint32)(handle)
    _kept.append(handler)
    ctypes.WinDLL("kernel32").SetConsoleCtrlHandler(handler, 1)


def answer_console(event: int, interrupt: Callable[[], object], wait: Callable[[], object]) -> bool:
    """Whether an event of the console is dealt with here; ``interrupt`` tells the main thread of it.

    The C library would turn a close into SIGBREAK too, but return at once, and Windows ends the process as soon as
    the last handler returns: this one does ``wait``, for which Windows gives it 5 seconds.
    """
    if event in (BREAK, CLOSE, SHUTDOWN):
        interrupt()
    if event in (CLOSE, SHUTDOWN):
        wait()
    return event in (BREAK, CLOSE, SHUTDOWN, LOGOFF)  # a service hears of each user that logs off, and goes on
