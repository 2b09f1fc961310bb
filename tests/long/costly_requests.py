"""Long test of the server: requests that ask for much, beside one stream that must not notice.

    python -m tests.long.costly_requests [--clients N] [--gap SECONDS] [--only CASE]

For each case, clients send the same request at once and as many leave right after they have sent it, while another
client reads one stream after the other. Printed: the answers, the longest gap between two pieces of the stream, the
most memory (anonymous pages) and threads, and the memory at most ten seconds after the last client has gone. Then
servers get SIGTERM while such requests run.

It fails where the stream has waited longer than ``--gap``, an answer is a failure of the server, memory has not come
back to within 100 MB of what it was before the case, there are more threads than a server may have, or a server does
not end in time.
"""

import argparse
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from bench.compare.memory import status_bytes
from edgegen.constraint.compiler import MOST_COMPILED_BYTES
from edgegen.server.http.last_call import CLOSING_SECONDS
from edgegen.server.http.work import KINDS
from tests.runtime.server.serving import serving

MOST_THREADS = sum(kind.most for kind in KINDS) + 16
"""Threads of work, and those of the interpreter, the engine, ONNX Runtime and the log."""
MOST_KEPT = 100 << 20
"""Bytes more after a case than before it; all cases together also leave compiled constraints, as many as are kept."""
GRACE = 4.0

COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"
_LETTERS = "a b c d e f g h i j k l m n o p q r s t u v w x y z "


def _completion(**more: Any) -> tuple[str, dict[str, Any]]:
    return COMPLETION, {"prompt": "a", "max_tokens": 50, **more}


def _schema(schema: object) -> tuple[str, dict[str, Any]]:
    return _completion(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})


def _grammar(text: str) -> tuple[str, dict[str, Any]]:
    return _completion(grammar=text)


def _chat(**more: Any) -> tuple[str, dict[str, Any]]:
    return CHAT, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20, **more}


