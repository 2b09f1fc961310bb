"""Compare `edgegen serve` with llama.cpp's servers: latency of tokens and throughput under 1, 4, 8 and 16 clients.

    python -m bench.serve G --work /tmp/bench                     # random weights in the shape of GPT-2 small
    python -m bench.serve FOLDER --work /tmp/bench --reuse        # a checkpoint: GPT-2, GPT-NeoX, Llama or Qwen2
    python -m bench.serve G --work /tmp/bench --llama-server PATH
    python -m bench.serve Q --work /tmp/bench --mixed 6000        # a long prompt beside streams and short chats

All servers convert the same checkpoint to 8 bits, and get the same prompts in interleaved rounds. bench/README.md
explains the columns.
"""

import argparse
import asyncio
import json
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.compare.__main__ import machine as describe_machine
from bench.compare.__main__ import physical_cores
from bench.compare.comparison import Workshop, say
from bench.compare.contestants import CONTESTANTS, NotInstalledError, PeerError, Process
from bench.compare.environments import InstallError
from bench.compare.shapes import SHAPES
from bench.serve.load import Load, LoadError, run_load
from bench.serve.mixed import Mixed, MixedMeasured, mixed_table, run_mixed
from bench.serve.report import Measured, table
from bench.serve.servers import (
    LLAMA_CPP_SERVER,
    Machine,
    Server,
    ServerError,
    edgegen,
    llama_cpp_python,
    llama_server,
)

MOST_CONTEXT = 1024
TOKENS_OF_A_WORD = 2
"""At most, of the words of prompts."""


@dataclass(frozen=True)
class Plan:
    """How often what is asked."""

    clients: tuple[int, ...] = (1, 4, 8, 16)
    rounds: int = 3
    requests: int = 3
    tokens: int = 32
    words: int = 48
    mixed: Mixed | None = None

    @property
    def sequences(self) -> int:
        """How many run at the same time, at most."""
        return max(*self.clients, self.mixed.sequences if self.mixed else 0)

    def loads(self) -> list[Load]:
        return [Load(clients, self.requests, self.tokens, self.words) for clients in self.clients]


def measure(servers: list[Server], plan: Plan, logs: Path) -> list[Measured]:
    """All servers run until the last measurement, and one of them is asked at a time."""
    rows = {(server.label, clients): Measured(server.label, clients) for server in servers for clients in plan.clients}
    with ExitStack() as stack:
        urls = dict[str, str]()
        for number, server in enumerate(servers):
            say(f"starting {server.label}")
            try:
                urls[server.label] = stack.enter_context(server.running(logs / f"server-{number}.log"))
                warm_up = Load(max(plan.clients), 1, 4, plan.words)
                asyncio.run(run_load(urls[server.label], warm_up, warm_up.prompts(-1), server.extra))
            except (ServerError, LoadError) as error:
                fail(rows, server, error)
        for number in range(plan.rounds):
            for load in plan.loads():
                prompts = load.prompts(number)
                for server in servers:
                    row = rows[server.label, load.clients]
                    if row.failure is not None:
                        continue
                    say(f"round {number + 1} of {plan.rounds}: {load.clients} clients, {server.label}")
                    try:
                        answers, seconds = asyncio.run(run_load(urls[server.label], load, prompts, server.extra))
                    except LoadError as error:
                        fail(rows, server, error)
                        continue
                    row.answers += answers
                    row.throughputs.append(len(answers) * load.tokens / seconds)
    return [*rows.values()]


def measure_mixed(servers: list[Server], plan: Plan, load: Mixed, logs: Path) -> list[MixedMeasured]:
    """One server runs at a time, for its memory: a long prompt's KV cache is large."""
    rows = list[MixedMeasured]()
    for number, server in enumerate(servers):
        rows.append(row := MixedMeasured(server.label, load.words))
        if not server.batches:
            row.failure = "runs one request at a time"
            continue
        try:
            with server.running(logs / f"mixed-{number}.log") as url:
                warm_up = Mixed(plan.words, load.streams, load.chat_words, 4, 4)
                asyncio.run(run_mixed(url, warm_up, -1, server.extra))
                for at in range(plan.rounds):
                    say(f"round {at + 1} of {plan.rounds}: a prompt of {load.words} words, {server.label}")
                    row.rounds.append(asyncio.run(run_mixed(url, load, at, server.extra)))
        except (ServerError, LoadError) as error:
            row.failure = str(error)
    return rows


def fail(rows: dict[tuple[str, int], Measured], server: Server, error: Exception) -> None:
    """A server that fails once is not measured any more."""
    for (label, _), row in rows.items():
        if label == server.label:
            row.failure = str(error)


