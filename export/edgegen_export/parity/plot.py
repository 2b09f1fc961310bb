"""A parity report's per-layer errors as a picture; needs matplotlib, which nothing else does."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from edgegen.errors import ExportError, UsageError
from edgegen.evaluation.parity.report import ParityReport


def check_plot(path: Path, *, traced: bool) -> None:
    """Refuse, before the long part, what :func:`plot_layers` could not do.

    Raises:
        UsageError: the model is to be traced; matplotlib is missing; ``path`` is no name of a PNG file, or its folder
            does not exist.
    """
    if traced:
        raise UsageError("the layers of a traced model are not known: leave --via optimum or --parity-plot out")
    if path.suffix.lower() != ".png":
        raise UsageError(f"the plot is a PNG picture: give it a name that ends with .png, not {path.name!r}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"the plot {path} cannot be written: its folder does not exist")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError('a plot needs matplotlib: run `pip install "edgegen[plot]"`, or leave --parity-plot out')


def plot_layers(report: ParityReport, name: str, path: Path) -> None:
    """Write a PNG with each layer's relative error, a line for each variant; ``name``: the bundle's.

    Raises:
        ExportError: the file cannot be written.
    """
    drawing: Any = importlib.import_module("matplotlib.figure")  # not at hand where types are checked
    figure = drawing.Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for variant, errors in report.layer_errors.items():
        axes.plot(range(len(errors)), [100 * error for error in errors], marker="o", markersize=3, label=variant)
    axes.set_title(f"{name}: hidden states against the checkpoint's")
    axes.set_xlabel("behind layer")
    axes.set_ylabel("relative error, %")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ExportError(f"the plot {path} was not written: {error}.") from error
