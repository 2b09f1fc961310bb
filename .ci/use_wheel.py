"""Uses the embedded model of an installed wheel: `use_wheel.py kernels` or `use_wheel.py stock` says what must run.

Its next ids must be those of every other system. `--findings FILE` writes what was found, for the table of systems in
docs/installing.md: `docs/make_systems.py` reads it.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import edgegen
from edgegen import LLM
from edgegen.model.kernels import describe_kernels

MOST_IDS = 120
PROMPT = "One day, a boy named Tim"
"""One whose ids are chosen by some margin: stock operators round differently on every processor."""

DIGEST = "bbd5f415f78ed587"
"""Of the embedded model's next ids after the prompt, taken greedily: its story ends before the most."""

LIBRARY = "edgegen_kernels."


def main() -> None:
    """Check what computes, and what it computes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wanted", choices=["kernels", "stock"])
    parser.add_argument("--system", help="the row of the table")
    parser.add_argument("--how", choices=["measured", "emulated"], default="measured")
    parser.add_argument("--findings", type=Path, help="the file for what is found")
    chosen = parser.parse_args()

    with LLM.load() as llm:
        ids = llm.generate(PROMPT, max_new_tokens=MOST_IDS, temperature=0.0).token_ids
        mapped = _mapped_libraries() if sys.platform == "linux" else None
    computes = describe_kernels()
    own = not computes.startswith("stock")
    if mapped is not None:
        folder = Path(edgegen.__file__).parent / "model"
        if mapped - {str(folder / "edgegen_kernels.so")}:
            sys.exit(f"libraries of kernels from elsewhere are in use: {sorted(mapped)}")
        own = bool(mapped)
    if own != (chosen.wanted == "kernels"):
        sys.exit(f"wanted {chosen.wanted}, and what computes is: {computes}")
    digest = hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()[:16]
    if digest != DIGEST:
        sys.exit(f"the embedded model's next {len(ids)} ids are others than those recorded: {digest}, not {DIGEST}")
    operators = "our kernels" if own else "stock operators"
    print(f"runs on {operators} ({computes}); the next {len(ids)} ids are those recorded")
    if chosen.findings:
        rows = findings(chosen.system, chosen.how, computes, len(ids))
        chosen.findings.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def _mapped_libraries() -> set[str]:
    """The libraries of kernels in this process: Linux is certain of them."""
    lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
    return {line.split()[-1] for line in lines if LIBRARY in line}


def findings(system: str, how: str, computes: str, ids: int) -> list[dict[str, str]]:
    """Return the findings, as docs/make_systems.py reads them."""
    found = {"installs": "its wheel", "kernels": computes, "ids": f"{ids} ids"}
    return [{"system": system, "column": column, "how": how, "what": what} for column, what in found.items()]


if __name__ == "__main__":
    main()
