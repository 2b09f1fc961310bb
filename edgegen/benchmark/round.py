"""Round: the raw measurements of one process."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prefill:
    """A new prompt of ``tokens`` tokens: ``seconds`` until its first new token was chosen."""

    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Decode:
    """Single steps of one sequence, begun with ``context`` tokens of context.

    Attributes:
        bytes_per_token: what a step has to read: the weights, without tables of which it reads a few rows (experts
            that a token does not use are counted), and the KV cache of the context that it attends to.
        step_seconds: of whole steps of the engine, each with choosing its token.
        graph_seconds: what of each was spent inside ONNX Runtime.
    """

    context: int
    bytes_per_token: int
    step_seconds: tuple[float, ...]
    graph_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Steps of ``rows`` rows together, a token for each; begun with ``context`` tokens each."""

    rows: int
    context: int
    step_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """Measurements that one process took of one model.

    Attributes:
        onnxruntime: its version.
        load_seconds: reading and verifying the manifest, the tokenizer, the graphs with their weights; the packages are
            imported by then, and files mostly in the system's cache.
        first_token_seconds: from the start of the process to the first token after the longest prompt of ``prefill``;
            None where the process was not started for it.
        memory_bytes: this process's share of memory (PSS) after that prompt and one decode step, less what it was with
            the packages imported and the tokenizer loaded; None where the system does not tell.
        peak_bytes: the most memory the process had held by then, all of it counted; None where it does not tell.
        kv_bytes: bytes of the KV cache in use then.
        spin_seconds: CPU time that threads took after that step, waiting for another one before they went to sleep.
        idle_cpu: CPU time over time, of all threads, from then on, while there was nothing to do.
        bandwidth: bytes per second that as many threads read from memory.
    """

    onnxruntime: str
    load_seconds: float
    first_token_seconds: float | None
    memory_bytes: int | None
    peak_bytes: int | None
    kv_bytes: int
    spin_seconds: float
    idle_cpu: float
    bandwidth: float
    prefill: tuple[Prefill, ...]
    decode: tuple[Decode, ...]
    batch: tuple[Batch, ...]
