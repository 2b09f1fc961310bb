"""ServerOptions: where the server listens, who may use it, and its limits."""

import ipaddress
from dataclasses import KW_ONLY, dataclass, field
from urllib.parse import urlsplit

from edgegen.errors import OptionError, UsageError, one_or_list
from edgegen.options.validation import number

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


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """
    Attributes:
        keys: API keys, any of which is accepted; none means that no key is needed.
        insecure: listen on an address beside this machine's own without a key.
        allowed_hosts: names of this server beside its addresses, for the check of the ``Host`` header.
        allowed_origins: sites whose pages may use the server (CORS), such as ``https://app.example``; ``*`` is all.
        aliases: other names of the default model.
        any_model: a request that names a model which is not served gets the default one.
        allow_priority: a request may go before others, by a ``priority`` below 0; else it is refused.
        max_queue: requests that may wait while ``max_batch_size`` run; others are refused with 503.
        max_tokens: most tokens of an answer; None is the model's context.
        request_seconds: after this time a request is ended.
        memory_budget: bytes that loaded models may take together; None is most of what is free at the start.
        autoload: a request loads the model that it names; False leaves that to ``/models/load``.
        grace_seconds: how long running requests may go on when the server is stopped.
        keep_alive_seconds: after this time without anything sent, a stream sends a keep-alive.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    _: KW_ONLY
    keys: tuple[str, ...] = field(default=(), repr=False)
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    any_model: bool = False
    allow_priority: bool = False
    max_queue: int = 32
    max_tokens: int | None = None
    request_seconds: float = 600.0
    memory_budget: int | None = None
    autoload: bool = True
    grace_seconds: float = 30.0
    keep_alive_seconds: float = 5.0

    @property
    def socket_path(self) -> str | None:
        """The path of a UNIX socket, where ``host`` is one: ``unix:PATH``, or a path that ends in ``.sock``."""
        return socket_path(self.host)

    def __post_init__(self) -> None:
        problems = [
            *number("port", self.port, int, 0, 65535),
            *number("max_queue", self.max_queue, int, 0),
            *(number("max_tokens", self.max_tokens, int, 1) if self.max_tokens is not None else []),
            *(number("memory_budget", self.memory_budget, int, 1) if self.memory_budget is not None else []),
            *number("request_seconds", self.request_seconds, float, 0, above=True),
            *number("grace_seconds", self.grace_seconds, float, 0),
            *number("keep_alive_seconds", self.keep_alive_seconds, float, 0, above=True),
        ]
        problems += [problem for origin in self.allowed_origins for problem in _origin_problems(origin)]
        problems += [f"aliases: {name!r} is not a name" for name in self.aliases if not name or name != name.strip()]
        if any(not key or not key.isascii() or not key.isprintable() or " " in key for key in self.keys):
            problems.append("an API key is one word of printable ASCII characters")
        if problems:
            raise OptionError(one_or_list(problems))
        if not self.keys and not self.insecure and not is_loopback(self.host):
            raise UsageError(
                f"{self.host} can be reached from other machines: set EDGEGEN_API_KEY or give --api-key-file, "
                "or add --insecure to serve everyone."
            )


def _origin_problems(origin: str) -> list[str]:
    """What is wrong with an origin: a scheme and a host, and a port that is not the scheme's own."""
    if origin == EVERY_ORIGIN:
        return []
    try:
        parts = urlsplit(origin)
        at = f"{parts.scheme}://{parts.netloc}".lower()
        fits = bool(parts.scheme and parts.hostname and "*" not in origin and parts.username is None)
        port = parts.port
    except ValueError:
        return [f"allowed_origins: {origin!r} is not an origin: scheme://host or scheme://host:port expected"]
    if not fits:
        said = f"scheme://host or scheme://host:port expected, or {EVERY_ORIGIN!r} for all"
        near = f"; did you mean 'http://{origin}'?" if "://" not in origin and "*" not in origin else ""
        return [f"allowed_origins: {origin!r} is not an origin: {said}{near}"]
    if port == {"http": 80, "https": 443}.get(parts.scheme.lower()):
        at = at.rpartition(":")[0]
    if origin != at:
        return [f"allowed_origins: {origin!r} is not how browsers write an origin; did you mean {at!r}?"]
    return []


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
