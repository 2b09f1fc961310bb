"""The software bill of materials of a wheel (PEP 770): what is in it besides edgegen's Python, in CycloneDX's JSON.

What edgegen depends on is not in the wheel: its metadata lists that.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MODEL = Path("edgegen/bundle/embedded/stories")
"""The embedded model, below the root of the sources."""


def sbom(root: Path, version: str, library: Path | None, runtimes: Sequence[str] = ()) -> str:
    """The text of the bill for the sources below ``root``.

    ``library`` is that of the kernels, or None in a pure wheel; ``runtimes`` names what its compiler linked into it
    besides. The same sources give the same text: it has no serial number and no time.
    """
    components = [_model(root, version)]
    if library is not None:
        components += [_library(library, version), *map(_runtime, runtimes)]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": f"pkg:pypi/edgegen@{version}",
                "name": "edgegen",
                "version": version,
                "purl": f"pkg:pypi/edgegen@{version}",
                "licenses": [{"license": {"id": "MIT"}}],
            }
        },
        "components": components,
    }
    return json.dumps(document, indent=1) + "\n"


def runtimes(platform: str, *, clang: bool) -> tuple[str, ...]:
    """Return the runtimes that a compiler, clang or GCC, links into a library for a platform's tag besides its
    sources."""
    own = "compiler-rt" if clang else "libgcc"
    return (own, "mingw-w64") if platform.startswith("win") else (own,)


def _model(root: Path, version: str) -> dict[str, Any]:
    weights = next(iter(sorted((root / MODEL).glob("*/weights.data"))))
    return {
        "type": "machine-learning-model",
        "bom-ref": "stories",
        "name": "stories",
        "version": version,
        "description": f"The embedded model, weights of {weights.parent.relative_to(root).as_posix()}",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(weights.read_bytes()).hexdigest()}],
        "licenses": [{"license": {"id": "MIT"}}],
    }


def _library(library: Path, version: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": "edgegen-kernels",
        "name": "edgegen-kernels",
        "version": version,
        "description": f"edgegen/model/{library.name}, compiled from kernels/ of the source distribution",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(library.read_bytes()).hexdigest()}],
        "licenses": [{"license": {"id": "MIT"}}],
    }


_RUNTIMES = {
    "compiler-rt": ("Apache-2.0 WITH LLVM-exception", "Functions of LLVM that compiled code calls"),
    "mingw-w64": ("ZPL-2.1", "The start of a library on Windows, and the C library's import stubs"),
    "libgcc": ("GPL-3.0-or-later WITH GCC-exception-3.1", "Functions of GCC that compiled code calls"),
}


def _runtime(name: str) -> dict[str, Any]:
    licence, description = _RUNTIMES[name]
    return {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "description": f"{description}; linked into edgegen-kernels",
        "licenses": [{"expression": licence}],
    }
