"""Windows' console, closed: the main thread hears of it, and has the time that Windows gives."""

import signal

import pytest

from edgegen.system import heed_console
from edgegen.system.console import BREAK, CLOSE, LOGOFF, SHUTDOWN, answer_console

CTRL_C = 0


@pytest.mark.parametrize(
    ("event", "does", "handled"),
    [
        (CTRL_C, [], False),
        (BREAK, ["interrupt"], True),
        (CLOSE, ["interrupt", "wait"], True),
        (SHUTDOWN, ["interrupt", "wait"], True),
        (LOGOFF, [], True),
    ],
    ids=["Ctrl-C is Python's", "Ctrl-Break", "close", "shutdown", "logoff of any user"],
)
def test_what_an_event_of_the_console_does(event: int, does: list[str], handled: bool) -> None:
    did = list[str]()
    assert answer_console(event, lambda: did.append("interrupt"), lambda: did.append("wait")) is handled
    assert did == does


@pytest.mark.skipif(hasattr(signal, "SIGBREAK"), reason="Windows has a console to heed")
def test_other_systems_have_no_such_console() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    heed_console()
    assert {number: signal.getsignal(number) for number in before} == before
