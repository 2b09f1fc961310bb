"""A bar on standard error while something takes its time, if that is a terminal."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str = "") -> Generator[Callable[[int, int], None] | None]:
    """Gives what is to hear how much of how much of ``what`` is done; None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    label = f"{what} " if what else None
    with tqdm(desc=label, leave=False, bar_format="{desc}{bar:30} {percentage:3.0f}%  {remaining} left") as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