def _tool(count: int) -> dict[str, Any]:
    properties = {f"p{n}": {"type": "string", "description": "Something."} for n in range(count)}
    return {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": properties}}}


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """Requests by what they ask much of: some beyond a bound, some right below it."""
    story = "Once upon a time " * 45
    names = {f"p{n}": {"type": "string"} for n in range(1000)}
    return {
        "alternatives": _grammar("start: " + "|".join(["a"] * 400_000) + '\na: "x"'),
        "alternatives within": _grammar("start: " + "|".join(["a"] * 9_000) + '\na: "x"'),
        "words": _grammar("start: " + " | ".join(f'"w{n}"' for n in range(60_000))),
        "optional parts within": _grammar("start: " + "a? " * 4_900 + '\na: "x"'),
        "repeated parts within": _grammar("start: " + "a* " * 4_900 + '\na: "x"'),
        "a terminal within": _grammar("start: T\nT: " + " | ".join(f'"w{n}"' for n in range(60_000))),
        "GBNF within": _grammar("root ::= " + "|".join(["a"] * 9_000) + '\na ::= "x"'),
        "forced text": _completion(grammar=f'root ::= "{_LETTERS}"{{2000,2000}}', max_tokens=900),
        "forced text within": _completion(grammar=f'root ::= "{_LETTERS}"{{1200,1200}}', max_tokens=900),
        "doubled rules": _grammar(
            "start: r0\n" + "".join(f"r{n}: r{n + 1} r{n + 1}\n" for n in range(40)) + 'r40: "x"'
        ),
        "conditions within": _grammar("start: T\nT: " + " & ".join(f"/.*{n}.*/" for n in range(90))),
        "an expression": _completion(regex="[a-z]?" * 20_000),
        "an expression within": _completion(regex="[a-z]?" * 3_900),
        "a repeated expression": _completion(regex="(abc){1000000}"),
        "choices": _completion(guided_choice=[f"{n:020}" for n in range(19_000)]),
        "properties": _schema({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(20_000)}}),
        "properties within": _schema({"type": "object", "properties": names}),
        "required properties": _schema({"type": "object", "properties": names, "required": [*names]}),
        "branches within": _schema({"anyOf": [{"type": "array", "items": {"const": n}} for n in range(3000)]}),
        "pattern properties within": _schema({"patternProperties": {f"^w{n}$": {"type": "null"} for n in range(95)}}),
        "items": _schema({"type": "array", "items": {"const": "x" * 1000}, "minItems": 100_000}),
        "tools": _chat(tools=[_tool(900)] * 4, tool_choice="required"),
        "many tools": _chat(tools=[_tool(40)] * 60),
        "pieces": ("/tokenize", {"content": "a b " * 1_000_000, "with_pieces": True}),
        "pieces within": ("/tokenize", {"content": "a b " * 490_000, "with_pieces": True}),
        "detokenized": ("/detokenize", {"tokens": [7] * 900_000}),
        "prompts": _completion(prompt=["a"] * 128, n=8, max_tokens=4),
        "echoes": _completion(prompt=[story] * 32, echo=True, logprobs=5, max_tokens=1),
        "a long prompt": _completion(prompt="a b " * 1_000_000),
        "biases": _completion(logit_bias={str(n): 1 for n in range(1024)}),
        "stops": _completion(stop=["x" * 1000 + str(n) for n in range(16)]),
        "an expression that stops": _completion(stop_regex="(a?){500}(a|b)*c"),
        "embeddings": ("/v1/embeddings", {"input": [story] * 200}),
        "messages": _chat(messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a"}] * 1000),
        "depth": ("/v1/completions", {"prompt": "a", "metadata": json.loads("[" * 60 + "]" * 60)}),
    }


class Victim:
    """Reads one stream after the other, and notes the longest gap between two pieces since it was last asked."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._ended = False
        self._longest = 0.0
        self._last = time.monotonic()
        self.streams = 0
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 400, "stream": True, "seed": 3})
        while not self._ended:
            connection = HTTPConnection(self._place, timeout=120)
            connection.request("POST", COMPLETION, body)
            for _ in connection.getresponse():
                now = time.monotonic()
                self._longest, self._last = max(self._longest, now - self._last), now
                if self._ended:
                    break
            self.streams += 1
            connection.close()

    def longest(self) -> float:
        """The longest gap; the next one begins anew."""
        found, self._longest = max(self._longest, time.monotonic() - self._last), 0.0
        return found

    def end(self) -> None:
        self._ended = True
        self._thread.join()


class Watch:
    """The most memory and threads of a process since it was last asked."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._ended = threading.Event()
        self.memory, self.threads = 0, 0
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def now(self) -> int:
        return status_bytes(self._status, "RssAnon") or 0

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            self.memory = max(self.memory, self.now())
            with suppress(OSError, StopIteration):
                lines = self._status.read_text().splitlines()
                self.threads = max(self.threads, next(int(one.split()[1]) for one in lines if one[:8] == "Threads:"))

    def again(self) -> None:
        self.memory, self.threads = 0, 0

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def ask(place: str, path: str, body: bytes, *, leaves: bool) -> str:
    """The status of the answer, or what became of the request."""
    connection = HTTPConnection(place, timeout=300)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        if leaves:
            time.sleep(0.05)
            return "left"
        response = connection.getresponse()
        while response.read(1 << 16):
            pass
        return str(response.status)
    except (OSError, HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def back(watch: Watch, before: int) -> int:
    """The memory once it is back, ten seconds later at most."""
    end = time.monotonic() + 10
    while watch.now() > before + MOST_KEPT and time.monotonic() < end:
        time.sleep(0.1)
    return watch.now()


def drive(clients: int, most_gap: float, only: str | None) -> list[str]:
    """Every case beside a victim; returns what has failed."""
    failed = list[str]()
    with serving("--no-store", "--max-queue", "64") as (process, address):
        place = address.removeprefix("http://")
        victim, watch = Victim(place), Watch(process.pid)
        time.sleep(3)
        alone, before = victim.longest(), watch.now()
        print(f"alone: longest gap {alone:.3f} s, {before >> 20} MB, {watch.threads} threads", flush=True)
        for name, (path, content) in cases().items():
            if only is not None and name != only:
                continue
            body = json.dumps(content).encode()
            watch.again()
            victim.longest()
            begin, start = time.monotonic(), watch.now()
            with ThreadPoolExecutor(2 * clients) as pool:
                asked = [pool.submit(ask, place, path, body, leaves=n % 2 == 1) for n in range(2 * clients)]
                codes = Counter(one.result() for one in asked)
            seconds, gap = time.monotonic() - begin, victim.longest()
            kept = back(watch, start)
            answers = ", ".join(f"{count} {code}" for code, count in sorted(codes.items()))
            print(
                f"{name:26} {answers:28} {seconds:6.1f} s, gap {gap:.3f} s, most {watch.memory >> 20} MB, "
                f"then {kept >> 20} MB, {watch.threads} threads",
                flush=True,
            )
            wrong = [code for code in codes if code not in ("200", "400", "413", "503", "left")]
            failed += [f"{name}: {code}" for code in wrong]
            failed += [f"{name}: a gap of {gap:.2f} s"] if gap > most_gap else []
            failed += [f"{name}: {kept >> 20} MB are kept"] if kept > start + MOST_KEPT else []
            failed += [f"{name}: {watch.threads} threads"] if watch.threads > MOST_THREADS else []
        if (left := watch.now()) > before + MOST_KEPT + MOST_COMPILED_BYTES:
            failed.append(f"all cases: {left >> 20} MB are kept")
        victim.end()
        watch.end()
        print(f"the victim read {victim.streams} streams")
    return failed


def terminate(only: str | None) -> list[str]:
    """Servers that are told to end while each case runs; returns what has failed."""
    failed = list[str]()
    for name, (path, content) in cases().items():
        if only is not None and name != only:
            continue
        body = json.dumps(content).encode()
        with serving("--no-store", "--grace-seconds", str(GRACE)) as (process, address):
            host, _, port = address.removeprefix("http://").partition(":")
            open_ones = [socket.create_connection((host, int(port))) for _ in range(4)]
            for one in open_ones:
                head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
                one.sendall(head.encode() + body)
            time.sleep(0.3)
            begin = time.monotonic()
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(GRACE + CLOSING_SECONDS + 5)
            except subprocess.TimeoutExpired:
                code = None
            seconds = time.monotonic() - begin
            for one in open_ones:
                one.close()
        print(f"SIGTERM beside {name}: exit code {code} after {seconds:.1f} s", flush=True)
        failed += [f"SIGTERM beside {name}: {code}"] if code != 0 else []
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--gap", type=float, default=0.5)
    parser.add_argument("--only", choices=cases())
    options = parser.parse_args()
    sys.setswitchinterval(0.0005)  # the clients' threads must not hold up the one that measures
    failed = [*drive(options.clients, options.gap, options.only), *terminate(options.only)]
    print("\n".join(failed) or "all held")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
