"""StandInHub: a model hub on this machine that serves folders, and remembers what was asked of it.

It speaks as much of the hub's protocol as huggingface_hub (0.26 to 2.x) uses to list and download: the model
API, file heads with commit and etag, redirects of large files elsewhere, ranges, and the error codes.
"""

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import unquote, urlsplit

_LARGE = (".safetensors", ".gguf", ".bin", ".h5", ".msgpack", ".onnx", ".pt")
_API = re.compile(r"/api/models/(?P<repo>.+?)(?:/(?P<what>revision|tree)/(?P<revision>[^/]+))?/?")
_FILE = re.compile(r"/(?P<repo>.+?)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")


class Request(NamedTuple):
    """A request as it came: method and path."""

    method: str
    path: str


class Answer(NamedTuple):
    """An answer as it is about to be sent. With a ``Transfer-Encoding`` among the headers it comes in chunks."""

    request: Request
    status: int
    body: bytes
    headers: Mapping[str, str]


class StandInHub:
    """A hub at ``url``, in a thread, while the context lasts.

    ``repos``: id → folder; the key ``"org/name@v2"`` serves a branch of that name beside ``main``.
    ``aliases``: old id → id, answered by a redirect as after a rename. ``private`` ids need ``token``, and so
    do the files, but not the listing, of ``gated`` ones. ``down`` (settable at any time) makes every answer
    that HTTP status, an error. ``stalls_after`` (too) is how many bytes of a large file are sent before nothing more
    comes until the hub stops, and ``stalled`` is set then. ``lie`` (too) may change any answer.

    ``requests`` lists all requests, ``downloads`` the files whose content was sent, as ``"org/name/file"``;
    ``ranges`` the first bytes that were asked for of large files; ``tokens_at_store`` counts the tokens that were
    shown to the store of large files, where none belongs.
    """

    def __init__(
        self,
        repos: Mapping[str, Path],
        *,
        aliases: Mapping[str, str] | None = None,
        private: Collection[str] = (),
        gated: Collection[str] = (),
        token: str = "hf_standin",
    ) -> None:
        self.repos = dict(repos)
        self.aliases = dict(aliases or {})
        self.private = frozenset(private)
        self.gated = frozenset(gated)
        self.token = token
        self.down: int | None = None
        self.stalls_after: int | None = None
        self.lie: Callable[[Answer], Answer] = lambda answer: answer
        self.stalled, self._stopped = threading.Event(), threading.Event()
        self.ranges: list[int] = []
        self.requests: list[Request] = []
        self.downloads: list[str] = []
        self.user_agents: set[str] = set()
        self.tokens_at_store = 0
        # Large files come from another host, as from the hub's content network.
        self._servers = (_Server(self), _Server(self))
        self._threads = [
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
            for server in self._servers
        ]

    @property
    def url(self) -> str:
        """Value of HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._servers[0].server_address[1]}"

    @property
    def store_url(self) -> str:
        """Where large files lie."""
        return f"http://localhost:{self._servers[1].server_address[1]}"

    def environment(self, home: Path) -> dict[str, str]:
        """Return the environment of a process that uses this hub, with its cache in ``home``, in place of every HF
        variable."""
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("HF_", "TRANSFORMERS_")) and "proxy" not in k.lower()
        }
        return kept | {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1,localhost"}

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """No longer answer; connections are refused from here on."""
        self._stopped.set()
        for server, thread in zip(self._servers, self._threads, strict=True):
            if thread.is_alive():
                server.shutdown()
                thread.join()
            server.server_close()

    def stall(self) -> None:
        """Say nothing more until the hub stops."""
        self.stalled.set()
        self._stopped.wait()

    def commit(self, repo: str, revision: str = "main") -> str | None:
        """The commit id of a revision, made from the folder's content; None without such a revision."""
        for key, folder in self.repos.items():
            name, _, branch = key.partition("@")
            if name == repo:
                sha = _commit(folder)
                if revision in (branch or "main", sha):
                    return sha
        return None

    def folder(self, repo: str, commit: str) -> Path:
        """The folder behind a commit."""
        return next(
            folder for key, folder in self.repos.items() if key.partition("@")[0] == repo and _commit(folder) == commit
        )

    def is_known(self, repo: str) -> bool:
        """Whether any revision of ``repo`` is served."""
        return any(key.partition("@")[0] == repo for key in self.repos)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: StandInHub) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    @cached_property
    def hub(self) -> StandInHub:
        return self.server.hub

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class names it so)
        """Nothing on stderr."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(Request(self.command, path))
        self.hub.user_agents.add(self.headers.get("User-Agent", ""))
        if self.hub.down is not None:
            self._send(self.hub.down, b"down")
        elif path.startswith("/large/"):
            self._send_large(path)
        elif match := _API.fullmatch(path):
            self._send_api(match["repo"], unquote(match["revision"] or "main"), tree=match["what"] == "tree")
        elif match := _FILE.fullmatch(path):
            self._send_file(match["repo"], unquote(match["revision"]), match["name"])
        else:
            self._send(404, b"not here")

    def _resolve(self, repo: str, revision: str, *, listing: bool = False) -> str | None:
        """The commit, once the caller may see it; otherwise the answer has been sent."""
        if repo in self.hub.aliases:
            self._send(307, b"", {"Location": self.path.replace(repo, self.hub.aliases[repo], 1)})
            return None
        allowed = self.headers.get("Authorization") == f"Bearer {self.hub.token}"
        if not self.hub.is_known(repo) or (repo in self.hub.private and not allowed):
            self._send(401, b"", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
            return None
        if repo in self.hub.gated and not allowed and not listing:
            message = f"Access to model {repo} is restricted."
            self._send(401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": message})
            return None
        commit = self.hub.commit(repo, revision)
        if commit is None:
            message = f"Invalid rev id: {revision}"
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": message})
        return commit

    def _send_api(self, repo: str, revision: str, *, tree: bool) -> None:
        commit = self._resolve(repo, revision, listing=True)
        if commit is None:
            return
        folder = self.hub.folder(repo, commit)
        sizes = {name: (folder / name).stat().st_size for name in _files(folder)}
        if tree:
            answer: object = [
                {"type": "file", "path": name, "size": size, "oid": _sha1(folder / name)}
                for name, size in sizes.items()
            ]
        else:
            siblings = [{"rfilename": name, "size": size, **_lfs(folder / name, size)} for name, size in sizes.items()]
            answer = {"_id": repo, "id": repo, "modelId": repo, "sha": commit, "private": False}
            answer |= {"siblings": siblings, "tags": [], "downloads": 0, "likes": 0}
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _send_file(self, repo: str, revision: str, name: str) -> None:
        commit = self._resolve(repo, revision)
        if commit is None:
            return
        folder = self.hub.folder(repo, commit)
        if name not in _files(folder):
            error = {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"}
            self._send(404, b"", {"X-Repo-Commit": commit, **error})
            return
        file = folder / name
        if file.suffix in _LARGE:
            self._send(
                302,
                b"",
                {
                    "Location": f"{self.hub.store_url}/large/{repo}/{commit}/{name}",
                    "X-Repo-Commit": commit,
                    "X-Linked-Size": str(file.stat().st_size),
                    "X-Linked-ETag": f'"{hashlib.sha256(file.read_bytes()).hexdigest()}"',
                },
            )
            return
        self._send_content(f"{repo}/{name}", file, {"X-Repo-Commit": commit, "ETag": f'"{_sha1(file)}"'})

    def _send_large(self, path: str) -> None:
        match = re.fullmatch(r"/large/(?P<repo>.+)/(?P<commit>[0-9a-f]{40})/(?P<name>.+)", path)
        assert match is not None
        self.hub.tokens_at_store += "Authorization" in self.headers
        file = self.hub.folder(match["repo"], match["commit"]) / match["name"]
        headers = {"Content-Disposition": f'inline; filename="{file.name}";'}
        self._send_content(f"{match['repo']}/{match['name']}", file, headers)

    def _send_content(self, label: str, file: Path, headers: dict[str, str]) -> None:
        content = file.read_bytes()
        if self.command == "GET":
            self.hub.downloads.append(label)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if self.command == "GET" and file.suffix in _LARGE:
            self.hub.ranges.append(int(asked[1]) if asked else 0)
        if asked is None:
            self._send(200, content, headers | {"Accept-Ranges": "bytes"})
            return
        start, stop = int(asked[1]), int(asked[2] or len(content) - 1) + 1
        headers |= {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}"}
        self._send(206, content[start:stop], headers)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        request = Request(self.command, unquote(urlsplit(self.path).path))
        _, status, body, headers = self.hub.lie(Answer(request, status, body, headers or {}))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Transfer-Encoding" in headers:
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        elif "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if (sent := self.hub.stalls_after) is not None and len(body) > sent:
            self.wfile.write(body[:sent])
            self.hub.stall()
        else:
            with suppress(ConnectionError):  # who asked has read enough
                self.wfile.write(body)


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _lfs(file: Path, size: int) -> dict[str, object]:
    """Return what the hub's API says of a large file; nothing of others."""
    if file.suffix not in _LARGE:
        return {}
    return {"lfs": {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "size": size, "pointerSize": 134}}


def _sha1(file: Path) -> str:
    return hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()


def _commit(folder: Path) -> str:
    digest = hashlib.sha1(usedforsecurity=False)
    for name in _files(folder):
        digest.update(name.encode() + b"\0" + _sha1(folder / name).encode())
    return digest.hexdigest()
