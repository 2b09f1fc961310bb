"""The chat REPL by itself: commands, settings, turns and loops over a model that answers by a script."""

import json
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from edgegen.chat import Conversation, Message
from edgegen.cli.repl.commands import COMMANDS, Block, Do, Say, completions, help_text, parse
from edgegen.cli.repl.dialogue import Chat, Completion, joint
from edgegen.cli.repl.line_editor import history_in, is_unfinished, unquoted
from edgegen.cli.repl.loops import run_interactive, run_piped
from edgegen.cli.repl.models import OpenModel
from edgegen.cli.repl.repl import Edit, Repl
from edgegen.cli.repl.screen import printable
from edgegen.cli.repl.settings import SETTABLE, option_named, read_value
from edgegen.engine.finish import FinishReason
from edgegen.errors import BundleNotFoundError, EdgegenError, OptionError, PromptTooLongError, SessionError, UsageError
from edgegen.generation.results import GenerationChunk, GenerationResult, Timings
from edgegen.generation.session import Session
from edgegen.model.kv_snapshot import KVSnapshot
from edgegen.options.generation import GenerationOptions
from edgegen.options.table import GENERATION_OPTIONS
from tests.systems import needs_posix

pytestmark = pytest.mark.unit

CTRL_C = KeyboardInterrupt()
FOREIGN = 666
"""The seed of a session that a fake model refuses."""
Script = Sequence[str | BaseException]
"""An answer in pieces; an exception is raised in its place."""


class FakeStream:
    def __init__(self, pieces: Script, end: Callable[[str], None], reason: FinishReason, dropped: int) -> None:
        self._pieces, self._end, self._dropped = pieces, end, dropped
        self._reason: FinishReason = reason
        self.text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __iter__(self) -> Iterator[GenerationChunk]:
        for piece in self._pieces:
            if isinstance(piece, BaseException):
                raise piece
            self.text += piece
            yield GenerationChunk(piece, (1,))
        self._end(self.text)

    @property
    def result(self) -> GenerationResult:
        timings = Timings(3, 0.1, 1, 0.1)
        result = GenerationResult(self.text, (1, 2), self._reason, None, "max_new_tokens", 5, timings)
        return replace(result, dropped_messages=self._dropped)


class FakeModel:
    """Answers by a script; its token ids are the characters of a text."""

    max_context = 16

    def __init__(self, *answers: Script, reason: FinishReason = "length") -> None:
        self.answers = [*answers]
        self.reason: FinishReason = reason
        self.dropped: list[int] = []
        """How many messages the next prompts do without."""
        self.asked: list[tuple[Any, GenerationOptions, str]] = []
        """Requests: the prompt or the messages, the options, and the text that the session held."""
        self.continued: list[bool] = []
        """Of each chat, whether its last message was to go on."""

    def stream(self, prompt: str, options: GenerationOptions, /, *, session: Session) -> FakeStream:
        return self._answer(prompt, options, session, self.decode(session.ids) + prompt, ())

    def stream_chat(
        self, conversation: Sequence[Message] | Conversation, options: GenerationOptions, /, *, session: Session
    ) -> FakeStream:
        said = conversation.messages if isinstance(conversation, Conversation) else conversation
        self.continued.append(isinstance(conversation, Conversation) and conversation.continue_final_message)
        return self._answer([*said], options, session, "", said)

    def decode(self, ids: Sequence[int], /) -> str:
        return "".join(map(chr, ids))

    def check_session(self, session: Session, /) -> None:
        if session.seed == FOREIGN:
            raise SessionError("the session was begun with another model")

    def _answer(
        self, asked: object, options: GenerationOptions, session: Session, text: str, messages: Sequence[Message]
    ) -> FakeStream:
        self.asked.append((asked, options, self.decode(session.ids)))
        pieces = self.answers.pop(0)
        if pieces and isinstance(pieces[0], EdgegenError):
            raise pieces[0]

        def end(answer: str) -> None:
            session.ids, session.finish_reason, session.seed = tuple(map(ord, text + answer)), self.reason, 5
            session.messages = (*messages, {"role": "assistant", "content": answer}) if messages else ()

        return FakeStream(pieces, end, self.reason, self.dropped.pop(0) if self.dropped else 0)


class FakeScreen:
    def __init__(self, *, interactive: bool = True) -> None:
        self.interactive = interactive
        self.answers = ""
        self.notes: list[str] = []

    def write(self, piece: str) -> None:
        self.answers += piece

    def note(self, text: str) -> None:
        self.notes.append(text)


