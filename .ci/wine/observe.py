"""Results of edgegen on the system it runs on, as JSON: `observe.py ids FOLDER` and `observe.py files FOLDER`.

``ids``: versions, kernels, and token ids of an answer for every bundle in FOLDER, with edgegen's kernels and with ONNX
Runtime's own operators. ``files``: SHA-256 of every file of every bundle in FOLDER.
"""

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

from edgegen import LLM, EngineOptions
from edgegen.model.kernels import describe_kernels

PROMPT, SEED, TOKENS = "Once upon a time", 7, 120
LIBRARIES = ("numpy", "onnxruntime", "onnx", "ml_dtypes", "tokenizers")


def ids(folder: Path) -> dict[str, object]:
    answers = dict[str, list[int]]()
    for bundle in sorted(folder.iterdir()):
        for name, options in (("kernels", EngineOptions()), ("stock", EngineOptions(kernels="stock"))):
            with LLM.load(bundle, options=options) as llm:
                answer = llm.generate(PROMPT, seed=SEED, min_new_tokens=TOKENS, max_new_tokens=TOKENS)
            answers[f"{bundle.name}, {name}"] = list(answer.token_ids)
    return {
        "python": sys.version.split()[0],
        "versions": {name: version(name) for name in LIBRARIES},
        "kernels": describe_kernels(),
        "ids": answers,
    }


def files(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


if __name__ == "__main__":
    print(json.dumps({"ids": ids, "files": files}[sys.argv[1]](Path(sys.argv[2])), sort_keys=True))
