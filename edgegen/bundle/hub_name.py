"""Names of what can be pulled: a name of the catalogue or a hub id, and the bundle that pulling it makes."""

import re
from pathlib import PurePosixPath

from edgegen.bundle.catalogue import catalogue, find_offer
from edgegen.errors import UsageError, did_you_mean, quoted

_HUB_PREFIXES = ("https://huggingface.co/", "huggingface.co/", "hf.co/")
_HUB_ID = re.compile(r"(?:[A-Za-z0-9_][\w.-]*/)?[A-Za-z0-9_][\w.-]*", re.ASCII)


def hub_id(name: str) -> str:
    """The hub id that a name of the catalogue, an id or the address of its page means.

    Raises:
        UsageError: it is none of them.
    """
    if offer := find_offer(name):
        return offer.hub
    found = name
    for prefix in _HUB_PREFIXES:
        found = found.removeprefix(prefix)
    if not _HUB_ID.fullmatch(found):
        near = did_you_mean(found.replace(":", "-"), [offer.name for offer in catalogue()])
        raise UsageError(
            f"{quoted(found)} is on no list and no hub id, which is OWNER/NAME{near}; `edgegen pull` prints the list."
        )
    return found


def pulled_name(name: str, scheme: str, gguf_file: str | None = None) -> str:
    """The bundle that pulling ``name`` makes, or the GGUF file of that name in its repository."""
    if offer := find_offer(name):
        return f"{offer.name}-{scheme}"
    return f"{PurePosixPath(gguf_file).stem if gguf_file else PurePosixPath(name).name}-{scheme}"
