"""Checks which operators the embedded model runs on: `which_kernels.py kernels` or `which_kernels.py stock`."""

import sys
from pathlib import Path

import edgegen
from edgegen import LLM

LIBRARY = "edgegen_kernels."

wanted = sys.argv[1] == "kernels"
folder = Path(edgegen.__file__).parent / "model"
with LLM.load() as llm:
    text = llm.generate("Once upon a time", max_new_tokens=8, temperature=0.0).text
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if LIBRARY in line}
if not text.strip():
    sys.exit("the embedded model says nothing")
if mapped != ({str(folder / "edgegen_kernels.so")} if wanted else set()):
    sys.exit(f"wanted {sys.argv[1]}, and the libraries of kernels in use are: {sorted(mapped) or 'none'}")
print(f"runs on {'our kernels' if wanted else 'stock operators'}")
