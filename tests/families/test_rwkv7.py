"""RWKV-7, which transformers does not have, against its formulas in NumPy, token by token, as its paper has them.

Peng et al. 2025, "RWKV-7 Goose with Expressive Dynamic State Evolution", arXiv:2503.14456.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import MODEL_ARCH, GGUFWriter, get_tensor_name_map
from numpy.typing import NDArray

from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.errors import CheckpointError, TensorError, UnsupportedModelError
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families.rwkv7 import RWKV7
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import export_to, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import Case
from tests.families.harness import assert_computes
from tests.families.test_exactness import assert_bit_exact

Floats = NDArray[np.float32]
Numbers = NDArray[np.float64]

BASE: dict[str, Any] = {
    "model_type": "rwkv7",
    "architectures": ["RWKV7ForCausalLM"],
    "attn": None,
    "attn_mode": "chunk",
    "hidden_size": 64,
    "hidden_ratio": 4.0,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "head_dim": 16,
    "decay_low_rank_dim": 32,
    "gate_low_rank_dim": 48,
    "a_low_rank_dim": 40,
    "v_low_rank_dim": 16,
    "hidden_act": "sqrelu",
    "max_position_embeddings": 256,
    "norm_first": True,
    "norm_bias": True,
    "norm_eps": 1e-5,
    "fuse_norm": False,
    "tie_word_embeddings": False,
    "value_dim": [64, 64, 64],
    "vocab_size": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "one layer": {"num_hidden_layers": 1, "value_dim": None},
    "number of heads": {"head_dim": None, "num_heads": 2},
    "no norm of the embedding": {"norm_first": False},
    "norms without a bias": {"norm_bias": False},
    "epsilon": {"norm_eps": 1e-2},
    "tied": {"tie_word_embeddings": True},
    "a width by its ratio": {"intermediate_size": None, "hidden_ratio": 1.3},
    "silu": {"hidden_act": "silu"},
    "unused mix of the first layer": {},
}
SEED = 1
"""Chosen so that greedy decoding meets no near ties."""


def written(variant: str, folder: Path) -> tuple[dict[str, Any], dict[str, Floats]]:
    """A random checkpoint."""
    config, rng = {**BASE, **VARIANTS[variant]}, np.random.default_rng(SEED)
    hidden, size = config["hidden_size"], config["head_dim"] or BASE["hidden_size"] // config["num_heads"]
    width = config["intermediate_size"] or 96
    tensors: dict[str, Floats] = {}

    def noise(*shape: int) -> Floats:
        return rng.standard_normal(shape).astype(np.float32)

    def add(name: str, *shape: int, gain: float = 1.0) -> None:
        tensors[name] = noise(*shape) * np.float32(gain / shape[-1] ** 0.5)

    def norm(name: str, *, bias: bool) -> None:
        tensors[f"{name}.weight"] = 1 + 0.3 * noise(hidden)
        if bias:
            tensors[f"{name}.bias"] = 0.3 * noise(hidden)

    def vector(name: str, least: float, most: float, *shape: int) -> None:
        tensors[name] = rng.uniform(least, most, shape or (hidden,)).astype(np.float32)

    add("model.embeddings.weight", config["vocab_size"], hidden, gain=8.0)
    for i in range(config["num_hidden_layers"]):
        layer, attn = f"model.layers.{i}", f"model.layers.{i}.attn"
        if i == 0 and config["norm_first"]:
            norm(f"{layer}.pre_norm", bias=config["norm_bias"])
        norm(f"{layer}.attn_norm", bias=config["norm_bias"])
        norm(f"{layer}.ffn_norm", bias=config["norm_bias"])
        for name in "rwkvag":
            vector(f"{attn}.x_{name}", 0.0, 1.0, 1, 1, hidden)
        vector(f"{attn}.k_k", 0.5, 1.0)
        vector(f"{attn}.k_a", 0.8, 1.2)
        vector(f"{attn}.r_k", -0.5, 0.5, hidden // size, size)
        for name in "rkvo":
            add(f"{attn}.{name}_proj.weight", hidden, hidden, gain=1.5)
        for name, key in (("w", "decay"), ("v", "v"), ("a", "a"), ("g", "gate")):
            if name == "v" and i == 0 and variant != "unused mix of the first layer":
                continue
            rank = config[f"{key}_low_rank_dim"]
            add(f"{attn}.{name}_lora.lora.0.weight", rank, hidden)
            add(f"{attn}.{name}_lora.lora.2.weight", hidden, rank, gain=2.0)
            if name != "g":
                vector(f"{attn}.{name}_lora.lora.2.bias", -3.0, 1.0)
        norm(f"{attn}.g_norm", bias=True)
        vector(f"{layer}.ffn.x_k", 0.0, 1.0)
        add(f"{layer}.ffn.key.weight", width, hidden)
        add(f"{layer}.ffn.value.weight", hidden, width)
    norm("model.norm", bias=config["norm_bias"])
    if not config["tie_word_embeddings"]:
        add("lm_head.weight", config["vocab_size"], hidden, gain=2.5)
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return config, tensors


def computed(config: Mapping[str, Any], tensors: Mapping[str, Floats], ids: list[int]) -> Floats:
    """The logits of every position, [t, vocab], in 64 bits."""
    stored: dict[str, Numbers] = {name: array.astype(np.float64) for name, array in tensors.items()}
    hidden: int = config["hidden_size"]
    size = config["head_dim"] or hidden // config["num_heads"]

    def sigmoid(x: Numbers) -> Numbers:
        return 1 / (1 + np.exp(-x))

    def normed(x: Numbers, name: str, eps: float) -> Numbers:
        even = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
        even = even.reshape(-1)
        return even * stored[f"{name}.weight"] + stored.get(f"{name}.bias", 0)

    def low_rank(x: Numbers, name: str, between: Callable[[Numbers], Numbers]) -> Numbers:
        made = stored[f"{name}_lora.lora.2.weight"] @ between(stored[f"{name}_lora.lora.0.weight"] @ x)
        return made + stored.get(f"{name}_lora.lora.2.bias", 0)

    def as_it_is(x: Numbers) -> Numbers:
        return x

    shifts = dict[str, Numbers]()
    states = dict[int, Numbers]()

    def change(x: Numbers, name: str) -> Numbers:
        before, shifts[name] = shifts.get(name, np.zeros(hidden)), x
        return before - x

    def attend(i: int, x: Numbers, first: Numbers | None) -> tuple[Numbers, Numbers]:
        attn = f"model.layers.{i}.attn"
        changed = change(x, attn)
        xr, xw, xk, xv, xa, xg = (x + changed * stored[f"{attn}.x_{name}"].reshape(-1) for name in "rwkvag")
        r, k, v = (stored[f"{attn}.{n}_proj.weight"] @ each for n, each in (("r", xr), ("k", xk), ("v", xv)))
        decay = np.exp(-np.exp(-0.5) * sigmoid(low_rank(xw, f"{attn}.w", np.tanh)))
        v = v if first is None else v + (first - v) * sigmoid(low_rank(xv, f"{attn}.v", as_it_is))
        a = sigmoid(low_rank(xa, f"{attn}.a", as_it_is))
        gate = low_rank(xg, f"{attn}.g", sigmoid)
        unit = (k * stored[f"{attn}.k_k"]).reshape(-1, size)
        unit = unit / np.linalg.norm(unit, axis=-1, keepdims=True)
        k = k * (1 + (a - 1) * stored[f"{attn}.k_a"])
        by_head = [each.reshape(-1, size) for each in (r, k, v, a, decay)]
        read = list[Numbers]()
        state = states.setdefault(i, np.zeros((hidden // size,) + (size,) * 2))  # [values, keys] of each head
        for h, (rh, kh, vh, ah, dh) in enumerate(zip(*by_head, strict=True)):
            moved = np.diag(dh) - np.outer(unit[h], ah * unit[h])
            state[h] = state[h] @ moved + np.outer(vh, kh)
            read.append(state[h] @ rh)
        y = normed(np.array(read), f"{attn}.g_norm", size * config["norm_eps"])
        bonus = (by_head[0] * by_head[1] * stored[f"{attn}.r_k"]).sum(-1, keepdims=True) * by_head[2]
        out = stored[f"{attn}.o_proj.weight"] @ ((y + bonus.reshape(-1)) * gate)
        return out, v if first is None else first

    def think(i: int, x: Numbers) -> Numbers:
        ffn = f"model.layers.{i}.ffn"
        wide = stored[f"{ffn}.key.weight"] @ (x + change(x, ffn) * stored[f"{ffn}.x_k"])
        wide = np.maximum(wide, 0) ** 2 if config["hidden_act"] == "sqrelu" else wide * sigmoid(wide)
        return stored[f"{ffn}.value.weight"] @ wide

    embedding, eps, logits = stored["model.embeddings.weight"], config["norm_eps"], list[Numbers]()
    for token in ids:
        x, first = embedding[token], None
        x = normed(x, "model.layers.0.pre_norm", eps) if config["norm_first"] else x
        for i in range(config["num_hidden_layers"]):
            made, first = attend(i, normed(x, f"model.layers.{i}.attn_norm", eps), first)
            x = x + made
            x = x + think(i, normed(x, f"model.layers.{i}.ffn_norm", eps))
        head = embedding if config["tie_word_embeddings"] else stored["lm_head.weight"]
        logits.append(head @ normed(x, "model.norm", eps))
    return np.array(logits, np.float32)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rwkv7_computes_its_formulas(variant: str, tmp_path: Path) -> None:
    config, tensors = written(variant, tmp_path / "checkpoint")
    ids: list[int] = np.random.default_rng(0).integers(3, 96, 50).tolist()
    judge = partial(computed, config, tensors)
    bundle = export_to(tmp_path / "checkpoint", tmp_path / "bundle")
    assert judge(ids).std() > 0.5
    assert_computes(runner_of(bundle), judge, ids)


Exported = Callable[[Scheme], Bundle]
GREEDY: dict[str, Any] = {"do_sample": False, "eos_token_id": (), "repetition_penalty": 1.0}
LENGTHS = (150, 3, 47)
PROMPTS: list[list[int]] = [np.random.default_rng(n).integers(3, 96, n).tolist() for n in LENGTHS]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Floats]]:
    folder = tmp_path_factory.mktemp("rwkv7") / "checkpoint"
    return folder, *written("base", folder)


@pytest.fixture(scope="module")
def exported(
    model: tuple[Path, dict[str, Any], dict[str, Floats]], tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    @cache
    def made(scheme: Scheme) -> Bundle:
        bundle, report = export(str(model[0]), tmp_path_factory.mktemp("rwkv7") / scheme, scheme=scheme)
        assert report.preferred.mean_kl < {"fp32": 1e-6, "int8": 0.05, "int4": 1.0}[scheme]
        return bundle

    return made


def answers(bundle: Bundle, prompts: list[list[int]], count: int, *, chunk: int = 16) -> list[tuple[int, ...]]:
    """Those of prompts that run together."""
    options = EngineOptions(threads=1, prefill_chunk=chunk, prefix_cache=0)
    with LLM.load(bundle.path, options=options) as llm:
        streams = [llm.stream(prompt, max_new_tokens=count, **GREEDY) for prompt in prompts]
        return [tuple(i for chunk in stream for i in chunk.token_ids) for stream in streams]


def test_prompts_of_many_lengths_get_the_ids_of_the_formulas(
    model: tuple[Path, dict[str, Any], dict[str, Floats]], exported: Exported
) -> None:
    _, config, tensors = model
    for prompt, found in zip(PROMPTS, answers(exported("fp32"), PROMPTS, 40), strict=True):
        expected = computed(config, tensors, [*prompt, *found[:-1]])[len(prompt) - 1 :]
        assert found == tuple(expected.argmax(-1).tolist())


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_rows_of_many_lengths_are_as_if_alone(scheme: Scheme, exported: Exported) -> None:
    bundle = exported(scheme)
    together = answers(bundle, PROMPTS, 30)
    for chunk in (7, 64):
        alone = [answers(bundle, [prompt], 30, chunk=chunk) for prompt in PROMPTS]
        assert [found for (found,) in alone] == together


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_quantized_is_bit_exact(scheme: Scheme, exported: Exported) -> None:
    assert_bit_exact(exported(scheme), Case("rwkv7", "base", BASE))


def test_a_prefix_is_reused_and_proposals_do_not_show(exported: Exported) -> None:
    bundle, (first, _, _) = exported("int8"), PROMPTS
    again = [*first[:100], *first[:30]]
    with LLM.load(bundle.path, options=EngineOptions(threads=1, prefill_chunk=16)) as llm:
        found = [llm.generate(prompt, max_new_tokens=20, **GREEDY) for prompt in (first, again, first)]
        guessed = llm.generate(first, max_new_tokens=20, prompt_lookup_num_tokens=4, **GREEDY)
    assert found[1].timings.cached_tokens > 0
    assert [one.token_ids for one in found[:2]] == [answers(bundle, [prompt], 20)[0] for prompt in (first, again)]
    assert found[2].token_ids == found[0].token_ids == guessed.token_ids


def test_states_are_all_that_is_kept(exported: Exported) -> None:
    (variant,) = exported("int8").manifest.variants
    assert not variant.kv.layers
    assert [(state.layer, state.kind) for state in variant.kv.states] == [(i // 3, "fixed") for i in range(9)]
    assert variant.kv.bytes_per_row == 3 * (64 + 4 * 16 * 16 + 64) * 4


def test_the_published_sizes_give_the_published_number_of_parameters() -> None:
    """Those of RWKV7-World3-1.5B in the paper, 1,527,404,544 parameters."""
    sizes = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "head_dim": 64}
    ranks = {"decay_low_rank_dim": 96, "a_low_rank_dim": 96, "v_low_rank_dim": 64, "gate_low_rank_dim": 256}
    config = {**BASE, **sizes, **ranks, "value_dim": [2048] * 24, "vocab_size": 65536, "max_position_embeddings": 2048}
    required, optional = decoder_tensors(RWKV7.read_config(config))
    biases = [name for name in optional if name.endswith((".w.bias", ".rate.bias", ".mix.bias"))]
    shapes = [*required.values(), *(optional[name] for name in biases)]
    assert sum(int(np.prod(shape)) for shape in shapes) == 1_527_404_544


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"head_dim": 24}, "hidden_size = 64 is not a multiple of head_dim = 24"),
        ({"num_heads": 8}, "num_heads = 8: contradicts the value 4 of its other name, hidden_size / head_dim"),
        ({"value_dim": [64, 128, 64]}, "value_dim = .*: values are as wide as the hidden states"),
        ({"attn": {"layers": [1]}}, "attn = .*: layers of attention are not supported"),
        ({"hidden_act": "swiglu"}, "hidden_act: 'swiglu' is not supported"),
        ({"decay_low_rank_dim": None}, "decay_low_rank_dim: missing"),
    ],
)
def test_other_models_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said) as caught:
        RWKV7.read_config({**BASE, **changes})
    assert "problems" not in str(caught.value)


def test_a_mix_that_a_later_layer_lacks_is_missing(tmp_path: Path) -> None:
    _, tensors = written("base", tmp_path / "checkpoint")
    left = {name: array for name, array in tensors.items() if ".1.attn.v_lora.lora.0" not in name}
    write_safetensors(tmp_path / "checkpoint" / "model.safetensors", left)
    with pytest.raises(TensorError, match=r"layers\.1\.attn\.v_lora\.lora\.0\.weight: missing"):
        export_to(tmp_path / "checkpoint", tmp_path / "bundle")


def write_gguf(path: Path, config: Mapping[str, Any], tensors: Mapping[str, Floats], **changes: int) -> Path:
    """As llama.cpp's converter writes it, which gives the first layer a mix of its own, that nothing reads."""
    writer, names = GGUFWriter(path, "rwkv7"), get_tensor_name_map(MODEL_ARCH.RWKV7, config["num_hidden_layers"])
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_layer_norm_eps(config["norm_eps"])
    writer.add_wkv_head_size(config["head_dim"])
    writer.add_decay_lora_rank(config["decay_low_rank_dim"])
    writer.add_iclr_lora_rank(config["a_low_rank_dim"])
    writer.add_value_residual_mix_lora_rank(config["v_low_rank_dim"])
    writer.add_gate_lora_rank(config["gate_low_rank_dim"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(0)
    for key, value in changes.items():
        writer.add_uint32(f"rwkv7.{key}", value)
    blends = dict[str, list[Floats]]()
    for name, array in tensors.items():
        if ".attn.x_" in name:
            blends.setdefault(name.split(".")[2], []).append(array)
            continue
        theirs = name.replace("attn_norm", "ln1").replace("ffn_norm", "ln2").replace("g_norm", "ln_x")
        theirs = theirs.replace(".attn.", ".attention.").replace(".ffn.", ".feed_forward.")
        for ours, converted in (("0.weight", "1.weight"), ("2.weight", "2.weight"), ("2.bias", "0.weight")):
            theirs = theirs.replace(f"_lora.lora.{ours}", converted)
        stored = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
        assert stored, name
        stored = stored if stored.endswith((".weight", ".bias")) else f"{stored}.weight"
        stored_array = array.reshape(-1) if "r_k" in name else array
        if "blk.0.time_mix_a" in stored:
            writer.add_tensor(stored.replace("time_mix_a", "time_mix_v"), stored_array)
        writer.add_tensor(stored, stored_array)
    for layer, parts in blends.items():
        writer.add_tensor(f"blk.{layer}.time_mix_lerp_fused.weight", np.stack(parts))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_read(model: tuple[Path, dict[str, Any], dict[str, Floats]], tmp_path: Path) -> None:
    _, config, tensors = model
    file = write_gguf(tmp_path / "model.gguf", config, tensors)
    read = Checkpoint.open(str(file)).tensors
    assert {name for name in read if name not in tensors} == {
        f"model.layers.0.attn.v_lora.lora.{name}" for name in ("0.weight", "2.weight", "2.bias")
    }
    for name, array in tensors.items():
        np.testing.assert_array_equal(read[name].read(), array, err_msg=name)
    bundle = export_to(file, tmp_path / "bundle")
    ids: list[int] = np.random.default_rng(0).integers(3, 96, 50).tolist()
    assert bundle.manifest.model.max_context == 1 << 20
    assert_computes(runner_of(bundle), partial(computed, config, tensors), ids)


def test_a_gguf_file_of_other_shifts_is_refused(
    model: tuple[Path, dict[str, Any], dict[str, Floats]], tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "model.gguf", *model[1:], token_shift_count=1)
    with pytest.raises(CheckpointError, match=r"rwkv7\.token_shift_count"):
        Checkpoint.open(str(file))
