"""Where the bundles of the store lie: below ``EDGEGEN_HOME``, and the embedded one in the package itself."""

from contextlib import suppress
from pathlib import Path

from edgegen.bundle.manifest import MANIFEST_NAME
from edgegen.system import home_folder

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