def no_check(given: Mapping[str, Any]) -> None:
    """A model that can do whatever options of thinking say."""


class FakeModels:
    """The models of a test by their names; ``closed`` names those that were."""

    def __init__(self, **models: OpenModel) -> None:
        self.models = models
        self.closed: list[str] = []

    def open(self, name: str) -> OpenModel:
        if name not in self.models:
            raise BundleNotFoundError(f"no bundle named or at {name!r}")
        return self.models[name]

    def names(self) -> list[str]:
        return [*self.models]

    def add(
        self,
        name: str,
        model: FakeModel,
        *,
        options: GenerationOptions | None = None,
        check: Callable[[Mapping[str, Any]], None] = no_check,
        completes: bool = False,
        note: str | None = None,
    ) -> OpenModel:
        about = f"{name}: context of 16 tokens"
        self.models[name] = OpenModel(
            model,
            name,
            about,
            options or GenerationOptions(),
            check,
            completes=completes,
            is_base=completes,
            note=note,
            close=lambda: self.closed.append(name),
        )
        return self.models[name]


def chat(model: FakeModel, *, system: str | None = None, interactive: bool = True, **given: Any) -> Repl:
    return _repl(model, Chat(model, system), interactive, given)


def completion(model: FakeModel, *, interactive: bool = True, **given: Any) -> Repl:
    return _repl(model, Completion(model), interactive, given)


def _repl(model: FakeModel, dialogue: Chat | Completion, interactive: bool, given: dict[str, Any]) -> Repl:
    models = FakeModels()
    opened = models.add("fake", model, completes=isinstance(dialogue, Completion))
    return Repl(models, opened, FakeScreen(interactive=interactive), dialogue, given)


def editing(model: FakeModel, edit: Edit) -> Repl:
    models = FakeModels()
    return Repl(models, models.add("fake", model), FakeScreen(), Chat(model), {}, edit=edit)


def screen_of(repl: Repl) -> FakeScreen:
    screen = repl.screen
    assert isinstance(screen, FakeScreen)
    return screen


def say(repl: Repl, *lines: str) -> None:
    for line in lines:
        assert repl.handle(line)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


class TestCommands:
    def test_a_line_is_a_text_unless_it_begins_with_a_slash(self) -> None:
        assert parse("hello /bye") == Say("hello /bye")
        assert parse(" /etc/passwd") == Say(" /etc/passwd")
        assert parse("/SET  temperature   0.5 ") == Do("/set", "temperature   0.5")
        assert parse("/?") == parse("/help ") == Do("/help")
        assert parse("/exit") == Do("/bye")
        assert parse("/retry") == Do("/regen")

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("/regn", "no such command '/regn' (did you mean '/regen'?): /? lists them"),
            ("/xyzzy", "no such command '/xyzzy': /? lists them, and a blank before the / makes it a text."),
            ("/save", "/save needs a FILE: /save FILE."),
            ("/undo 3", "/undo takes no argument, and '3' was given."),
        ],
    )
    def test_what_is_no_command_is_told(self, line: str, message: str) -> None:
        with pytest.raises(UsageError) as caught:
            parse(line)
        assert message in str(caught.value)

    def test_the_help_text_has_every_command_and_fits_80_columns(self) -> None:
        for is_completion in (True, False):
            lines = help_text(completion=is_completion).splitlines()
            assert max(map(len, lines)) <= 80
            assert all(any(command.name in line for line in lines) for command in COMMANDS)

    @pytest.mark.parametrize(
        ("lines", "whole"),
        [
            (['"""one"""'], [Say("one")]),
            (['"""', "a", "/bye", "", 'b"""'], [None, None, None, None, Say("a\n/bye\n\nb")]),
            (['"""a', '"""  ', "c"], [None, Say("a"), "c"]),
            (["x"], ["x"]),
        ],
    )
    def test_quotes_join_lines_and_make_no_commands(self, lines: list[str], whole: list[object]) -> None:
        block = Block()
        assert [block.push(line) for line in lines] == whole
        assert not block.is_open

    @pytest.mark.parametrize(
        ("line", "found"),
        [
            ("/re", ["/regen", "/retry"]),
            ("/sh", ["/show"]),
            ("/model st", ["stories", "story"]),
            ("/model ", ["other", "stories", "story"]),
            ("/think o", ["off", "on"]),
            ("/set temp", ["temperature"]),
            ("/set stats ", ["off", "on"]),
            ("/show m", ["model"]),
            ("/undo ", []),
            ("hello /re", []),
            ("re", []),
            ("", []),
        ],
    )
    def test_a_begun_command_is_completed(self, line: str, found: list[str]) -> None:
        assert completions(line, lambda: ["stories", "other", "story"]) == found

    def test_what_stands_between_quotes_is_one_text(self) -> None:
        assert [is_unfinished(typed) for typed in ("a", '"""', '"""a\nb', '"""a\nb"""', '"""a"""')] == [
            *(False, True, True),
            *(False, False),
        ]
        assert unquoted('"""\na\n\nb\n"""') == "a\n\nb"
        assert unquoted("a") == "a"


