"""ConstraintState: what may come next, where a text may end, and the way back."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.constraint import AnyJson, Choice, Constraint, ConstraintState, Grammar, JsonSchema, Regex
from edgegen.errors import ConstraintError
from edgegen.sampling import Candidates
from tests.runtime.constraint.vocabulary import Vocabulary

PERSON = JsonSchema.of(
    {
        "type": "object",
        "properties": {"name_of_person": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name_of_person", "age"],
        "additionalProperties": False,
    },
    "compact",
)
CONSTRAINTS = (
    PERSON,
    AnyJson(),
    Regex("[a-c]{2,5}é?"),
    Choice(("yes", "yesterday", "no")),
    Grammar('start: "a" start "b" | "c"'),
)


def allowed(state: ConstraintState) -> list[int]:
    return np.flatnonzero(np.unpackbits(state.mask(), bitorder="little")).tolist()


def advance(state: ConstraintState, ids: list[int]) -> ConstraintState:
    for token_id in ids:
        state.accept(token_id)
    return state


def test_mask_is_what_validates(vocabulary: Vocabulary) -> None:
    """Against every token alone, in states with few, some and nearly all tokens allowed."""
    for constraint, text in ((PERSON, '{"name_of_person":"J'), (Regex("[a-z]+1"), "ab"), (Choice(("no", "yes")), "")):
        state = advance(vocabulary.start(constraint), vocabulary.encode_continuation(text))
        ids = range(vocabulary.size)
        assert allowed(state) == [i for i in ids if state.valid_prefix([i])] + [
            i for i in vocabulary.eos if state.may_stop
        ]


def test_end_of_sequence_only_at_the_end(vocabulary: Vocabulary) -> None:
    state = vocabulary.start(Choice(("yes", "yesterday")))
    with pytest.raises(ConstraintError, match=rf"the choice does not end here, and token {vocabulary.eos[0]} ends"):
        state.accept(vocabulary.eos[0])
    assert not set(vocabulary.eos) & set(allowed(state))
    for byte in b"yes":
        state.accept(
            vocabulary.id_of_byte(byte)
            if vocabulary.size != 32000
            else vocabulary.tokenizer.token_to_id(chr(byte)) or 0
        )
    assert set(vocabulary.eos) < set(allowed(state))
    assert (state.may_stop, state.is_complete) == (True, False)
    state.accept(vocabulary.eos[-1])
    assert (state.may_stop, state.is_complete, allowed(state), state.forced()) == (
        True,
        True,
        list(vocabulary.eos),
        [],
    ) or not allowed(state)


def test_text_tokens_can_be_ends_too(gpt2: Vocabulary) -> None:
    """A request may end at a line break: then none comes before the text may end."""
    line_break = gpt2.encode("\n")[0]
    compiled = gpt2.compiler.compile(Regex("a\nb|a\n?"))
    state = compiled.start([line_break])
    assert line_break not in allowed(state)
    state.accept(gpt2.encode("a")[0])
    assert line_break in allowed(state)
    state.accept(line_break)
    assert state.is_complete


def test_complete_without_an_end_token(gpt2: Vocabulary) -> None:
    state = gpt2.compiler.compile(Choice(("no", "yes"))).start(())
    state.accept(gpt2.encode("yes")[0])
    assert state.is_complete
    with pytest.raises(ConstraintError, match="the text is complete, and no end-of-sequence token is left"):
        state.apply(Candidates(np.zeros(gpt2.size, np.float32)))


def test_tokens_that_may_not_come_leave_the_state_as_it_was(gpt2: Vocabulary) -> None:
    state = gpt2.start(Choice(("no", "yes")))
    before = allowed(state)
    with pytest.raises(ConstraintError, match=r"the choice does not allow token 64 after 0 tokens"):
        state.accept(64)
    for outside in (gpt2.size, -1, 10**9):
        with pytest.raises(ConstraintError, match="does not allow token"):
            state.accept(outside)
    assert allowed(state) == before
    state.accept(gpt2.encode("yes")[0])
    assert state.is_complete


def test_special_and_padding_tokens_are_no_text(qwen: Vocabulary) -> None:
    state = qwen.start(Regex("(?s:.*)"))
    specials = {qwen.tokenizer.token_to_id(name) for name in ("<|im_start|>", "<|vision_start|>")}
    ids = set(allowed(state))
    assert not specials & ids
    assert max(ids - set(qwen.eos)) < 151665
    assert set(qwen.eos) < ids
    assert qwen.tokenizer.token_to_id("<tool_call>") in ids  # added, but no special token: it shows in the text


def test_bytes_that_are_no_text_yet(gpt2: Vocabulary) -> None:
    """Halves of characters may come where the other half can, and a text cannot end between them."""
    state = gpt2.start(Regex("é|ê"))
    state.accept(gpt2.id_of_byte("é".encode()[0]))
    assert not state.may_stop
    assert allowed(state) == sorted(gpt2.id_of_byte(letter.encode()[1]) for letter in "éê")


def test_sentencepiece_spaces_are_spaces(llama: Vocabulary) -> None:
    """``▁{`` is a space and a brace wherever it stands."""
    brace, spaced = llama.tokenizer.token_to_id("{"), llama.tokenizer.token_to_id("▁{")
    assert brace is not None
    assert spaced is not None
    assert brace in allowed(llama.start(Regex(r"\{|a")))
    assert spaced not in allowed(llama.start(Regex(r"\{|a")))
    assert spaced in allowed(llama.start(Regex(r" \{|a")))


def test_forced_tokens_are_the_usual_ones(vocabulary: Vocabulary) -> None:
    state = vocabulary.start(PERSON)
    forced = state.forced()
    text = b"".join(vocabulary.tokenizer.token_bytes(i) or b"" for i in forced).decode()
    assert '{"name_of_person":"'.startswith(text)
    assert text.startswith('{"name_of_person')
    assert state.valid_prefix(forced) == forced
    assert len(forced) < 8
    assert allowed(state) == forced[:1]
    advance(state, forced)
    assert vocabulary.start(Regex("[a-z]+")).forced() == []


def test_no_token_is_forced_where_the_text_may_end(gpt2: Vocabulary) -> None:
    state = advance(gpt2.start(Regex("ab(cd)?")), gpt2.encode("ab"))
    assert state.may_stop
    assert state.forced() == []
    assert set(allowed(state)) == {gpt2.encode("c")[0], gpt2.encode("cd")[0], gpt2.eos[0]}


def test_forced_tokens_stop_before_an_end(gpt2: Vocabulary) -> None:
    ids = gpt2.encode("one two")
    compiled = gpt2.compiler.compile(Regex("one two"))
    assert compiled.start(()).forced() == ids
    assert compiled.start([ids[1]]).forced() == ids[:1]
    assert compiled.start([ids[1]]).valid_prefix(ids) == ids[:1]


@settings(deadline=None, max_examples=30)
@given(constraint=st.sampled_from(CONSTRAINTS), seed=st.integers(0, 99), data=st.data())
def test_rollback_and_fork(gpt2: Vocabulary, constraint: Constraint, seed: int, data: st.DataObject) -> None:
    """After any steps back and forth a state is as if its tokens had just been given to a new one."""
    state = gpt2.start(constraint)
    random = np.random.default_rng(seed)
    for _ in range(12):
        if state.ids and data.draw(st.booleans()):
            state.rollback(data.draw(st.integers(0, len(state.ids))))
        else:
            choices = [i for i in allowed(state) if not (state.ids and state.ids[-1] in gpt2.eos)]
            if choices:
                state.accept(int(random.choice(choices)))
        other, fresh = state.fork(), advance(gpt2.start(constraint), state.ids)
        assert allowed(state) == allowed(fresh) == allowed(other)
        assert state.is_complete == fresh.is_complete == other.is_complete
        assert state.may_stop == fresh.may_stop
        if (first := allowed(other)) and not (other.ids and other.ids[-1] in gpt2.eos):
            other.accept(first[0])
        assert other.ids[: len(state.ids)] == state.ids


def test_grammars_that_cannot_be_rolled_back_are_replayed(gpt2: Vocabulary) -> None:
    grammar = Grammar('start: a "b"\na[max_tokens=3]: /a+/')
    state = advance(gpt2.start(grammar), gpt2.encode("a") * 2)
    state.rollback(1)
    assert allowed(state) == allowed(advance(gpt2.start(grammar), gpt2.encode("a")))


def test_dead_ends_are_an_error(gpt2: Vocabulary) -> None:
    state = gpt2.start(Grammar('start: A & "b"' if False else "start: /a/ <[50000]>"))
    state.accept(gpt2.encode("a")[0])
    compiled = gpt2.compiler.compile(Grammar("start: /a/ <[50000]>"))
    ending = compiled.start([50000])
    ending.accept(gpt2.encode("a")[0])
    with pytest.raises(ConstraintError, match="its own rules lead into a dead end"):
        ending.apply(Candidates(np.zeros(gpt2.size, np.float32)))


def test_what_others_removed_stays_removed(gpt2: Vocabulary) -> None:
    yes, no = gpt2.encode("yes")[0], gpt2.encode("no")[0]
    state = gpt2.start(Choice(("no", "yes")))
    logits = np.arange(gpt2.size, dtype=np.float32)
    only = np.array(sorted([yes, 17]), np.int64)
    kept = state.apply(Candidates(logits[only], only))
    assert kept.ids is not None
    assert kept.ids.tolist() == [yes]
    assert kept.logits.tolist() == [float(yes)]
    with pytest.raises(ConstraintError, match="or other options have removed"):
        state.apply(Candidates(logits[[17]], np.array([17], np.int64)))
    assert no in allowed(state)


def test_masking_leaves_the_models_logits_alone(gpt2: Vocabulary) -> None:
    logits = np.random.default_rng(0).normal(size=gpt2.size).astype(np.float32)
    before = logits.copy()
    for constraint in (Choice(("no", "yes")), Regex("(?s:.*)"), Regex("[a-m]*")):
        state = gpt2.start(constraint)
        kept = state.apply(Candidates(logits))
        ids = np.arange(gpt2.size) if kept.ids is None else kept.ids
        finite = ids[np.isfinite(kept.logits)]
        assert finite.tolist() == allowed(state)
        assert (kept.logits[np.isfinite(kept.logits)] == logits[finite]).all()
    assert (logits == before).all()


def test_limits_are_errors_not_ends(gpt2: Vocabulary) -> None:
    """llguidance ends a text where it gives up; that must not pass for a whole one."""
    items = 'item*\nitem: /[a-z]/ item? | "a" "a"?'
    with pytest.raises(ConstraintError, match=r"the grammar cannot go on after 0 tokens: .*Too many items"):
        gpt2.start(Grammar(f"start: {items}"))
    state = gpt2.start(Grammar(f"start: /[0-9]+é/ {items}"))
    advance(state, gpt2.encode("1é"))
    with pytest.raises(ConstraintError, match=r"the grammar cannot go on after 2 tokens: .*Too many items"):
        state.apply(Candidates(np.zeros(gpt2.size, np.float32)))


def test_json_states_along_a_text(gpt2: Vocabulary) -> None:
    text = json.dumps({"name_of_person": "Zoë \n", "age": -3}, ensure_ascii=False, separators=(",", ":"))
    state = gpt2.start(PERSON)
    may_stop = [(state.may_stop, state.accept(i))[0] for i in gpt2.encode(text)]
    assert not any(may_stop)
    assert state.is_complete
