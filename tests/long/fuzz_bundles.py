"""Mutated bundles: refused, or loaded and run by ONNX Runtime, in limited memory, without a crash.

    python -m tests.long.fuzz_bundles [--count 100000] [--first 0] [--seed 0] [--bundle stories]

One file of a bundle, the embedded one by default, is changed: mostly a graph, byte by byte, or one of its functions,
else ``edgegen.json`` or another JSON file, value by value or byte by byte. Graphs are checked as verification checks
them; what passes is loaded, and generates two tokens. A signal, an error that is not edgegen's, more than the time, and
more than twice the memory are failures.
"""

import random
import shutil
from pathlib import Path

from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import MANIFEST_NAME
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.graph.check import graph_problems
from edgegen.graph.protobuf import edited, values
from tests.export.checkpoint.hostile import changed
from tests.long.mutants import Try, main
from tests.runtime.bundle.mutations import mutated

OF_GRAPHS, OF_FUNCTIONS = 0.9, 0.5
_FUNCTION = 25
OPTIONS = EngineOptions(threads=1, verify="never")


def prepare(root: Path, name: str) -> Try:
    """A copy of the bundle ``name``, whose files are changed in place."""
    bundle = Bundle.open(shutil.copytree(BundleStore().resolve(name), root / "bundle"))
    sizes, variant = {"weights.data": bundle.weights_size}, bundle.variant
    graphs = [bundle.file(name) for name in (variant.prefill, variant.decode)]
    others = [
        bundle.path / MANIFEST_NAME,
        *(bundle.file(name) for name in bundle.manifest.files if name.endswith(".json")),
    ]
    whole = {path: path.read_bytes() for path in (*graphs, *others)}

    def run() -> str:
        with LLM.load(bundle.path, options=OPTIONS) as llm:
            llm.generate([1, 2, 3], max_new_tokens=2)
        return "run"

    def attempt(chance: random.Random | None) -> str:
        if chance is None:
            return run()
        if chance.random() < OF_GRAPHS:
            path = chance.choice(graphs)
            content = mutated_graph(whole[path], chance)
            if graph_problems(content, sizes):
                return "refused by the check of graphs"
        else:
            path = chance.choice(others)
            content = changed(path.name, whole[path], chance)
        path.write_bytes(content)
        try:
            return run()
        finally:
            path.write_bytes(whole[path])

    return attempt


def mutated_graph(graph: bytes, chance: random.Random) -> bytes:
    """``graph`` mutated anywhere, or in one of its functions, if it has some: the others stay as they are."""
    functions = [*values(graph, _FUNCTION)]
    if not functions or chance.random() >= OF_FUNCTIONS:
        return mutated(graph, chance)
    chosen = chance.choice(functions)
    return edited(graph, _FUNCTION, lambda one: mutated(one, chance) if one == chosen else one)


if __name__ == "__main__":
    main("tests.long.fuzz_bundles", "Mutate bundles, and run those that pass.", prepare, bundle=DEFAULT_MODEL)
