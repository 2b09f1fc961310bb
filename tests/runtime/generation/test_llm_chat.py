"""LLM.chat: a conversation in, an answer out, over a model that says what the test wants."""

from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.chat import Conversation
from edgegen.errors import ConversationError, UsageError
from edgegen.llm import LLM
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.runtime.models import write_checkpoint

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
ASKED = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def chatting(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A random model with a chat template."""
    folder = tmp_path_factory.mktemp("chat")
    checkpoint = write_checkpoint(folder / "checkpoint")
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE)
    return export(str(checkpoint), folder / "bundle", ExportOptions(scheme="fp32"))[0]


def test_the_answer_is_that_to_the_rendered_conversation(chatting: Bundle) -> None:
    llm = LLM.load(chatting.path)
    answer = llm.chat(ASKED, max_new_tokens=6, do_sample=False)
    plain = llm.generate("<user>Hi\n<assistant>", max_new_tokens=6, do_sample=False)
    assert answer.token_ids == plain.token_ids
    assert not llm.chat_template.is_fallback


def test_streamed_and_whole_answers_are_the_same(chatting: Bundle) -> None:
    llm = LLM.load(chatting.path)
    conversation = Conversation([{"role": "system", "content": "Be brief."}, *ASKED])
    with llm.stream_chat(conversation, max_new_tokens=8, seed=3) as stream:
        pieces = "".join(chunk.text for chunk in stream)
    assert pieces == llm.chat(conversation, max_new_tokens=8, seed=3).text


def test_a_base_model_gets_a_transcript_that_ends_before_the_next_user(int8_bundle: Bundle) -> None:
    llm = LLM.load(int8_bundle.path)
    assert llm.chat_template.is_fallback
    assert llm.chat_template.stop_strings == ("\nUser:",)
    answer = llm.chat(ASKED, max_new_tokens=6, do_sample=False)
    plain = llm.generate("User: Hi\nAssistant:", max_new_tokens=6, do_sample=False)
    assert answer.token_ids == plain.token_ids


def test_malformed_messages_are_refused_before_anything_runs(chatting: Bundle) -> None:
    llm = LLM.load(chatting.path)
    with pytest.raises(ConversationError, match="role"):
        llm.chat([{"content": "Hi"}])
    with pytest.raises(ConversationError):
        llm.chat([])
    assert llm.chat(ASKED, max_new_tokens=2).token_ids  # the model stays usable


def test_a_conversation_needs_a_tokenizer(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    (checkpoint / "tokenizer.json").unlink()
    bundle, _ = export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32"))
    with pytest.raises(UsageError, match="a conversation needs a tokenizer"):
        LLM.load(bundle.path).chat(ASKED)
