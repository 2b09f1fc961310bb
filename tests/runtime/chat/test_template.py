"""Chat templates against transformers and llama.cpp; what becomes of systems, parts and models without one."""

import itertools
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import FileEntry
from edgegen.chat.conversation import Conversation
from edgegen.chat.template import ChatTemplate
from edgegen.errors import ChatTemplateError, ConversationError, EdgegenError
from tests.runtime.chat.material import (
    CHATML,
    CONVERSATIONS,
    GEMMA,
    GIGACHAT,
    INST,
    PLAIN,
    SPECIAL,
    TOOL,
    TURNS,
    USER,
    goldens,
    import_jinja_template_renderer,
    real_model,
    small_tokenizer,
    template_sources,
)

SYSTEM = {"role": "system", "content": "Be brief."}


def rendered(source: str, messages: list[dict[str, Any]], **options: Any) -> str:
    return ChatTemplate({"default": source}, SPECIAL).render(Conversation(messages, **options))


@pytest.fixture(scope="module")
def templates(test_data: Path) -> dict[str, tuple[str, ChatTemplate]]:
    """Every source there is, and its template, compiled once."""
    sources = template_sources(test_data)
    return {name: (source, ChatTemplate({"default": source}, SPECIAL | GIGACHAT)) for name, source in sources.items()}


# ---------------------------------------------------------------- goldens


def test_goldens_of_plain_jinja(test_data: Path) -> None:
    plain = [golden for golden in goldens(test_data) if golden.plain]
    assert len(plain) == 28
    for golden in plain:
        template = ChatTemplate({"default": golden.template}, golden.special_tokens)
        conversation = Conversation(golden.messages, add_generation_prompt=golden.add_generation_prompt)
        assert template.render(conversation) == golden.expected, golden.name


def test_goldens_that_need_the_system_folded(test_data: Path) -> None:
    flagged = [golden for golden in goldens(test_data) if not golden.plain]
    assert len(flagged) == 7
    for golden in flagged:
        special = golden.special_tokens
        if "GigaChat" in golden.name:  # recorded with the tokenizer's own tokens, which the record does not name
            special = GIGACHAT
        template = ChatTemplate({"default": golden.template}, special)
        conversation = Conversation(golden.messages, add_generation_prompt=golden.add_generation_prompt)
        assert template.render(conversation) == golden.expected, golden.name


def test_a_template_without_its_special_tokens_says_what_it_lacks(test_data: Path) -> None:
    source = template_sources(test_data)["ai-sage/GigaChat-20B-A3B-instruct"]
    with pytest.raises(ConversationError, match="'additional_special_tokens' is undefined"):
        rendered(source, PLAIN)


# ---------------------------------------------------------------- transformers


WORDS = {
    "plain": ["Hello, 2 < 3?"],
    "turns": ["Be brief.", "Hello, 2 < 3?", "Yes.", "Sure?"],
    "calls": ["Weather?", "get_weather", "Ålesund", "rain", "It rains.", "Thanks"],
    "unusual": ["I begin.", "And go on."],
}
"""Words of the conversations. A template that shows all of them needs no normalization."""

TOOLS_UNKNOWN = ("eachadea/vicuna-13b-1.1", "Orca-Vicuna", "deepseek-ai/deepseek-coder-33b-instruct")
"""Templates that do not know the role of tools, and show a tool's message as the assistant's."""


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["no tools", "tools"])
def test_every_template_against_transformers(
    templates: dict[str, tuple[str, ChatTemplate]], name: str, tools: list[dict[str, Any]] | None
) -> None:
    render = import_jinja_template_renderer()
    messages = CONVERSATIONS[name]
    compared = 0
    for of, (source, template) in templates.items():
        for prompt in (True, False):
            try:
                [expected], _ = render(
                    [messages], tools, None, source, add_generation_prompt=prompt, **(SPECIAL | GIGACHAT)
                )
            except Exception as error:  # whatever a template makes Python raise
                expected = str(error)
            try:
                text = template.render(Conversation(messages, tools, add_generation_prompt=prompt))
            except EdgegenError as error:
                text = str(error)
            if expected.strip(" .") in text and "chat template" in text:
                continue  # both fail, with the template's own message
            if not all(word in expected for word in WORDS[name]) or (name == "calls" and of in TOOLS_UNKNOWN):
                assert all(word in text for word in WORDS[name]) or "is left out by this model's chat template" in text
                continue
            assert text == expected
            compared += 1
    assert compared > {"plain": 165, "turns": 130, "calls": 75, "unusual": 140}[name]


