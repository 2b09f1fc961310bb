"""Multi-token prediction heads in GGUF files: the third graph is that of the checkpoint they were written from."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from gguf.constants import MODEL_TENSOR, TENSOR_NAMES

from edgegen.bundle.bundle import Bundle
from edgegen.errors import CheckpointError
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import Listener, export_to, random_ids
from tests.export.checkpoint import gguf_steps_of_hybrids as steps
from tests.export.checkpoint.gguf_hybrids import FAMILIES_OF_FILES, Family
from tests.export.checkpoint.gguf_steps import Arrays
from tests.export.checkpoint.gguf_steps_of_experts import FAMILIES_OF_EXPERTS
from tests.export.checkpoint.layouts import write_safetensors
from tests.export.checkpoint.test_gguf_hybrids import file_of, says
from tests.families.cases import CASES, Case
from tests.families.cases.sarvam_moe import LING
from tests.families.harness import checkpoint_of
from tests.families.mtp_heads import head_runner, run_head

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that write the files

AS_QWEN = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
OF_QWEN = {"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "shared_head.norm": "norm"}
NAMES = {
    "eh_proj": MODEL_TENSOR.NEXTN_EH_PROJ,
    "enorm": MODEL_TENSOR.NEXTN_ENORM,
    "hnorm": MODEL_TENSOR.NEXTN_HNORM,
    "shared_head.norm": MODEL_TENSOR.NEXTN_SHARED_HEAD_NORM,
    "embed_tokens": MODEL_TENSOR.NEXTN_EMBED_TOKENS,
    "shared_head.head": MODEL_TENSOR.NEXTN_SHARED_HEAD_HEAD,
}
"""Tensors around the layer, by DeepSeek's names."""


def _case(family: str) -> Case:
    return next(case for case in CASES if str(case) == f"{family}: base")


def _with_head(folder: Path) -> None:
    """Add a head to a random checkpoint: another layer like the last with attention, and what is around it."""
    random = np.random.default_rng(3)
    file = folder / "model.safetensors"
    tensors = {name: one.read() for name, one in open_safetensors(file).items()}
    layers = {int(name.split(".")[2]) for name in tensors if ".layers." in name}
    last = max(int(name.split(".")[2]) for name in tensors if re.search(r"\.(o_proj|dense)\.", name))
    layer, new = f"model.layers.{last}.", len(layers)
    size = tensors["model.norm.weight"].shape[0]
    qwen, ling = (any(part in name for name in tensors) for part in (".linear_attn.", ".attention.dense."))
    before = "mtp.layers.0." if qwen else f"model.layers.{new}."
    found = {before + name.removeprefix(layer): one for name, one in tensors.items() if name.startswith(layer)}
    for name in ("eh_proj", "enorm", "hnorm", "final_layernorm" if ling else "shared_head.norm"):
        shape = (size, 2 * size) if name == "eh_proj" else (size,)
        theirs = f"mtp.{OF_QWEN[name]}" if qwen else f"{before}{name}"
        found[f"{theirs}.weight"] = np.ones(shape, np.float32)
    found = {name: random.normal(one.ndim < 2, 0.1, one.shape).astype(np.float32) for name, one in found.items()}
    write_safetensors(folder / "with_head", {**tensors, **found}).replace(file)  # which is mapped


def _as_deepseek(config: object, arrays: Arrays) -> Arrays:
    """Qwen's head under DeepSeek's names, after the last layer: the converter's own first step."""
    number = steps.layers_of(config)
    named = {f"mtp.{theirs}.weight": f"model.layers.{number}.{ours}.weight" for ours, theirs in OF_QWEN.items()}
    return {
        named.get(key, key.replace("mtp.layers.0.", f"model.layers.{number}.")): array for key, array in arrays.items()
    }


def _named(config: object, arrays: Arrays) -> Arrays:
    """Return the tensors around the layer by the file's names, which not every architecture of the library has."""
    number = steps.layers_of(config)
    named = {
        f"model.layers.{number}.{theirs}.weight": f"{TENSOR_NAMES[ours].format(bid=number)}.weight"
        for theirs, ours in NAMES.items()
    }
    return {named.get(key, key): array for key, array in arrays.items()}


def _as_it_is(family: Family) -> Family:
    return family


def _written(family: str, folder: Path, change: Callable[[Family], Family] = _as_it_is) -> Path:
    """A checkpoint with a head, in ``folder``/checkpoint, and the file of it."""
    usual = {**FAMILIES_OF_FILES, **FAMILIES_OF_EXPERTS}[family]
    with_head = replace(
        usual,
        describe=(*usual.describe, steps.with_drafts),
        rearrange=(_as_deepseek, *usual.rearrange, _named),
    )
    checkpoint = checkpoint_of(_case(family), folder / "checkpoint")
    _with_head(checkpoint)
    if family == "sarvam_moe":  # whose layers Ling has, with a head besides
        config = json.loads((checkpoint / "config.json").read_text("utf-8"))
        config |= {"model_type": "bailing_moe", "architectures": ["BailingMoeV2ForCausalLM"], **LING}
        (checkpoint / "config.json").write_text(json.dumps(config), "utf-8")
    return file_of(_case(family), folder, change(with_head))


