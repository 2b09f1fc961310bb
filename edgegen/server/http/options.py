"""ServerOptions: where the server listens, who may use it, and its limits."""

import ipaddress
from dataclasses import dataclass
from typing import cast, get_args
from urllib.parse import urlsplit

from edgegen.options.kinds import Bytes, Kind, Number, OneOf, Switch, Text, Texts
from edgegen.options.option import server_option
from edgegen.options.option_set import OptionSet, documented
from edgegen.server.http.log import LogFormat, LogLevel

MOST_HEADER_BYTES = 16 << 10
"""Of the address and the headers of a request together."""
MOST_BODY_BYTES = 4 << 20
MOST_JSON_DEPTH = 64
MOST_MESSAGES = 2048
MOST_PROMPTS = 128
"""Prompts of one completion request."""
MOST_EMBEDDING_INPUTS = 2048
MOST_EMBEDDED_TOKENS = 300_000
"""Of all inputs of one request for embeddings together."""
MOST_LIBRARY_CHARACTERS = 500_000
"""Of a text of /tokenize where the tokenizers library reads it, which takes 500 bytes for each."""
MOST_TOKENIZED = 1_000_000
"""Tokens of a text of /tokenize."""
MOST_TOOLS = 128
MOST_STOPS = 16
MOST_STOP_CHARACTERS = 1024
MOST_BIASES = 1024
MOST_TOOL_BYTES = 128 << 10
"""Of the definition of one tool, as JSON."""
_UNIX = "unix:"
"""Before the path of a UNIX socket."""
EVERY_ORIGIN = "*"
"""Of ``allowed_origins``: pages of every site."""
BODY_SECONDS = 30.0
"""Seconds that a client may take to send a body."""


def _origin_problem(origin: str) -> str | None:
    """Return what is wrong with an origin: a scheme and a host, and a port that is not the scheme's own."""
    if origin == EVERY_ORIGIN:
        return None
    try:
        parts = urlsplit(origin)
        at = f"{parts.scheme}://{parts.netloc}".lower()
        fits = bool(parts.scheme and parts.hostname and "*" not in origin and parts.username is None)
        port = parts.port
    except ValueError:
        return f"{origin!r} is not an origin: scheme://host or scheme://host:port expected"
    if not fits:
        said = f"scheme://host or scheme://host:port expected, or {EVERY_ORIGIN!r} for all"
        near = f"; did you mean 'http://{origin}'?" if "://" not in origin and "*" not in origin else ""
        return f"{origin!r} is not an origin: {said}{near}"
    if port == {"http": 80, "https": 443}.get(parts.scheme.lower()):
        at = at.rpartition(":")[0]
    return None if origin == at else f"{origin!r} is not how browsers write an origin; did you mean {at!r}?"


class ApiKeys(Kind):
    """Keys, any of which is accepted; a flag names a file of them."""

    secret = True
    words = "API keys"

    def problems(self, name: str, value: object) -> list[str]:
        keys = cast(tuple[str, ...], value)
        known = all(key and key.isascii() and key.isprintable() and " " not in key for key in keys)
        return [] if known else ["an API key is one word of printable ASCII characters"]


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(OptionSet):
    """Where the server listens, who may use it, and its limits: the flags of ``edgegen serve``."""

    aliases: tuple[str, ...] = server_option(
        (),
        kind=Texts(lambda name: None if name and name == name.strip() else f"{name!r} is not a name"),
        about="Another name of the first model, such as gpt-4o-mini; may be repeated.",
        metavar="NAME",
        flag="--alias",
    )
    any_model: bool = server_option(
        False, kind=Switch(), about="The one model of -m answers to every name that is not served."
    )
    host: str = server_option(
        "127.0.0.1",
        kind=Text(),
        about="The address to listen on; a path that ends in .sock is a UNIX socket.",
        common=True,
    )
    port: int = server_option(8000, kind=Number(int, 0, 65535), about="The port; 0 is any free one.", common=True)
    keys: tuple[str, ...] = server_option(
        (),
        kind=ApiKeys(),
        about="API keys that clients may use, one a line; or one key in EDGEGEN_API_KEY.",
        metavar="FILE",
        flag="--api-key-file",
        common=True,
    )
    insecure: bool = server_option(False, kind=Switch(), about="Listen on other addresses without a key.", common=True)
    allowed_hosts: tuple[str, ...] = server_option(
        (),
        kind=Texts(),
        about="A name of this machine that clients use; may be repeated.",
        note="Compared with the ``Host`` header.",
        metavar="NAME",
        flag="--allow-host",
    )
    allowed_origins: tuple[str, ...] = server_option(
        (),
        kind=Texts(_origin_problem),
        about="A site whose pages may use the server, such as https://app.example (CORS); may be repeated. '*' lets "
        "every page that a browser here opens use it.",
        metavar="ORIGIN",
        flag="--allow-origin",
    )
    allow_pull: bool = server_option(
        False, kind=Switch(), about="Clients may have models downloaded into the store, by POST /api/pull.", common=True
    )
    allow_priority: bool = server_option(
        False,
        kind=Switch(),
        about="Requests may go before others, by a priority below 0. A steady stream of them holds up all others.",
    )
    memory_budget: int | None = server_option(
        None,
        kind=Bytes(int, 1),
        about="Memory of all loaded models, such as 4GB.",
        default="80% of what is free",
        metavar="BYTES",
        common=True,
    )
    store: bool = server_option(
        True, kind=Switch(), about="Serve the models of -m only, none of the store.", flag="--no-store"
    )
    autoload: bool = server_option(
        True, kind=Switch(), about="Load other models only when POST /models/load says so.", flag="--no-autoload"
    )
    max_queue: int = server_option(32, kind=Number(int, 0), about="Requests that may wait; then 503.")
    max_tokens: int | None = server_option(
        None, kind=Number(int, 1), about="Most tokens of an answer.", default="the context"
    )
    request_seconds: float = server_option(
        600.0, kind=Number(float, 0, above=True), about="End a request after this time."
    )
    grace_seconds: float = server_option(
        30.0, kind=Number(float, 0), about="Let requests go on for this time when the server is stopped."
    )
    keep_alive_seconds: float = server_option(
        5.0,
        kind=Number(float, 0, above=True),
        about="After this time without anything sent, a stream sends a keep-alive.",
        verbs=(),
    )
    log_level: LogLevel = server_option(
        "info", kind=OneOf(get_args(LogLevel)), about="info has a line for each request.", common=True
    )
    log_format: LogFormat = server_option(
        "text", kind=OneOf(get_args(LogFormat)), about="Lines of the log: text, or JSON objects."
    )

    @property
    def socket_path(self) -> str | None:
        """The path of a UNIX socket, where ``host`` is one: ``unix:PATH``, or a path that ends in ``.sock``."""
        return socket_path(self.host)

    def _contradictions(self) -> list[str]:
        if self.keys or self.insecure or is_loopback(self.host):
            return []
        give = "set EDGEGEN_API_KEY or give --api-key-file, or add --insecure to serve everyone"
        return [f"{self.host} can be reached from other machines: {give}."]


def socket_path(host: str) -> str | None:
    """The path of the UNIX socket that ``host`` is; None for an address."""
    if host.startswith(_UNIX):
        return host.removeprefix(_UNIX)
    return host if host.endswith(".sock") else None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    if host == "localhost" or socket_path(host) is not None:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
