"""A real vocabulary, and what a constraint over it allows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from edgegen.constraint import Constraint, ConstraintCompiler, ConstraintState
from edgegen.tokenizer import Tokenizer
from tests.byte_level import LETTER_OF_BYTE


@dataclass(frozen=True)
class Vocabulary:
    tokenizer: Tokenizer
    size: int
    eos: tuple[int, ...]
    compiler: ConstraintCompiler

    @classmethod
    def read(cls, file: Path, size: int, *eos: str) -> Self:
        tokenizer = Tokenizer.from_file(file)
        ids = [token_id for token in eos if (token_id := tokenizer.token_to_id(token)) is not None]
        assert len(ids) == len(eos)
        return cls(tokenizer, size, tuple(ids), ConstraintCompiler(tokenizer, size))

    def encode(self, text: str) -> list[int]:
        """The usual tokens of ``text``; single bytes where a normalizer would write it otherwise."""
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        if self.tokenizer.decode(ids) == text or not text:
            return ids
        return [self.id_of_byte(byte) for byte in text.encode()]

    def encode_continuation(self, text: str) -> list[int]:
        """Tokens that spell ``text`` and nothing before it, in a vocabulary that would put a space there too."""
        behind = self.encode("\n")
        return self.encode("\n" + text)[len(behind) :]

    def id_of_byte(self, byte: int) -> int:
        """The token of a single byte."""
        for name in (LETTER_OF_BYTE[byte], f"<0x{byte:02X}>"):
            if (token_id := self.tokenizer.token_to_id(name)) is not None:
                return token_id
        raise AssertionError(f"no token for byte {byte}")

    def start(self, constraint: Constraint) -> ConstraintState:
        return self.compiler.compile(constraint).start(self.eos)

    def accepts(self, constraint: Constraint, text: str | Sequence[int]) -> bool:
        """Whether ``text``, in its usual tokens, may be generated whole."""
        ids = self.encode(text) if isinstance(text, str) else list(text)
        state = self.start(constraint)
        if state.valid_prefix(ids) != ids:
            return False
        for token_id in ids:
            state.accept(token_id)
        return state.may_stop
