"""EAGLE-3 drafts: the graphs compute what the published formulas say, and texts stay the model's own.

The formulas are those of vLLM's ``llama_eagle3``, written in torch around transformers' own Llama.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.cli import app
from edgegen.errors import EdgegenError, UsageError
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families import FAMILIES
from edgegen_export.files.progress import Silent
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.preflight.estimate import estimate
from edgegen_export.source.family_source import FamilyLoader
from tests.export.bundles import Listener, random_ids, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of
from tests.families.mtp_heads import assert_head_computes
from tests.oracle import import_torch, import_transformers

pytestmark = pytest.mark.usefixtures("little_parity")

Array = NDArray[Any]
LAYERS, ROWS, TAKEN = 7, 24, (2, 3, 4)
LLAMA = next(case for case in CASES if str(case) == "llama: base")


@dataclass(frozen=True)
class Subject:
    """A model, a draft of it, and the bundle of both in float32; ``tensors``: the draft's."""

    model: Path
    draft: Path
    tensors: Mapping[str, Array]
    config: Mapping[str, Any]
    bundle: Bundle


def _draft_of(model: Path, folder: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Write a random draft of one layer, by the names of published checkpoints."""
    config = json.loads((model / "config.json").read_text("utf-8"))
    size, heads, keys = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    width: int = config.get("head_dim") or size // heads
    vocab: int = config["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (size, 3 * size),
        "midlayer.self_attn.q_proj": (heads * width, 2 * size),
        "midlayer.self_attn.k_proj": (keys * width, 2 * size),
        "midlayer.self_attn.v_proj": (keys * width, 2 * size),
        "midlayer.self_attn.o_proj": (size, heads * width),
        "midlayer.mlp.gate_proj": (80, size),
        "midlayer.mlp.up_proj": (80, size),
        "midlayer.mlp.down_proj": (size, 80),
        "midlayer.input_layernorm": (size,),
        "midlayer.hidden_norm": (size,),
        "midlayer.post_attention_layernorm": (size,),
        "norm": (size,),
        "lm_head": (ROWS, size),
    }
    random = np.random.default_rng(5)
    tensors: dict[str, Array] = {
        f"{name}.weight": random.normal(len(shape) == 1, 0.2, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    ids = np.sort(random.choice(vocab, ROWS, replace=False))
    tensors |= {"d2t": ids - np.arange(ROWS), "t2d": np.isin(np.arange(vocab), ids)}
    kept = ("hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size", "rms_norm_eps")
    own = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "intermediate_size": 80,
        "max_position_embeddings": 48,
        "rope_theta": 5000.0,
        "draft_vocab_size": ROWS,
        "head_dim": width,
        **{key: config[key] for key in kept},
        **settings,
    }
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(own), "utf-8")
    return tensors, own


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    case = replace(LLAMA, config={**LLAMA.config, "num_hidden_layers": LAYERS, "head_dim": 16})
    return checkpoint_of(case, tmp_path_factory.mktemp("eagle") / "model")


@pytest.fixture(scope="module", params=[False, True], ids=["residual", "normed residual"])
def subject(request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("draft")
    tensors, config = _draft_of(model, folder / "draft", {"norm_before_residual": request.param})
    bundle = export(str(model), folder / "bundle", ExportOptions(scheme="fp32", draft_head=str(folder / "draft")))[0]
    return Subject(model, folder / "draft", tensors, config, bundle)


def _fused(subject: Subject, ids: list[int]) -> Array:
    """Return the draft's input from the model: ``fc`` of the residual streams before three layers, [t, d]."""
    torch, transformers = import_torch(), import_transformers()
    found: Any = transformers.AutoModelForCausalLM.from_pretrained(subject.model, dtype=torch.float32).eval()
    with torch.no_grad():
        states = found.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    taken = np.concatenate([states[layer][0].numpy() for layer in TAKEN], axis=-1)
    return taken @ subject.tensors["fc.weight"].T


def _expected(subject: Subject, ids: list[int], hidden: Array) -> tuple[Array, Array]:
    """The draft's logits [t, vocab] and hidden states [t, d]."""
    torch, transformers = import_torch(), import_transformers()
    from transformers.models.llama import modeling_llama as llama

    config = transformers.LlamaConfig(**subject.config, attn_implementation="eager")
    layer: Any = llama.LlamaDecoderLayer(config, 0)
    for name in "qkv":
        rows = layer.self_attn.get_submodule(f"{name}_proj").out_features
        setattr(layer.self_attn, f"{name}_proj", torch.nn.Linear(2 * config.hidden_size, rows, bias=False))
    own = {name: torch.tensor(one) for name, one in subject.tensors.items()}
    inside = {name.removeprefix("midlayer."): one for name, one in own.items() if name.startswith("midlayer.")}
    hidden_norm = inside.pop("hidden_norm.weight")
    layer.load_state_dict(inside)

    def norm(weight: Any, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps) * weight

    table = open_safetensors(subject.model / "model.safetensors")["model.embed_tokens.weight"].read()
    with torch.no_grad():
        token, previous = torch.tensor(table[ids])[None], torch.tensor(hidden)[None]
        normed = norm(hidden_norm, previous)
        residual = normed if subject.config["norm_before_residual"] else previous
        both = torch.cat((layer.input_layernorm(token), normed), -1)
        count = len(ids)
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        rotary = llama.LlamaRotaryEmbedding(config)(both, torch.arange(count)[None])
        x = residual + layer.self_attn(both, position_embeddings=rotary, attention_mask=mask)[0]
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        few = (norm(own["norm.weight"], x) @ own["lm_head.weight"].T)[0].numpy()
    logits = np.full((count, subject.config["vocab_size"]), -np.inf, np.float32)
    logits[:, subject.tensors["d2t"] + np.arange(ROWS)] = few
    return logits, x[0].numpy()


def test_the_model_gives_what_the_draft_takes(subject: Subject) -> None:
    ids, found = random_ids(subject.bundle, 20), list[Array]()
    runner = runner_of(subject.bundle)
    cache = runner.new_cache()
    runner.prefill(cache, 0, ids, lambda one: found.append(one.copy()))
    expected = _fused(subject, ids)
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_the_draft_computes_what_the_formulas_say(subject: Subject, chunk: int) -> None:
    ids = random_ids(subject.bundle, 17)
    hidden = _fused(subject, ids)
    assert_head_computes(subject.bundle, ids[1:], hidden, _expected(subject, ids[1:], hidden[:-1]), chunk)


def test_an_export_is_estimated_with_its_draft(subject: Subject) -> None:
    config = json.loads((subject.model / "config.json").read_text("utf-8"))
    loader = FamilyLoader(FAMILIES, None, None, Silent(), draft_head=str(subject.draft))
    decoder, head = loader.decoder(config), loader.draft_decoder(config)
    assert head
    both = [estimate(decoder, "fp32", fast=True, gflops=100.0, head=one).bundle for one in (head, None)]
    assert both[0] - both[1] == sum(one.nbytes for name, one in subject.tensors.items() if name.endswith(".weight"))


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_texts_are_the_models_own(subject: Subject, scheme: Any, tmp_path: Path) -> None:
    bundle = export(
        str(subject.model), tmp_path / "bundle", ExportOptions(scheme=scheme, fast=True, draft_head=str(subject.draft))
    )[0]
    prompt, answers = random_ids(bundle, 9, seed=3), list[Any]()
    for speculate in ("off", "mtp"):
        options = EngineOptions(threads=1, speculate=speculate, kv="int8")
        with LLM.load(bundle.path, options=options) as llm:
            assert llm.embedding_size is None
            found = llm.generate(prompt, max_new_tokens=60, eos_token_id=())
            answers.append(found.token_ids)
            assert bool(found.speculation.proposed) == (speculate == "mtp")
    assert answers[0] == answers[1]


@pytest.mark.parametrize("subject", [False], indirect=True, ids=["residual"])
def test_without_it_the_model_is_the_same(subject: Subject, tmp_path: Path) -> None:
    plain = export(str(subject.model), tmp_path / "bundle", ExportOptions(scheme="fp32"))[0]
    assert plain.manifest.model == subject.bundle.manifest.model
    assert plain.manifest.mtp is None


def _changed(subject: Subject, folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Array | None]) -> str:
    """The draft with other settings and tensors; None leaves one out."""
    folder.mkdir()
    kept = {name: one for name, one in {**subject.tensors, **tensors}.items() if one is not None}
    write_safetensors(folder / "model.safetensors", kept)
    (folder / "config.json").write_text(json.dumps({**subject.config, **config}), "utf-8")
    return str(folder)


