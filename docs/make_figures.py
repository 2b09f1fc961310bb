"""Write the figures that stand on several pages, from those of docs/performance.md, where benchmarks put them.

python docs/make_figures.py

Reads the tables of performance.md into docs/figures.json, and writes from that what README.md and docs/service.md say.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("figures.json")
SOURCE = Path(__file__).with_name("performance.md")
README = Path(__file__).parents[1] / "README.md"
SERVICE = Path(__file__).with_name("service.md")

Figures = dict[str, Any]

_SHAPES = {"G": "GPT-2, 124M", "S": "SmolLM2, 135M", "Q": "Qwen2.5, 0.5B"}
_COLUMNS = {
    "tok/s @32": "tokens_per_second_at_32",
    "tok/s @900": "tokens_per_second_at_900",
    "prefill 512, ms": "prefill_512_ms",
    "cold to first token, s": "cold_start_s",
    "peak, MB": "peak_mb",
    "disk, MB": "disk_mb",
}
_ROWS = {
    "edgegen int8": "edgegen int8",
    "edgegen int4": "edgegen int4",
    "llama.cpp Q8_0": "llama.cpp",
    "OpenVINO GenAI int8": "OpenVINO GenAI",
    "CTranslate2 int8": "CTranslate2",
}
_SERVED = {"edgegen int8, int8 KV cache": "edgegen", "llama-server Q8_0": "llama-server"}
_CLIENTS = "8"


def measured(page: str) -> Figures:
    """The figures that are used elsewhere, as the tables of the text of performance.md have them."""
    shapes = {shape: _of_shape(_after(page, f"### {shape}: ")) for shape in _SHAPES}
    bandwidths = [int(found) for found in re.findall(r"^Reading bandwidth (\d+) GB/s", page, re.MULTILINE)]
    served = dict[str, int]()
    for row in _rows(_after(page, "Prompts of 48 words:")):
        if row[0] == _CLIENTS and row[1] in _SERVED:
            served[_SERVED[row[1]]] = int(row[-1])
    return {
        "about": "made by docs/make_figures.py from performance.md: figures that stand on several pages",
        "bandwidth_gb_per_s": [min(bandwidths), max(bandwidths)],
        "shapes": shapes,
        "tokens_per_second_of_8_clients": served,
    }


def _after(page: str, heading: str) -> str:
    return page[page.index(heading) :]


def _rows(text: str) -> list[list[str]]:
    """The cells of the first table in a text."""
    lines = text.split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith("|"))
    end = next((n for n in range(start, len(lines)) if not lines[n].startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]


def _of_shape(text: str) -> dict[str, dict[str, float]]:
    head, _, *rows = _rows(text)
    places = {name: head.index(column) for column, name in _COLUMNS.items()}
    return {
        _ROWS[row[0]]: {name: float(row[place]) for name, place in places.items()} for row in rows if row[0] in _ROWS
    }


def comparison(figures: Figures) -> str:
    """README's first table."""
    decode = _next_to_peers(figures, "G", "tokens_per_second_at_900", "{:.0f}", largest=True)
    cold = _next_to_peers(figures, "Q", "cold_start_s", "{:.2f}", largest=False)
    return f"""\
| measured | edgegen | peers |
|---|---|---|
| decode speed, GPT-2 124M in int8 at 900 tokens of context, 2 cores (`python -m bench.compare`) | {decode[0]} tokens/s | {decode[1]} |
| from the start of a process to its first token, Qwen2.5-0.5B in int8 (the same) | {cold[0]} s | {cold[1]} |
| size and mean KL divergence from float32, int4 of a trained GPT-2 (`python -m bench.gguf DATA`) | 863 kB, 0.00032 nats; with outliers 863 kB, 0.00032 | GGUF Q4_K_M: 877 kB, 0.0018 nats; with outliers 877 kB, 0.034 |
"""  # noqa: E501 (rows of a table)


def _next_to_peers(figures: Figures, shape: str, name: str, spelled: str, *, largest: bool) -> tuple[str, str]:
    rows: dict[str, dict[str, float]] = figures["shapes"][shape]
    peers = sorted(((row[name], peer) for peer, row in rows.items() if "edgegen" not in peer), reverse=largest)
    ours = spelled.format(rows["edgegen int8"][name])
    return ours, ", ".join(f"{peer} {spelled.format(value)}" for value, peer in peers)


def speeds(figures: Figures) -> str:
    """README's table of speed and memory, and its sentence on several clients."""
    low, high = figures["bandwidth_gb_per_s"]
    lines = [
        f"On two cores that read {low} to {high} GB/s, as `python -m bench.compare` measured them on random weights",
        "([next to other runtimes](docs/performance.md#next-to-other-runtimes)). One token reads every weight once, so",
        "decode speed is memory bandwidth divided by the bytes of the weights.",
        "",
        "| model | weights | tokens/s at 32 of context | at 900 | prefill of 512, ms | peak memory, MB | disk, MB |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    names = ("tokens_per_second_at_32", "tokens_per_second_at_900", "prefill_512_ms", "peak_mb", "disk_mb")
    for shape, model in _SHAPES.items():
        for scheme in ("int8", "int4"):
            row = figures["shapes"][shape][f"edgegen {scheme}"]
            shown = f"{model} " if scheme == "int8" else ""
            lines.append(f"| {shown}| {scheme} | " + " | ".join(f"{row[name]:.0f}" for name in names) + " |")
    served = figures["tokens_per_second_of_8_clients"]
    ours, theirs = served["edgegen"], served["llama-server"]
    lines += [
        "",
        f"Eight clients at once: `edgegen serve` writes {ours} tokens/s of that GPT-2 in int8, KV cache included,",
        f"llama-server {theirs} in Q8_0",
        "([Serving next to llama.cpp's servers](docs/performance.md#serving-next-to-llamacpps-servers)).",
    ]
    return "\n".join(lines) + "\n"


def of_a_service(figures: Figures) -> str:
    """The sentence of docs/service.md on memory."""
    peak = {scheme: figures["shapes"]["Q"][f"edgegen {scheme}"]["peak_mb"] for scheme in ("int4", "int8")}
    return f"""\
- `edgegen info BUNDLE` says what weights and **KV cache** take. A whole process takes more: with one text of 900 tokens
  and a model of 0.5B parameters {peak["int4"]:.0f} MB in int4 and {peak["int8"]:.0f} MB in int8, mapped files included
  ([other models](../README.md#speed-and-memory)). A server has KV caches of several requests and of prefixes besides.
"""


def filled(page: str, name: str, text: str) -> str:
    """The page with ``text`` between the marks of that name."""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->\n"
    return page[: page.index(begin) + len(begin)] + text + page[page.index(end) :]


def pages(figures: Figures) -> dict[Path, str]:
    """The texts of the pages as they should be."""
    readme = filled(README.read_text("utf-8"), "comparison", comparison(figures))
    return {
        README: filled(readme, "speeds", speeds(figures)),
        SERVICE: filled(SERVICE.read_text("utf-8"), "memory", of_a_service(figures)),
    }


def main() -> None:
    figures = measured(SOURCE.read_text("utf-8"))
    FILE.write_text(json.dumps(figures, indent=1) + "\n", "utf-8", newline="\n")
    for path, text in pages(figures).items():
        path.write_text(text, "utf-8", newline="\n")
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