class TestSettings:
    def test_every_option_is_set_or_refused_with_a_reason(self) -> None:
        for option in GENERATION_OPTIONS:
            if option.name in SETTABLE:
                assert option_named(option.name.replace("_", "-").upper()) is option
            else:
                with pytest.raises(UsageError, match=option.name if option.name != "grammar" else "--grammar FILE"):
                    option_named(option.name)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("temprature", "did you mean 'temperature'?"),
            ("stop", "stop_strings"),
            ("threads", "start edgegen chat with --threads"),
            ("num_beams", "use edgegen generate"),
            ("logits_processor", "give it from Python"),
        ],
    )
    def test_other_names_get_a_hint(self, name: str, message: str) -> None:
        with pytest.raises(UsageError) as caught:
            option_named(name)
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("name", "text", "value"),
        [
            ("temperature", "0.5", 0.5),
            ("max_new_tokens", "7", 7),
            ("do_sample", "off", False),
            ("do_sample", "maybe", "maybe"),
            ("stop_strings", "The end", "The end"),
            ("stop_strings", r'["\n", "."]', ["\n", "."]),
            ("stop_strings", "5", "5"),
            ("stop_regex", "[0-9]+", "[0-9]+"),
            ("eos_token_id", "1, 2", [1, 2]),
            ("eos_token_id", "[]", []),
            ("logit_bias", "42=-1.5,7=-inf", {42: -1.5, 7: float("-inf")}),
            ("mirostat", "2", 2),
            ("response_format", '{"type": "json_object"}', {"type": "json_object"}),
            ("temperature", "hot", "hot"),
        ],
    )
    def test_values_are_read_by_their_kind(self, name: str, text: str, value: object) -> None:
        assert read_value(option_named(name), text) == value

    def test_a_bias_that_is_none_is_told(self) -> None:
        with pytest.raises(OptionError, match=r"logit_bias: 'x' is no ID=BIAS"):
            read_value(option_named("logit_bias"), "x")

    def test_set_changes_the_next_turn_only_if_all_options_are_right(self) -> None:
        model = FakeModel(["a"], ["b"], ["c"])
        repl = chat(model)
        say(repl, "/set temperature 0.5", "one")
        for wrong, message in (("hot", "float expected"), ("-1", "must be between 0 and")):
            with pytest.raises(OptionError, match=message):
                repl.handle(f"/set temperature {wrong}")
        with pytest.raises(OptionError, match="contradicts temperature"):
            repl.handle("/set do_sample off")
        say(repl, "two", "/set temperature default", "three")
        assert [options.temperature for _, options, _ in model.asked] == [0.5, 0.5, GenerationOptions().temperature]
        assert [options.do_sample for _, options, _ in model.asked] == [True, True, False]

    def test_show(self) -> None:
        repl = chat(FakeModel(["a"]), system="Be brief.", seed=3)
        say(repl, "/show system", "/show model", "/show stats", "/set seed", "/show options")
        *notes, options = screen_of(repl).notes
        assert notes == ["Be brief.", "fake: context of 16 tokens", "(no answer yet)", "seed = 3"]
        assert "seed = 3  (set)" in options.splitlines()
        assert "max_new_tokens = 256" in options.splitlines()
        with pytest.raises(UsageError, match=r"/show sytem is not there \(did you mean 'system'\?\)"):
            repl.handle("/show sytem")

    def test_show_alone_is_all_that_holds(self) -> None:
        repl = chat(FakeModel(), temperature=0.5)
        say(repl, "/show")
        assert screen_of(repl).notes[:2] == ["model: fake: context of 16 tokens", "system: none"]
        assert "temperature = 0.5  (set)" in screen_of(repl).notes[2].splitlines()

    def test_stats_on_request(self) -> None:
        repl = chat(FakeModel(["a"], ["b"], ["c"]), interactive=False)
        say(repl, "one")
        assert screen_of(repl).notes == []
        say(repl, "/set stats on", "two", "/set stats off", "three", "/show stats")
        assert [" tok/s" in note for note in screen_of(repl).notes] == [False, True, False, True]
        with pytest.raises(UsageError, match="stats is on or off, not 'maybe'"):
            repl.handle("/set stats maybe")


