"""AddedToken: a token of ``tokenizer.json`` that is matched in the text before the tokenizer's model runs."""

from dataclasses import asdict, dataclass, replace
from typing import Any, cast

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A ``special`` token is left out of decoded text; a ``normalized`` one is matched after normalization."""

    content: str
    special: bool
    normalized: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False

    @classmethod
    def plain(cls, content: str, *, special: bool) -> "AddedToken":
        """The token with the flags that transformers gives a plain string."""
        return cls(content, special=special, normalized=not special)

    @classmethod
    def literal(cls, content: str, *, special: bool) -> "AddedToken":
        """The token, matched literally, before normalization."""
        return cls(content, special=special, normalized=False)

    def found_as(self, other: "AddedToken") -> "AddedToken":
        """This token, added over ``other`` of the same text: what either finds is found."""
        return replace(self, special=self.special or other.special, normalized=self.normalized and other.normalized)

    @classmethod
    def read(cls, value: object, *, special: bool = False) -> "AddedToken":
        """A token given as a string, or as an object with flags.

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
