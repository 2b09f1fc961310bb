"""llama-server's API: the scenarios of its own tests, its options, and fill in the middle."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.generation.fill import fill_prompt
from edgegen.llm import LLM
from edgegen.server.http.options import ServerOptions
from edgegen.server.llama.options import NO_OPS, REFUSED, RENAMED
from edgegen.server.wire import ported_options
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.root import ROOT
from tests.runtime.models import RandomGraphs, fake_llm
from tests.runtime.server.material import HELLO, client_of, error_of

PAGE = ROOT / "docs" / "clients.md"
ONCE: dict[str, Any] = {"prompt": "Once upon", "n_predict": 6}
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
KEY = "sk-secret"
OF_KEYS = (
    "incorrect_api_key",
    "correct_api_key",
    "correct_api_key_anthropic_header",
    "openai_library_correct_api_key",
)


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return client_of(fake_llm(tmp_path / "model", RandomGraphs(), template=TEMPLATE))


def post(client: TestClient, path: str, body: dict[str, Any], status: int = 200) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == status, response.text
    return response.json()


def stream(client: TestClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    text = client.post(path, json={**body, "stream": True}).text
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line.startswith("data: {")]


# ---------------------------------------------------------------- the scenarios of llama.cpp's own tests

Scenario = Callable[[TestClient], None]
SAME: dict[str, Scenario] = {}
"""Scenarios whose expectations hold here, by their names there."""


def scenario(name: str) -> Callable[[Scenario], Scenario]:
    def add(check: Scenario) -> Scenario:
        SAME[name] = check
        return check

    return add


@scenario("basic: server_start_simple")
def _(client: TestClient) -> None:
    assert client.get("/health").json() == client.get("/v1/health").json() == {"status": "ok"}


@scenario("basic: server_props")
def _(client: TestClient) -> None:
    props = client.get("/props").json()
    assert props["total_slots"] == 8
    assert props["default_generation_settings"]["n_ctx"] == 512
    assert "seed" in props["default_generation_settings"]["params"]
    assert props["model_path"]


@scenario("basic: server_models")
def _(client: TestClient) -> None:
    assert [one["id"] for one in client.get("/models").json()["data"]] == ["fake"]


@scenario("basic: server_slots")
def _(client: TestClient) -> None:
    slots = client.get("/slots").json()
    assert len(slots) == 8
    assert all(one["n_ctx"] == 512 and "params" not in one for one in slots)


@scenario("completion: completion")
def _(client: TestClient) -> None:
    for return_tokens in (False, True):
        answer = post(client, "/completion", {**ONCE, "return_tokens": return_tokens})
        assert answer["timings"]["prompt_n"] == answer["tokens_evaluated"] == len("Once upon")
        assert answer["timings"]["predicted_n"] == 6
        assert (answer["stop"], answer["truncated"], type(answer["has_new_line"])) == (True, False, bool)
        assert len(answer["tokens"]) == 6 * return_tokens


@scenario("completion: completion_stream")
def _(client: TestClient) -> None:
    *pieces, last = stream(client, "/completion", ONCE)
    assert all(piece["stop"] is False and piece["tokens"] for piece in pieces)
    assert (last["stop"], last["stop_type"], last["content"]) == (True, "limit", "")
    assert last["generation_settings"]["n_predict"] == last["timings"]["predicted_n"] == 6


@scenario("completion: completion_stream_vs_non_stream")
def _(client: TestClient) -> None:
    told = "".join(piece["content"] for piece in stream(client, "/completion", ONCE))
    assert told == post(client, "/completion", ONCE)["content"]


@scenario("completion: consistent_result_same_seed")
def _(client: TestClient) -> None:
    asked = {**ONCE, "seed": 42, "temperature": 1.0, "cache_prompt": False}
    assert post(client, "/completion", asked)["content"] == post(client, "/completion", asked)["content"]


@scenario("completion: different_result_different_seed")
def _(client: TestClient) -> None:
    told = {post(client, "/completion", {**ONCE, "seed": n, "temperature": 1.0})["content"] for n in range(4)}
    assert len(told) == 4


@scenario("completion: nocache_long_input_prompt")
def _(client: TestClient) -> None:
    post(client, "/completion", {"prompt": "Once upon" * 100, "cache_prompt": False}, 400)


@scenario("completion: completion_with_tokens_input")
def _(client: TestClient) -> None:
    ids = post(client, "/tokenize", {"content": "Once", "add_special": True})["tokens"]
    alone = post(client, "/completion", {"prompt": ids, "n_predict": 4})["content"]
    for prompts in ([ids, ids], [ids, "Once"]):
        both = post(client, "/completion", {"prompt": prompts, "n_predict": 4})
        assert [one["content"] for one in both] == [alone, alone]
    mixed = post(client, "/completion", {"prompt": [1, 2, "Once", 3, "upon"], "n_predict": 4})
    assert mixed["tokens_evaluated"] == 3 + len("Onceupon")


@scenario("completion: completion_parallel_slots")
def _(client: TestClient) -> None:
    prompts = [f"Tale {n}" for n in range(6)]
    together = post(client, "/completion", {"prompt": prompts, "n_predict": 5})
    assert [one["index"] for one in together] == [*range(6)]
    for prompt, one in zip(prompts, together, strict=True):
        assert post(client, "/completion", {"prompt": prompt, "n_predict": 5})["content"] == one["content"]


@scenario("completion: completion_response_fields")
def _(client: TestClient) -> None:
    fields = ["content", "generation_settings/n_predict", "prompt"]
    answer = post(client, "/completion", {**ONCE, "response_fields": fields})
    assert answer.keys() == {*fields}
    assert (answer["generation_settings/n_predict"], answer["prompt"]) == (6, "Once upon")
    assert "timings" in post(client, "/completion", {**ONCE, "response_fields": []})


@scenario("completion: n_probs")
def _(client: TestClient) -> None:
    told = post(client, "/completion", {**ONCE, "n_probs": 10, "temperature": 0.0})["completion_probabilities"]
    assert len(told) == 6
    for token in told:
        assert (type(token["id"]), type(token["token"]), type(token["bytes"])) == (int, str, list)
        assert token["logprob"] <= 0
        assert len(token["top_logprobs"]) == 10


@scenario("completion: n_probs_stream")
def _(client: TestClient) -> None:
    *pieces, last = stream(client, "/completion", {**ONCE, "n_probs": 3, "temperature": 0.0})
    assert all(len(piece["completion_probabilities"]) == len(piece["tokens"]) for piece in pieces)
    assert "completion_probabilities" not in last


@scenario("completion: logit_bias")
def _(client: TestClient) -> None:
    first = post(client, "/completion", {**ONCE, "return_tokens": True, "temperature": 0})["tokens"]
    for bias in ([[one, False] for one in first], [[one, -100.0] for one in first], {str(one): -100 for one in first}):
        other = post(client, "/completion", {**ONCE, "return_tokens": True, "temperature": 0, "logit_bias": bias})
        assert not {*first} & {*other["tokens"]}


@scenario("chat: chat_completion")
def _(client: TestClient) -> None:
    answer = post(client, "/chat/completions", {"messages": HELLO, "max_tokens": 8, "model": None})
    assert "cmpl" in answer["id"]
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["choices"][0]["finish_reason"] == "length"


@scenario("chat: apply_chat_template")
def _(client: TestClient) -> None:
    messages = [{"role": "system", "content": "You are a test."}, {"role": "user", "content": "Hi there"}]
    told = post(client, "/apply-template", {"messages": messages})
    assert told == {"prompt": "<system>You are a test.<user>Hi there<assistant>"}


@scenario("chat: chat_template_assistant_prefill")
def _(client: TestClient) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "Whill"}]
    assert post(client, "/apply-template", {"messages": messages})["prompt"].endswith("<assistant>Whill")


@scenario("chat: completion_with_response_format")
def _(client: TestClient) -> None:
    asked = {"messages": HELLO, "max_tokens": 10}
    for form in (
        {"type": "json_object", "schema": {"const": "42"}},
        {"type": "json_schema", "json_schema": {"schema": {"const": "42"}}},
    ):
        answer = post(client, "/chat/completions", {**asked, "response_format": form})
        assert json.loads(answer["choices"][0]["message"]["content"]) == "42"
    for form in (
        {"type": "sound"},
        {"type": "json_object", "schema": 123},
        {"type": "json_object", "schema": {"type": 123}},
        {"type": "json_object", "schema": {"type": "hiccup"}},
    ):
        post(client, "/chat/completions", {**asked, "response_format": form}, 400)


@scenario("chat: completion_with_json_schema")
def _(client: TestClient) -> None:
    asked = {"messages": HELLO, "max_tokens": 10, "json_schema": {"const": "42"}}
    assert json.loads(post(client, "/chat/completions", asked)["choices"][0]["message"]["content"]) == "42"
    whole = {"prompt": "Once", "n_predict": 10, "json_schema": {"const": "42"}}
    assert json.loads(post(client, "/completion", whole)["content"]) == "42"


@scenario("chat: completion_with_grammar")
def _(client: TestClient) -> None:
    asked = {"messages": HELLO, "max_tokens": 10, "grammar": 'root ::= "a"{5,5}'}
    assert post(client, "/chat/completions", asked)["choices"][0]["message"]["content"] == "aaaaa"


@scenario("chat: invalid_chat_completion_req")
def _(client: TestClient) -> None:
    wrong: list[Any] = [None, "string", [123], [{}], [{"role": 123}], [{"role": "system", "content": 123}]]
    for messages in wrong:
        assert "error" in post(client, "/chat/completions", {"messages": messages}, 400)


@scenario("chat: chat_completion_with_timings_per_token")
def _(client: TestClient) -> None:
    asked = {"messages": HELLO, "max_tokens": 4, "timings_per_token": True, "stream_options": {"include_usage": True}}
    first, *pieces, last = stream(client, "/chat/completions", asked)
    assert "timings" not in first
    counted = [piece["timings"]["predicted_n"] for piece in pieces]
    assert counted == sorted(counted)
    assert counted[-1] == 4
    assert last["choices"] == []
    assert last["timings"]["predicted_n"] == 4
    assert last["timings"].keys() >= {"prompt_per_second", "predicted_per_second"}


@scenario("chat: logprobs")
def _(client: TestClient) -> None:
    asked = {"messages": HELLO, "max_tokens": 5, "logprobs": True, "top_logprobs": 10}
    told = post(client, "/v1/chat/completions", asked)["choices"][0]["logprobs"]["content"]
    assert all(len(token["top_logprobs"]) == 10 and token["logprob"] <= 0 for token in told)


@scenario("infill: invalid_input_extra_req")
def _(client: TestClient) -> None:
    for extra in ({}, {"filename": "ok"}, {"filename": 123}, {"filename": 123, "text": "abc"}):
        post(client, "/infill", {"input_extra": [extra], "input_prefix": "a", "input_suffix": "b"}, 400)


@scenario("tokenize: tokenize_detokenize")
def _(client: TestClient) -> None:
    content = "What is the capital of France ?"
    ids = post(client, "/tokenize", {"content": content})["tokens"]
    assert post(client, "/detokenize", {"tokens": ids})["content"].strip() == content


@scenario("tokenize: tokenize_with_pieces")
def _(client: TestClient) -> None:
    told = post(client, "/tokenize", {"content": "unicode 媽 and emoji 🤗", "with_pieces": True})["tokens"]
    assert all(type(one["id"]) is int and one["piece"] for one in told)
    spelled = b"".join(bytes(one["piece"]) if isinstance(one["piece"], list) else one["piece"].encode() for one in told)
    assert spelled.decode() == "unicode 媽 and emoji 🤗"


def test_pieces_of_sentencepiece_keep_their_spaces(test_data: Path, tmp_path: Path) -> None:
    bundle, _ = export(str(test_data / "models" / "stories260K"), tmp_path / "stories", ExportOptions(scheme="fp32"))
    client = client_of(LLM.load(bundle.path))
    told = post(client, "/tokenize", {"content": "Once upon a time", "with_pieces": True})["tokens"]
    assert [one["piece"] for one in told] == [" Once", " upon", " a", " time"]
    ids = [one["id"] for one in told]
    whole, rest = (post(client, "/detokenize", {"tokens": part})["content"] for part in (ids, ids[1:]))
    assert (whole, rest) == (" Once upon a time", " upon a time")


@scenario("ignore_eos: ignore_eos")
def _(client: TestClient) -> None:
    answer = post(client, "/completion", {"prompt": "Once", "n_predict": 40, "ignore_eos": True, "temperature": 0})
    assert (answer["tokens_predicted"], answer["stop_type"]) == (40, "limit")


@pytest.mark.parametrize("name", SAME)
def test_scenario_of_llama_server(client: TestClient, name: str) -> None:
    SAME[name](client)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer x"}, 401),
        ({"Authorization": f"Bearer {KEY}"}, 200),
        ({"X-Api-Key": KEY}, 200),
    ],
)
def test_scenarios_of_keys(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    client = client_of(fake_llm(tmp_path / "model", RandomGraphs()), ServerOptions(keys=(KEY,)))
    assert client.post("/completions", json=ONCE, headers=headers).status_code == status
    assert client.post("/chat/completions", json={"messages": HELLO}, headers=headers).status_code == status
    assert client.get("/health").status_code == client.get("/v1/health").status_code == 200


# ---------------------------------------------------------------- what is not among them


def test_a_stop_word_is_told(client: TestClient) -> None:
    text = post(client, "/completion", {**ONCE, "n_predict": 12, "grammar": 'root ::= "abcdef"'})["content"]
    assert text == "abcdef"
    answer = post(client, "/completion", {**ONCE, "grammar": 'root ::= "abcdef"', "stop": ["de"]})
    assert (answer["content"], answer["stop_type"], answer["stopping_word"]) == ("abc", "word", "de")


def test_no_tokens_are_the_prompt_read_alone(client: TestClient) -> None:
    answer = post(client, "/completion", {"prompt": "Once", "n_predict": 0})
    assert (answer["content"], answer["tokens_predicted"], answer["tokens_evaluated"]) == ("", 0, 4)
    assert [one["stop"] for one in stream(client, "/completion", {"prompt": "Once", "n_predict": 0})] == [True]


def test_values_below_the_range_mean_what_they_mean_there(client: TestClient) -> None:
    plain = post(client, "/completion", {**ONCE, "temperature": 0})
    said: dict[str, Any] = {
        "temperature": -1,
        "top_k": -1,
        "seed": -1,
        "repeat_last_n": -1,
        "stop": [],
        "grammar": "",
        "n_probs": 0,
    }
    assert post(client, "/completion", {**ONCE, **said, "t_max_predict_ms": -1})["content"] == plain["content"]


def test_samplers_that_are_not_listed_are_off(client: TestClient) -> None:
    asked = {**ONCE, "seed": 3, "temperature": 1.0, "top_k": 1, "return_tokens": True}
    likeliest = post(client, "/completion", asked)["tokens"]
    free = post(client, "/completion", {**asked, "samplers": ["temperature"]})["tokens"]
    assert post(client, "/completion", {**asked, "samplers": ["top_k", "temperature"]})["tokens"] == likeliest
    assert free != likeliest


@pytest.mark.parametrize("path", ["/completion", "/infill", "/v1/chat/completions"])
def test_an_unknown_name_gets_the_nearest(client: TestClient, path: str) -> None:
    body = {"prompt": "a"} if path == "/completion" else {} if path == "/infill" else {"messages": HELLO}
    error = error_of(client.post(path, json={**body, "n_predit": 3}))
    assert "'n_predit' is not a parameter" in error["message"]
    assert "did you mean 'n_predict'?" in error["message"]


def test_everything_that_is_wrong_is_told_at_once(client: TestClient) -> None:
    wrong = {"samplers": ["top_p", "topk"], "lora": [{"id": 0}], "n_indent": 2}
    message = post(client, "/completion", {**ONCE, **wrong}, 400)["error"]["message"]
    assert "did you mean 'top_k'?" in message
    assert all(name in message for name in ("samplers[1]", "lora", "n_indent"))


@pytest.mark.parametrize("value", [False, 0, "", True])
def test_what_is_no_list_of_stop_words_is_not_taken_for_an_empty_one(client: TestClient, value: object) -> None:
    error = error_of(client.post("/completion", json={**ONCE, "stop": value}))
    assert (error["param"], "stop" in error["message"]) == ("stop", True)


def test_biases_in_a_list_on_openai_s_routes(client: TestClient) -> None:
    for path, asked in (("/v1/chat/completions", {"messages": HELLO}), ("/v1/completions", {"prompt": "Once"})):
        asked = {**asked, "temperature": 0, "max_tokens": 3}
        by_id = post(client, path, {**asked, "logit_bias": {"97": 100}})["choices"]
        assert post(client, path, {**asked, "logit_bias": [[97, 100]]})["choices"] == by_id
        never = post(client, path, {**asked, "logit_bias": [[97, 100], [97, False]]})["choices"]
        assert never != by_id
        said = post(client, path, {**asked, "logit_bias": [["a", 1]]}, 400)["error"]["message"]
        assert "found the text 'a'" in said


def test_a_format_of_reasoning_is_what_it_says_or_refused(client: TestClient) -> None:
    for form, status in (("auto", 200), ("deepseek", 200), ("none", 400), ("deepseek-legacy", 400), ("deep", 400)):
        body = {"messages": HELLO, "max_tokens": 2, "reasoning_format": form}
        assert client.post("/v1/chat/completions", json=body).status_code == status


def test_embedding(tmp_path: Path) -> None:
    client = client_of(fake_llm(tmp_path / "model", RandomGraphs(), hidden=True))
    openai = post(client, "/v1/embeddings", {"input": ["Once", "Two"]})["data"]
    told = post(client, "/embedding", {"content": ["Once", "Two"]})
    assert told == [{"index": n, "embedding": [one["embedding"]]} for n, one in enumerate(openai)]
    assert post(client, "/embedding", {"input": "Once"}) == told[:1]
    assert post(client, "/embedding", {"content": [*b"Once"]}) == told[:1]
    raw = post(client, "/v1/embeddings", {"input": "Once", "normalize": False})["data"][0]["embedding"]
    assert post(client, "/embedding", {"content": "Once", "embd_normalize": -1})[0]["embedding"] == [raw]
    for wrong in ({}, {"content": "a", "input": "b"}, {"content": ""}, {"content": "a", "embd_normalize": 0}):
        error_of(client.post("/embedding", json=wrong))


@pytest.mark.parametrize("path", ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking"])
def test_no_model_ranks(client: TestClient, path: str) -> None:
    assert client.post(path, json={"query": "a", "documents": ["b"]}).status_code == 400


def test_two_ways_to_say_the_same_are_an_error(client: TestClient) -> None:
    for path, said, other in (
        ("/v1/completions", "max_new_tokens and n_predict", "max_new_tokens"),
        ("/completion", "n_predict and max_tokens", "max_tokens"),
    ):
        body = post(client, path, {"prompt": "a", "n_predict": 3, other: 3}, 400)
        assert f"{said} would say the same" in body["error"]["message"]


def test_ported_options_have_their_effect(client: TestClient) -> None:
    asked = {"messages": HELLO, "temperature": 0}
    plain = post(client, "/v1/chat/completions", {**asked, "max_tokens": 5, "repetition_penalty": 1.5})
    ported = post(
        client, "/v1/chat/completions", {**asked, "n_predict": 5, "repeat_penalty": 1.5, "cache_prompt": True}
    )
    assert ported["choices"] == plain["choices"]
    assert "timings" not in plain


def test_the_kv_cache_cannot_be_left_unused(client: TestClient) -> None:
    asked = {"prompt": "a", "max_tokens": 1}
    post(client, "/v1/completions", {**asked, "use_cache": True})
    error = post(client, "/v1/completions", {**asked, "use_cache": False}, 400)["error"]
    assert error["param"] == "use_cache"
    assert "the KV cache is always used" in error["message"]


# ---------------------------------------------------------------- fill in the middle


class Filling:
    """A tokenizer with tokens of its own, whose other ids are bytes."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = tokens

    def token_to_id(self, token: str) -> int | None:
        return 1000 + self.tokens.index(token) if token in self.tokens else None

    def encode_as_text(self, text: str, control: Collection[str]) -> list[int]:
        assert {*self.tokens} <= {*control}
        return [*text.encode()]

    def frame(self, ids: list[int]) -> list[int]:
        return [0, *ids]


FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def test_other_files_come_before_the_prefix() -> None:
    tokenizer: Any = Filling(*FIM, "<|repo_name|>", "<|file_sep|>")
    files = [1003, *b"myproject\n", 1004, *b"a.h\n", *b"int a;", 1004, *b"filename\n"]
    assert fill_prompt(tokenizer, "x", "y", [("a.h", "int a;")]) == [0, *files, 1000, *b"x", 1001, *b"y", 1002]


def test_a_model_without_tokens_for_files_has_lines_between_them() -> None:
    tokenizer: Any = Filling(*FIM)
    files = [*b"\n\n--- snippet ---\n\nint a;"]
    assert fill_prompt(tokenizer, "x", "", [("a.h", "int a;")]) == [0, *files, 1000, *b"x", 1001, 1002]


def test_a_model_without_tokens_refuses(client: TestClient) -> None:
    said = "this model cannot fill in, as it has no tokens for a prefix and a suffix."
    assert error_of(client.post("/infill", json={"input_prefix": "a", "input_suffix": "b"}))["message"] == said
    error = error_of(client.post("/v1/completions", json={"prompt": "a", "suffix": "b"}))
    assert (error["message"], error["param"]) == (f"suffix: {said}", "suffix")
    error = error_of(client.post("/v1/completions", json={"prompt": "a", "suffix": "b", "echo": True}))
    assert "without echo" in error["message"]