class TestChat:
    def test_a_turn_has_the_whole_conversation_and_one_session(self) -> None:
        model = FakeModel(["Hi", " you"], ["Yes"], reason="stop")
        repl = chat(model, system="Be brief.")
        say(repl, "Hello", "", "  ", "Sure?")
        assert screen_of(repl).answers == "Hi you\nYes\n"
        system = {"role": "system", "content": "Be brief."}
        assert [asked for asked, _, _ in model.asked] == [
            [system, user("Hello")],
            [system, user("Hello"), assistant("Hi you"), user("Sure?")],
        ]
        assert model.asked[1][2] == "Hi you"

    def test_ctrl_c_stops_the_turn_and_keeps_what_was_said(self) -> None:
        model = FakeModel(["Once ", CTRL_C], [CTRL_C], ["b"])
        repl = chat(model)
        say(repl, "a", "x", "more")
        assert model.asked[2][0] == [user("a"), assistant("Once "), user("more")]
        assert screen_of(repl).notes[:2] == ["(stopped; what was said stays)", "(stopped before the first word)"]

    def test_ctrl_c_ends_a_chat_of_nobody(self) -> None:
        repl = chat(FakeModel(["Once ", CTRL_C]), interactive=False)
        with pytest.raises(KeyboardInterrupt):
            repl.handle("a")

    def test_regen_asks_again_with_another_seed(self) -> None:
        model = FakeModel(["a"], ["b"], ["c"], ["d"])
        repl = chat(model, seed=8)
        say(repl, "one", "/regen", "/regen", "two")
        assert [asked for asked, _, _ in model.asked[:3]] == [[user("one")]] * 3
        seeds = [options.seed for _, options, _ in model.asked]
        assert len({*seeds[:3]}) == 3
        assert seeds[3] == seeds[0] == 8
        assert model.asked[3][0] == [user("one"), assistant("c"), user("two")]

    def test_regen_without_a_seed_forgets_that_of_the_session(self) -> None:
        model = FakeModel(["a"], ["b"])
        dialogue = Chat(model, session=(session := Session()))
        repl = _repl(model, dialogue, True, {"temperature": 1.0})
        say(repl, "one")
        assert session.seed == 5
        assert dialogue.undo() == "one"
        assert session.seed is None

    def test_regen_keeps_the_old_answer_if_there_is_no_other(self) -> None:
        model = FakeModel(["a"], [SessionError("broken")], [CTRL_C], ["d"])
        repl = chat(model, temperature=1.0)
        say(repl, "one")
        with pytest.raises(SessionError):
            repl.handle("/regen")
        say(repl, "/regen", "two")
        assert model.asked[3][0] == [user("one"), assistant("a"), user("two")]

    def test_greedy_regen_says_that_it_changes_nothing(self) -> None:
        repl = chat(FakeModel(["a"], ["a"]))
        say(repl, "one", "/regen")
        assert any("greedy" in note for note in screen_of(repl).notes)

    def test_enter_continues_what_a_limit_ended(self) -> None:
        model = FakeModel(["He"], ["llo"], ["!"])
        talk = chat(model)
        say(talk, "Hi")
        assert screen_of(talk).notes == ["(max_new_tokens ended the answer; Enter continues)"]
        model.reason = "stop"
        say(talk, "")
        assert model.asked[1][0] == [user("Hi"), {"role": "assistant", "content": "He"}]
        assert model.continued == [False, True]
        assert isinstance(talk.dialogue, Chat)
        assert talk.dialogue.messages == (user("Hi"), {"role": "assistant", "content": "Hello"})
        say(talk, "")  # that ended by itself
        assert len(model.asked) == 2

    @pytest.mark.parametrize("commands", [["/undo"], ["/clear"], ["/undo", "/clear"]])
    def test_enter_continues_nothing_that_is_gone(self, commands: list[str]) -> None:
        model = FakeModel(["He"], ["x"])
        say(chat(model), "Hi", *commands, "")
        assert len(model.asked) == 1

    def test_enter_continues_no_answer_without_words_and_none_of_a_pipe(self) -> None:
        model = FakeModel([""], ["x"])
        say(talk := chat(model), "Hi", "")
        assert screen_of(talk).notes == ["(max_new_tokens ended the answer; /set changes it)"]
        assert len(model.asked) == 1
        model = FakeModel(["He"], ["x"])
        say(chat(model, interactive=False), "Hi", "")
        assert len(model.asked) == 1

    def test_a_rest_that_fails_or_is_stopped_leaves_what_was_said(self) -> None:
        model = FakeModel(["He"], [PromptTooLongError("too long")], [CTRL_C], ["l", CTRL_C])
        talk = chat(model)
        say(talk, "Hi")
        with pytest.raises(PromptTooLongError, match="no longer fits the model's context of 16 tokens"):
            talk.handle("")
        say(talk, "", "")
        assert isinstance(talk.dialogue, Chat)
        assert talk.dialogue.messages[-1] == {"role": "assistant", "content": "Hel"}

    def test_undo_clear_and_system(self) -> None:
        model = FakeModel(["a"], ["b"], ["c"], ["d"])
        repl = chat(model)
        say(repl, "one", "two", "/undo", "/system Be kind.", "three", "/clear", '/system ""', "four")
        system = {"role": "system", "content": "Be kind."}
        assert model.asked[2][0] == [system, user("one"), assistant("a"), user("three")]
        assert model.asked[3][0] == [user("four")]
        assert model.asked[3][2] == ""
        say(repl, "/undo")
        for command in ("/undo", "/regen"):
            with pytest.raises(UsageError, match="there is no"):
                repl.handle(command)

    def test_edit_answers_another_text_in_the_last_ones_place(self) -> None:
        model = FakeModel(["a"], ["b"], ["c"])
        repl = chat(model)
        say(repl, "one", "two", "/edit three")
        assert model.asked[2][0] == [user("one"), assistant("a"), user("three")]
        assert isinstance(repl.dialogue, Chat)
        assert repl.dialogue.messages[-2:] == (user("three"), assistant("c"))

    @pytest.mark.parametrize(
        ("made", "asked"), [("one, please\n", "one, please"), ("one\ntwo\n", "one\ntwo"), (None, None), ("  \n", None)]
    )
    def test_a_person_edits_the_last_text(self, made: str | None, asked: str | None) -> None:
        seen = list[str]()

        def edit(text: str) -> str | None:
            seen.append(text)
            return made

        model = FakeModel(["a"], ["b"], ["c"])
        repl = editing(model, edit)
        say(repl, "one", "/edit")
        assert seen == ["one"]
        if asked is None:
            assert screen_of(repl).notes[-1] == "(left as it was)"
        say(repl, "next")
        said = user(asked or "one"), assistant("b" if asked else "a"), user("next")
        assert model.asked[-1][0] == [*said]

    def test_an_editor_that_fails_leaves_all_as_it_was(self) -> None:
        def edit(text: str) -> str | None:
            raise EdgegenError("vi: Editing failed")

        model = FakeModel(["a"], ["b"])
        repl = editing(model, edit)
        say(repl, "one")
        with pytest.raises(EdgegenError, match="Editing failed"):
            repl.handle("/edit")
        say(repl, "two")
        assert model.asked[1][0] == [user("one"), assistant("a"), user("two")]

    def test_edit_in_a_pipe_needs_the_text(self) -> None:
        repl = chat(FakeModel(["a"]), interactive=False)
        with pytest.raises(UsageError, match="nothing yet to change"):
            repl.handle("/edit other")
        say(repl, "one")
        with pytest.raises(UsageError, match=r"/edit needs a terminal, or the new text: /edit TEXT\."):
            repl.handle("/edit")

    def test_a_failing_turn_changes_nothing(self) -> None:
        model = FakeModel(["a"], [PromptTooLongError("too long")], ["b"])
        repl = chat(model)
        say(repl, "one")
        with pytest.raises(PromptTooLongError, match="context of 16 tokens: /undo takes back the last turn, /clear"):
            repl.handle("two")
        say(repl, "three")
        assert model.asked[2][0] == [user("one"), assistant("a"), user("three")]

    def test_a_first_message_that_is_too_long_is_told_as_it_is(self) -> None:
        with pytest.raises(PromptTooLongError, match=r"^too long$"):
            chat(FakeModel([PromptTooLongError("too long")])).handle("one")

    @pytest.mark.parametrize("interactive", [True, False])
    def test_turns_that_are_left_out_are_told_when_there_are_more(self, interactive: bool) -> None:
        model = FakeModel(["a"], ["b"], ["c"], ["d"], reason="stop")
        model.dropped = [0, 1, 1, 3]
        repl = chat(model, interactive=interactive)
        say(repl, "one", "two", "three", "four")
        context = "the conversation has outgrown the context of 16 tokens"
        assert screen_of(repl).notes == [
            f"({context}: the oldest message is left out; /set context_overflow error refuses such turns)",
            f"({context}: the 3 oldest messages are left out; /set context_overflow error refuses such turns)",
        ]
        assert len(model.asked[3][0]) == 7, "the conversation itself is kept whole"

    def test_a_message_that_is_too_long_by_itself_is_told_as_it_is(self) -> None:
        model = FakeModel(["a"], [PromptTooLongError("too long")])
        repl = chat(model, context_overflow="drop_oldest")
        say(repl, "one")
        with pytest.raises(PromptTooLongError, match=r"^too long$"):
            repl.handle("two")

    def test_a_session_of_another_model_is_refused_before_the_next_turn(self, tmp_path: Path) -> None:
        foreign = Session(
            ids=(1,), seed=FOREIGN, messages=(user("one"), assistant("a")), _snapshot=KVSnapshot(0, {}, ())
        )
        foreign.save(tmp_path / "foreign")
        model = FakeModel(["a"], ["b"])
        repl = chat(model)
        say(repl, "one")
        with pytest.raises(SessionError, match="begun with another model"):
            repl.handle(f"/load {tmp_path / 'foreign'}")
        say(repl, "two")
        assert model.asked[1][0] == [user("one"), assistant("a"), user("two")]

    def test_a_session_continues_with_its_system_message(self) -> None:
        said = ({"role": "system", "content": "S"}, user("one"), assistant("a"))
        dialogue = Chat(FakeModel(), session=Session(ids=(1,), messages=said))
        assert (dialogue.system, dialogue.turns, dialogue.messages) == ("S", 1, said)

    def test_nothing_to_save(self, tmp_path: Path) -> None:
        repl = chat(FakeModel(["a", CTRL_C]))
        say(repl, "one")
        with pytest.raises(SessionError, match="no answer has been finished yet"):
            repl.handle(f"/save {tmp_path / 'x'}")
        with pytest.raises(SessionError, match="there is no session"):
            repl.handle(f"/load {tmp_path / 'x'}")


