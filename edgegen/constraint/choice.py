"""Choice: constrains the output to one of several texts."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Self

from edgegen.constraint.constraint import check_size
from edgegen.errors import ConstraintError

MOST_CHOICES = 20_000


@dataclass(frozen=True)
class Choice:
    """One of ``texts``, whole. Where one is a prefix of another, the model decides where to end."""

    name = "the choice"

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.texts or "" in self.texts:
            raise ConstraintError("choices are one or more texts, none of them empty")
        if (count := len(self.texts)) > MOST_CHOICES:
            raise ConstraintError(f"the choice has {count:,} texts, and {MOST_CHOICES:,} are allowed")
        check_size("the choice", "".join(self.texts))

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Make a constraint of the texts that an answer may be, without repeated ones.

        Raises:
            ConstraintError: the list is empty, or has an empty text or something else than a text.
        """
        if isinstance(texts, str):
            raise ConstraintError(f"choices are a list of texts, not one text: [{texts!r}]")
        listed = tuple(texts)
        wrong = [text for text in listed if not isinstance(text, str)]  # pyright: ignore[reportUnnecessaryIsInstance]
        if wrong:
            raise ConstraintError(f"choices are texts, and {shortened(wrong[0])} is not a text: write it in quotes")
        return cls(tuple(dict.fromkeys(listed)))

    def source(self) -> str:
        texts = " | ".join(json.dumps(text, ensure_ascii=False) for text in self.texts)
        # A terminal of its own: so all are one automaton, however many there are.
        return json.dumps({"grammars": [{"lark_grammar": f"start: TEXT\nTEXT: {texts}\n"}]})

    def explain(self, complaint: str) -> str:
        return complaint
