"""Sessions: a text goes on as if it had never stopped, in another engine, from a file that is whole or refused."""

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import numpy as safetensors
from safetensors import safe_open

from edgegen import LLM, EngineOptions, GenerationOptions, OptionError, Session, SessionError, UsageError
from edgegen.bundle.kv_format import KVDtype
from edgegen.errors import EdgegenError
from edgegen.generation.session import digest
from tests.systems import needs_posix

PROMPT = "Once upon a time there was a little girl named Lily. She"
WAYS: Mapping[str, GenerationOptions] = {
    "greedy": GenerationOptions(),
    "drawn": GenerationOptions(temperature=0.9, top_p=0.95, seed=7),
    "penalties that count the answer": GenerationOptions(do_sample=True, frequency_penalty=0.6, seed=2),
    "mirostat": GenerationOptions(mirostat=2, seed=3),
    "a grammar amid its text": GenerationOptions(grammar='start: " was named " /[A-Z][a-z]{8,40}/ " and " /.*/s'),
    "a stop string across the border": GenerationOptions(stop_strings=("zzzz", "qqq")),
}


def load(kv: KVDtype = "int8", **options: Any) -> LLM:
    return LLM.load(options=EngineOptions(kv=kv, threads=1, **options))


@pytest.fixture(scope="module")
def llm() -> LLM:
    return load()