ONE = pytest.mark.parametrize("subject", [False], indirect=True, ids=["residual"])
"""Mark of tests in which both subjects are alike."""


@ONE
@pytest.mark.parametrize(
    ("config", "tensors", "said"),
    [
        ({"hidden_size": 128}, {}, r"is not a draft of this model: its hidden_size is 128, and the model's 64$"),
        ({"vocab_size": 32}, {}, r"is not a draft of this model: its vocab_size is 32, and the model's 96$"),
        ({"num_hidden_layers": 2}, {}, r"num_hidden_layers = 2: drafts of one layer are read"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, {}, r"takes the hidden states of three layers"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}, {}, r"other layers than the usual three"),
        ({"parallel_drafting": True}, {}, r"parallel_drafting = True: not understood"),
        ({"architectures": ["LlamaForCausalLMEagle"]}, {}, r"is a LlamaForCausalLMEagle: draft heads are read of"),
        ({}, {"d2t": None}, r"d2t: missing, which says the ids of its 24 tokens of the model's 96"),
        ({}, {"d2t": np.zeros(ROWS, np.int64) - np.arange(ROWS)}, r"d2t: ids of the model expected, each once"),
        ({}, {"fc.weight": None}, r"fc\.weight: missing"),
        ({}, {"embed_tokens.weight": np.zeros((96, 64), np.float32)}, r"embed_tokens\.weight is not the model's own"),
    ],
)
def test_what_is_no_draft_of_the_model_is_refused(
    subject: Subject, config: Mapping[str, Any], tensors: Mapping[str, Array | None], said: str, tmp_path: Path
) -> None:
    draft = _changed(subject, tmp_path / "draft", config, tensors)
    with pytest.raises(EdgegenError, match=said):
        export(str(subject.model), tmp_path / "bundle", ExportOptions(scheme="fp32", draft_head=draft))


