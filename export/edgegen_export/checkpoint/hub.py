"""Hugging Face hub: the files that an export needs, and no other, fetched through huggingface_hub and its cache.

huggingface_hub reads HF_TOKEN, HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE itself, when it is first needed.
"""

import json
import os
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from edgegen.errors import HubError, first_line
from edgegen.system import is_portable
from edgegen_export.checkpoint.companions import is_embedding_file, is_license_file, is_tokenizer_file
from edgegen_export.checkpoint.download_watch import watching
from edgegen_export.checkpoint.hub_answers import (
    HubAnswers,
    HubFile,
    checked_answers,
    discard_parts,
    is_sha256,
    is_word,
    refusal,
    verify_content,
)
from edgegen_export.checkpoint.listing import Listing
from edgegen_export.checkpoint.quantization_config import MODELOPT_FILE
from edgegen_export.checkpoint.refusal import adapter_refusal, no_adapter_refusal, weights_refusal
from edgegen_export.checkpoint.weight_files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    PREFERRED,
    WEIGHTS,
    WEIGHTS_INDEX,
    find_gguf,
    find_weights,
    gguf_parts,
    ignored_weights,
    is_gguf_name,
    listed,
    read_index,
    read_json_object,
)

_LONG_BYTES = 5_000_000
"""Of a file from which on its download has a bar."""

_MOST_SMALL_BYTES = 256_000_000
"""Of a file that is no weights; a tokenizer of 262,144 tokens has 35 MB."""

_MOST_BYTES = 1 << 50
"""Of any file."""

_MOST_MOVES = 3
"""Times that a branch may move while its files are fetched."""

VERIFYING = "verifying"
"""Beginning of a stage in which a download is compared with its SHA-256."""

_WEIGHTS_SUFFIXES = (".safetensors", ".gguf")

_CONFIGS = frozenset({"config.json", "generation_config.json", MODELOPT_FILE})

CheckDownload = Callable[[Path, int], object]
"""Hears the folder of the cache and the bytes that are to be downloaded into it; may refuse."""

OnDownload = Callable[[str, str, int, int], object]
"""Hears of a large file its name, its SHA-256, how many bytes of it are there, and of how many."""

Bar = Callable[[int | None], AbstractContextManager[None]]
"""Makes a context in which the download of a file, of the given size in bytes, may show its progress."""


def _told_nobody(file: str, sha256: str, done: int, total: int) -> None:
    """An ``OnDownload`` for downloads whose progress is not shown."""


class Snapshot(NamedTuple):
    """A commit's files in the hub cache; ``gguf``: the GGUF file that holds the weights, None for safetensors."""

    listing: Listing
    revision: str
    gguf: str | None


def fetch(
    repo: str,
    revision: str | None,
    gguf_file: str | None,
    progress: Callable[[str], None],
    check_config: Callable[[Mapping[str, Any]], object],
    check_download: CheckDownload,
    on_download: OnDownload = _told_nobody,
) -> Snapshot:
    """The needed files of a hub repository, from the cache where they are there.

    ``check_config`` may refuse a ``config.json`` before anything else is fetched; a GGUF file has its own inside.
    ``check_download`` may refuse the size of the weights before any of them is fetched. ``on_download`` is called by
    another thread.
    Raises ``HubError``, saying what to do, when the repository, revision, network or weights are not there.
    """
    return _listed_and_fetched(
        repo,
        revision,
        progress,
        on_download,
        lambda downloads, at: _fetch_listed(downloads, at, gguf_file, check_config, check_download),
        lambda at, error: _cached(repo, at, gguf_file, error, progress),
    )


def _fetch_listed(
    downloads: "_Downloads",
    revision: str | None,
    gguf_file: str | None,
    check_config: Callable[[Mapping[str, Any]], object],
    check_download: CheckDownload,
) -> Snapshot | str:
    """The needed files of what was listed; another commit, where the hub sent a file of that one."""
    repo, commit, sizes = downloads.repo, downloads.files.commit, downloads.files.sizes
    gguf = find_gguf(sizes, gguf_file, repo, preferred=PREFERRED)
    if gguf is None and "config.json" not in sizes:
        adapter = downloads.get(ADAPTER_CONFIG, revision) if ADAPTER_CONFIG in sizes else None
        found = f"{repo} has no config.json (found: {listed(sorted(sizes)) or 'nothing'})"
        raise HubError(adapter_refusal(sizes, repo, adapter) or found)

    def check(weights: Collection[str]) -> None:
        absent = [name for name in weights if not _is_cached(repo, name, commit)]
        check_download(_cache_folder(), sum(sizes[name] or 0 for name in absent))

    if gguf is not None:
        check(gguf_parts(gguf))
    # By the revision's name, so that the cache knows the name when it is offline.
    first = "config.json" if gguf is None else next(iter([*_small(sizes), gguf]))
    path = downloads.get(first, revision).parents[first.count("/")]
    if path.name != commit:  # the branch moved meanwhile, or an older commit in the cache had to serve
        return path.name
    if gguf is None:
        check_config(read_json_object(path / "config.json"))
    for name in [*_small(sizes), *gguf_parts(gguf)] if gguf else _wanted(repo, path, sizes, check):
        downloads.get(name, commit)
    return Snapshot(Listing.read(path), commit, gguf)


