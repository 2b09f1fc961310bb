"""Nanbeige, which transformers does not have, against its Llama with every layer again, after the final norm."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from edgegen import LLM
from edgegen.errors import UnsupportedModelError
from edgegen_export.families.nanbeige import NANBEIGE
from tests.export.bundles import decoded, export_to, prefilled, runner_of
from tests.export.checkpoint.gguf_case import Case
from tests.export.checkpoint.gguf_models import arrays_of, write_gguf
from tests.export.checkpoint.gguf_steps import Arrays, key_length, kv_heads, llama, permuted, rope, sizes
from tests.export.checkpoint.layouts import write_safetensors
from tests.oracle import import_torch, import_transformers

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 96,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LAYERS = 3
REPEATED = tuple(f"model.layers.{i}." for i in range(LAYERS, 3 * LAYERS))


def looped(loops: int, *, norms_between: bool = True, **more: Any) -> Any:
    """A Llama whose layers are the same few ones again and again, each with a KV cache of its own, and with the final
    norm between passes."""
    torch, transformers = import_torch(), import_transformers()
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**SIZES, **more, num_hidden_layers=loops * LAYERS)
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        for i, layer in enumerate(model.model.layers):
            layer.load_state_dict(model.model.layers[i % LAYERS].state_dict())

    def normed(layer: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (model.model.norm(args[0]), *args[1:])

    for layer in model.model.layers[LAYERS::LAYERS] if norms_between else ():
        layer.register_forward_pre_hook(normed)
    return model


def config_of(loops: int, **more: Any) -> dict[str, Any]:
    auto = {"AutoModelForCausalLM": "modeling_nanbeige.NanbeigeForCausalLM"}
    own: dict[str, Any] = {"num_hidden_layers": LAYERS, "num_loops": loops, "kv_channels": SIZES["head_dim"]}
    own["loop_loss_weights"] = []
    kind = {"model_type": "nanbeige", "architectures": ["NanbeigeForCausalLM"], "auto_map": auto}
    return {**kind, **SIZES, "hidden_act": "silu", "tie_word_embeddings": False, **own, **more}


def written(folder: Path, model: Any, config: dict[str, Any]) -> Path:
    """The checkpoint, which has every layer once."""
    folder.mkdir()
    arrays = {name: array for name, array in arrays_of(model).items() if not name.startswith(REPEATED)}
    write_safetensors(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("loops", "norms_between", "tied"),
    [(2, True, False), (3, True, False), (2, False, False), (2, True, True), (1, True, False)],
)
def test_nanbeige_computes_what_a_llama_with_layers_again_does(
    loops: int, norms_between: bool, tied: bool, tmp_path: Path
) -> None:
    torch = import_torch()
    model = looped(loops, norms_between=norms_between, tie_word_embeddings=tied)
    config = config_of(loops, skip_loop_final_norm=not norms_between, tie_word_embeddings=tied)
    bundle = export_to(written(tmp_path / "checkpoint", model, config), tmp_path / "bundle")
    ids: list[int] = np.random.default_rng(0).integers(0, SIZES["vocab_size"], 50).tolist()
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
        continued = model.generate(torch.tensor([ids[:8]]), max_new_tokens=64, do_sample=False, eos_token_id=None)
    runner = runner_of(bundle)
    assert np.abs(expected).max() > 0.5
    assert np.abs(decoded(runner, runner.new_cache(), ids) - expected).max() < 1e-3
    assert np.abs(prefilled(runner, runner.new_cache(), ids, 7)[-1] - expected[-1]).max() < 1e-3
    with LLM.load(bundle.path) as llm:
        answer = llm.generate(ids[:8], max_new_tokens=64, do_sample=False, eos_token_id=[])
    assert answer.token_ids == tuple(continued[0, 8:].tolist())


def test_a_gguf_file_says_the_passes(tmp_path: Path) -> None:
    torch, model = import_torch(), looped(2)
    ids: list[int] = np.random.default_rng(0).integers(0, SIZES["vocab_size"], 20).tolist()
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()

    def passes(writer: GGUFWriter, config: Any) -> None:
        writer.add_uint32("nanbeige.num_loops", 2)
        writer.add_bool("nanbeige.skip_loop_final_norm", False)

    def without_repeats(config: Any, arrays: Arrays) -> Arrays:
        config.num_hidden_layers = LAYERS
        return {name: array for name, array in arrays.items() if not name.startswith(REPEATED)}

    steps = (sizes, kv_heads, key_length, llama, rope, passes)
    case = Case("nanbeige", "", "", SIZES, steps, (without_repeats, permuted), named_like="llama")
    bundle = export_to(write_gguf(tmp_path / "model.gguf", case, model), tmp_path / "bundle")
    runner = runner_of(bundle)
    assert bundle.manifest.model.family == "nanbeige"
    assert bundle.manifest.model.num_layers == 2 * LAYERS
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"enable_mhc": True}, "enable_mhc = True: no published model has it"),
        ({"loop_share_kv": True}, "loop_share_kv = True: no published model has it"),
        ({"emb_neighbor_num": 2}, "emb_neighbor_num = 2: no published model has it"),
        ({"num_loops": 0}, "num_loops: must be positive, found 0"),
        ({"kv_channels": 32}, "kv_channels = 32: contradicts the value 16 of its other name, head_dim"),
    ],
)
def test_other_nanbeige_models_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        NANBEIGE.read_config(config_of(2, **changes))