@pytest.fixture(scope="module")
def other() -> LLM:
    """Another engine over the same bundle, which has seen nothing of it."""
    return load(prefix_cache=0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kv", ["int8", "int4", "float32"])
def test_an_answer_that_was_cut_short_goes_on_as_if_it_had_not_been(kv: KVDtype, way: str, tmp_path: Path) -> None:
    options = WAYS[way]
    whole = load(kv).generate(PROMPT, options, max_new_tokens=40)
    session, parts = Session(), list[Any]()
    for n, count in enumerate((1, 12, 27)):
        # Each piece in an engine of its own, from a file of its own.
        parts.append(load(kv).generate("" if n else PROMPT, options, max_new_tokens=count, session=session))
        assert parts[-1].timings.cached_tokens == (len(session.ids) - len(parts[-1].token_ids) - 1 if n else 0)
        session.save(tmp_path / f"{n}.session")
        session = Session.load(tmp_path / f"{n}.session")
    assert tuple(token for part in parts for token in part.token_ids) == whole.token_ids
    assert "".join(part.text for part in parts) == whole.text
    assert session.seed == whole.seed


def test_a_seed_that_was_drawn_is_the_sessions(llm: LLM, other: LLM) -> None:
    session = Session()
    first = llm.generate(PROMPT, max_new_tokens=9, do_sample=True, session=session)
    second = other.generate("", max_new_tokens=9, do_sample=True, session=session)
    whole = other.generate(PROMPT, max_new_tokens=18, do_sample=True, seed=first.seed)
    assert first.token_ids + second.token_ids == whole.token_ids


@settings(deadline=None, max_examples=12)
@given(turns=st.lists(st.tuples(st.text("abc ,.T", max_size=30), st.integers(1, 12)), min_size=1, max_size=4))
def test_prompts_go_behind_what_was_said(llm: LLM, other: LLM, turns: list[tuple[str, int]]) -> None:
    """With keys and values taken over, the answer is that to the whole text."""
    session, ids = Session(), list[int]()
    for text, count in turns:
        if session.ids and not text:
            continue
        new = llm.encode(text) if not ids else llm.tokenizer.encode(text, add_special_tokens=False)  # type: ignore[union-attr]
        result = llm.generate(text, max_new_tokens=count, do_sample=False, eos_token_id=(), session=session)
        assert (
            result.token_ids
            == other.generate([*ids, *new], max_new_tokens=count, do_sample=False, eos_token_id=()).token_ids
        )
        ids = [*ids, *new, *result.token_ids]
        assert session.ids == tuple(ids)


def test_a_conversation_is_computed_where_it_is_new(llm: LLM, other: LLM) -> None:
    session = Session()
    first = llm.chat(
        [{"role": "user", "content": "Tell me of a dog."}], max_new_tokens=12, do_sample=False, session=session
    )
    assert session.messages[-1] == {"role": "assistant", "content": first.text}
    messages = [*session.messages, {"role": "user", "content": "And then?"}]
    second = other.chat(messages, max_new_tokens=12, do_sample=False, session=session)
    assert second.timings.cached_tokens > 0
    assert second.token_ids == load().chat(messages, max_new_tokens=12, do_sample=False).token_ids


def test_a_failed_or_cancelled_turn_leaves_the_session_as_it_was(llm: LLM) -> None:
    session = Session()
    llm.generate(PROMPT, max_new_tokens=4, do_sample=False, session=session)
    ids = session.ids

    def fail(ids: Any, logits: Any) -> Any:
        raise RuntimeError("a processor")

    with pytest.raises(RuntimeError):
        llm.generate("more", logits_processor=[fail], session=session)
    with llm.stream("more", max_new_tokens=200, eos_token_id=(), session=session) as stream:
        next(stream)
    assert session.ids == ids


def test_deterministic_takes_over_what_chunks_would_give(tmp_path: Path) -> None:
    llm = load("float32", deterministic=True, prefix_cache=0, kernels="stock")  # ours are exact in any chunks
    session = Session()
    first = llm.generate(PROMPT, max_new_tokens=20, do_sample=False, eos_token_id=(), session=session)
    text = [*llm.encode(PROMPT), *first.token_ids]
    new = llm.encode(" Then the dog")
    second = llm.generate(new, max_new_tokens=20, do_sample=False, session=session)
    assert second.timings.cached_tokens == len(llm.encode(PROMPT))
    assert second.token_ids == llm.generate([*text, *new], max_new_tokens=20, do_sample=False).token_ids


class TestRefusals:
    def test_an_empty_one_is_not_saved(self, tmp_path: Path) -> None:
        with pytest.raises(SessionError, match="nothing to save yet"):
            Session().save(tmp_path / "a")

    def test_one_of_another_model(self, llm: LLM) -> None:
        session = Session()
        llm.generate(PROMPT, max_new_tokens=2, session=session)
        with pytest.raises(SessionError, match=r"begun with another model, or .*--kv"):
            load("float32").generate("more", session=session)

    def test_no_prompt_where_the_answer_has_ended(self, llm: LLM) -> None:
        session = Session()
        result = llm.generate(PROMPT, stop_strings=" ", do_sample=False, session=session)
        assert result.finish_reason == "stop"
        with pytest.raises(UsageError, match="ended by itself: give a prompt"):
            llm.generate("", session=session)

    def test_several_answers_or_prompts(self, llm: LLM) -> None:
        for options in ({"num_beams": 2}, {"num_return_sequences": 2, "do_sample": True}, {"guidance_scale": 2.0}):
            with pytest.raises(OptionError, match="goes on with one answer"):
                llm.generate(PROMPT, session=Session(), **options)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="one prompt at a time"):
            llm.generate(["a", "b"], session=Session())  # type: ignore[call-overload]

    def test_a_file_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(SessionError, match="there is no session"):
            Session.load(tmp_path / "missing")
        with pytest.raises(SessionError, match="cannot be read"):
            Session.load(tmp_path)
        for name, content in {
            "empty": b"",
            "text": b"hello" * 100,
            "header": (8).to_bytes(8, "little") + b"{}      ",
        }.items():
            (tmp_path / name).write_bytes(content)
            with pytest.raises(SessionError, match="is no session, or a damaged one"):
                Session.load(tmp_path / name)

    def test_a_folder_that_cannot_be_written(self, llm: LLM, tmp_path: Path) -> None:
        session = Session()
        llm.generate(PROMPT, max_new_tokens=2, session=session)
        with pytest.raises(SessionError, match="cannot be saved to"):
            session.save(tmp_path / "no" / "such" / "folder")
        assert list(tmp_path.iterdir()) == []

    def test_a_disk_that_is_full(self, llm: LLM, tmp_path: Path) -> None:
        """A limit on the size of files fails a write as a full disk does, in Python and in Rust."""
        session, path = Session(), tmp_path / "a.session"
        llm.generate(PROMPT, max_new_tokens=2, session=session)
        path.write_text("before")
        before, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(SessionError, match=r"cannot be saved to .*: .*File too large"):
                session.save(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        assert [file.name for file in tmp_path.iterdir()] == ["a.session"]
        assert path.read_text() == "before"


@pytest.fixture(scope="module")
def saved(llm: LLM, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    session, path = Session(), tmp_path_factory.mktemp("session") / "whole"
    llm.generate(PROMPT, max_new_tokens=3, do_sample=False, session=session)
    session.save(path)
    return path.read_bytes()


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_every_flipped_bit_and_every_cut_is_noticed(
    data: st.DataObject, saved: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "file"
    header = int.from_bytes(saved[:8], "little") + 8
    at = data.draw(st.one_of(st.integers(0, header - 1), st.integers(0, len(saved) - 1)))
    damaged = bytearray(saved)
    if data.draw(st.booleans()):
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del damaged[at:]
    path.write_bytes(damaged)
    try:
        session = Session.load(path)
    except SessionError:
        return
    path.write_bytes(saved)
    whole = Session.load(path)  # a blank that takes the place of another changes nothing that is read
    assert (session.ids, session.answer_start, session.seed) == (whole.ids, whole.answer_start, whole.seed)
    assert json.loads(damaged[8:header]) == json.loads(saved[8:header])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("ids", "answer_start", "finish_reason", "seed", "messages", "model", "state", "length", "bases")
BASES = ("full",)
NEAR = st.integers(-2, 70) | st.sampled_from([1 << 31, 1 << 63, 1 << 70]) | JSON
"""Values in the place of a number, or of anything else."""


@st.composite
def arrays(draw: st.DrawFn) -> NDArray[Any]:
    shape = draw(st.lists(st.integers(0, 20), max_size=4))
    return np.ones(shape, draw(st.sampled_from(["float32", "int8", "int64", "float16", "bool"])))


@settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_forged_one_is_refused_or_goes_on(data: st.DataObject, llm: LLM, saved: bytes, tmp_path: Path) -> None:
    """Changes by a person who knows how the hash is made are noticed where they matter."""
    path = tmp_path / "forged"
    path.write_bytes(saved)
    with cast(Any, safe_open)(str(path), framework="numpy") as file:
        record: dict[str, Any] = json.loads(file.metadata()["session"])
        tensors: dict[str, NDArray[Any]] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for _ in range(data.draw(st.integers(1, 2))):
        if data.draw(st.booleans()):
            name = data.draw(st.sampled_from(FIELDS))
            if name == "bases" and data.draw(st.booleans()):
                record[name] = dict.fromkeys(BASES, data.draw(NEAR))
            elif data.draw(st.integers(0, 9)):
                record[name] = data.draw(NEAR)
            else:
                record.pop(name, None)
        else:
            name = data.draw(st.sampled_from([*tensors, "state.3.0", "state.x", "kv.99"]))
            tensors[name] = data.draw(arrays())
    metadata = {"format": "edgegen session 1", "session": json.dumps(record)}
    metadata["sha256"] = digest(metadata["session"], tensors)
    cast(Any, safetensors).save_file(tensors, path, metadata)
    try:
        session = Session.load(path)
        llm.generate(" then", max_new_tokens=2, do_sample=False, session=session)
    except EdgegenError:
        return
    assert session.ids[-2:] or session.finish_reason == "stop"


SAVE = """
import sys
from edgegen import LLM, EngineOptions, Session
llm, path = LLM.load(options=EngineOptions(kv="int8", threads=1)), sys.argv[1]
for n in range(1, 1000):
    session = Session()
    llm.generate("Once" + " upon" * 40 * (n % 2), max_new_tokens=2, session=session)
    session.save(path)
    print("saved", flush=True)
"""


@needs_posix("SIGKILL")
def test_a_killed_process_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.session"
    for n in range(5):
        with subprocess.Popen([sys.executable, "-c", SAVE, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(1 + n):
                assert process.stdout.readline()
            time.sleep(0.003 * n)
            process.kill()
        assert len(Session.load(path).ids) in (4, 44)
