"""PullOrder: what a client's name means that is to be pulled."""

from dataclasses import dataclass

from edgegen.bundle.catalogue import catalogue, find_offer
from edgegen.bundle.hub_name import HubReference, pulled_name

SCHEMES = ("int8", "int4")
"""Of bundles that a server makes; a name without one means the first."""


@dataclass(frozen=True, slots=True)
class PullOrder:
    """A model of the hub in a ``scheme``, which becomes the bundle ``model``.

    ``source``: its name in the catalogue, or its ``hub`` id. ``gguf``: the quantization or the name of the GGUF file
    that is taken of its repository, if one was asked for.
    """

    model: str
    source: str
    scheme: str
    hub: str
    gguf: str | None = None

    @classmethod
    def of(cls, name: str) -> "PullOrder":
        """Return the order to pull ``name``: as with ``edgegen pull``, but the bundle of a model of the catalogue may
        be named too.

        Raises:
            UsageError: it is no name of the catalogue and no hub id.
        """
        return cls.candidates(name)[0]

    @classmethod
    def candidates(cls, name: str) -> tuple["PullOrder", ...]:
        """Return the orders that ``name`` may have been pulled by: without a scheme in it, those of any scheme.

        Raises:
            UsageError: as :meth:`of`.
        """
        named = name.lower().replace(":", "-")
        for offer in catalogue():
            for scheme in SCHEMES:
                if named == f"{offer.name}-{scheme}":
                    return (cls(named, offer.name, scheme, offer.hub),)
        asked = HubReference.of(name)
        offer = find_offer(asked.hub)
        source = offer.name if offer else asked.hub
        schemes = SCHEMES if asked.scheme is None else (asked.scheme,)
        return tuple(
            cls(pulled_name(source, scheme, asked.gguf), source, scheme, asked.hub, asked.gguf) for scheme in schemes
        )
