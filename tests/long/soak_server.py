"""Long test of the server: half an hour of streams and of clients that go away, then servers that are told to end.

    python -m tests.long.soak_server [--minutes N] [--disconnects N] [--terminations N]

Eight clients stream answers on all wires (OpenAI's three, Anthropic's, ollama's two and llama-server's), each of which
must equal that of the same request sent alone. Beside them, a client asks how the server is, and others disconnect at
random points: amid the head of a request, its body, or its answer. Every half minute the server's own memory (anonymous
pages), file descriptors and threads are printed. After the first fifth of the time memory may grow by 2%, and once the
clients are gone there are no more descriptors and threads than before they came. The server's log must stay empty.

Then servers with running streams get SIGTERM at random moments: each stream ends with an answer or an error, and each
server with exit code 0.
"""

import argparse
import json
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import Any

from bench.compare.memory import status_bytes
from edgegen.bundle.store import DEFAULT_MODEL
from tests.long.wires import WIRES, Wire
from tests.runtime.server.serving import serving

STREAMS = 8
PAUSE = 30.0
SEEDS = 1000
LOOKS = ("/health", "/metrics", "/slots", "/props", "/v1/models", "/api/tags", "/api/ps")
WORDS = "once upon a time there was little girl named lily who loved to play with her dog in park and mom said".split()