@pytest.mark.parametrize(
    "last",
    ["I am", " I am ", "I am\n", [{"type": "text", "text": "I"}, {"type": "text", "text": "am "}]],
)
def test_continued_messages_against_transformers(templates: dict[str, tuple[str, ChatTemplate]], last: Any) -> None:
    render = import_jinja_template_renderer()
    messages = [USER, {"role": "assistant", "content": last}]
    compared = 0
    for source, template in templates.values():
        try:
            [expected], _ = render([messages], None, None, source, continue_final_message=True, **SPECIAL)
        except Exception:  # a template that cannot: below
            continue
        if "'type'" in expected or '"type"' in expected:
            continue  # a template that prints the list of parts
        assert template.render(Conversation(messages, continue_final_message=True)) == expected
        compared += 1
    assert compared > (10 if isinstance(last, list) else 70)


def test_a_message_that_the_template_changes_cannot_be_continued() -> None:
    messages = [USER, {"role": "assistant", "content": "I am"}]
    source = CHATML.replace("m.content", "m.content | upper")
    with pytest.raises(ConversationError, match="does not show the last message as it is"):
        rendered(source, messages, continue_final_message=True)
    with pytest.raises(ConversationError, match="the last message has no text to continue"):
        rendered(CHATML, [USER, {"role": "assistant", "tool_calls": []}], continue_final_message=True)


@pytest.mark.parametrize("name", ["qwen2.5", "llama3", "phi-3", "mistral", "llama2", "gpt2"])
def test_ids_against_transformers(test_data: Path, name: str) -> None:
    model = real_model(test_data, name)
    template = ChatTemplate({"default": model.template}, model.special_tokens)
    for messages in (
        PLAIN,
        TURNS[1:],
        [{"role": "user", "content": "if a<b and c[0] > d | e:\n\t<b>naïve</b> 你好 🙂 "}],
    ):
        conversation = Conversation(messages)
        expected = model.reference_ids(messages, add_generation_prompt=True)
        assert template.encode(conversation, model.tokenizer) == expected


def test_variables_and_documents_reach_the_template(test_data: Path) -> None:
    render = import_jinja_template_renderer()
    source = template_sources(test_data)["Qwen-Qwen3-0.6B"]
    for thinking in (True, False):
        [expected], _ = render([PLAIN], None, None, source, add_generation_prompt=True, enable_thinking=thinking)
        assert rendered(source, PLAIN, variables={"enable_thinking": thinking}) == expected
    assert ("<think>" in expected) is True
    documents = [{"title": "T", "text": "D"}]
    assert rendered("{{ documents[0].title }}{{ bos_token }}", PLAIN, documents=documents) == "T<s>"
    assert rendered("{{ bos_token }}", PLAIN, variables={"bos_token": "mine"}) == "mine"


# ---------------------------------------------------------------- what templates cannot read


def test_a_system_refused_or_left_out_stands_before_the_next_user_message() -> None:
    refusing = GEMMA + CHATML
    ignoring = "{% for m in messages if m.role != 'system' %}" + CHATML.split("%}", 1)[1]
    expected = "<|im_start|>user\nBe brief.\nHello, 2 < 3?<|im_end|>\n<|im_start|>assistant\n"
    assert rendered(refusing, [SYSTEM, USER]) == expected
    assert rendered(ignoring, [SYSTEM, USER]) == expected


def test_every_system_message_finds_a_user_message() -> None:
    refusing = GEMMA + "{% for m in messages %}{{ m.role[0] + ':' + m.content + ';' }}{% endfor %}"
    later = {"role": "system", "content": "Now shout."}
    said = {"role": "assistant", "content": "Hi"}
    assert rendered(refusing, [SYSTEM, later, USER]) == "u:Be brief.\nNow shout.\nHello, 2 < 3?;"
    assert rendered(refusing, [SYSTEM]) == "u:Be brief.;"
    assert rendered(refusing, [SYSTEM, USER, said, later]) == "u:Be brief.\nHello, 2 < 3?;a:Hi;u:Now shout.;"
    assert rendered(refusing, [SYSTEM, said, USER]) == "a:Hi;u:Be brief.\nHello, 2 < 3?;"
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert rendered(refusing, [SYSTEM, parts]) == "u:Be brief.\na\nb;"


