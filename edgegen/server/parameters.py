"""Parameters of requests: known by name, left out where they are null, and switches that are true or false."""

from collections.abc import Collection, Mapping
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.errors import did_you_mean
from edgegen.server.api_error import ApiError


def given_parameters(body: Mapping[str, Any], url: str, known: Collection[str]) -> dict[str, Any]:
    """The parameters of ``body`` that are not null.

    Raises:
        ApiError: there is one that is not ``known``.
    """
    for name in body:
        if name not in known:
            said = f"{name!r} is not a parameter of {url}{did_you_mean(name, known)}."
            raise ApiError(400, said, param=name, code="unknown_parameter")
    return {name: value for name, value in body.items() if value is not None}


def switch(given: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """
    Raises:
        ApiError: the parameter is neither true nor false.
    """
    value = given.get(name, default)
    if not isinstance(value, bool):
        raise ApiError(400, f"{name}: true or false expected, found {shortened(value)}", param=name)
    return value


def are_token_ids(value: object) -> bool:
    """Whether it is a list of token ids, and not an empty one."""
    ids = cast(list[object], value) if isinstance(value, list) else []
    return bool(ids) and all(type(token) is int for token in ids)
