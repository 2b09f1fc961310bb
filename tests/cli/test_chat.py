"""``edgegen chat`` as people meet it: through a pipe, and at a terminal."""

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from edgegen.bundle.store import DEFAULT_MODEL
from edgegen.cli import run
from edgegen.cli.repl.line_editor import HISTORY
from edgegen.generation.session import Session
from edgegen.llm import LLM
from tests.cli.conftest import COMMAND, SLOW_COMMAND, Edgegen
from tests.cli.test_word_wrap import shown
from tests.root import ROOT
from tests.waiting import PATIENCE_S

if sys.platform == "win32":
    pytest.skip("Windows has no pseudo-terminals of this kind", allow_module_level=True)

import pexpect

pytestmark = pytest.mark.slow

GREEDY = ("--temperature", "0", "-n", "12")
LONG = ("-n", "480", "--temperature", "0")

PROMPT = "\x1b[?2004h"
"""prompt_toolkit switches bracketed paste on whenever it begins to read a line."""

PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")])}


@pytest.fixture(scope="module")
def stories() -> Iterator[LLM]:
    with LLM.load() as llm:
        yield llm


class TestPipe:
    def test_each_line_continues_the_text_of_a_base_model(self, edgegen: Edgegen, stories: LLM) -> None:
        done = edgegen("chat", *GREEDY, stdin=b"Once upon a time\n\n")
        assert (done.returncode, done.stderr) == (0, b"")
        whole = stories.generate("Once upon a time", temperature=0, max_new_tokens=24).text
        first, second = done.stdout.decode().splitlines()
        assert first + second == whole

    def test_a_conversation(self, edgegen: Edgegen, stories: LLM) -> None:
        done = edgegen("chat", "--chat", "-s", "Tell a story.", *GREEDY, stdin=b"Hello\nWho?\n")
        said: list[dict[str, str]] = [{"role": "system", "content": "Tell a story."}]
        answers = ""
        for text in ("Hello", "Who?"):
            said.append({"role": "user", "content": text})
            answer = stories.chat(said, temperature=0, max_new_tokens=12).text
            said.append({"role": "assistant", "content": answer})
            answers += answer if answer.endswith("\n") else answer + "\n"
        assert (done.returncode, done.stdout.decode()) == (0, answers)
        assert done.stderr.decode() == "edgegen: note: this model has no chat template: a plain transcript is used.\n"

    def test_the_second_turn_is_cheap(self, edgegen: Edgegen) -> None:
        done = edgegen("chat", "--chat", "--stats", *GREEDY, stdin=b"Hello, how are you today?\nWho?\n")
        first, second = (line for line in done.stderr.decode().splitlines() if "tok/s" in line)
        assert "known before" not in first
        assert "known before" in second

    def test_a_saved_text_goes_on_here_and_in_generate(self, edgegen: Edgegen, stories: LLM, tmp_path: Path) -> None:
        kept = str(tmp_path / "kept")
        assert edgegen("chat", *GREEDY, stdin=f"Once upon a time\n/save {kept}\n".encode()).returncode == 0
        done = edgegen("chat", *GREEDY, stdin=f"/load {kept}\n\n".encode())
        assert f"(continuing {kept}: a text)" in done.stderr.decode()
        generated = edgegen("generate", "--session", kept, *GREEDY)
        assert done.stdout == generated.stdout
        whole = stories.generate("Once upon a time", temperature=0, max_new_tokens=24).text
        assert whole.endswith(done.stdout.decode().removesuffix("\n"))

    def test_a_saved_conversation_has_its_messages(self, edgegen: Edgegen, tmp_path: Path) -> None:
        kept = tmp_path / "kept"
        lines = f"Hello\nWho?\n/undo\n/save {kept}\n/clear\n/load {kept}\nWhat?\n/save {kept}\n"
        done = edgegen("chat", "--chat", "-s", "S", *GREEDY, stdin=lines.encode())
        assert done.returncode == 0
        roles = [message["role"] for message in Session.load(kept).messages]
        assert roles == ["system", "user", "assistant", "user", "assistant"]
        assert [Session.load(kept).messages[n]["content"] for n in (0, 1, 3)] == ["S", "Hello", "What?"]

    @pytest.mark.parametrize(
        ("arguments", "stdin", "code", "message"),
        [
            ((), b"/regn\n", 2, "no such command '/regn' (did you mean '/regen'?)"),
            ((), b"/set temprature 1\n", 2, "'temprature' is not an option (did you mean 'temperature'?)"),
            ((), b"/load nowhere\n", 1, "there is no session nowhere."),
            ((), b"Zo\xeb\n", 2, "line 1 of standard input is not UTF-8 text"),
            ((), b'"""Once\n', 2, 'the """ that line 1 of standard input opens is not closed.'),
            ((), b"a b c d e f g h " * 200, 2, "but this model's context is 512: shorten it."),
            (("-s", "S"), b"", 2, "-s is for conversations, and this model has no chat template: add --chat"),
            (("-s", "S", "--completion"), b"", 2, "-s is for conversations: leave out --completion."),
            (("-m", "nowhere"), b"", 1, "no bundle named or at 'nowhere'"),
        ],
    )
    def test_errors_are_one_sentence_and_an_exit_code(
        self, edgegen: Edgegen, arguments: tuple[str, ...], stdin: bytes, code: int, message: str
    ) -> None:
        done = edgegen("chat", *GREEDY, *arguments, stdin=stdin)
        assert (done.returncode, done.stdout) == (code, b"")
        (line,) = done.stderr.decode().splitlines()
        assert line.startswith("edgegen: error: ")
        assert message in line

    def test_a_text_that_outgrows_the_context_is_told(self, edgegen: Edgegen) -> None:
        done = edgegen("chat", "--temperature", "0", "-n", "2", stdin=b"a b c d e f g h " * 20 + b"\n" + b"x y " * 200)
        assert done.returncode == 2
        assert "no longer fits the model's context of 512 tokens: /undo takes back" in done.stderr.decode()

    def test_a_conversation_that_outgrows_the_context_loses_its_oldest_turns(
        self, edgegen: Edgegen, stories: LLM
    ) -> None:
        system, turns = "Tell a story.", ["once upon a time there was a little girl " * 8] * 6
        said: list[dict[str, str]] = [{"role": "system", "content": system}]
        answers, dropped = "", list[int]()
        for text in turns:
            said.append({"role": "user", "content": text})
            answer = stories.chat(said, temperature=0, max_new_tokens=12, context_overflow="drop_oldest")
            dropped.append(answer.dropped_messages)
            said.append({"role": "assistant", "content": answer.text})
            answers += answer.text if answer.text.endswith("\n") else answer.text + "\n"
        assert dropped[0] == 0
        assert dropped[-1] > 0
        chat = ("chat", "--chat", "-s", system, *GREEDY)
        stdin = "\n".join(turns).encode()
        done = edgegen(*chat, stdin=stdin)
        assert (done.returncode, done.stdout.decode()) == (0, answers)
        told = [line for line in done.stderr.decode().splitlines() if "outgrown the context of 512 tokens" in line]
        assert len(told) == len({count for count in dropped if count})
        assert f"the {dropped[-1]} oldest messages are left out" in told[-1]
        strict = edgegen(*chat, "--context-overflow", "error", stdin=stdin)
        assert strict.returncode == 2
        assert "no longer fits the model's context of 512 tokens" in strict.stderr.decode()

    def test_generate_says_how_many_messages_are_left_out(self, edgegen: Edgegen, stories: LLM, tmp_path: Path) -> None:
        turn = {"role": "user", "content": "once upon a time there was a little girl " * 30}
        session, kept = Session(), str(tmp_path / "kept")
        stories.chat([turn], session=session, max_new_tokens=2)
        session.save(kept)
        generate = ("generate", "--chat", "--session", kept, "-n", "2", turn["content"])
        refused = edgegen(*generate)
        assert (refused.returncode, b"this model's context is 512" in refused.stderr) == (2, True)
        done = edgegen(*generate, EDGEGEN_CONTEXT_OVERFLOW="drop_oldest")
        assert done.returncode == 0
        assert "context of 512 tokens: the 2 oldest messages are left out." in done.stderr.decode()

    def test_a_session_of_another_model_is_refused_at_once(self, edgegen: Edgegen, tmp_path: Path) -> None:
        kept = str(tmp_path / "kept")
        assert edgegen("chat", *GREEDY, stdin=f"Once upon a time\n/save {kept}\n".encode()).returncode == 0
        done = edgegen("chat", "--kv", "float32", *GREEDY, stdin=f"/load {kept}\n".encode())
        assert done.returncode == 1
        assert "the session was begun with another model" in done.stderr.decode()

    def test_wrong_values_are_told_before_a_model_is_loaded(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["chat", "-m", "nowhere", "--top-p", "7"]) == 2
        assert "top_p" in capsys.readouterr().err

    def test_ctrl_c_ends_with_130(self, edgegen_home: Path) -> None:
        process = subprocess.Popen(
            [*SLOW_COMMAND, "chat", *LONG],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | PATHS,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"Once upon a time\n")
        process.stdin.flush()
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130