class TestCompletion:
    def test_pieces_are_joined_and_the_session_goes_on(self) -> None:
        model = FakeModel([", there"], [" was"], ["!"])
        repl = completion(model)
        say(repl, "Once", "", "And then")
        assert [asked for asked, _, _ in model.asked] == ["Once", "", " And then"]
        assert model.asked[2][2] == "Once, there was"
        assert isinstance(repl.dialogue, Completion)
        assert repl.dialogue.text == "Once, there was And then!"

    def test_after_an_end_or_a_stop_the_whole_text_is_the_prompt(self) -> None:
        model = FakeModel([" a."], [" b", CTRL_C], [" c"], reason="stop")
        repl = completion(model)
        say(repl, "Once", "Then", "")
        assert [(asked, held) for asked, _, held in model.asked] == [
            ("Once", ""),
            ("Once a. Then", ""),
            ("Once a. Then b", ""),
        ]

    def test_regen_and_undo(self) -> None:
        model = FakeModel([" a"], [" b"], [" c"], [" d"])
        repl = completion(model, temperature=1.0)
        say(repl, "Once", "", "/regen")
        assert model.asked[2][0] == "Once a"
        say(repl, "/undo", "more")
        assert model.asked[3][0] == "Once a more"

    def test_there_is_no_system_message(self) -> None:
        with pytest.raises(UsageError, match="start edgegen chat with --chat"):
            completion(FakeModel()).handle("/system S")

    def test_a_text_that_was_taken_back_is_not_saved(self, tmp_path: Path) -> None:
        repl = completion(FakeModel([" a"], [" b"]))
        say(repl, "Once", "", "/undo")
        with pytest.raises(SessionError, match="stopped or taken back"):
            repl.handle(f"/save {tmp_path / 'x'}")

    @pytest.mark.parametrize(
        ("before", "text", "between"),
        [
            ("a", "b", " "),
            ("a ", "b", ""),
            ("a", " b", ""),
            ("a", ", b", ""),
            ("", "b", ""),
            ("a", "", ""),
            ("a.", '"B', " "),
        ],
    )
    def test_the_joint(self, before: str, text: str, between: str) -> None:
        assert joint(before, text) == between