def prepare(args: argparse.Namespace, plan: Plan) -> tuple[list[Server], dict[str, str]]:
    """The servers over conversions of the checkpoint; and the reasons of those that cannot be."""
    given = {name: Path(path) for name, _, path in (text.partition("=") for text in args.python)}
    workshop = Workshop(args.work.resolve(), args.reuse, {"edgegen": Path(sys.executable), **given})
    named = SHAPES.get(args.model)
    name = args.model if named else Path(args.model).resolve().name
    checkpoint = workshop.checkpoint(name, named) if named else Path(args.model).resolve()
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    longest = max(MOST_CONTEXT, TOKENS_OF_A_WORD * plan.mixed.words if plan.mixed else 0)
    context = min(longest, config.get("n_positions") or config["max_position_embeddings"])
    machine = Machine(args.threads or physical_cores(), context, plan.sequences)
    servers, failures = list[Server](), dict[str, str]()
    python = workshop.pythons["edgegen"]
    ours = workshop.conversion(name, Process(CONTESTANTS["edgegen"], python), checkpoint, kept=False)
    servers += [edgegen(ours / "bundle", machine, python, kv=kv) for kv in ("float32", "int8")]
    servers += [edgegen(ours / "bundle", machine, python, kv="int8", max_pause=pause) for pause in args.max_pause]
    try:
        python = workshop.python(LLAMA_CPP_SERVER)
        process = Process(replace(CONTESTANTS["llama.cpp"], environment=LLAMA_CPP_SERVER), python)
        process.check()
        gguf = workshop.conversion(name, process, checkpoint, kept=False) / "model.gguf"
    except NotInstalledError as error:
        failures["llama.cpp"] = f"lacks {error}: {LLAMA_CPP_SERVER.command}"
    except (InstallError, PeerError) as error:
        failures["llama.cpp"] = str(error)
    else:
        if args.llama_server:
            servers.append(llama_server(args.llama_server, gguf, machine))
        servers.append(llama_cpp_python(python, gguf, machine, config["eos_token_id"]))
    return servers, failures


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare edgegen serve with llama.cpp's servers.")
    parser.add_argument("model", help=f"a checkpoint's folder, or random weights of a shape: {', '.join(SHAPES)}")
    parser.add_argument("--work", type=Path, required=True, help="folder for environments, conversions and logs")
    parser.add_argument("--reuse", action="store_true", help="keep what an earlier run left in WORK")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", help="a Python that has a server")
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="llama.cpp's own server, built by you")
    parser.add_argument("--threads", type=int, help="of each server; default: the physical cores")
    parser.add_argument("--clients", type=int, nargs="+", default=[*Plan.clients])
    parser.add_argument(
        "--max-pause", type=int, nargs="+", default=[0], metavar="MS", help="also with these, besides the default"
    )
    for option, about in (
        ("rounds", "of all servers"),
        ("requests", "of each client in a round"),
        ("tokens", "of each answer"),
        ("words", "of each prompt"),
    ):
        parser.add_argument(f"--{option}", type=int, default=getattr(Plan, option), help=about)
    parser.add_argument(
        "--mixed", type=int, metavar="WORDS", help="instead: one prompt of WORDS words beside streams and short chats"
    )
    parser.add_argument("--json", type=Path, help="write every time here")
    args = parser.parse_args()
    if args.model not in SHAPES and not (Path(args.model) / "config.json").exists():
        raise SystemExit(f"{args.model} is no checkpoint, and no shape (there are {', '.join(SHAPES)})")
    if min(args.clients, default=0) < 1 or min(args.rounds, args.requests, args.tokens) < 1 or args.words < 2:
        raise SystemExit("--clients, --rounds, --requests and --tokens are at least 1, --words is at least 2")
    if args.mixed is not None and args.mixed < 2:
        raise SystemExit("--mixed is at least 2 words")
    mixed = None if args.mixed is None else Mixed(args.mixed)
    plan = Plan(tuple(args.clients), args.rounds, args.requests, args.tokens, args.words, mixed)
    servers, failures = prepare(args, plan)
    about = describe_machine()
    rows: list[Measured] | list[MixedMeasured]
    if mixed is None:
        rows = measure(servers, plan, args.work)
        print(table(rows))
        print(f"\nrounds: {plan.rounds}, requests of a client: {plan.requests}, ", end="")
        print(f"words of a prompt: {plan.words}, tokens of an answer: {plan.tokens}; ", end="")
    else:
        rows = measure_mixed(servers, plan, mixed, args.work)
        print(mixed_table(rows))
        print(f"\nrounds: {plan.rounds}, words: {mixed.words}, of a chat: {mixed.chat_words}, ", end="")
        print(f"streams: {mixed.streams}; ", end="")
    print(f"{about['cpu']}, {about['cpus']} cores")
    for name, reason in failures.items():
        print(f"\n{name}: not measured: {reason}")
    if args.json:
        found = {"machine": about, "plan": asdict(plan), "rows": [row.to_json() for row in rows], "failed": failures}
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(row.failure for row in rows if row.server.startswith("edgegen")))


if __name__ == "__main__":
    main()