def fetch_adapter(
    repo: str,
    progress: Callable[[str], None],
    check_config: Callable[[Mapping[str, Any]], object],
    check_download: CheckDownload,
) -> Snapshot:
    """As ``fetch``, of an adapter's main branch: its config, which may be refused, its tokenizer and its weights."""
    return _listed_and_fetched(
        repo,
        None,
        progress,
        _told_nobody,
        lambda downloads, at: _fetch_listed_adapter(downloads, at, check_config, check_download),
        lambda at, error: _cached_adapter(repo, at, error, progress),
    )


def _fetch_listed_adapter(
    downloads: "_Downloads",
    revision: str | None,
    check_config: Callable[[Mapping[str, Any]], object],
    check_download: CheckDownload,
) -> Snapshot | str:
    """As ``_fetch_listed``, of an adapter's repository."""
    repo, files = downloads.repo, downloads.files
    if refused := no_adapter_refusal(files.sizes, repo, hub=True):
        raise HubError(refused)
    path = downloads.get(ADAPTER_CONFIG, revision, told=False).parent
    if path.name != files.commit:
        return path.name
    check_config(read_json_object(path / ADAPTER_CONFIG))
    if not _is_cached(repo, ADAPTER_WEIGHTS, files.commit):
        check_download(_cache_folder(), files.sizes[ADAPTER_WEIGHTS] or 0)
    for name in (*sorted(filter(is_tokenizer_file, files.sizes)), ADAPTER_WEIGHTS):
        downloads.get(name, files.commit)
    return Snapshot(Listing.read(path), files.commit, None)