class TestModels:
    def test_the_conversation_goes_on_with_another_model(self) -> None:
        first, second, models = FakeModel(["a"]), FakeModel(["b"]), FakeModels()
        opened = models.add("first", first)
        models.add("second", second, options=GenerationOptions(max_new_tokens=7), note="quick")
        repl = Repl(models, opened, FakeScreen(), Chat(first, "S"), {"seed": 3})
        say(repl, "one", "/model second", "two", "/show model")
        system = {"role": "system", "content": "S"}
        asked, options, held = second.asked[0]
        assert asked == [system, user("one"), assistant("a"), user("two")]
        assert (options.max_new_tokens, options.seed, held) == (7, 3, "")
        assert models.closed == ["first"]
        notes = screen_of(repl).notes
        assert "(second: the conversation goes on)" in notes
        assert "(second is quick)" in notes
        assert notes[-1] == "second: context of 16 tokens"
        repl.close()
        assert models.closed == ["first", "second"]

    def test_a_text_goes_on_with_another_model(self) -> None:
        first, second, models = FakeModel([", there"]), FakeModel([" was"]), FakeModels()
        opened = models.add("first", first, completes=True)
        models.add("second", second, completes=True)
        repl = Repl(models, opened, FakeScreen(), Completion(first), {})
        say(repl, "Once", "/model second", "")
        assert second.asked[0][0] == "Once, there"

    def test_another_kind_of_model_begins_anew(self) -> None:
        first, second, models = FakeModel(["a"]), FakeModel(["b"]), FakeModels()
        opened = models.add("first", first)
        models.add("second", second, completes=True)
        repl = Repl(models, opened, FakeScreen(), Chat(first), {})
        say(repl, "one", "/model second")
        assert screen_of(repl).notes[-1] == "(second: it continues texts; begun anew)"
        say(repl, "Once")
        assert second.asked[0][0] == "Once"
        say(repl, "/model first")
        assert screen_of(repl).notes[-1] == "(first: it holds conversations; begun anew)"

    def test_model_alone_shows_it_and_the_others(self) -> None:
        models = FakeModels()
        opened = models.add("first", FakeModel())
        repl = Repl(models, opened, FakeScreen(), Chat(opened.model), {})
        say(repl, "/model")
        assert screen_of(repl).notes == ["first: context of 16 tokens"]
        models.add("second", FakeModel())
        say(repl, "/model")
        assert screen_of(repl).notes[-1] == "/model NAME switches: second"

    def test_a_model_that_cannot_take_over_changes_nothing(self) -> None:
        def check(given: Mapping[str, Any]) -> None:
            raise UsageError("it always thinks aloud")

        first, models = FakeModel(["a"], ["b"]), FakeModels()
        opened = models.add("first", first)
        models.add("second", FakeModel(), check=check)
        repl = Repl(models, opened, FakeScreen(), Chat(first), {})
        say(repl, "one")
        with pytest.raises(BundleNotFoundError):
            repl.handle("/model third")
        with pytest.raises(UsageError, match="always thinks"):
            repl.handle("/model second")
        assert models.closed == ["second"]
        say(repl, "two")
        assert first.asked[1][0] == [user("one"), assistant("a"), user("two")]


