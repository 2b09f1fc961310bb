"""docs/recording.svg is what docs/make_recording.py draws of its commands, and what they printed."""

from xml.etree import ElementTree

from docs.make_recording import COMMANDS, PICTURE, picture

TEXT = "{http://www.w3.org/2000/svg}text"


def test_recording_is_drawn_by_the_script() -> None:
    lines = ["".join(line.itertext()) for line in ElementTree.parse(PICTURE).getroot().iter(TEXT)]
    starts = [lines.index(f"$ {command}") for command in COMMANDS]
    answers = ["\n".join(lines[i + 1 : j]) for i, j in zip(starts, [*starts[1:], len(lines)], strict=True)]
    assert PICTURE.read_text("utf-8") == picture(answers), "run python docs/make_recording.py"


def test_recording_is_small_and_loads_nothing() -> None:
    text = PICTURE.read_text("utf-8")
    assert len(text) < 60_000
    assert text.count("http") == 1  # the namespace
