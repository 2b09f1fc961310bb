"""AddedToken: a token found in the text before the model sees it."""

from dataclasses import asdict, dataclass
from typing import Any, cast

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A special one has no part in the decoded text; ``normalized`` ones are searched for after normalization."""

    content: str
    special: bool
    normalized: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False

    @classmethod
    def plain(cls, content: str, *, special: bool) -> "AddedToken":
        """The token as transformers makes it of its text alone."""
        return cls(content, special=special, normalized=not special)

    @classmethod
    def literal(cls, content: str, *, special: bool) -> "AddedToken":
        """The token, found in the text as it is written."""
        return cls(content, special=special, normalized=False)

    @classmethod
    def read(cls, value: object, *, special: bool = False) -> "AddedToken":
        """A token written as text, or as an object with its flags.

        Raises ``ValueError`` when it is neither.
        """
        if isinstance(value, str):
            return cls.plain(value, special=special)
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is not a token")
        token = cast(dict[str, object], value)
        content = token.get("content")
        flags = {name: flag for name in _FLAGS if (flag := token.get(name)) is not None}
        if not isinstance(content, str) or not all(isinstance(flag, bool) for flag in flags.values()):
            raise ValueError(f"{value!r} is not a token")
        flags = cast(dict[str, bool], flags)
        is_special = flags.pop("special", False) or special
        return cls(content, is_special, flags.pop("normalized", not is_special), **flags)

    def to_json(self, token_id: int) -> dict[str, Any]:
        return {"id": token_id, **asdict(self)}
