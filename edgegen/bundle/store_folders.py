"""Where the bundles of the store lie: below ``EDGEGEN_HOME``, and the embedded one in the package itself.

The base of an adapter bundle lies beside it or in the store, whatever it is called: its hash decides.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from edgegen.bundle.manifest import MANIFEST_NAME, MOST_BYTES, BaseBundle
from edgegen.bundle.manifest_digest import ManifestDigest
from edgegen.system import home_folder, open_regular

DEFAULT_MODEL = "stories"
"""The name of the embedded bundle."""

EMBEDDED = Path(__file__).parent / "embedded" / DEFAULT_MODEL


def store_root() -> Path:
    """The folder of all but the embedded one."""
    return home_folder() / "bundles"


def store_folders() -> list[Path]:
    """The bundles, readable or not, the embedded one first."""
    found = [EMBEDDED] if EMBEDDED.is_dir() else []
    with suppress(OSError):
        found += [path for path in sorted(store_root().iterdir()) if not path.name.startswith(".")]
    return [path for path in found if (path / MANIFEST_NAME).is_file()]


def base_folder(adapter: Path, base: BaseBundle) -> Path | None:
    """The folder of the bundle ``base``, which the adapter bundle in ``adapter`` needs; None if it is not there.

    A bundle of that name is tried first. An adapter bundle is no base.
    """
    beside = adapter.absolute().parent
    named = [beside / base.name, store_root() / base.name]
    for folder in dict.fromkeys([*named, *_folders(beside), *store_folders()]):
        if folder != adapter.absolute() and _hash(folder / MANIFEST_NAME) == base.sha256:
            return folder
    return None


def _folders(parent: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(path for path in parent.iterdir() if not path.name.startswith("."))


def _hash(manifest: Path) -> str | None:
    """As :attr:`Bundle.sha256`; None where there is none."""
    try:
        with open_regular(manifest) as file:
            return ManifestDigest.of(file.read(MOST_BYTES + 1)).found
    except OSError:
        return None
