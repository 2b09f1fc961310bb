"""How many of the models that other packages know can be exported, for docs/families.md.

python docs/make_coverage.py PYTHON MLX_LM.whl

Writes docs/coverage.json, the lists of names: the types of text decoders of the transformers that PYTHON has, the
models of a wheel of mlx-lm (pip download --no-deps mlx-lm), and the architectures of the gguf that is installed here.
After that, and after a family is added, docs/make_families.py counts.
"""

import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from textwrap import wrap
from typing import Any
from zipfile import ZipFile

from edgegen_export.checkpoint.gguf.architectures import ARCHITECTURES
from edgegen_export.families import FAMILIES
from edgegen_export.families.refused import never

LISTS = Path(__file__).with_name("coverage.json")

_OF_TRANSFORMERS = """
import json, transformers
from transformers.models.auto import modeling_auto as auto
names = {kind: sorted(getattr(auto, f"MODEL_FOR_{kind}_MAPPING_NAMES")) for kind in (
    "CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ")}
print(json.dumps([transformers.__version__, names]))
"""
"""Definition of a text decoder: a causal language model that is listed as nothing else."""

_ENCODERS = """
    bert clip eurobert gemma-embedding jina-bert-v2 jina-bert-v3 llama-embed modern-bert neo-bert nomic-bert
    nomic-bert-moe t5 t5encoder wavtokenizer-dec dream llada llada-moe rnd1
""".split()
"""Architectures of GGUF files that have no next token: encoders, decoders of sound, and models of diffusion."""


def coverage() -> Iterator[str]:
    """The lines of the page: for each package, how many of its names are exported, and which are not."""
    types = {model_type for family in FAMILIES for model_type in family.model_types}
    lists: dict[str, dict[str, Any]] = json.loads(LISTS.read_text("utf-8"))
    known: Mapping[str, tuple[str, Collection[str]]] = {
        "transformers": ("types of text decoders", types),
        "mlx-lm": ("models", types | {model_type.replace("-", "_") for model_type in types}),
        "gguf": ("architectures of decoders", ARCHITECTURES),
    }
    for package, (what, ours) in known.items():
        names: list[str] = lists[package]["names"]
        missing = [name for name in names if name not in ours]
        listed = ", ".join(missing)
        said = (
            f"- **{package} {lists[package]['version']}**: {len(names) - len(missing)} of {len(names)} {what}; "
            f"without {listed}."
        )
        yield from wrap(said, 120, subsequent_indent="  ", break_on_hyphens=False)


def _transformers(python: str) -> tuple[str, list[str]]:
    found = subprocess.run([python, "-c", _OF_TRANSFORMERS], capture_output=True, text=True, check=True)
    version, names = json.loads(found.stdout)
    others = {name for kind, listed in names.items() if kind != "CAUSAL_LM" for name in listed}
    return version, sorted({*names["CAUSAL_LM"]} - others - never())


def _mlx_lm(wheel: Path) -> tuple[str, list[str]]:
    names = list[str]()
    with ZipFile(wheel) as archive:
        for file in archive.namelist():
            module = re.fullmatch(r"mlx_lm/models/(\w+)\.py", file)
            if module and re.search(r"^class Model\b", archive.read(file).decode(), re.MULTILINE):
                names.append(module[1])
    return wheel.name.split("-")[1], sorted(names)


def _gguf() -> tuple[str, list[str]]:
    from gguf import MODEL_ARCH_NAMES

    return metadata.version("gguf"), sorted({*MODEL_ARCH_NAMES.values()} - {*_ENCODERS})


def main() -> None:
    python, wheel = sys.argv[1:]
    found = {"transformers": _transformers(python), "mlx-lm": _mlx_lm(Path(wheel)), "gguf": _gguf()}
    content = {package: {"version": version, "names": names} for package, (version, names) in found.items()}
    LISTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(LISTS, *coverage(), sep="\n")


if __name__ == "__main__":
    main()
