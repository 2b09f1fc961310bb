"""Refusals of checkpoints that cannot be read, each with the one command that converts the weights.

Pickles can run code when they are opened, so they are never opened here; the commands do it where the user
decides to, with the libraries that wrote them.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Collection
from pathlib import Path

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint.weight_files import (
    ADAPTER_CONFIG,
    ADAPTER_PICKLE,
    ADAPTER_WEIGHTS,
    WEIGHTS,
    listed,
    read_json_object,
    safetensors_names,
)

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
_CONVERT_HUB_ADAPTER = (
    "import os, shutil, sys, torch; from huggingface_hub import hf_hub_download as get; "
    "from safetensors.torch import save_file; s, d = sys.argv[1:]; os.makedirs(d); "
    'shutil.copy(get(s, "adapter_config.json"), d); '
    's = torch.load(get(s, "adapter_model.bin"), map_location="cpu", weights_only=True); '
    'save_file({k: v.clone().contiguous() for k, v in s.items()}, d + "/adapter_model.safetensors")'
)


def adapter_refusal(names: Collection[str], where: str, config: Path | None = None) -> str | None:
    """The refusal of a folder that holds an adapter and not the model under it, or None.

    ``config``: the adapter's, where it is at hand; it may name the model.
    """
    return _adapter_only(where, config) if _has_adapter(names) and "config.json" not in names else None


def no_adapter_refusal(names: Collection[str], where: str, *, hub: bool) -> str | None:
    """Why ``names`` have no adapter that can be read, or None; ``where`` is a folder's path or a hub id."""
    if ADAPTER_CONFIG not in names:
        model = ", but a whole model: export it by itself" if "config.json" in names else ""
        return (
            f"{where} holds no adapter{model}: it has no {ADAPTER_CONFIG} (found: {listed(sorted(names)) or 'nothing'})"
        )
    if ADAPTER_WEIGHTS in names:
        return None
    if ADAPTER_PICKLE not in names:
        return f"{where} has no {ADAPTER_WEIGHTS} (found: {listed(sorted(names))})"
    if hub:
        target = where.rpartition("/")[2]
        command, result = _command(_CONVERT_HUB_ADAPTER, where, target), f"give --adapter {target}"
    else:
        folder = Path(where).resolve()
        command = _command(_CONVERT_STATE_DICT, str(folder / ADAPTER_PICKLE), str(folder / ADAPTER_WEIGHTS))
        result = "give the same folder"
    return (
        f"{where} holds pickled weights only ({ADAPTER_PICKLE}), which are not opened; write them as safetensors in an "
        f"environment with torch and safetensors, then {result}:\n  {command}"
    )


def _has_adapter(names: Collection[str]) -> bool:
    return bool({ADAPTER_CONFIG, ADAPTER_WEIGHTS} & set(names))


def _adapter_only(where: str, config: Path | None) -> str:
    return (
        f"{where} holds an adapter only: export its base model and merge it in, "
        f"`edgegen export {_base_of(config) or 'BASE'} --adapter {_command_word(where)}`"
    )


def _base_of(config: Path | None) -> str | None:
    """Return the base model of an adapter's config, as a word of a command; None without one."""
    try:
        base = read_json_object(config)["base_model_name_or_path"] if config is not None else None
    except (CheckpointError, KeyError):
        return None
    return _command_word(base) if isinstance(base, str) and base else None


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
    if _has_adapter(names):  # beside the config of its base, as some trainers leave it
        return _adapter_only(where, None if hub else Path(where) / ADAPTER_CONFIG)
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
    return " ".join(map(_command_word, ["python", "-c", code, *arguments]))


def _command_word(word: str) -> str:
    return subprocess.list2cmdline([word]) if os.name == "nt" else shlex.quote(word)