def test_a_template_that_changes_what_it_shows_keeps_its_system() -> None:
    assert rendered("{% for m in messages %}{{ m.content | upper }};{% endfor %}", [SYSTEM, USER]) == (
        "BE BRIEF.;HELLO, 2 < 3?;"
    )


def test_parts_for_a_template_of_texts_and_a_text_for_one_of_parts() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert rendered(CHATML, parts) == "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n"
    assert rendered("{{ messages[0].content }}", parts) == "a\nb"
    reads_parts = "{% for m in messages %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endfor %}"
    assert rendered(reads_parts, parts) == "(a)(b)"
    assert rendered(reads_parts, [{"role": "user", "content": "a"}]) == "(a)"
    assert rendered(reads_parts, [{"role": "assistant", "tool_calls": []}]) == ""


def test_every_template_renders_or_says_why_not(templates: dict[str, tuple[str, ChatTemplate]]) -> None:
    refused: dict[str, str] = {}
    for name, (_, template) in templates.items():
        try:
            assert "Hello" in template.render(Conversation(PLAIN))
        except EdgegenError as error:
            refused[name] = str(error)
    assert not refused


# ---------------------------------------------------------------- roles


def test_a_misspelt_role_is_refused_and_a_role_of_the_template_is_not() -> None:
    with pytest.raises(ConversationError, match=r"messages\[0\].role is 'asistant', .* \(did you mean 'assistant'\?\)"):
        rendered(CHATML, [{"role": "asistant", "content": "x"}])
    with pytest.raises(ConversationError, match="2 problems"):
        rendered(CHATML, [{"role": "users", "content": "x"}, {"role": "System", "content": "y"}])
    own = "{% for m in messages %}{% if m.role == 'users' %}{{ m.content }}{% endif %}{% endfor %}"
    assert rendered(own, [{"role": "users", "content": "x"}]) == "x"
    assert rendered(CHATML, [{"role": "narrator", "content": "x"}]).startswith("<|im_start|>narrator\nx")


# ---------------------------------------------------------------- base models


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (PLAIN, "User: Hello, 2 < 3?\nAssistant:"),
        ([SYSTEM, USER], "Be brief.\n\nUser: Hello, 2 < 3?\nAssistant:"),
        (
            [USER, {"role": "assistant", "content": " Yes. "}, USER],
            "User: Hello, 2 < 3?\nAssistant: Yes.\nUser: Hello, 2 < 3?\nAssistant:",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
            "User: a\nb\nAssistant:",
        ),
        ([{"role": "user", "content": ""}], "User:\nAssistant:"),
        ([{"role": "tool", "content": "4"}], "User: <tool_response>\n4\n</tool_response>\nAssistant:"),
        ([SYSTEM], "Be brief.\n\nAssistant:"),
    ],
)
def test_a_model_without_a_template_gets_a_transcript(messages: list[dict[str, Any]], text: str) -> None:
    template = ChatTemplate({})
    assert template.is_fallback
    assert template.stop_strings == ("\nUser:",)
    assert template.render(Conversation(messages)) == text


def test_a_transcript_can_be_continued_and_closed() -> None:
    template = ChatTemplate({})
    messages = [USER, {"role": "assistant", "content": "Yes and"}]
    assert (
        template.render(Conversation(messages, continue_final_message=True))
        == "User: Hello, 2 < 3?\nAssistant: Yes and"
    )
    assert (
        template.render(Conversation(messages, add_generation_prompt=False))
        == "User: Hello, 2 < 3?\nAssistant: Yes and"
    )


def test_a_transcript_begins_as_the_tokenizer_begins_texts(test_data: Path) -> None:
    for name in ("llama2", "llama3", "gpt2"):
        tokenizer = real_model(test_data, name).tokenizer
        ids = ChatTemplate({}).encode(Conversation(PLAIN), tokenizer)
        assert ids == tokenizer.encode("User: Hello, 2 < 3?\nAssistant:")
        assert ChatTemplate({}).end_of_turn(tokenizer) is None


