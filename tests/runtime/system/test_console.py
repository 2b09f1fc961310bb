"""Windows' console, closed: the main thread hears of it, and has the time that Windows gives."""

import ast
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from edgegen.system import creation_flags, heed_console
from edgegen.system.console import BREAK, CLOSE, LOGOFF, SHUTDOWN, answer_console
from tests.runtime.system.recorded import Recorded

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


@pytest.mark.parametrize(
    ("machine", "flags"),
    [
        (Recorded("win32"), 0x08000000),
        (Recorded("win32", calls={"GetConsoleWindow": struct.pack("<Q", 0x20A3E)}), 0),
        (Recorded(), 0),
        (Recorded("darwin"), 0),
    ],
    ids=["an app of Windows", "a console of Windows", "Linux", "macOS"],
)
def test_a_child_opens_no_console_where_there_is_none(machine: Recorded, flags: int) -> None:
    assert creation_flags(machine) == flags


@pytest.mark.skipif(sys.platform != "win32", reason="Windows alone has consoles of this kind")
@pytest.mark.parametrize("started", [0x08, 0x08000000], ids=["detached", "without a window"])
def test_a_process_without_a_console_starts_its_children_without_one(started: int) -> None:
    code = "from edgegen.system import creation_flags; print(creation_flags())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, creationflags=started)
    assert int(done.stdout) == 0x08000000


def test_the_flags_of_this_system_are_taken_by_a_child() -> None:
    command = [sys.executable, "-c", "print('here')"]
    done = subprocess.run(command, capture_output=True, check=True, creationflags=creation_flags())
    assert done.stdout.split() == [b"here"]


STARTED = re.compile(r"subprocess\.(Popen|call|check_call|check_output|run|getoutput)|os\.(system|popen|startfile)")
"""Calls that start a program."""


def starts(text: str) -> list[ast.Call]:
    return [
        node
        for node in (ast.walk(ast.parse(text)) if STARTED.search(text) else ())
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and STARTED.fullmatch(f"{node.func.value.id}.{node.func.attr}")
    ]


def test_every_child_of_both_packages_is_started_so() -> None:
    root = Path(__file__).parents[3]
    calls = {
        f"{path.relative_to(root)}:{call.lineno}": [word.arg for word in call.keywords]
        for package in ("edgegen", "export/edgegen_export")
        for path in (root / package).rglob("*.py")
        for call in starts(path.read_text("utf-8"))
    }
    assert len(calls) >= 2
    assert [place for place, words in calls.items() if "creationflags" not in words] == []
