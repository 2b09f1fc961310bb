#!/usr/bin/env python3
"""Checks the titles of commits: `titles.py` those of the branch, `titles.py FILE` that of the message in a file.

It needs nothing but Python, so that the hook `commit-msg` runs without an environment.
"""

import re
import subprocess
import sys
from pathlib import Path

BASE = "9981e7e3448e005c341994b6d206b41fe2771b25"
"""Titles of this commit and of those before it are not checked."""

LONGEST = 72

_FORM = re.compile(r"(?:README|[a-z0-9][a-z0-9_./-]*): (?P<what>\S.*)")
_NO_VERBS = set(
    "a an the this that these those its their no not all some every each any one two three more fewer less most what "
    "which who whose where when how why whether if and or but in on at of for from with without to by as is are was "
    "were has have had be been it they we i you there".split()
)
_ENDINGS = re.compile(r".{2,}(?:ing|ed|[^s]s)")
_VERBS = set("bring bias embed exceed feed focus need proceed seed spring string succeed".split())
"""Verbs in the imperative that look like other forms."""

_VAGUE = re.compile(r"\b(?:rest|last|remainder) of\b")


def problems(title: str, *, merge: bool = False) -> list[str]:
    """Return the problems of a title, in words. That of a merge may be "Merge" and the name of what is merged."""
    found: list[str] = []
    if len(title) > LONGEST:
        found.append(f"it has {len(title)} characters, at most {LONGEST} are allowed")
    if title.endswith("."):
        found.append("it ends with a full stop")
    if merge and title.startswith("Merge "):
        if _VAGUE.search(title):
            found.append("it does not name what is merged")
        return found
    form = _FORM.fullmatch(title)
    if form is None:
        return [*found, "it is not of the form 'area: what it does', with the area in lower case"]
    verb = form["what"].split()[0]
    if not verb.islower() or verb in _NO_VERBS or (_ENDINGS.fullmatch(verb) and verb not in _VERBS):
        found.append(f"{verb!r} is not a verb in the imperative")
    if ";" in form["what"]:
        found.append("it names several things: make a commit of each")
    return found


def _history() -> list[tuple[str, bool]] | str:
    """Titles of the commits after BASE, the newest first, and whether each is a merge; or why none are checked."""
    try:
        if _git("rev-parse", "--is-shallow-repository").strip() == "true":
            return "this clone is shallow"
        log = _git("log", "--format=%P%x00%s", f"{BASE}..HEAD")
    except FileNotFoundError:
        return "git is not installed"
    except subprocess.CalledProcessError:
        return f"this is not a clone whose history has {BASE[:7]}"
    lines = [line.partition("\0") for line in log.splitlines()]
    return [(title, " " in parents) for parents, _, title in lines]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def main(arguments: list[str]) -> int:
    if arguments:
        lines = Path(arguments[0]).read_text("utf-8").splitlines()
        title = next((line.strip() for line in lines if line.strip() and not line.startswith("#")), "")
        titles = [(title, title.startswith("Merge "))] if title else []  # git itself refuses an empty message
    else:
        history = _history()
        if isinstance(history, str):
            print(f"titles are not checked: {history}")
            return 0
        titles = history
    wrong = [f"{title!r}: {'; '.join(found)}" for title, merge in titles if (found := problems(title, merge=merge))]
    if wrong:
        print(*wrong, "CONTRIBUTING.md, under Style, has the form of titles", sep="\n", file=sys.stderr)
        return 1
    if not arguments:
        print(f"the titles of {len(titles)} commits have the form of CONTRIBUTING.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