@ONE
def test_an_embedding_like_the_models_is_shared(subject: Subject, tmp_path: Path) -> None:
    """And the layers that it takes may be named, as they are counted by SGLang."""
    table = open_safetensors(subject.model / "model.safetensors")["model.embed_tokens.weight"].read()
    taken = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3], "use_aux_hidden_state": True}}
    draft = _changed(subject, tmp_path / "draft", taken, {"embed_tokens.weight": table})
    found = export(str(subject.model), tmp_path / "bundle", ExportOptions(scheme="fp32", draft_head=draft))[0]
    assert found.manifest.mtp
    assert found.file("weights.data").stat().st_size == subject.bundle.file("weights.data").stat().st_size


def _by_speculators(subject: Subject, verifier: str) -> dict[str, Any]:
    """The config of the draft as vLLM's ``speculators`` writes it."""
    layer = {key: one for key, one in subject.config.items() if key not in OF_EAGLE}
    return {
        "architectures": ["Eagle3DraftModel"],
        "draft_vocab_size": ROWS,
        "eagle_aux_hidden_state_layer_ids": list(TAKEN),
        "norm_before_fc": False,
        "norm_before_residual": subject.config["norm_before_residual"],
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"architectures": [verifier], "name_or_path": "some/model"},
        },
        "speculators_model_type": "eagle3",
        "speculators_version": "0.4.0.1",
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "transformer_layer_config": layer,
    }


