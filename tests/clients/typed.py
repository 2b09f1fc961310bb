"""The pet and the tool of :mod:`tests.clients.asked` as the Python clients take them."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tests.clients.asked import REPORT, Calls


class Pet(BaseModel):
    """A pet."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=8)
    kind: Literal["cat", "dog"]
    age: int = Field(ge=0, le=20)


def weather_tool() -> tuple[Callable[..., str], Calls]:
    """A function for a client to call, and the calls that it gets."""
    made = Calls()

    def get_weather(city: Literal["Oslo", "Rome"], days: Annotated[int, Field(ge=1, le=9)]) -> str:
        """The weather of a city."""
        made.append(("get_weather", {"city": city, "days": days}))
        return REPORT.format(city=city, days=days)

    return get_weather, made
