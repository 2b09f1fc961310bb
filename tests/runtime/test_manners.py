"""Manners of the Python API: decode beside encode, hints for arguments in the wrong place, and reprs."""

from pathlib import Path
from typing import Any

import pytest

from edgegen import BundleStore, CancelToken, Conversation, LoadProgress, Session
from edgegen.errors import UsageError
from edgegen.llm import LLM
from tests.runtime.models import EOS, VOCAB_SIZE, FakeGraphs, after_prompt, digest_of, fake_llm


@pytest.fixture
def llm(tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", FakeGraphs(digest_of))


class TestDecode:
    def test_gives_back_what_was_encoded(self, llm: LLM) -> None:
        assert llm.decode(llm.encode("Once – upon")) == "Once – upon"

    def test_leaves_out_control_tokens_unless_told(self, llm: LLM) -> None:
        assert llm.decode([65, EOS, 66]) == "AB"
        assert llm.decode([65, EOS, 66], skip_special_tokens=False) == "A<|endoftext|>B"

    def test_of_a_result_is_its_text(self, llm: LLM) -> None:
        result = llm.generate("a", max_new_tokens=8)
        assert llm.decode(result.token_ids) == result.text

    @pytest.mark.parametrize("ids", ["ab", b"ab", 3, [1.5], [None]], ids=repr)
    def test_needs_ids(self, llm: LLM, ids: Any) -> None:
        with pytest.raises(UsageError, match="what is decoded must be a list of token ids"):
            llm.decode(ids)

    @pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE])
    def test_needs_ids_of_the_vocabulary(self, llm: LLM, token_id: int) -> None:
        with pytest.raises(
            UsageError, match=f"token id {token_id} of the ids is outside the model's vocabulary of 260"
        ):
            llm.decode([1, token_id])

    def test_needs_a_tokenizer(self, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "without", FakeGraphs(digest_of), tokenizer=False)
        with pytest.raises(UsageError, match="this bundle has no tokenizer: its token ids have no text"):
            llm.decode([1])


@pytest.mark.parametrize(
    "prompt", [[{"role": "user", "content": "a"}], Conversation([{"role": "user", "content": "a"}])], ids=["list", "it"]
)
def test_messages_given_as_a_prompt_are_sent_to_chat(llm: LLM, prompt: Any) -> None:
    for use in (llm.generate, llm.stream, llm.encode):
        with pytest.raises(UsageError, match=r"the prompt is a list of messages: use llm\.chat or llm\.stream_chat"):
            use(prompt)


class TestRepr:
    def test_of_a_model_and_what_it_gives(self, tmp_path: Path) -> None:
        path = tmp_path / "fake"
        llm = fake_llm(path, FakeGraphs(after_prompt(65, 66, EOS)), config={"eos_token_id": EOS, "bos_token_id": EOS})
        bundle = f"Bundle({str(path)!r}: gpt2, 1,000 parameters, fp32)"
        assert repr(llm.bundle) == bundle
        assert repr(llm) == f"LLM({bundle}, max_context=512)"
        assert repr(llm.tokenizer) == "Tokenizer(260 tokens, 1 special)"
        assert repr(llm.chat_template) == "ChatTemplate(fallback transcript)"
        stream = llm.stream("a")
        first, *_ = chunks = list(stream)
        assert repr(stream) == "TextStream('AB', ended)"
        assert repr(first) == "GenerationChunk('A', 1 tokens)"
        assert repr(chunks[-1]) == "GenerationChunk('', 1 tokens, finish_reason='stop')"
        assert repr(stream.result) == "GenerationResult('AB', 3 tokens, finish_reason='stop')"
        score = llm.score("a", "AB")
        assert repr(score) == f"Score(2 tokens, logprob={score.logprob:.4g}, is_greedy=True)"
        llm.close()
        assert repr(llm) == f"LLM({bundle}, closed)"

    def test_of_answers_is_one_short_line(self, llm: LLM) -> None:
        result = llm.generate("a", max_new_tokens=400, num_return_sequences=3, do_sample=True, seed=1)
        assert len(repr(result)) < 120
        assert "\n" not in repr(result)
        assert repr(result).endswith("2 others)")

    def test_of_what_a_caller_makes(self, llm: LLM, tmp_path: Path) -> None:
        session = Session()
        assert repr(session) == "Session(0 tokens, finish_reason=None)"
        llm.generate([65], session=session, max_new_tokens=3)
        assert repr(session) == "Session(4 tokens, finish_reason='length')"
        assert repr(CancelToken()) == "CancelToken(cancelled=False)"
        assert repr(BundleStore(tmp_path)) == f"BundleStore({str(tmp_path)!r})"
        said = Conversation([{"role": "user", "content": "a"}], tools=[{}])
        assert repr(said) == "Conversation(1 messages, 1 tools)"
        assert repr(LoadProgress("verify", 1, 2)) == "LoadProgress(stage='verify', done=1, total=2)"