@pytest.mark.parametrize("family", ["glm4_moe", "deepseek_v3", "sarvam_moe", *AS_QWEN])
def test_the_head_of_a_file_is_that_of_its_checkpoint(family: str, tmp_path: Path) -> None:
    of_file = export_to(_written(family, tmp_path), tmp_path / "of_file")
    of_folder = export_to(tmp_path / "checkpoint", tmp_path / "of_folder")
    assert _graph(of_file) == _graph(of_folder)
    ids = random_ids(of_folder, 12)
    hidden = np.random.default_rng(1).normal(size=(12, of_folder.manifest.model.hidden_size)).astype(np.float32)
    found, expected = (run_head(head_runner(one), ids, hidden) for one in (of_file, of_folder))
    for ours, theirs in zip(found, expected, strict=True):
        assert np.abs(theirs).max() > 0.1
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)  # of norms that are stored plus one


def _graph(bundle: Bundle) -> bytes:
    assert bundle.manifest.mtp
    return bundle.file(bundle.manifest.mtp.prefill).read_bytes()


def _without(part: str) -> Callable[[Family], Family]:
    def left(config: object, arrays: Arrays) -> Arrays:
        return {key: array for key, array in arrays.items() if not re.fullmatch(part, key)}

    return lambda family: replace(family, rearrange=(*family.rearrange, left))


def _and(name: str) -> Callable[[Family], Family]:
    def added(config: object, arrays: Arrays) -> Arrays:
        own = 2 * arrays["lm_head.weight"]
        return {**arrays, f"blk.{steps.layers_of(config)}.nextn.{name}.weight": own}

    return lambda family: replace(family, rearrange=(*family.rearrange, added))


def _more(family: Family) -> Family:
    """A second layer is said."""

    def two(writer: GGUFWriter, config: object) -> None:
        says(block_count=steps.layers_of(config) + 2, nextn_predict_layers=2)(writer, config)

    def repeated(config: object, arrays: Arrays) -> Arrays:
        number = steps.layers_of(config)
        return {**arrays, f"blk.{number + 1}.nextn.eh_proj.weight": arrays[f"blk.{number}.nextn.eh_proj.weight"]}

    return replace(family, describe=(*family.describe, two), rearrange=(*family.rearrange, repeated))


@pytest.mark.parametrize(
    ("family", "change", "said"),
    [
        ("glm4_moe", _without(r"blk\.\d+\.nextn\.eh_proj.*"), r"blk\.3\.nextn\.eh_proj\.weight: missing"),
        ("qwen3_next", _without(r"blk\.\d+\.nextn\.shared_head_norm.*"), r"final_norm\.weight: missing"),
        (
            "qwen3_5_text",
            _without(r"(blk|model\.layers)\.4\..*"),
            r"qwen35\.nextn_predict_layers = 1, and the file has",
        ),
        ("glm4_moe", _and("shared_head_head"), r"shared_head\.head\.weight: not the model's own"),
        ("exaone_moe", _as_it_is, r"blk\.\d\.nextn\.eh_proj\.weight and \d+ more: heads .* exaone-moe"),
    ],
)
def test_what_is_not_used_is_named(family: str, change: Callable[[Family], Family], said: str, tmp_path: Path) -> None:
    heard = Listener()
    file = _written(family, tmp_path, change)
    assert export(str(file), tmp_path / "bundle", ExportOptions(scheme="fp32"), progress=heard)[0].manifest.mtp is None
    [warning] = [one for one in heard.warnings if "multi-token" in one]
    assert re.search(f"its multi-token prediction head is left out: .*{said}", warning)


def test_the_first_of_two_layers_is_taken(tmp_path: Path) -> None:
    bundle = export_to(_written("glm4_moe", tmp_path, _more), tmp_path / "bundle")
    assert _graph(bundle) == _graph(export_to(tmp_path / "checkpoint", tmp_path / "of_folder"))


def test_a_file_of_a_head_alone_is_refused(tmp_path: Path) -> None:
    file = _written("qwen3_5_text", tmp_path, _without(r"model\.layers\.[0-3]\..*|blk\.[0-3]\..*"))
    with pytest.raises(CheckpointError, match="has a multi-token prediction head alone: give the file of the model"):
        export(str(file), tmp_path / "bundle", ExportOptions(scheme="fp32"))