class Terminal:
    """``edgegen chat`` at a pseudo-terminal of 24 lines and 80 columns."""

    def __init__(self, *arguments: str, command: list[str] = COMMAND) -> None:
        environment = {**os.environ, **PATHS, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        environment |= {"VISUAL": "sed -i s/story/song/"}  # an editor that needs no user
        program, *rest = command
        self.child = cast(Any, pexpect).spawn(
            program,
            [*rest, "chat", *arguments],
            env=environment,
            encoding="utf-8",
            dimensions=(24, 80),
            timeout=PATIENCE_S,
        )

    def expect(self, text: str) -> str:
        """Wait until the terminal has been sent ``text``; what came before it."""
        self.child.expect_exact(text)
        return str(self.child.before)

    def type(self, line: str) -> None:
        self.expect(PROMPT)
        self.child.send(line + "\r")

    def interrupt(self) -> None:
        self.child.sendintr()

    def leave(self) -> int:
        """Type Ctrl-D at the prompt; the exit code."""
        self.expect(PROMPT)
        self.child.send("\x04")
        self.child.expect(cast(Any, pexpect).EOF)
        self.child.close()
        return int(self.child.exitstatus)


@pytest.fixture
def terminal() -> Iterator[type[Terminal]]:
    made = list[Terminal]()

    class Kept(Terminal):
        def __init__(self, *arguments: str, command: list[str] = COMMAND) -> None:
            super().__init__(*arguments, command=command)
            made.append(self)

    yield Kept
    for one in made:
        one.child.close(force=True)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # the child runs another program at once
class TestTerminal:
    def test_a_turn_a_command_and_the_history(self, terminal: type[Terminal], stories: LLM, edgegen_home: Path) -> None:
        chat = terminal(*GREEDY)
        assert chat.expect(" /? shows the").startswith(f"{DEFAULT_MODEL}: type the beginning of a text")
        chat.type("Once upon a time")
        chat.expect(stories.generate("Once upon a time", temperature=0, max_new_tokens=12).text)
        chat.expect("(max_new_tokens ended the answer; Enter continues)")
        chat.type("/regn")
        chat.expect("edgegen: error: no such command '/regn' (did you mean '/regen'?)")
        chat.type("/show model")
        chat.expect("stories: context of 512 tokens")
        assert chat.leave() == 0
        history = edgegen_home / HISTORY
        assert stat.S_IMODE(history.stat().st_mode) == 0o600
        assert "+Once upon a time\n" in history.read_text()

    def test_ctrl_c_stops_a_turn_and_at_the_prompt_says_how_to_leave(self, terminal: type[Terminal]) -> None:
        chat = terminal(*LONG, command=SLOW_COMMAND)
        chat.type("Once upon a time")
        chat.expect("\r\n")
        chat.expect(",")  # the answer has begun
        chat.interrupt()
        chat.expect("(stopped; what was said stays)")
        chat.expect(PROMPT)
        chat.child.send("\x03")
        chat.expect("(Ctrl-D or /bye leaves)")
        assert chat.leave() == 0

    def test_several_lines_are_one_entry_that_an_editor_changes(
        self, terminal: type[Terminal], edgegen_home: Path
    ) -> None:
        chat = terminal("--chat", *GREEDY)
        chat.type('"""Tell me')
        chat.expect("...")
        chat.child.send('a story."""\r')
        chat.expect("(max_new_tokens ended the answer; Enter continues)")
        chat.type("/edit")
        chat.expect("(max_new_tokens ended the answer; Enter continues)")
        chat.expect(PROMPT)
        chat.child.send("/und\t")
        chat.expect("und")
        chat.expect("o")  # what Tab has added
        chat.child.send("\r")
        chat.expect("(taken back: Tell me")
        chat.expect("a song.)")
        assert chat.leave() == 0
        assert '\n+"""Tell me\n+a story."""\n' in (edgegen_home / HISTORY).read_text()
        assert "\n+/undo\n" in (edgegen_home / HISTORY).read_text()

    def test_enter_continues_an_answer_that_a_limit_ended(self, terminal: type[Terminal], stories: LLM) -> None:
        said = [{"role": "user", "content": "Tell me a story."}]
        whole = stories.chat(said, temperature=0, max_new_tokens=24).text
        chat = terminal("--chat", *GREEDY)
        chat.type("Tell me a story.")
        first = chat.expect("(max_new_tokens ended the answer; Enter continues)")
        chat.type("")
        second = chat.expect("(max_new_tokens ended the answer; Enter continues)")
        heard = [" ".join(re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", part).split()) for part in (first, second)]
        assert whole.split()[-6:] == heard[1].split()[-6:]
        assert " ".join(whole.split()[:6]) in heard[0]
        chat.type("/undo")
        chat.expect("(taken back: Tell me a story.)")  # the two parts are one turn
        assert chat.leave() == 0

    def test_without_a_limit_an_answer_ends_with_the_context_at_the_latest(
        self, edgegen: Edgegen, stories: LLM
    ) -> None:
        options = ("--temperature", "0", "--min-new-tokens", "500")
        for verb in (("chat",), ("run", "stories")):
            done = edgegen(*verb, *options, stdin=b"Once upon a time\n")
            assert done.returncode == 0, done.stderr
            told = len(stories.tokenizer.encode(done.stdout.decode())) if stories.tokenizer else 0
            assert 400 < told <= 512  # which is the context

    def test_the_embedded_model_says_what_it_is_and_words_stay_whole(self, terminal: type[Terminal]) -> None:
        chat = terminal("--seed", "7", "-n", "60")
        assert 'stories is a story-teller: begin a story, such as "Once upon a time"' in chat.expect("his dog")
        chat.type("Once upon a time")
        answer = chat.expect("(max_new_tokens ended the answer")
        told = answer[answer.rindex("Once upon a time") + 16 :]
        lines = [
            line.rstrip()
            for line in shown(re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", told).replace("\r", ""))
            if line.strip()
        ]
        assert len(lines) > 2
        assert max(map(len, lines)) < 80
        assert chat.leave() == 0
