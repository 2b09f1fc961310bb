"""A batch on several machines with Ray Data: blocks of lines, and a model on every worker.

The process that writes the output also reads the input, block by block as workers ask for them; in memory it holds
only where the blocks start. A worker that dies is replaced, and its blocks are answered again.
"""

import logging
import os
import socket
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from edgegen.batch.input import InputLine, read_lines
from edgegen.batch.job import BatchJob
from edgegen.batch.record import Entry
from edgegen.batch.settings import BatchSettings
from edgegen.errors import BundleError, EdgegenError, UsageError, first_line
from edgegen.llm import LLM
from edgegen.system import open_regular, physical_cores

_PATIENCE = 10.0
"""Seconds that a cluster may take to answer at all."""

LINES_PER_BLOCK = 128
"""Lines that a worker is given at a time, and has to do again if it dies."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that follow one another: ``count`` of them, the first of which is ``number`` and begins at ``start``."""

    number: int
    start: int
    count: int


def blocks_of(lines: Iterable[InputLine], size: int = LINES_PER_BLOCK) -> Iterator[Block]:
    """``lines`` by their places, ``size`` at a time."""
    rest = iter(lines)
    for first in rest:
        yield Block(first.number, first.start, 1 + sum(1 for _ in islice(rest, size - 1)))


def read_block(path: Path, block: Block) -> list[InputLine]:
    """The lines of ``block``."""
    with open_regular(path) as file:
        file.seek(block.start)
        return [*islice(read_lines(file, block.number - 1, block.start), block.count)]


class _Reader:
    """Lives beside the input, and reads it for the workers."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, block: Block) -> list[InputLine]:
        return read_block(self._path, block)


class _Worker:
    """Has a model, and answers blocks."""

    def __init__(self, reader: Any, settings: BatchSettings, digest: str, processors: int) -> None:
        threads = settings.engine.threads or min(processors, physical_cores())
        llm = LLM.load(settings.model, options=replace(settings.engine, threads=threads))
        if llm.bundle.digest != digest:
            raise BundleError(f"{settings.model} is another bundle on this worker: put the same one on every machine.")
        self._reader = reader
        self._job = BatchJob(llm, settings)

    def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, list[Any]]]:
        ray: Any = import_module("ray")
        for number, start, count in zip(batch["number"], batch["start"], batch["count"], strict=True):
            lines = ray.get(self._reader.read.remote(Block(int(number), int(start), int(count))))
            entries = [*self._job.answer(lines)]
            yield {
                "digest": [entry.digest for entry in entries],
                "record": [entry.record for entry in entries],
                "failed": [entry.failed for entry in entries],
                "tokens": [entry.tokens for entry in entries],
            }


def answer_on_ray(
    address: str, path: Path, lines: Iterable[InputLine], settings: BatchSettings, digest: str
) -> Iterator[Entry]:
    """An entry for each of ``lines``, which are of the file ``path``, in their order.

    Args:
        address: of a cluster: ``HOST:PORT``, ``auto`` for the one this machine belongs to, ``local`` for a new one of
            this machine alone.
        digest: the bundle's, which must be the same on every machine.

    Raises:
        UsageError: Ray is not installed, or nothing answers at ``address``.
        EdgegenError: Ray cannot start; or no worker could be started, because it has no such bundle for example.
    """
    with _cluster(address) as ray:
        places = [asdict(block) for block in blocks_of(lines)]
        if not places:
            return
        per_worker, workers = _sharing(ray.nodes(), settings.engine.threads)
        reader = ray.remote(num_cpus=0)(_Reader).options(scheduling_strategy=_here(ray)).remote(path)
        answers = ray.data.from_items(places, override_num_blocks=len(places)).map_batches(
            _Worker,
            fn_constructor_args=(reader, settings, digest, per_worker),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=per_worker,
        )
        try:
            for row in answers.iter_rows():
                yield Entry(row["digest"], row["record"], bool(row["failed"]), int(row["tokens"]))
        except ray.exceptions.RayError as error:
            # A worker's own words come after its traceback.
            raise EdgegenError(f"the batch failed on Ray: {str(error).strip().splitlines()[-1]}") from error


@contextmanager
def _cluster(address: str) -> Generator[Any]:
    """Ray, connected and quiet."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it warns of what Ray Data does by itself
    try:
        import_module("ray.data")
        ray: Any = import_module("ray")
    except ImportError:
        raise UsageError('--ray needs Ray, which is not installed: pip install "edgegen[ray]".') from None
    _reach(address)
    try:
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError) as error:
        raise UsageError(f"no Ray cluster at {address}: {first_line(error)}") from None
    except Exception as error:  # of no narrower class where a node's processes do not come up
        raise EdgegenError(f"Ray cannot start, so the batch was not begun: {first_line(error)}") from error
    try:
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised as well
        yield ray
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Wait until something listens at the address of a Ray cluster.

    Raises:
        UsageError: nothing listens at ``HOST:PORT``, which Ray itself would say after two minutes only.
    """
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
        except (OSError, OverflowError) as error:
            raise UsageError(f"no Ray cluster at {address}: {first_line(error)}") from None


def _sharing(nodes: Iterable[Mapping[str, Any]], threads: int | None) -> tuple[int, int]:
    """Processors of a worker, and how many workers there are; without ``threads``, one for each of like machines."""
    processors = [int(node["Resources"].get("CPU", 0)) for node in nodes if node["Alive"]]
    each = threads or min((count for count in processors if count), default=1)
    return each, max(1, sum(count // each for count in processors))


def _here(ray: Any) -> object:
    """The machine that this process runs on."""
    strategies: Any = import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
