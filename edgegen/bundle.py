"""Bundle: one folder with ``edgegen.json``, opened, verified, its files located.

Verification reads every file and compares size and SHA-256 with the manifest. It is remembered per file identity
(device, inode, size, modification and change time), so that it costs once, not at every start.
"""

import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgegen.board import home_folder
from edgegen.errors import BundleNotFoundError, ManifestError, UsageError, VerificationError, one_or_list
from edgegen.manifest import MANIFEST_NAME, GraphVariant, KVDtype, Manifest

# A file changed within the clock's granularity after it was hashed would look unchanged.
_SETTLED_AFTER_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle and where its files lie; ``path`` is the folder of ``edgegen.json``, ``content`` that of the rest."""

    path: Path
    manifest: Manifest
    content: Path

    @classmethod
    def open(cls, path: Path) -> "Bundle":
        """Read the manifest; nothing else is touched.

        Raises:
            BundleNotFoundError: no ``edgegen.json`` there.
            ManifestError: it is malformed.
        """
        manifest_path = path / MANIFEST_NAME
        try:
            text = manifest_path.read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            raise BundleNotFoundError(f"{path} is not a bundle: it has no {MANIFEST_NAME}.") from None
        except UnicodeDecodeError:
            raise ManifestError(f"{manifest_path} is not UTF-8 text.") from None
        manifest = Manifest.from_json(text, str(manifest_path))
        return cls(path, manifest, path / manifest.folder)

    @property
    def variant(self) -> GraphVariant:
        """The preferred variant: the first."""
        return self.manifest.variants[0]

    def variant_with(self, kv: KVDtype) -> GraphVariant:
        """The first variant that keeps keys and values as ``kv``.

        Raises:
            UsageError: there is none; the message names what there is.
        """
        for variant in self.manifest.variants:
            if variant.kv.dtype == kv:
                return variant
        there = " and ".join(dict.fromkeys(variant.kv.dtype for variant in self.manifest.variants))
        traced = self.variant.kv.kind == "concat"
        advice = "graphs traced by optimum have no others" if traced else "export the model again, and see its warnings"
        raise UsageError(f"{self.path} has no variant with {kv} keys and values, only with {there} ones: {advice}.")

    @property
    def nbytes(self) -> int:
        """Bytes of all files on disk but the manifest."""
        return sum(entry.size for entry in self.manifest.files.values())

    def file(self, name: str) -> Path:
        return self.content / name

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file of the bundle, verified and parsed.

        Raises:
            VerificationError: it is not what the manifest says, or not JSON.
        """
        if fault := self._fault(name):
            raise VerificationError(f"the bundle {self.path} is damaged: {fault}. Export it again with --force.")
        try:
            return json.loads(self.file(name).read_text("utf-8"))
        except ValueError as error:
            raise VerificationError(f"{self.file(name)} is not valid JSON: {error}") from None

    def verify(self) -> None:
        """Compare every file with the manifest, whatever was remembered.

        Raises:
            VerificationError: lists every file that is missing, leads out of the bundle, or differs in size or hash.
        """
        with ThreadPoolExecutor(max_workers=2) as pool:
            faults = [fault for fault in pool.map(self._fault, self.manifest.files) if fault]
        if faults:
            raise VerificationError(
                f"the bundle {self.path} is damaged: {one_or_list(faults)}\nExport it again with --force."
            )

    def verify_once(self) -> None:
        """:meth:`verify`, unless these very files have passed it before."""
        before = self._identities()
        memory = (
            home_folder() / "verified" / f"{hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:32]}.json"
        )
        with suppress(OSError, ValueError):
            if before and json.loads(memory.read_text()) == before:
                return
        self.verify()
        if before and before == self._identities() and self._settled(before):
            with suppress(OSError):  # a home that cannot be written costs a verification per start, no more
                memory.parent.mkdir(parents=True, exist_ok=True)
                draft = memory.with_suffix(f".{os.getpid()}")
                draft.write_text(json.dumps(before))
                draft.replace(memory)

    def _fault(self, name: str) -> str | None:
        """What is wrong with a file, in a few words."""
        path, wanted = self.file(name), self.manifest.files[name]
        try:
            if not path.resolve(strict=True).is_relative_to(self.path.resolve()):
                return f"{name}: leads out of the bundle"
            if not path.is_file():
                return f"{name}: not a file"
            if (size := path.stat().st_size) != wanted.size:
                return f"{name}: {size} bytes, but the manifest says {wanted.size}"
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return f"{name}: missing"
        except RuntimeError:  # Python before 3.13 calls a loop of links so
            return f"{name}: a link that leads to itself"
        except OSError as error:
            return f"{name}: cannot be read: {error.strerror}"
        return None if digest == wanted.sha256 else f"{name}: contents differ from the manifest's hash"

    def _identities(self) -> dict[str, Any]:
        """What makes each file the one that was verified; empty where one cannot be read."""
        try:
            stats = {name: self.file(name).stat() for name in self.manifest.files}
        except OSError:
            return {}
        identity = {
            name: [s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for name, s in sorted(stats.items())
        }
        expected = {name: entry.sha256 for name, entry in sorted(self.manifest.files.items())}
        return {"files": identity, "sha256": expected}

    @staticmethod
    def _settled(identities: dict[str, Any]) -> bool:
        newest = max(max(identity[3:]) for identity in identities["files"].values())
        return time.time_ns() - newest > _SETTLED_AFTER_NS