# ---------------------------------------------------------------- the end of a turn


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("qwen2.5", "<|im_end|>"),
        ("llama3", "<|eot_id|>"),
        ("phi-3", "<|end|>"),
        ("mistral", "</s>"),
        ("llama2", "</s>"),
    ],
)
def test_the_token_that_ends_a_turn(test_data: Path, name: str, token: str) -> None:
    model = real_model(test_data, name)
    template = ChatTemplate({"default": model.template}, model.special_tokens)
    assert template.end_of_turn(model.tokenizer) == model.tokenizer.token_to_id(token)


@pytest.mark.parametrize(
    ("source", "token"),
    [
        (
            "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}",
            "<|user|>",
        ),  # GLM: the next turn ends it
        ("{% for m in messages %}{{ m.content }} \n<|end|><|user|>{% endfor %}", "<|end|>"),
        ("{% for m in messages %}{{ m.content }}.<|end|>{% endfor %}", None),  # something stands between
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", None),
        ("{{ messages[0].content }}<|end|>", None),  # it shows no assistant
        ("{{ raise_exception('Never.') }}", None),
    ],
)
def test_where_a_turn_ends(source: str, token: str | None) -> None:
    tokenizer = small_tokenizer({"<|user|>": {"special": True}, "<|assistant|>": {"special": True}, "<|end|>": {}})
    expected = None if token is None else tokenizer.token_to_id(token)
    assert ChatTemplate({"default": source}).end_of_turn(tokenizer) == expected


# ---------------------------------------------------------------- several templates


def test_templates_are_chosen_by_name_by_tools_and_by_default() -> None:
    template = ChatTemplate({"default": "d", "tool_use": "t", "rag": "r"})
    assert template.names == ("default", "tool_use", "rag")
    assert template.render(Conversation(PLAIN)) == "d"
    assert template.render(Conversation(PLAIN, tools=[TOOL])) == "t"
    assert template.render(Conversation(PLAIN, template="rag")) == "r"
    assert ChatTemplate({"only": "o"}).render(Conversation(PLAIN, tools=[TOOL])) == "o"
    with pytest.raises(
        ConversationError, match=r"no chat template named 'rga' \(did you mean 'rag'\?\): it has default"
    ):
        template.render(Conversation(PLAIN, template="rga"))
    with pytest.raises(ConversationError, match="no chat template named 'default': it has a, b"):
        ChatTemplate({"a": "", "b": ""}).render(Conversation(PLAIN))


def test_which_variables_a_template_reads() -> None:
    source = "{% if enable_thinking %}thinking{% endif %}{{ messages[0].reasoning_effort }}"
    template = ChatTemplate({"default": source})
    conversation = Conversation([USER])
    assert template.reads(conversation, "enable_thinking")
    assert not template.reads(conversation, "thinking")
    assert not template.reads(conversation, "reasoning_effort")


def test_a_malformed_template_is_found_when_it_is_used() -> None:
    template = ChatTemplate({"default": "d", "rag": "{% if"})
    assert template.render(Conversation(PLAIN)) == "d"
    with pytest.raises(ChatTemplateError, match="malformed"):
        template.render(Conversation(PLAIN, template="rag"))


