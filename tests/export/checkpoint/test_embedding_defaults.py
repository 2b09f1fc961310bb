"""A checkpoint's own pooling, by files of sentence-transformers or GGUF metadata: kept in the bundle, or refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.bundle.embedding_defaults import EMBEDDING, EmbeddingDefaults
from edgegen.cli.info import describe
from edgegen.errors import CheckpointError, VerificationError
from edgegen.llm import LLM
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.options import ExportOptions
from edgegen_export.output.embedding_defaults import embedding_defaults
from edgegen_export.pipeline import export
from tests.export.checkpoint.gguf_bytes import write_llama
from tests.export.checkpoint.layouts import write_gpt2
from tests.runtime.models import EOS, VOCAB_SIZE, byte_tokenizer
from tests.runtime.server.material import client_of

TRANSFORMER, POOLING, NORMALIZE = "Transformer", "Pooling", "Normalize"
CONTEXT = 32


def write_modules(folder: Path, *names: str, pooling: Any = None, **files: Any) -> None:
    """The files of sentence-transformers beside a checkpoint; ``pooling``: the config of its pooling."""
    folders = ["" if n == 0 else f"{n}_{name}" for n, name in enumerate(names)]
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{name}"}
        for n, (name, path) in enumerate(zip(names, folders, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def mode(*names: str) -> dict[str, Any]:
    known = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    return {"word_embedding_dimension": 64, **{f"pooling_mode_{name}": name in names for name in known}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = byte_tokenizer(tmp_path / "tokenizer.json")
    spec = json.loads(tokenizer.read_text("utf-8"))
    piece = {"Sequence": {"id": "A", "type_id": 0}}
    end = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    spec["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [piece, end],
        "pair": [piece, {"Sequence": {"id": "B", "type_id": 0}}, end],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [EOS], "tokens": ["<|endoftext|>"]}},
    }
    tokenizer.write_text(json.dumps(spec))
    return write_gpt2(
        tmp_path / "tiny", layout="original", n_positions=CONTEXT, vocab_size=VOCAB_SIZE, tokenizer=tokenizer
    )


def defaults_of(path: Path, said: list[str] | None = None) -> EmbeddingDefaults | None:
    return embedding_defaults(Checkpoint.open(str(path)), (said if said is not None else []).append)


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        (mode("lasttoken"), "last"),
        (mode("mean_tokens"), "mean"),
        (mode("weightedmean_tokens"), "weightedmean"),
        ({"embedding_dimension": 64, "pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_the_pooling_is_the_checkpoint_s(folder: Path, config: dict[str, Any], pooling: Any) -> None:
    assert defaults_of(folder) is None
    write_modules(folder, TRANSFORMER, POOLING, pooling=config)
    assert defaults_of(folder) == EmbeddingDefaults(pooling, normalize=False)
    write_modules(folder, TRANSFORMER, POOLING, NORMALIZE)
    assert defaults_of(folder) == EmbeddingDefaults(pooling, normalize=True)


@pytest.mark.parametrize(
    ("modules", "config", "said"),
    [
        ((TRANSFORMER, POOLING, "Dense"), mode("lasttoken"), "models.Dense (2_Dense) is not supported"),
        (("Router", POOLING), mode("lasttoken"), "the module sentence_transformers.models.Router"),
        ((TRANSFORMER, POOLING), mode("cls_token"), "the pooling cls_token of 1_Pooling/config.json is not supported"),
        ((TRANSFORMER, POOLING), mode("max_tokens", "mean_tokens"), "the pooling max_tokens"),
        (
            (TRANSFORMER, POOLING),
            mode("mean_tokens", "lasttoken"),
            "several poolings, mean and last, are not",
        ),
        ((TRANSFORMER, POOLING), mode(), "1_Pooling/config.json has no pooling mode"),
        ((TRANSFORMER, POOLING), None, "1_Pooling/config.json is missing"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    folder: Path, modules: tuple[str, ...], config: Any, said: str, tmp_path: Path
) -> None:
    write_modules(folder, *modules, pooling=config)
    with pytest.raises(CheckpointError) as caught:
        export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32", with_hidden=True))
    assert said in str(caught.value)
    assert "leave --with-hidden out" in str(caught.value)
    assert not (tmp_path / "bundle").exists()


def test_others_than_modules_are_refused(folder: Path) -> None:
    outside = {"type": "sentence_transformers.models.Pooling", "path": "../1_Pooling"}
    contents: list[Any] = [{}, [{"type": "a"}], [outside]]
    for content in contents:
        (folder / "modules.json").write_text(json.dumps(content))
        with pytest.raises(CheckpointError, match="a list of modules, each with a type"):
            defaults_of(folder)
    write_modules(folder, TRANSFORMER, sentence_bert_config={"max_seq_length": 8, "do_lower_case": True})
    with pytest.raises(CheckpointError, match="do_lower_case, which is not supported"):
        defaults_of(folder)


def test_a_prompt_before_each_text_is_told(folder: Path) -> None:
    prompts = {"prompts": {"query": "search: "}, "default_prompt_name": "query"}
    write_modules(folder, TRANSFORMER, NORMALIZE, config_sentence_transformers=prompts)
    said = list[str]()
    assert defaults_of(folder, said) == EmbeddingDefaults()
    assert len(said) == 1
    assert "begin texts with 'search: ' yourself" in said[0]


@pytest.mark.parametrize(("number", "pooling"), [(None, None), (0, None), (1, "mean"), (3, "last")])
def test_the_pooling_of_gguf_metadata(tmp_path: Path, number: int | None, pooling: Any) -> None:
    path = write_llama(tmp_path / "a.gguf", llama__pooling_type=number)
    assert defaults_of(path) == (None if pooling is None else EmbeddingDefaults(pooling))


@pytest.mark.parametrize(("number", "named"), [(2, "of the first token (cls)"), (4, "of a reranker"), (9, "pooling")])
def test_another_pooling_of_gguf_metadata_is_refused(tmp_path: Path, number: int, named: str) -> None:
    path = write_llama(tmp_path / "a.gguf", llama__pooling_type=number)
    with pytest.raises(CheckpointError) as caught:
        defaults_of(path)
    assert f"llama.pooling_type = {number}: this pooling" in str(caught.value)
    assert named in str(caught.value)


@pytest.mark.graph
def test_the_bundle_keeps_it_as_its_default_everywhere(folder: Path, tmp_path: Path) -> None:
    write_modules(folder, TRANSFORMER, POOLING, pooling=mode("lasttoken"))
    bundle, _ = export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32", with_hidden=True))
    assert EMBEDDING in bundle.manifest.files
    assert {one["pooling"] for one in describe(bundle)["variants"]} == {"last"}
    llm = LLM.load(bundle.path)
    told = llm.embed("abc", pooling="last", normalize=False).vectors[0]
    np.testing.assert_array_equal(llm.embed("abc").vectors[0], told)
    unit = llm.embed("abc", normalize=True).vectors[0]
    client = client_of({"model": llm})
    openai = client.post("/v1/embeddings", json={"input": "abc"}).json()["data"][0]["embedding"]
    ollama = client.post("/api/embed", json={"model": "model", "input": "abc"}).json()["embeddings"][0]
    older = client.post("/api/embeddings", json={"model": "model", "prompt": "abc"}).json()["embedding"]
    for found, meant in ((openai, told), (older, told), (ollama, unit)):
        np.testing.assert_allclose(found, meant, rtol=1e-6)
    means = client.post("/v1/embeddings", json={"input": "abc", "pooling": "mean"}).json()["data"][0]["embedding"]
    np.testing.assert_allclose(means, llm.embed("abc", pooling="mean", normalize=False).vectors[0], rtol=1e-6)


@pytest.mark.graph
def test_truncation_keeps_the_end_token(folder: Path, tmp_path: Path) -> None:
    write_modules(folder, TRANSFORMER, POOLING, pooling=mode("lasttoken"))
    llm = LLM.load(export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32", with_hidden=True))[0].path)
    ids = list(b"abcd" * 20)[: CONTEXT - 1]
    assert llm.encode("abc") == [*b"abc", EOS]
    body = {"model": "model", "input": "abcd" * 20}
    found = client_of({"model": llm}).post("/api/embed", json=body).json()["embeddings"][0]
    np.testing.assert_allclose(found, llm.embed([*ids, EOS], normalize=True).vectors[0], rtol=1e-6)


@pytest.mark.parametrize("content", [{}, {"pooling": "cls", "normalize": True}, {"pooling": "mean", "normalize": 1}])
def test_a_file_of_a_bundle_that_says_something_else_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(VerificationError, match=r"embedding\.json is malformed"):
        EmbeddingDefaults.of(content, EMBEDDING)
