"""Plot of decode throughput over context; needs matplotlib, which nothing else in the runtime does."""

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgegen.benchmark import Benchmark
from edgegen.errors import EdgegenError


def check_plot(path: Path) -> list[str]:
    """Why :func:`plot_decode` could not draw to ``path``, found before the long part."""
    problems = list[str]()
    if path.suffix.lower() != ".png":
        problems.append(f"the plot is a PNG picture: give it a name that ends with .png, not {path.name!r}")
    if not path.absolute().parent.is_dir():
        problems.append(f"the plot {path} cannot be written: its folder does not exist")
    if importlib.util.find_spec("matplotlib") is None:
        problems.append('a plot needs matplotlib: run `pip install "edgegen[plot]"`, or leave --plot out')
    return problems


def plot_decode(results: Sequence[Benchmark], path: Path) -> None:
    """Write a PNG with a line for each model: medians, and around them a band from the least to the greatest.

    Raises:
        EdgegenError: the file cannot be written.
    """
    drawing: Any = importlib.import_module("matplotlib.figure")  # not at hand where types are checked
    figure = drawing.Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for one in results:
        speeds = [speed.tokens_per_second for speed in one.decode.values()]
        contexts = [*one.decode]
        (line,) = axes.plot(contexts, [speed.median for speed in speeds], marker="o", markersize=3, label=one.model)
        lows, highs = [speed.low for speed in speeds], [speed.high for speed in speeds]
        axes.fill_between(contexts, lows, highs, color=line.get_color(), alpha=0.2)
    axes.set_title("decoding one sequence")
    axes.set_xlabel("context, tokens")
    axes.set_ylabel("tokens/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise EdgegenError(f"the plot {path} was not written: {error}.") from error
