"""Progress bar on standard error, if that is a terminal."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str = "") -> Generator[Callable[[int, int], None] | None]:
    """Gives a function to call with how much of ``what`` is done, and of how much; None without a terminal."""
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