class TestLoops:
    def typed(self, repl: Repl, *lines: str | BaseException) -> list[str]:
        """Type the lines and then Ctrl-D; the prompts that were shown."""
        prompts, left = list[str](), [*lines, EOFError()]

        def read(prompt: str) -> str:
            prompts.append(prompt)
            line = left.pop(0)
            if isinstance(line, BaseException):
                raise line
            return line

        run_interactive(repl, repl.screen, read)
        return prompts

    def test_at_a_terminal_errors_are_shown_and_the_chat_goes_on(self) -> None:
        repl = chat(FakeModel(["a"]))
        assert len(self.typed(repl, "/nope", "hello")) == 3
        assert screen_of(repl).notes[0].startswith("edgegen: error: no such command '/nope'")
        assert screen_of(repl).answers == "a\n"

    def test_ctrl_c_at_the_prompt_says_how_to_leave_and_drops_a_block(self) -> None:
        model = FakeModel(["a"])
        repl = chat(model)
        assert self.typed(repl, '"""x', CTRL_C, "hello", "/bye") == [">>> ", "... ", ">>> ", ">>> "]
        assert screen_of(repl).notes[0] == "(Ctrl-D or /bye leaves)"
        assert model.asked[0][0] == [user("hello")]

    def test_a_block_that_is_typed_at_once_is_one_text_and_so_is_what_is_pasted(self) -> None:
        model = FakeModel(["a"], ["b"])
        repl = chat(model)
        assert self.typed(repl, '"""one\n/bye\ntwo"""', "three\n/bye") == [">>> "] * 3
        assert [asked[-1] for asked, _, _ in model.asked] == [user("one\n/bye\ntwo"), user("three\n/bye")]

    def test_each_line_of_a_pipe_is_a_turn_or_a_command(self) -> None:
        model = FakeModel(["a"], ["b"])
        repl = chat(model, interactive=False)
        run_piped(repl, [b"\xef\xbb\xbfone\r\n", b"\n", b'"""two\n', b'lines"""\n', b"/bye\n", b"three\n"])
        assert screen_of(repl).answers == "a\nb\n"
        assert screen_of(repl).notes == []
        assert model.asked[0][0][-1] == user("one")
        assert model.asked[1][0][-1] == user("two\nlines")

    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            ([b"one\n", b"/nope\n", b"two\n"], "no such command '/nope'"),
            ([b"one\n", b'"""two\n', b"three"], 'the """ that line 2 of standard input opens is not closed'),
            ([b"one\n", b"\xff\n"], "line 2 of standard input is not UTF-8 text"),
        ],
    )
    def test_the_first_error_ends_a_pipe(self, lines: list[bytes], message: str) -> None:
        model = FakeModel(["a"], ["b"])
        with pytest.raises(UsageError) as caught:
            run_piped(chat(model, interactive=False), lines)
        assert message in str(caught.value)
        assert len(model.asked) == 1