class Client:
    """Sends requests to one server, on all wires; the same seed gives the same request on the same wire."""

    def __init__(self, address: str) -> None:
        self._place = address.removeprefix("http://")

    @staticmethod
    def wire(seed: int) -> Wire:
        return [*WIRES.values()][seed % len(WIRES)]

    @staticmethod
    def _asked(seed: int) -> tuple[str, int, int | None]:
        """The prompt, the most tokens, and the seed of sampling."""
        random = Random(seed)
        prompt = " ".join(random.choices(WORDS, k=random.randint(3, 60)))
        return prompt, random.randint(4, 80), seed if random.random() < 0.5 else None

    def request(self, seed: int) -> bytes:
        return json.dumps({"model": DEFAULT_MODEL, **self.wire(seed).body(*self._asked(seed))}).encode()

    def size(self, seed: int) -> int:
        """About how many tokens the KV cache holds at the end of a request."""
        prompt, most, _ = self._asked(seed)
        return 3 * len(prompt.split()) // 2 + most

    def stream(self, seed: int) -> tuple[str, str]:
        """The text of an answer, and how it ended: a finish reason, ``error``, or ``cut``."""
        wire = self.wire(seed)
        with closing(HTTPConnection(self._place, timeout=120)) as connection:
            connection.request("POST", wire.path, self.request(seed), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                answer.read()
                return "", "error"
            return wire.read(answer)

    def look(self, path: str) -> int:
        """The status of a page that says how the server is."""
        with closing(HTTPConnection(self._place, timeout=120)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def leave(self, random: Random) -> None:
        """Connect, send some of a request, perhaps read some of its answer, and go away."""
        seed = random.randrange(SEEDS)
        body, path = self.request(seed), self.wire(seed).path
        head = f"POST {path} HTTP/1.1\r\nHost: {self._place}\r\nContent-Type: application/json\r\n"
        whole = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        sent = whole if random.random() < 0.6 else whole[: random.randrange(len(whole))]
        host, _, port = self._place.partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(sent)
            if len(sent) == len(whole):
                for _ in range(random.randrange(4)):
                    connection.recv(random.randint(1, 2000))


def sizes(process: "subprocess.Popen[str]") -> dict[str, int]:
    """Bytes of anonymous pages, open descriptors and threads of the server."""
    folder = Path(f"/proc/{process.pid}")
    memory = status_bytes(folder / "smaps_rollup", "Anonymous:")
    return {"memory": memory} | {name: len(list((folder / name).iterdir())) for name in ("fd", "task")}


def idle_sizes(process: "subprocess.Popen[str]", least: dict[str, int] | None = None) -> dict[str, int]:
    """Sizes once no client is connected; waits for what is being let go of, up to ``least``."""
    for _ in range(300):
        found = sizes(process)
        if least is not None and found["fd"] <= least["fd"] and found["task"] <= least["task"]:
            break
        time.sleep(0.1)
    return sizes(process)


def soak(minutes: float, disconnects: int) -> None:
    with serving("--max-batch-size", str(STREAMS)) as (process, address):
        client, stop, asked, wrong = Client(address), threading.Event(), Counter[str](), list[str]()
        said = list[str]()
        # A pipe that is full would stop the server at its next word.
        listener = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        listener.start()
        right = {seed: client.stream(seed) for seed in range(20 * len(WIRES))}
        assert not {end for _, end in right.values()} & {"error", "cut"}, right
        longest = sorted(range(SEEDS), key=client.size)[-2 * STREAMS :]
        with ThreadPoolExecutor(2 * STREAMS) as together:  # the KV cache and the pool of threads are as large as ever
            list(together.map(client.stream, longest * 2))
        before, seconds = idle_sizes(process), minutes * 60

        def read(number: int) -> None:
            random = Random(number)
            while not stop.is_set():
                seed = random.randrange(len(right))
                found = client.stream(seed)
                asked[found[1]] += 1
                if found != right[seed]:
                    wrong.append(f"request {seed}: {found} instead of {right[seed]}")

        def leave() -> None:
            random = Random(0)
            for _ in range(disconnects):
                if stop.wait(seconds / (disconnects + 1)):
                    break
                client.leave(random)
                asked["left"] += 1

        def look() -> None:
            while not stop.wait(1):
                wrong.extend(f"{path}: {status}" for path in LOOKS if (status := client.look(path)) != 200)

        threads = [threading.Thread(target=read, args=(n,)) for n in range(STREAMS)]
        threads += [threading.Thread(target=leave), threading.Thread(target=look)]
        begin, samples = time.monotonic(), list[tuple[float, dict[str, int]]]()
        for thread in threads:
            thread.start()
        while (passed := time.monotonic() - begin) < seconds:
            time.sleep(min(PAUSE, seconds - passed))
            samples.append((time.monotonic() - begin, sizes(process)))
            at, now = samples[-1]
            held = f"{now['memory'] / 1e6:.1f} MB, {now['fd']} descriptors, {now['task']} threads"
            print(f"{at:5.0f} s  {dict(asked)}  {held}", flush=True)
        stop.set()
        for thread in threads:
            thread.join()
        after = idle_sizes(process, before)
        settled = [now["memory"] for at, now in samples if at >= seconds / 5]
        growth = max(settled) / settled[0] - 1
        print(f"{dict(asked)}, {len(wrong)} wrong; memory grew by {growth:.2%}; before {before}, after {after}")
        assert not wrong, wrong[:3]
        assert not said, said[:20]
        assert growth <= 0.02
        assert after["fd"] <= before["fd"]
        assert after["task"] <= before["task"]


def terminate(times: int) -> None:
    random, ends = Random(1), Counter[str]()
    for n in range(times):
        with serving("--max-batch-size", str(STREAMS)) as (process, address):
            client, found = Client(address), list[str]()

            def ask(seed: int, client: Client = client, found: list[str] = found) -> None:
                try:
                    found.append(client.stream(seed)[1])
                except (OSError, HTTPException) as error:
                    found.append(f"refused: {type(error).__name__}")

            threads = [threading.Thread(target=ask, args=(n * STREAMS + i,)) for i in range(STREAMS)]
            for thread in threads:
                thread.start()
            time.sleep(random.random())
            process.send_signal(signal.SIGTERM)
            code: Any = process.wait(120)
            for thread in threads:
                thread.join()
            ends.update(found)
            assert code == 0, code
            assert "cut" not in found, found
    print(f"{times} servers told to end: {dict(ends)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--disconnects", type=int, default=1000)
    parser.add_argument("--terminations", type=int, default=100)
    options = parser.parse_args()
    soak(options.minutes, options.disconnects)
    terminate(options.terminations)


if __name__ == "__main__":
    main()