OF_EAGLE = ("architectures", "draft_vocab_size", "norm_before_residual")


def test_a_draft_of_speculators_is_the_same(subject: Subject, tmp_path: Path) -> None:
    """Its layer has a number in names."""
    named = {name.replace("midlayer.", "layers.0."): one for name, one in subject.tensors.items()}
    draft = tmp_path / "draft"
    draft.mkdir()
    write_safetensors(draft / "model.safetensors", named)
    (draft / "config.json").write_text(json.dumps(_by_speculators(subject, "LlamaForCausalLM")), "utf-8")
    found = export(str(subject.model), tmp_path / "bundle", ExportOptions(scheme="fp32", draft_head=str(draft)))[0]
    files, usual = found.manifest.files, subject.bundle.manifest.files
    assert {name: files[name] for name in ("mtp.onnx", "weights.data")} == {
        name: usual[name] for name in ("mtp.onnx", "weights.data")
    }
    (draft / "config.json").write_text(json.dumps(_by_speculators(subject, "Qwen3ForCausalLM")), "utf-8")
    with pytest.raises(EdgegenError, match="is a draft of some/model, a Qwen3ForCausalLM, and the model is a Llama"):
        export(str(subject.model), tmp_path / "other", ExportOptions(scheme="fp32", draft_head=str(draft)))
    unnamed = json.loads((subject.model / "config.json").read_text("utf-8"))
    del unnamed["architectures"]  # as in a GGUF file: the class is the family's
    loader = FamilyLoader(FAMILIES, None, None, Silent(), draft_head=str(draft))
    with pytest.raises(EdgegenError, match="is a draft of some/model, a Qwen3ForCausalLM, and the model is a Llama"):
        loader.check(unnamed)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"with_hidden": True}, "leave --with-hidden or --draft-head out"),
        ({"mtp": False}, "leave --no-mtp out"),
        ({"via": "optimum"}, "leave --via optimum or --draft-head out"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], said: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        export(str(model), tmp_path / "bundle", ExportOptions(scheme="fp32", draft_head=str(tmp_path), **options))


@ONE
def test_the_flag_gives_the_same_bundle(subject: Subject, tmp_path: Path) -> None:
    given = ["export", str(subject.model), "-o", str(tmp_path / "bundle"), "--fp32", "--draft-head", str(subject.draft)]
    app.main(given, standalone_mode=False)
    assert Bundle.open(tmp_path / "bundle").manifest.files == subject.bundle.manifest.files


def test_it_takes_the_place_of_the_checkpoints_own_head(tmp_path: Path) -> None:
    """Of a MiMo, which is a Qwen2 with one."""
    qwen = next(case for case in CASES if str(case) == "qwen2: base")
    size = qwen.config["hidden_size"]
    case = replace(qwen, config={**qwen.config, "num_hidden_layers": LAYERS})
    model = checkpoint_of(case, tmp_path / "model")
    tensors = {name: one.read() for name, one in open_safetensors(model / "model.safetensors").items()}
    tensors["model.mtp_layers.0.input_proj.weight"] = np.ones((size, 2 * size), np.float32)
    config = json.loads((model / "config.json").read_text("utf-8"))
    config |= {"model_type": "mimo", "architectures": ["MiMoForCausalLM"]}
    mimo = tmp_path / "mimo"
    mimo.mkdir()
    write_safetensors(mimo / "model.safetensors", tensors)
    (mimo / "config.json").write_text(json.dumps(config), "utf-8")
    _draft_of(mimo, tmp_path / "draft", {})
    heard, draft = Listener(), str(tmp_path / "draft")
    bundle = export(str(mimo), tmp_path / "bundle", ExportOptions(scheme="fp32", draft_head=draft), progress=heard)[0]
    assert bundle.manifest.mtp
    assert f"its multi-token prediction head is left out: {draft} takes its place" in heard.warnings