@needs_posix("permissions of this kind")
def test_the_history_is_private_and_chats_without_a_home_have_one_too(tmp_path: Path) -> None:
    path = tmp_path / "home" / "history"
    history_in(path).append_string("hello")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    history_in(path).append_string("again")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    history = history_in(path / "no folder" / "history")
    history.append_string("hello")
    assert history.get_strings() == ["hello"]


def test_a_terminal_gets_no_escape_sequence() -> None:
    assert printable("a\x1b[2J\x9b31m\r\n\tb\x07\x7f é🙂") == "a␛[2J\ufffd31m␍\n\tb␇␡ é🙂"
    assert json.dumps(printable("".join(map(chr, range(0xA0))))).count("\\u00") == 0


class TestThinking:
    @pytest.mark.parametrize(
        ("typed", "told"),
        [
            ("off", "thinking = false"),
            ("on", "thinking = true"),
            ("low", 'reasoning_effort = "low"'),
            ("100", "thinking = true, max_thinking_tokens = 100"),
            ("default", "(thinking is left to the model)"),
        ],
    )
    def test_think_sets_one_thing(self, typed: str, told: str) -> None:
        repl = chat(FakeModel("A."), thinking=True)
        say(repl, f"/think {typed}")
        assert screen_of(repl).notes[-1] == told
        say(repl, "/think")
        assert screen_of(repl).notes[-1] == told

    def test_a_word_that_is_none(self) -> None:
        with pytest.raises(UsageError, match=r"/think takes on, off, .* not 'hihg' \(did you mean 'high'\?\)"):
            chat(FakeModel("A.")).handle("/think hihg")

    def test_a_text_that_is_continued_has_no_thoughts(self) -> None:
        with pytest.raises(UsageError, match="no thoughts"):
            completion(FakeModel("A.")).handle("/think on")

    @pytest.mark.parametrize("line", ["/think off", "/set thinking off"])
    def test_what_the_model_cannot_do_changes_nothing(self, line: str) -> None:
        def check(given: Mapping[str, Any]) -> None:
            if "thinking" in given:
                raise UsageError("it always thinks aloud")

        models, model = FakeModels(), FakeModel("A.")
        repl = Repl(models, models.add("fake", model, check=check), FakeScreen(), Chat(model), {})
        with pytest.raises(UsageError, match="always thinks"):
            repl.handle(line)
        say(repl, "/think")
        assert screen_of(repl).notes[-1] == "(thinking is left to the model)"