def _listed_and_fetched(
    repo: str,
    revision: str | None,
    progress: Callable[[str], None],
    on_download: OnDownload,
    fetch_listed: "Callable[[_Downloads, str | None], Snapshot | str]",
    cached: Callable[[str | None, Exception], Snapshot],
) -> Snapshot:
    """The files that ``fetch_listed`` chooses of a revision's listing; those that are ``cached`` where there is none.

    ``fetch_listed`` returns another commit where the hub sent a file of that one; then that one is listed.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read once, when huggingface_hub is imported
    at = revision
    with _quiet() as bar, checked_answers(repo) as answers:
        for moves in range(_MOST_MOVES):
            try:
                # First, since it fails at once: file downloads are tried again for half a minute.
                files = _list_files(repo, at)
            except HubError:
                raise
            except Exception as error:  # of whichever HTTP client this version uses
                return cached(at, error)
            downloads = _Downloads(repo, files, answers, bar, progress, on_download, verify_all=moves > 0)
            found = fetch_listed(downloads, at)
            if isinstance(found, Snapshot):
                return found
            at = found
    raise refusal(f"{repo}: the hub sends files of another commit each time")


class _Listed(NamedTuple):
    """A revision's commit, every file name in it with its size where the hub tells it, and the SHA-256 of large
    files."""

    commit: str
    sizes: Mapping[str, int | None]
    hashes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Downloads:
    """Fetches ``files`` of a repository's listing into the cache, and compares each that was not there with it.

    ``verify_all``: those that were there too, since they may have come before this listing did.
    """

    repo: str
    files: _Listed
    answers: HubAnswers
    bar: Bar
    progress: Callable[[str], None]
    on_download: OnDownload
    verify_all: bool = False

    def get(self, name: str, revision: str | None, *, told: bool = True) -> Path:
        """The file in the cache, once it is there; ``told``: the download is a stage."""
        known = _is_cached(self.repo, name, self.files.commit)
        file = HubFile(name, self.files.commit, self.files.sizes.get(name), self.files.hashes.get(name))
        if not name.endswith(_WEIGHTS_SUFFIXES) and (file.size or 0) > _MOST_SMALL_BYTES:
            raise refusal(f"{self.repo}: the hub lists {name} with {file.size} bytes, which no such file has")
        watch: AbstractContextManager[None] = nullcontext()
        if told and not known:
            self.progress(f"downloading {name}" + (f" ({file.size / 1e6:.1f} MB)" if file.size else ""))
            if file.sha256 and file.size:
                on_download = partial(self.on_download, name, file.sha256)
                watch = watching(_blobs(self.repo), file.sha256, file.size, on_download)
        try:
            with self.bar(file.size), watch, self.answers.of(file):
                path = _download(self.repo, name, revision)
        except HubError:
            if file.is_refused:
                discard_parts(_blobs(self.repo), file)
            raise
        is_listed = path.parents[name.count("/")].name == self.files.commit
        if file.sha256 is not None and (self.verify_all or not (known and is_listed)):
            if told:
                self.progress(f"{VERIFYING} {name}")
            verify_content(path, self.repo, file)
        return path


def _cached_adapter(repo: str, revision: str | None, error: Exception, progress: Callable[[str], None]) -> Snapshot:
    """Return the cached files of an adapter, when ``error`` kept the hub from answering."""
    folder = _cached_folder(repo, revision, error)
    listing = Listing.read(folder)
    if missing := [name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS) if name not in listing.files]:
        raise HubError(f"{_explain(error, repo, revision)}; the cache has no {listed(missing)}") from error
    progress(f"using the cached files of {repo}")
    return Snapshot(listing, folder.name, None)


def _small(names: Iterable[str]) -> list[str]:
    """The small files that go along with the weights, but for those that not every system can have."""
    kinds = (is_tokenizer_file, is_license_file, is_embedding_file)
    return sorted(n for n in names if n in _CONFIGS or (any(belongs(n) for belongs in kinds) and is_portable(n)))


def _wanted(
    repo: str, folder: Path, names: Mapping[str, int | None], check: Callable[[Collection[str]], None]
) -> Iterator[str]:
    """The files to have, the small ones first; an index is fetched on the way to the shards that it names. ``check``
    hears the files of weights before the first of them."""
    yield from _small(names)
    weights = find_weights(names)
    if weights is None:
        raise HubError(weights_refusal(names, repo, hub=True, revision=folder.name))
    if not weights.endswith(".json"):
        check([weights])
    yield weights
    if ignored_weights(names):
        yield WEIGHTS_INDEX  # for the warning that it is not used
    if weights.endswith(".json"):
        shards = sorted(set(read_index(folder / weights).values()))
        if absent := [shard for shard in shards if shard not in names]:
            raise HubError(f"{repo} lacks shards that its {weights} names: {listed(absent)}")
        check(shards)
        yield from shards


def _cached(
    repo: str, revision: str | None, gguf_file: str | None, error: Exception, progress: Callable[[str], None]
) -> Snapshot:
    """Return the cached files, when ``error`` kept the hub from answering; ``HubError`` if they are too few."""
    folder = _cached_folder(repo, revision, error)
    listing = Listing.read_tree(folder)
    names = listing.files
    named = gguf_file if gguf_file and is_gguf_name(gguf_file) else None
    absent = [part for part in gguf_parts(named) if part not in names] if named else []
    gguf = None if absent else find_gguf(names, gguf_file, f"the cache of {repo}", preferred=PREFERRED)
    if missing := absent or ([] if gguf else _missing(folder, names)):
        reason = f"{_explain(error, repo, revision)}; the cache has no {listed(missing)}"
        raise HubError(reason) from error
    progress(f"using the cached files of {repo}")
    return Snapshot(listing, folder.name, gguf)


def _cached_folder(repo: str, revision: str | None, error: Exception) -> Path:
    """Where the cache has the revision, whole or in part; ``HubError`` if it knows nothing of it."""
    from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType]

    try:
        return Path(snapshot_download(repo, revision=revision, local_files_only=True))
    except Exception:
        raise HubError(_explain(error, repo, revision)) from error


def _missing(folder: Path, names: Collection[str]) -> list[str]:
    """Return the files that an export needs and the cached files of a commit lack."""
    config = [] if "config.json" in names else ["config.json"]
    weights = find_weights(names)
    if weights is None:
        return [*config, WEIGHTS]
    if not weights.endswith(".json"):
        return config
    return config + sorted(shard for shard in set(read_index(folder / weights).values()) if shard not in names)


def _download(repo: str, name: str, revision: str | None) -> Path:
    from huggingface_hub import hf_hub_download  # pyright: ignore[reportUnknownVariableType]

    if not is_portable(name):
        raise HubError(f"{repo} has its model in {name!r}, which is no file name on every system")
    try:
        return Path(hf_hub_download(repo, name, revision=revision))
    except HubError:
        raise
    except Exception as error:
        raise HubError(f"{name}: {_explain(error, repo, revision)}") from error


def _cache_folder() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _blobs(repo: str) -> Path:
    """Where the cache has the contents of a repository's files, under their hashes."""
    from huggingface_hub.file_download import repo_folder_name

    return _cache_folder() / repo_folder_name(repo_id=repo, repo_type="model") / "blobs"


def _is_cached(repo: str, name: str, commit: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(repo, name, revision=commit), str)


