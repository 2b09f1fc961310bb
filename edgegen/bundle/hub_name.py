"""Names of what can be pulled: a name of the catalogue or a hub id, and the bundle that pulling it makes."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from edgegen.bundle.catalogue import catalogue, find_offer
from edgegen.bundle.checkpoint_place import GGUF, without_part
from edgegen.errors import UsageError, did_you_mean, quoted

_HUB_PREFIXES = ("https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/")
_HUB_ID = re.compile(r"(?:[A-Za-z0-9_][\w.-]*/)?[A-Za-z0-9_][\w.-]*", re.ASCII)
_QUANTIZATION = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
_SCHEMES = ("int8", "int4", "fp16", "fp32")
_LATEST = "latest"


@dataclass(frozen=True, slots=True)
class HubReference:
    """A model of the hub, as ``OWNER/NAME`` or ``OWNER/NAME:QUANT``, in which llama.cpp and ollama name it.

    ``scheme``: what QUANT is, if it is one of edgegen's words; otherwise it is ``gguf``, the quantization or the name
    of a GGUF file of the repository.
    """

    hub: str
    scheme: str | None = None
    gguf: str | None = None

    @classmethod
    def of(cls, name: str) -> "HubReference":
        """Resolve a name of the catalogue, a hub id or the address of its page.

        Raises:
            UsageError: it is none of them, or what follows ``:`` is neither a quantization nor a file.
        """
        if offer := find_offer(name):
            return cls(offer.hub)
        bare = name
        for prefix in _HUB_PREFIXES:
            bare = bare.removeprefix(prefix)
        model, colon, quantization = bare.partition(":")
        if not (colon and "/" in model and _HUB_ID.fullmatch(model)):
            model, colon = bare, ""
        if not _HUB_ID.fullmatch(model):
            near = did_you_mean(bare.replace(":", "-"), [offer.name for offer in catalogue()])
            raise UsageError(
                f"{quoted(bare)} is on no list and no hub id, which is OWNER/NAME{near}; `edgegen pull` prints the "
                "list."
            )
        hub = offer.hub if (offer := find_offer(model)) else model
        word = quantization.lower()
        if not colon or word == _LATEST:
            return cls(hub)
        if word in _SCHEMES:
            return cls(hub, scheme=word)
        if not _QUANTIZATION.fullmatch(quantization):
            raise UsageError(
                f"{quoted(name)}: what follows the colon is {quoted(quantization)}, and no GGUF file's quantization "
                f"such as Q4_K_M, or its name, or one of {', '.join(_SCHEMES)}."
            )
        return cls(hub, gguf=quantization if word.endswith(GGUF) else quantization.upper())


def is_hub_address(name: str) -> bool:
    """Whether ``name`` says itself that it is the hub's."""
    return name.startswith(_HUB_PREFIXES)


def pulled_name(name: str, scheme: str, gguf_file: str | None = None) -> str:
    """The bundle that pulling ``name`` makes, or the GGUF file of that name or quantization in its repository."""
    if gguf_file and gguf_file.lower().endswith(GGUF):
        return f"{without_part(PurePosixPath(gguf_file).stem)}-{scheme}"
    quantization = f"-{gguf_file}" if gguf_file else ""
    if offer := find_offer(name):
        return f"{offer.name}{quantization}-{scheme}"
    return f"{PurePosixPath(name).name}{quantization}-{scheme}"
