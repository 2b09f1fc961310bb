"""The check after a conversion: special tokens that are not found, by themselves and in a rendered chat."""

import json
from typing import Any

import pytest

from edgegen.errors import CheckpointError
from edgegen_export.tokenizer.added_token import AddedToken
from edgegen_export.tokenizer.components import bpe, byte_fallback_decoder, chain, replace
from edgegen_export.tokenizer.special_tokens import check_special_tokens, misread, read_tokenizer
from edgegen_export.tokenizer.tokenizer_json import TokenizerJson

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PREPENDED = chain("normalizers", [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")])


def files(*tokens: AddedToken, template: str | None = None, **config: Any) -> dict[str, bytes]:
    """A tokenizer of bytes that prepends a space, as Llama's do."""
    vocab = {"<unk>": 0} | {f"<0x{byte:02X}>": byte + 1 for byte in range(256)}
    tokenizer = TokenizerJson.of(
        bpe(vocab, [], unk_token="<unk>", byte_fallback=True),
        normalizer=PREPENDED,
        decoder=byte_fallback_decoder(drop_first_space=True),
    )
    for token in tokens:
        tokenizer.add(token)
    settings = config | ({} if template is None else {"chat_template": template})
    return {"tokenizer.json": tokenizer.to_bytes(), "tokenizer_config.json": json.dumps(settings).encode()}


def checked(made: dict[str, bytes]) -> list[str]:
    return check_special_tokens(made, read_tokenizer(made["tokenizer.json"]))


def literal(text: str) -> AddedToken:
    return AddedToken.literal(text, special=True)


def normalized(text: str, *, special: bool = True) -> AddedToken:
    return AddedToken(text, special=special, normalized=True)


def test_tokens_that_are_found_everywhere_pass() -> None:
    found = files(literal("<|im_start|>"), literal("<|im_end|>"), template=CHATML, eos_token="<|im_end|>")
    assert checked(found) == []


def test_each_place_is_told() -> None:
    made = files(literal("<a>"), normalized("<b>"), AddedToken("<c>", special=True, normalized=False, single_word=True))
    wrong = misread(read_tokenizer(made["tokenizer.json"]), {"<a>": 257, "<b>": 258, "<c>": 259, "<d>": 9})
    assert {text: how.split(" it ")[0] for text, how in wrong.items()} == {
        "<b>": "after text",
        "<c>": "after text",
        "<d>": "alone",
    }


def test_a_token_that_the_template_does_not_use_is_a_warning_with_its_name() -> None:
    made = files(
        literal("<|im_start|>"), literal("<|im_end|>"), normalized("<pad>"), template=CHATML, pad_token="<pad>"
    )
    (warning,) = checked(made)
    assert "'<pad>' is not one token everywhere: after text it becomes [" in warning
    assert '"normalized": false' in warning
    assert "<|im_" not in warning


@pytest.mark.parametrize("special", [True, False])
def test_a_token_that_the_template_writes_is_an_error_with_its_name(special: bool) -> None:
    made = files(literal("<|im_start|>"), normalized("<|im_end|>", special=special), template=CHATML)
    with pytest.raises(CheckpointError) as caught:
        checked(made)
    assert "the chat template uses special tokens that the tokenizer does not find" in str(caught.value)
    assert "'<|im_end|>'" in str(caught.value)
    assert "'<|im_start|>'" not in str(caught.value)


def test_a_token_that_the_template_knows_by_its_role_is_an_error() -> None:
    template = "{% for m in messages %}{{ m['content'] + eos_token }}{% endfor %}"
    with pytest.raises(CheckpointError, match="'</s>' is not one token everywhere"):
        checked(files(normalized("</s>"), template=template, eos_token="</s>"))


def test_a_begin_that_is_found_where_the_template_writes_it_is_a_warning() -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    (warning,) = checked(files(normalized("<s>"), template=template, bos_token="<s>"))
    assert "'<s>'" in warning


def test_a_control_token_that_is_no_added_token_is_found_out_by_the_rendering() -> None:
    made = files(literal("<|im_end|>"), template=CHATML)
    content = json.loads(made["tokenizer.json"])
    content["model"]["vocab"]["<|im_start|>"] = 300
    with pytest.raises(CheckpointError, match=r"'<\|im_start\|>' is not one token everywhere: in a chat"):
        checked({**made, "tokenizer.json": json.dumps(content).encode()})


def test_an_id_that_a_config_states_is_the_one_that_counts() -> None:
    stated = {"300": {"content": "<|im_end|>", "special": True}}
    with pytest.raises(CheckpointError, match=r"'<\|im_end\|>' is not one token everywhere: alone it becomes \[257\]"):
        checked(files(literal("<|im_end|>"), template=CHATML, added_tokens_decoder=stated))


@pytest.mark.parametrize(
    ("template", "said"),
    [("{% if %}", "does not render"), ("{{ raise_exception('Only one turn') }}", "Only one turn")],
)
def test_a_template_that_cannot_be_rendered_is_a_warning(template: str, said: str) -> None:
    (warning,) = checked(files(template=template))
    assert warning.startswith("the chat template does not render a chat of two turns")
    assert said in warning


def test_a_vocabulary_without_the_letters_of_the_check_is_not_judged_by_them() -> None:
    tokenizer = TokenizerJson.of(bpe({"0": 0, "1": 1}, []))
    tokenizer.add(literal("<end>"))
    assert checked({"tokenizer.json": tokenizer.to_bytes()}) == []


def test_what_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not a readable tokenizer"):
        checked({"tokenizer.json": b"{}"})
