"""Access rules of the server: Host and Origin against DNS rebinding, and API keys."""

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import error_response
from edgegen.server.http.options import EVERY_ORIGIN, MOST_HEADER_BYTES, ServerOptions, is_loopback

_OPEN = ("/", "/health", "/v1/health")
"""Paths that need no key: the web page asks for it."""


class AccessGuard:
    """Refuses a request before anything of it is read but its headers."""

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self._app = app
        self._keys = tuple(key.encode() for key in options.keys)
        self._names = {"localhost", options.host.lower(), *(name.lower() for name in options.allowed_hosts)}
        self._origins = frozenset(options.allowed_origins)
        self._any_address = not is_loopback(options.host)
        self._any_name = options.socket_path is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                _check_size(scope)
                headers = Headers(scope=scope)
                _check_framing(headers)
                self._check(scope["path"], headers)
                _check_coding(headers)
            except ApiError as error:
                await error_response(error, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, path: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if not self._is_ours(_name(host)):
            raise ApiError(
                403,
                f"this server is not called {_name(host)!r}: use its address, or start it with --allow-host NAME.",
                code="host_not_allowed",
            )
        origin = headers.get("origin")
        if origin is not None and not self._may_ask(origin, host):
            said = f"pages of {origin!r} may not use this server: start it with --allow-origin {origin}."
            raise ApiError(403, said, code="origin_not_allowed")
        if self._keys and path not in _OPEN and not self._has_key(headers):
            raise ApiError(
                401,
                "this server needs an API key: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _may_ask(self, origin: str, host: str) -> bool:
        """Whether pages of ``origin`` may use the server: its own page, and those of sites that are allowed."""
        if not self._origins.isdisjoint((origin, EVERY_ORIGIN)):
            return True
        try:
            return urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            return False

    def _is_ours(self, name: str) -> bool:
        """Names have to be known, as anyone may point a name here; an address cannot be pointed elsewhere, and no name
        leads to a UNIX socket."""
        if self._any_name:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return self._any_address or address.is_loopback

    def _has_key(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        bearer = given.strip() if scheme.lower() == "bearer" else ""
        sent = [one.encode() for one in (bearer, headers.get("x-api-key", "").strip())]
        # Every key is compared, in constant time.
        return sum(hmac.compare_digest(one, key) for one in sent for key in self._keys) > 0


def _check_size(scope: Scope) -> None:
    size = len(scope["raw_path"]) + len(scope["query_string"])
    size += sum(len(name) + len(value) for name, value in scope["headers"])
    if size > MOST_HEADER_BYTES:
        said = f"the address and headers of the request have {size} bytes: at most {MOST_HEADER_BYTES} are read."
        raise ApiError(431, said, code="headers_too_large")


def _check_framing(headers: Headers) -> None:
    """Refuse what two servers may read as requests of different lengths, and read no more of the connection."""
    if "content-length" in headers and "transfer-encoding" in headers:
        raise ApiError(
            400,
            "the request has both Content-Length and Transfer-Encoding: send one of them.",
            code="ambiguous_length",
            headers={"Connection": "close"},
        )


def _check_coding(headers: Headers) -> None:
    """Refuse a compressed body, which nothing here would unpack."""
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        said = f"the body is in the content encoding {coding[:40]!r}: send it as it is, without Content-Encoding."
        raise ApiError(415, said, code="unsupported_content_encoding", headers={"Accept-Encoding": "identity"})


def _name(host: str) -> str:
    """The name or address in a ``Host`` header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
