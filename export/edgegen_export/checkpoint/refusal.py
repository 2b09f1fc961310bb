"""Why a checkpoint is refused, and the one command that leads out.

Pickles can run code when they are opened, so they are never opened here; the commands do it where the reader
decides to, with the libraries that wrote them.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Collection
from pathlib import Path

from edgegen_export.checkpoint.weight_files import ADAPTER_WEIGHTS, WEIGHTS, listed, safetensors_names

_TRAINER_STATE = re.compile(r"(training_args|optimizer|scheduler|scaler|rng_state.*)\.(bin|pt|pth)")
_PICKLE = re.compile(r"[^/]+\.(bin|pt|pth|ckpt)")
_TRANSFORMERS_PICKLE = re.compile(r"pytorch_model.*\.bin(\.index\.json)?")
_OTHER_FRAMEWORKS = {"tf_model.h5": "from_tf", "flax_model.msgpack": "from_flax"}
_ENVIRONMENT = {
    "from_tf": "transformers<5, torch and tensorflow",
    "from_flax": "transformers<5, torch and flax",
    "": "transformers and torch",
}

# sys.argv[1] → safetensors, tokenizer and config in sys.argv[2]. A folder's other files go along as they are.
_CONVERT_FOLDER = (
    "import shutil, sys; from transformers import AutoModelForCausalLM as M; s, d = sys.argv[1:]; "
    'skip = shutil.ignore_patterns("*.bin", "*.index.json", "*.pt", "*.pth", "*.h5", "*.msgpack", '
    '"checkpoint-*"); '
    "shutil.copytree(s, d, ignore=skip, dirs_exist_ok=True); "
    'M.from_pretrained(s, torch_dtype="auto"{options}).save_pretrained(d, safe_serialization=True)'
)
_CONVERT_HUB = (
    "import sys; from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; "
    "s, d = sys.argv[1:]; T.from_pretrained(s{revision}).save_pretrained(d); "
    'M.from_pretrained(s, torch_dtype="auto"{revision}{options}).save_pretrained(d, safe_serialization=True)'
)
_CONVERT_STATE_DICT = (
    "import sys, torch; from safetensors.torch import save_file; "
    's = torch.load(sys.argv[1], map_location="cpu", weights_only=True); s = s.get("state_dict", s); '
    "save_file({k: v.clone().contiguous() for k, v in s.items()}, sys.argv[2])"
)


def adapter_refusal(names: Collection[str], where: str) -> str | None:
    """The refusal of a folder that holds an adapter and not the model under it, or None."""
    if "config.json" in names or not ({"adapter_config.json", ADAPTER_WEIGHTS} & set(names)):
        return None
    return (
        f"{where} holds an adapter only: merge it into its base model (in PEFT: merge_and_unload, then "
        "save_pretrained) and export the merged folder"
    )


def weights_refusal(names: Collection[str], where: str, *, hub: bool, revision: str | None = None) -> str:
    """Why ``names`` has no weights that can be read; ``where`` is a folder's path or a hub id."""
    several = safetensors_names(names)
    if several:
        return (
            f"{where} holds several safetensors files and no model.safetensors.index.json that says what is "
            f"in which: {listed(several)}"
        )
    candidates = sorted(n for n in names if _PICKLE.fullmatch(n) and not _TRAINER_STATE.fullmatch(n))
    for_transformers = sorted(n for n in names if _TRANSFORMERS_PICKLE.fullmatch(n))
    if for_transformers:
        return _pickled(where, for_transformers, "", hub=hub, revision=revision)
    for name, option in _OTHER_FRAMEWORKS.items():
        if name in names:
            return _pickled(where, [name], option, hub=hub, revision=revision)
    if len(candidates) == 1 and not hub:
        folder = Path(where).resolve()
        command = _command(_CONVERT_STATE_DICT, str(folder / candidates[0]), str(folder / WEIGHTS))
        return (
            f"{where} holds pickled weights only ({candidates[0]}), which are not opened; write them as "
            "safetensors in an environment with torch and safetensors, then export the same folder:\n"
            f"  {command}"
        )
    found = listed(sorted(names)) or "nothing"
    return f"{where} holds no weights in safetensors or GGUF files (found: {found})"


def _pickled(where: str, found: list[str], option: str, *, hub: bool, revision: str | None) -> str:
    origin = where if hub else str(Path(where).resolve())
    target = f"{where.rpartition('/')[2] if hub else origin}-safetensors"
    options = f", {option}=True" if option else ""
    at = f', revision="{revision}"' if revision else ""
    code = _CONVERT_HUB.format(options=options, revision=at) if hub else _CONVERT_FOLDER.format(options=options)
    kind = "weights of another framework" if option else "pickled weights"
    return (
        f"{where} holds {kind} only ({listed(found)}), which are not opened; write them as safetensors in an "
        f"environment with {_ENVIRONMENT[option]}, then export {target}:\n  {_command(code, origin, target)}"
    )


def _command(code: str, *arguments: str) -> str:
    words = ["python", "-c", code, *arguments]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