def _list_files(repo: str, revision: str | None) -> _Listed:
    """List the files of a revision. Raises ``HubError`` for an impossible listing."""
    from huggingface_hub import HfApi

    info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=30)
    files: Any = info.siblings or ()
    commit: Any = info.sha
    if not isinstance(commit, str) or not is_word(commit):
        raise refusal(f"{repo}: the hub lists the commit {commit!r:.100}, which is no plain word")
    sizes, hashes = dict[str, int | None](), dict[str, str]()
    for file in files:
        name, size, sha256 = file.rfilename, file.size, file.lfs.sha256 if file.lfs else None
        if not isinstance(name, str):
            raise refusal(f"{repo}: the hub lists a file with the name {name!r:.100}")
        if size is not None and (type(size) is not int or not 0 <= size < _MOST_BYTES):
            raise refusal(f"{repo}: the hub lists {name[:100]!r} with the size {size!r:.100}")
        if sha256 is not None:
            if not isinstance(sha256, str) or not is_sha256(sha256):
                raise refusal(f"{repo}: the hub lists {name[:100]!r} with the SHA-256 {sha256!r:.100}")
            hashes[name] = sha256
        sizes[name] = size
    return _Listed(commit, sizes, hashes)


def _explain(error: Exception, repo: str, revision: str | None) -> str:
    """One sentence for what huggingface_hub raised: what is wrong and what to do."""
    from huggingface_hub import constants, errors

    endpoint = constants.ENDPOINT
    at = f"{repo} at revision {revision}" if revision else repo
    status = _status(error)
    if isinstance(error, errors.GatedRepoError):
        return f"{repo} is gated: accept its terms at {endpoint}/{repo}, then set HF_TOKEN to a token of that account"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"there is no folder {repo!r}, and {endpoint} shows no model of that id: check the name, and set "
            "HF_TOKEN to a token that may read it if the model is private"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repo} has no revision {revision!r}: name a branch, a tag or a commit"
    if status in (401, 403):
        return f"{endpoint} refused access to {repo} (HTTP {status}): set HF_TOKEN to a token that may read it"
    if constants.HF_HUB_OFFLINE:
        return f"{at} is not in the hub cache and HF_HUB_OFFLINE is set: unset it to download, or export a local folder"
    if status is not None:
        return f"{endpoint} answered HTTP {status} for {at}: try again later, or export a local folder"
    if isinstance(error, errors.FileMetadataError) or isinstance(error.__cause__, errors.FileMetadataError):
        return f"{endpoint} does not answer as a model hub: check HF_ENDPOINT and the proxy"
    if isinstance(
        error, json.JSONDecodeError | UnicodeError | LookupError | TypeError | AttributeError | RecursionError
    ):
        return f"{endpoint} does not answer as a model hub ({first_line(error)}): check HF_ENDPOINT and the proxy"
    if isinstance(error, errors.LocalEntryNotFoundError) or _is_network(error):
        return (
            f"{endpoint} cannot be reached and {at} is not in the cache: check the network, or export a "
            "local folder (HF_HUB_OFFLINE=1 uses the cache alone)"
        )
    return f"fetching {at} failed: {first_line(error)}"


def _status(error: BaseException | None) -> int | None:
    """The HTTP status of an error, where there was an answer."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
        error = error.__cause__
    return None


def _is_network(error: BaseException) -> bool:
    """Whether an HTTP client (requests, or httpx in newer versions) failed to get through."""
    modules = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
    return isinstance(error, ConnectionError | TimeoutError) or bool(
        modules & {"requests", "httpx", "httpx2", "httpcore"}
    )


@contextmanager
def _quiet() -> Generator[Bar]:
    """The hub library shows no progress bars but, on a terminal, for downloads within the context that is given, unless
    HF_HUB_DISABLE_PROGRESS_BARS or the calling program already says what to do."""
    from huggingface_hub import constants
    from huggingface_hub.utils import (  # re-exported without saying so
        are_progress_bars_disabled,  # pyright: ignore[reportPrivateImportUsage]
        disable_progress_bars,  # pyright: ignore[reportPrivateImportUsage]
        enable_progress_bars,  # pyright: ignore[reportPrivateImportUsage]
    )

    if constants.HF_HUB_DISABLE_PROGRESS_BARS is not None or are_progress_bars_disabled():
        yield lambda nbytes: nullcontext()
        return

    @contextmanager
    def bar(nbytes: int | None) -> Generator[None]:
        # A windowed app has no standard error.
        shown = (nbytes or 0) >= _LONG_BYTES and sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison]
        if shown:
            enable_progress_bars()
        try:
            yield
        finally:
            disable_progress_bars()

    disable_progress_bars()
    try:
        yield bar
    finally:
        enable_progress_bars()