def test_one_template_serves_several_threads() -> None:
    template = ChatTemplate({"default": INST}, SPECIAL)
    texts: list[str] = []

    def work(n: int) -> None:
        texts.extend(template.render(Conversation([{"role": "user", "content": f"{n}"}])) for _ in range(50))

    threads = [threading.Thread(target=work, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(texts) == sorted(f"<s>[INST] {n} [/INST]" for n in range(4) for _ in range(50))


# ---------------------------------------------------------------- the bundle's files


def with_files(bundle: Bundle, folder: Path, files: dict[str, Any]) -> Bundle:
    """The bundle, with these files in place of its own tokenizer configs."""
    import hashlib

    kept = {name: entry for name, entry in bundle.manifest.files.items() if "token" not in name}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = (
            content
            if isinstance(content, bytes)
            else content.encode()
            if isinstance(content, str)
            else json.dumps(content).encode()
        )
        path.write_bytes(data)
        kept[name] = FileEntry(len(data), hashlib.sha256(data).hexdigest())
    return Bundle.with_manifest(folder, replace(bundle.manifest, files=kept), folder)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"tokenizer_config.json": {"chat_template": "{{ bos_token }}c", "bos_token": "<b>"}}, "<b>c"),
        ({"tokenizer_config.json": {"chat_template": "c"}, "chat_template.jinja": "j"}, "j"),
        ({"chat_template.jinja": "é"}, "é"),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]
                }
            },
            "d",
        ),
        ({"chat_template.jinja": "j", "additional_chat_templates/rag.jinja": "r"}, "j"),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ additional_special_tokens }}"
                    "{{ image_token }}{{ pad_token }}.",
                    "bos_token": {"content": "<b>", "lstrip": False},
                    "eos_token": None,
                    "additional_special_tokens": ["<x>", {"content": "<y>"}],
                    "extra_special_tokens": {"image_token": "<i>"},
                },
                "special_tokens_map.json": {"bos_token": "<old>", "eos_token": "<e>", "unk_token": {"content": "<u>"}},
            },
            "<b><e><u>['<x>', '<y>']<i>.",
        ),
    ],
)
def test_templates_and_special_tokens_of_a_bundle(
    int8_bundle: Bundle, tmp_path: Path, files: dict[str, Any], text: str
) -> None:
    template = ChatTemplate.from_bundle(with_files(int8_bundle, tmp_path, files))
    assert not template.is_fallback
    assert template.render(Conversation(PLAIN)) == text


def test_additional_templates_of_a_bundle(int8_bundle: Bundle, tmp_path: Path) -> None:
    files = {"chat_template.jinja": "j", "additional_chat_templates/rag.jinja": "r"}
    template = ChatTemplate.from_bundle(with_files(int8_bundle, tmp_path, files))
    assert template.render(Conversation(PLAIN, template="rag")) == "r"


def test_a_bundle_without_a_template(int8_bundle: Bundle, tmp_path: Path) -> None:
    assert ChatTemplate.from_bundle(int8_bundle).is_fallback
    assert ChatTemplate.from_bundle(with_files(int8_bundle, tmp_path, {})).is_fallback
    wrong = {"additional_special_tokens": "<x>", "extra_special_tokens": [1], "bos_token": 1, "chat_template": []}
    assert ChatTemplate.from_bundle(with_files(int8_bundle, tmp_path, {"tokenizer_config.json": wrong})).is_fallback
    assert ChatTemplate.from_bundle(
        with_files(int8_bundle, tmp_path, {"tokenizer_config.json": {"chat_template": None}})
    ).is_fallback


@pytest.mark.parametrize("value", [1, [1], [{"name": "default"}], [{"name": "default", "template": 1}], ["a"]])
def test_templates_of_another_shape(int8_bundle: Bundle, tmp_path: Path, value: Any) -> None:
    bundle = with_files(int8_bundle, tmp_path, {"tokenizer_config.json": {"chat_template": value}})
    with pytest.raises(ChatTemplateError, match="neither a text nor a list of names and texts"):
        ChatTemplate.from_bundle(bundle)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_settings_that_are_no_object(int8_bundle: Bundle, tmp_path: Path, name: str) -> None:
    with pytest.raises(ChatTemplateError, match=f"{name} is not a JSON object"):
        ChatTemplate.from_bundle(with_files(int8_bundle, tmp_path, {name: []}))


def test_a_template_that_is_no_text(int8_bundle: Bundle, tmp_path: Path) -> None:
    bundle = with_files(int8_bundle, tmp_path, {"chat_template.jinja": b"\xff\xfe"})
    with pytest.raises(ChatTemplateError, match="cannot be read"):
        ChatTemplate.from_bundle(bundle)


def test_a_template_that_is_too_slow_to_be_probed_is_not_probed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=2)  # a probe takes two seconds, and so does what is between two
    monkeypatch.setattr("edgegen.chat.template.thread_time", lambda: float(next(clock)))
    template = ChatTemplate({"default": CHATML}, SPECIAL)
    for _ in range(3):
        with pytest.raises(ChatTemplateError, match="take it more than 5 seconds: use another template"):
            template.render(Conversation([USER]))
    assert next(clock) == 2 * 6, "three probes, each of which looks at the clock twice"
