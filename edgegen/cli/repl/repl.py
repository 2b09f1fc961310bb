"""Repl of ``edgegen chat``: performs typed commands and turns on a dialogue, and shows answers on a screen."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from edgegen.cli.repl.commands import Do, Say, help_text, parse
from edgegen.cli.repl.dialogue import LIMITED, Chat, Completion, Dialogue, Stream, dialogue_of
from edgegen.cli.repl.models import Models, OpenModel
from edgegen.cli.repl.settings import SETTABLE, option_named, read_thinking, read_value
from edgegen.cli.session_file import dropped_note
from edgegen.cli.stats_line import stats_line
from edgegen.errors import UsageError, did_you_mean
from edgegen.generation.results import GenerationResult
from edgegen.generation.session import Session
from edgegen.options.generation import THINKING_OPTIONS, GenerationOptions
from edgegen.system import expand_user


class Screen(Protocol):
    """Where answers and notes go. ``interactive``: a person sees them, and Ctrl-C stops a turn only."""

    interactive: bool

    def write(self, piece: str) -> None:
        """Show a piece of an answer at once."""
        ...

    def note(self, text: str) -> None:
        """Show a line that is no part of an answer."""
        ...


Edit = Callable[[str], str | None]
"""Lets a person change a text; None where it is to stay as it was."""


class Repl:
    """One chat: its model and dialogue, the options that were set, and whether speeds are shown."""

    def __init__(
        self,
        models: Models,
        opened: OpenModel,
        screen: Screen,
        dialogue: Dialogue,
        given: Mapping[str, Any],
        *,
        stats: bool = False,
        edit: Edit | None = None,
    ) -> None:
        """``models``: those to switch to; ``opened``: the first, closed with the chat; ``given``: what changes its
        options; ``edit``: None where nobody is there."""
        self._models, self._opened, self.screen, self._edit_text = models, opened, screen, edit
        self._given = dict(given)
        self._options = opened.options.override(self._given)
        self._stats, self._last_stats = stats, ""
        self._answers_again = 0
        self._dropped = 0
        """How many messages of the conversation the last prompt had not."""
        self.dialogue = dialogue
        self._commands: dict[str, Callable[[str], None]] = {
            "/set": self._set,
            "/show": self._show,
            "/system": self._system,
            "/model": self._switch,
            "/think": self._think,
            "/regen": self._regenerate,
            "/edit": self._edit,
            "/undo": self._undo,
            "/clear": self._clear,
            "/save": self._save,
            "/load": self._load,
            "/help": lambda _: self.screen.note(help_text(completion=self.is_completion)),
        }

    def close(self) -> None:
        """Give the model's memory back."""
        self._opened.close()

    @property
    def is_completion(self) -> bool:
        """Whether a text is continued, not a conversation."""
        return isinstance(self.dialogue, Completion)

    def handle(self, line: str | Say) -> bool:
        """Perform one line; False if it ends the chat.

        Raises:
            EdgegenError: the line cannot be performed; the dialogue is as before.
            KeyboardInterrupt: Ctrl-C, where nobody is there to go on.
        """
        action = parse(line) if isinstance(line, str) else line
        if isinstance(action, Do):
            if action.name == "/bye":
                return False
            self._commands[action.name](action.argument)
        elif action.text.strip() or self.is_completion:
            self._answers_again = 0
            self._turn(action.text, self._options)
        elif self.screen.interactive and self.dialogue.can_continue:
            self._hear(self.dialogue.open_rest(self._options))
        return True

    def _turn(self, text: str, options: GenerationOptions) -> None:
        self._hear(self.dialogue.open(text, options))

    def _hear(self, opened: Stream) -> None:
        """Show an answer, and keep it."""
        result: GenerationResult | None = None
        with opened as stream:
            shown = ""
            try:
                for chunk in stream:
                    if chunk.text:
                        self.screen.write(chunk.text)
                        shown = chunk.text
                result = stream.result
            except KeyboardInterrupt:
                if not self.screen.interactive:
                    raise
            if not shown.endswith("\n"):
                self.screen.write("\n")
            self.dialogue.keep(stream.text, result)
        self._tell_the_end(stream.text, result)

    def _tell_the_end(self, text: str, result: GenerationResult | None) -> None:
        if result is not None:
            self._last_stats = stats_line(result)
            if self._stats:
                self.screen.note(self._last_stats)
            if result.dropped_messages > self._dropped:
                told = dropped_note(result.dropped_messages, self._opened.model.max_context)
                self.screen.note(f"({told}; /set context_overflow error refuses such turns)")
            self._dropped = result.dropped_messages
        if not self.screen.interactive:
            return
        if result is None:
            self.screen.note("(stopped; what was said stays)" if text else "(stopped before the first word)")
        elif result.finish_reason in LIMITED:
            limit, next_step = result.stopped_by or "max_new_tokens", "/set changes it"
            if limit == "context" and self.is_completion:
                next_step = "/clear begins anew"
            elif self.dialogue.can_continue:
                next_step = "Enter continues"
            self.screen.note(f"({limit} ended the answer; {next_step})")
        elif not text:
            self.screen.note("(the model ends the text here)")

    def _regenerate(self, _: str) -> None:
        before, turns = self.dialogue.state(), self.dialogue.turns
        text = self.dialogue.undo()
        if text is None:
            raise UsageError("there is no answer yet to give again.")
        self._answers_again += 1
        options = self._options
        if options.seed is not None:
            options = replace(options, seed=options.seed ^ self._answers_again)
        if not options.do_sample:
            self.screen.note("(greedy decoding gives the same answer: /set temperature 0.8 samples another)")
        self._turn_instead(text, options, before, turns)

    def _edit(self, text: str) -> None:
        """Answer another text in the last one's place: the one given, or what a person makes of the last one."""
        if not text and self._edit_text is None:
            raise UsageError("/edit needs a terminal, or the new text: /edit TEXT.")
        before, turns = self.dialogue.state(), self.dialogue.turns
        last = self.dialogue.undo()
        if last is None:
            raise UsageError("there is nothing yet to change.")
        if not text and self._edit_text is not None:
            try:
                text = (self._edit_text(last) or "").strip("\n")
            except BaseException:
                self.dialogue.restore(before)
                raise
            if not text.strip():
                self.dialogue.restore(before)
                self.screen.note("(left as it was)")
                return
        self._answers_again = 0
        self._turn_instead(text, self._options, before, turns)

    def _turn_instead(self, text: str, options: GenerationOptions, before: object, turns: int) -> None:
        try:
            self._turn(text, options)
        finally:
            if self.dialogue.turns < turns:  # an error, or Ctrl-C before the first word: the old answer stays
                self.dialogue.restore(before)

    def _switch(self, name: str) -> None:
        """Go on with another model, or say which there are."""
        if not name:
            others = [other for other in self._models.names() if other != self._opened.name]
            self._show("model")
            if others:
                self.screen.note(f"/model NAME switches: {', '.join(others)}")
            return
        opened = self._models.open(name)
        try:
            options = opened.options.override(self._given)
            if not opened.completes:
                opened.check(self._given)
        except BaseException:
            opened.close()
            raise
        self._opened.close()
        self._opened, self._options = opened, options
        if opened.completes is self.is_completion:
            self.dialogue = self.dialogue.with_model(opened.model)
            goes_on = "the text goes on" if self.is_completion else "the conversation goes on"
            self.screen.note(f"({name}: {goes_on if self.dialogue.turns else 'nothing was said yet'})")
        else:
            self.dialogue = Completion(opened.model) if opened.completes else Chat(opened.model)
            does = "it continues texts" if opened.completes else "it holds conversations"
            self.screen.note(f"({name}: {does}; begun anew)")
        if opened.note:
            self.screen.note(f"({name} is {opened.note})")

    def _undo(self, _: str) -> None:
        text = self.dialogue.undo()
        if text is None:
            raise UsageError("there is no turn to take back.")
        self.screen.note(f"(taken back: {text})" if text else "(taken back)")

    def _clear(self, _: str) -> None:
        self.dialogue.clear()
        self.screen.note("(begun anew)")

    def _system(self, text: str) -> None:
        if not text:
            self._show("system")
        elif self.is_completion:
            raise UsageError("a text that is continued has no system message: start edgegen chat with --chat.")
        else:
            self.dialogue.system = None if text in ('""', "''") else text
            self.screen.note("(system message set)" if self.dialogue.system else "(no system message)")

    def _save(self, name: str) -> None:
        path = expand_user(Path(name))
        self.dialogue.save(path)
        self.screen.note(f"(saved to {path})")

    def _load(self, name: str) -> None:
        path = expand_user(Path(name))
        self.dialogue = dialogue_of(self._opened.model, Session.load(path))
        self.screen.note(f"(continuing {path}: {'a text' if self.is_completion else f'{self.dialogue.turns} turns'})")

    def _set(self, argument: str) -> None:
        name, _, text = argument.partition(" ")
        text = text.strip()
        if not name:
            self._show("options")
        elif name == "stats":
            if text not in ("on", "off"):
                raise UsageError(f"stats is on or off, not {text!r}.")
            self._stats = text == "on"
            self.screen.note(f"stats = {text}")
        elif name == "system":
            self._system(text)
        else:
            self._set_option(name, text)

    def _think(self, text: str) -> None:
        """``on``, ``off``, a level of effort, or the most tokens of a thought; ``default`` leaves it to the model."""
        if self.is_completion:
            raise UsageError("a text that is continued has no thoughts: start edgegen chat with --chat.")
        if text:
            changes = read_thinking(text)
            given = {name: value for name, value in self._given.items() if name not in changes}
            given |= {name: value for name, value in changes.items() if value is not None}
            options = self._opened.options.override(given)
            self._opened.check(given)
            self._options, self._given = options, given
        told = {name: getattr(self._options, name) for name in THINKING_OPTIONS}
        said = ", ".join(f"{name} = {_spelled(value)}" for name, value in told.items() if value is not None)
        self.screen.note(said or "(thinking is left to the model)")

    def _set_option(self, name: str, text: str) -> None:
        option = option_named(name)
        changed = {known: value for known, value in self._given.items() if known != option.name}
        if text and text != "default":
            changed[option.name] = read_value(option, text)
        if text:
            options = self._opened.options.override(changed)
            if option.name in THINKING_OPTIONS:
                self._opened.check(changed)
            self._options, self._given = options, changed
        self.screen.note(f"{option.name} = {_spelled(getattr(self._options, option.name))}")

    def _show(self, what: str) -> None:
        parts = {
            "options": self._option_lines,
            "system": lambda: self.dialogue.system or "(no system message)",
            "model": lambda: self._opened.about,
            "stats": lambda: self._last_stats or "(no answer yet)",
        }
        if what and what not in parts:
            raise UsageError(f"/show {what} is not there{did_you_mean(what, parts)}: it shows {', '.join(parts)}.")
        if what:
            self.screen.note(parts[what]())
            return
        self.screen.note(f"model: {self._opened.about}")
        self.screen.note(f"system: {self.dialogue.system or 'none'}")
        self.screen.note(self._option_lines())

    def _option_lines(self) -> str:
        """The usual options, and those that are not at edgegen's defaults."""
        defaults, rows = GenerationOptions(), list[str]()
        for option in SETTABLE.values():
            value = getattr(self._options, option.name)
            if option.name in self._given or (option.common and value is not None and value != ()):
                rows.append(f"{option.name} = {_spelled(value)}" + ("  (set)" if option.name in self._given else ""))
            elif value != getattr(defaults, option.name):
                rows.append(f"{option.name} = {_spelled(value)}")
        return "\n".join(rows)


def _spelled(value: object) -> str:
    """As JSON, where it is JSON."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        return repr(value)
