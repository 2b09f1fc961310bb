"""HubAnswers: checks what a model hub answers before huggingface_hub believes it.

huggingface_hub makes paths of a hub's ETags and commits, and reads each answer to its end. Each passes here first.
"""

import re
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import file_digest
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edgegen.errors import HubError
from edgegen.system import is_portable, open_regular

MOST_LISTING_BYTES = 100_000_000
"""Of an answer that is no file: a listing of 300,000 files has about as many."""

_MOST_ERROR_BYTES = 1_000_000
_MOST_REDIRECTS = 10
"""In a row, fewer than any version of huggingface_hub follows."""

_WORD = re.compile(r"[0-9A-Za-z][0-9A-Za-z._+=-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_word(text: str) -> bool:
    """Whether a hub's name for a commit or a content can be a file's name, in one folder, on every system."""
    return _WORD.fullmatch(text) is not None and is_portable(text)


def is_sha256(text: str) -> bool:
    """Whether ``text`` is a SHA-256 as hubs write it."""
    return _SHA256.fullmatch(text) is not None


@dataclass(slots=True)
class HubFile:
    """A file of a hub, as the listing describes it and then the hub's head of it; None for what neither tells."""

    name: str
    commit: str
    size: int | None = None
    sha256: str | None = None
    etag: str | None = None
    redirects: int = 0
    is_refused: bool = False


class HubAnswers:
    """Checks the answers that huggingface_hub gets in this thread. Made by ``checked_answers``."""

    def __init__(self, repo: str) -> None:
        self._repo = repo
        self._file: HubFile | None = None

    @contextmanager
    def of(self, file: HubFile) -> Generator[None]:
        """Judge the answers within the context by what is known of ``file``."""
        self._file = file
        try:
            yield
        finally:
            self._file = None

    def check(self, response: Any) -> None:
        """Raise ``HubError`` if an answer, of requests or of httpx, is not what it should be; bound its body."""
        try:
            self._check_words(response)
            if response.request.method != "HEAD":
                self._bound(response)
        except HubError:
            response.close()
            raise

    def _check_words(self, response: Any) -> None:
        headers = response.headers
        self._check_word("X-Repo-Commit", headers.get("X-Repo-Commit"))
        target = urlsplit(headers.get("Location") or "")
        if target.scheme not in ("", "http", "https"):
            raise self._refusal(f"redirects to {headers['Location']!r}, which is no address on the web")
        file = self._file
        if file is None:
            return
        file.redirects = file.redirects + 1 if 300 <= response.status_code < 400 else 0
        if file.redirects > _MOST_REDIRECTS:
            raise self._refusal("redirects without end")
        is_followed = bool(target.path) and not target.netloc and not target.scheme
        if response.request.method == "HEAD" and response.status_code < 400 and not is_followed:
            self._check_head(headers, file)

    def _check_head(self, headers: Any, file: HubFile) -> None:
        """Check what huggingface_hub takes for the file's ETag and size."""
        if headers.get("X-Repo-Commit") != file.commit:  # the branch has moved: the listing was of another commit
            file.size = file.sha256 = None
        linked = headers.get("X-Linked-ETag")
        etag = (linked or headers.get("ETag") or "").lstrip("W/").strip('"')
        if etag:
            self._check_word("ETag", etag)
            file.etag = etag
        size = headers.get("X-Linked-Size") or headers.get("Content-Length") or ""
        if re.fullmatch(r"[0-9]{1,18}", size):
            if file.size is not None and file.size != int(size):
                raise self._refusal(f"lists {file.size} bytes and then announces {size}")
            file.size = int(size)
        if linked and is_sha256(etag):
            if file.sha256 not in (None, etag):
                raise self._refusal(f"lists the SHA-256 {file.sha256} and then announces {etag}")
            file.sha256 = etag

    def _check_word(self, header: str, value: str | None) -> None:
        if value is not None and not is_word(value):
            raise self._refusal(f"answers with the {header} {value[:100]!r}, which is no plain word")

    def _bound(self, response: Any) -> None:
        """Let the body be read up to as many bytes as were announced."""
        if (coding := response.headers.get("Content-Encoding", "identity").lower()) != "identity":
            raise self._refusal(f"answers in the encoding {coding[:100]!r}, for which it was not asked")
        most = MOST_LISTING_BYTES
        if response.status_code >= 300:
            most = _MOST_ERROR_BYTES
        elif self._file is not None and self._file.size is not None:
            most = self._file.size
        told = response.headers.get("Content-Length") or ""
        if response.status_code < 300 and re.fullmatch(r"[0-9]+", told) and int(told[:20]) > most:
            raise self._too_long(most)
        for name in ("iter_content", "iter_bytes"):  # of requests and httpx; all else that reads a body calls it
            if (read := getattr(response, name, None)) is not None:
                setattr(response, name, self._bounded(read, most))

    def _bounded(self, read: Callable[[int | None], Iterator[bytes]], most: int) -> Callable[..., Iterator[bytes]]:
        def bounded(chunk_size: int | None = None) -> Iterator[bytes]:
            left = most
            for chunk in read(chunk_size):
                left -= len(chunk)
                if left < 0:
                    raise self._too_long(most)
                yield chunk

        return bounded

    def _too_long(self, most: int) -> HubError:
        return self._refusal(f"sends more than the {most} bytes that are expected")

    def _refusal(self, what: str) -> HubError:
        of = ""
        if self._file is not None:
            self._file.is_refused = True
            of = f" for {self._file.name}"
        return refusal(f"{self._repo}{of}: the hub {what}")


def refusal(found: str) -> HubError:
    """The error about a hub whose words are not true."""
    return HubError(f"{found}: check HF_ENDPOINT and the proxy, or take the model from elsewhere")


def verify_content(path: Path, repo: str, file: HubFile) -> None:
    """Compare a downloaded file with the SHA-256 that the hub told; remove it from the cache if it is another.

    Raises:
        HubError: it is another.
    """
    if file.sha256 is None:
        return
    with open_regular(path) as content:
        found = file_digest(content, "sha256").hexdigest()
    if found != file.sha256:
        blob = path.resolve()
        path.unlink()
        blob.unlink(missing_ok=True)
        raise refusal(
            f"{repo}: {file.name} has the SHA-256 {found}, and the hub announced {file.sha256}; it has been deleted"
        )


def discard_parts(blobs: Path, file: HubFile) -> None:
    """Remove what was downloaded of a file whose hub was refused."""
    if file.etag is not None:
        for part in blobs.glob(f"{file.etag}*.incomplete"):
            part.unlink(missing_ok=True)


_ANSWERS: ContextVar[HubAnswers | None] = ContextVar("_ANSWERS", default=None)
_LOCK = threading.Lock()
_users = 0
_restore: Callable[[], object] = lambda: None  # noqa: E731


@contextmanager
def checked_answers(repo: str) -> Generator[HubAnswers]:
    """Have what huggingface_hub asks in this thread within the context answered in plain bytes, and checked."""
    global _users, _restore
    answers = HubAnswers(repo)
    token = _ANSWERS.set(answers)
    with _LOCK:
        _users += 1
        if _users == 1:
            _restore = _install()
    try:
        yield answers
    finally:
        _ANSWERS.reset(token)
        with _LOCK:
            _users -= 1
            if _users == 0:
                _restore()


def _install() -> Callable[[], object]:
    """Let huggingface_hub make clients that call ``_check``; returns what undoes it.

    Clients are made anew after errors, so a client that is there cannot simply be changed.
    """
    library: Any = import_module("huggingface_hub.utils._http")
    if hasattr(library, "set_client_factory"):  # 1.0 and later, of httpx
        made, use = library._GLOBAL_CLIENT_FACTORY, library.set_client_factory
    else:
        made, use = library._GLOBAL_BACKEND_FACTORY, library.configure_http_backend

    def make() -> Any:
        client = made()
        client.headers["Accept-Encoding"] = "identity"
        if hasattr(client, "event_hooks"):
            hooks = client.event_hooks
            client.event_hooks = {**hooks, "response": [*hooks.get("response", ()), _check]}
        else:
            client.hooks["response"].append(_check_of_requests)
        return client

    use(make)
    return lambda: use(made)


def _check(response: Any) -> None:
    if (answers := _ANSWERS.get()) is not None:
        answers.check(response)


def _check_of_requests(response: Any, *_: object, **__: object) -> None:
    _check(response)
