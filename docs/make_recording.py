"""Write docs/recording.svg: a terminal in which edgegen generates text with the embedded model.

python docs/make_recording.py
"""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap

PICTURE = Path(__file__).with_name("recording.svg")
COMMANDS = (
    'edgegen generate "Once upon a time" --echo --seed 3 -n 60',
    'edgegen generate "Is the sky blue?" --choice " yes" --choice " no" --temperature 0',
)
COLUMNS, LINE, MARGIN, TOP = 88, 20, 20, 56
KEY_SECONDS, WORD_SECONDS, PAUSE_SECONDS = 0.03, 0.04, 0.6

STYLE = """\
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d7dde5; }
.prompt { fill: #7ee787; } .command { fill: #ffffff; font-weight: bold; }
tspan { animation: show 1ms linear both; }
@keyframes show { from { fill-opacity: 0; } to { fill-opacity: 1; } }
@media (prefers-reduced-motion: reduce) { tspan { animation: none; } }"""


@dataclass(frozen=True)
class Part:
    """A piece of a line that appears at once, ``seconds`` after the piece before it."""

    text: str
    kind: str
    seconds: float


def picture(answers: list[str]) -> str:
    """The recording of ``COMMANDS`` with what each printed."""
    scenes = zip(COMMANDS, answers, strict=True)
    lines = [line for command, answer in scenes for line in _scene(command, answer)][:-1]
    width, height = 2 * MARGIN + round(8.45 * COLUMNS), TOP + LINE * (len(lines) - 1) + MARGIN
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>edgegen generates text in a terminal</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10" fill="#161b22" stroke="#8b949e"/>',
        *(
            f'<circle cx="{MARGIN + 18 * i}" cy="20" r="6" fill="{color}"/>'
            for i, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
    ]
    now = PAUSE_SECONDS
    for number, parts in enumerate(lines):
        shapes.append(f'<text x="{MARGIN}" y="{TOP + LINE * number}" xml:space="preserve">')
        for part in parts:
            now += part.seconds
            delay = f' style="animation-delay:{now:.2f}s"'
            shapes[-1] += f'<tspan class="{part.kind}"{delay}>{escape(part.text)}</tspan>'
        shapes[-1] += "</text>"
    return "\n".join([*shapes, "</svg>", ""])


def run(command: str) -> str:
    """Return the output of a command."""
    done = subprocess.run([sys.executable, "-m", *shlex.split(command)], capture_output=True, text=True, check=True)
    return done.stdout


def _scene(command: str, answer: str) -> Iterator[list[Part]]:
    """A command as it is typed, and its answer as it is streamed, line by line."""
    yield [Part("$ ", "prompt", PAUSE_SECONDS), *(Part(key, "command", KEY_SECONDS) for key in command)]
    pause = PAUSE_SECONDS
    for paragraph in answer.strip().split("\n"):
        for line in wrap(paragraph, COLUMNS) or [""]:
            words = [Part(word, "answer", WORD_SECONDS) for word in line.replace(" ", " \0").split("\0")]
            yield [Part("", "answer", pause), *words]
            pause = 0.0
    yield []  # an empty line before the next prompt


if __name__ == "__main__":
    PICTURE.write_text(picture([run(command) for command in COMMANDS]), encoding="utf-8")
    sys.stdout.write(f"{PICTURE}\n")