# ---------------------------------------------------------------- docs


def rows(section: str) -> dict[str, tuple[str, str]]:
    """The table below a heading: what each line begins with, and the two cells after it."""
    part = PAGE.read_text("utf-8").partition(f"### {section}\n")[2].partition("\n##")[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in part.splitlines() if line[:1] == "|"]
    return {row[0].strip("`"): (row[1], row[2]) for row in cells[2:] if len(row) == 3}


def expected(renamed: Any, no_ops: Any, refused: Any) -> dict[str, tuple[str, str]]:
    told = {name: ("honoured", f"`{option}`") for name, option in renamed.items()}
    told |= {name: ("no-op", why) for name, (_, why) in no_ops.items()}
    for name, (values, why) in refused.items():
        allowed = f"but {', '.join(f'`{json.dumps(value)}`' for value in values)}; " if values else ""
        told[name] = ("refused", allowed + why.removesuffix(": leave it out"))
    return told


def test_the_docs_have_every_option_of_completion() -> None:
    assert rows("Options of /completion and /infill") == expected(RENAMED, NO_OPS, REFUSED)


def test_the_docs_have_every_ported_option() -> None:
    told = expected(ported_options.TAKEN, ported_options.NO_OPS, ported_options.REFUSED)
    told |= {
        "json_schema": ("honoured", "`response_format`"),
        "ignore_eos": ("honoured", "`min_new_tokens`, as long as the answer may be"),
        "timings_per_token": ("honoured", "`timings` of the answer"),
        "return_progress": ("honoured", "`prompt_progress` in a stream"),
    }
    assert rows("Options on OpenAI's routes") == told


def test_the_docs_have_every_scenario() -> None:
    told = rows("Scenarios of llama.cpp's tests")
    keys = {f"security: {name}" for name in OF_KEYS}
    assert {name for name, (verdict, _) in told.items() if verdict == "same"} == SAME.keys() | keys
    assert {verdict for verdict, _ in told.values()} == {"same", "differs", "absent"}
    assert all(why for verdict, why in told.values() if verdict != "same")
