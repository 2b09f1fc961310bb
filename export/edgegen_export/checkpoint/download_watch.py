"""watching(): tells while a file is downloaded into the hub's cache how many bytes of it are there."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_SECONDS = 0.25
"""Between two looks."""

_PARTS = "*.incomplete"
"""End of the name of the part that is there, after the file's SHA-256; later versions put letters between."""


@contextmanager
def watching(
    blobs: Path, sha256: str, total: int, tell: Callable[[int, int], object], seconds: float = _SECONDS
) -> Generator[None]:
    """Call ``tell``, in a thread, with how many of ``total`` bytes are in the folder ``blobs``; at the end with all.

    huggingface_hub itself tells only its own progress bars, in ways that differ by version.
    """
    done = threading.Event()

    def look() -> None:
        with suppress(OSError):  # there is no listener any more; the download itself will say so
            while True:
                tell(min(total, _bytes_there(blobs, sha256)), total)
                if done.wait(seconds):
                    return

    thread = threading.Thread(target=look, name="edgegen-download", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    tell(total, total)


def _bytes_there(blobs: Path, sha256: str) -> int:
    sizes = [0]
    for part in blobs.glob(f"{sha256}{_PARTS}"):
        with suppress(OSError):  # it has just been given its own name
            sizes.append(part.stat().st_size)
    return max(sizes)
