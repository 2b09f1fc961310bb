"""Bundle: an exported model, a folder with ``edgegen.json``; opens it, verifies it and locates its files."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgegen.bundle.embedding_defaults import EMBEDDING, EmbeddingDefaults
from edgegen.bundle.kv_format import KV_FORMATS, KVConversion, KVDtype
from edgegen.bundle.manifest import MANIFEST_NAME, MOST_BYTES, GraphVariant, Manifest
from edgegen.bundle.manifest_digest import ManifestDigest
from edgegen.bundle.store_folders import base_folder
from edgegen.bundle.verified_files import VerifiedFiles
from edgegen.errors import BundleNotFoundError, ManifestError, UsageError, VerificationError, one_or_list
from edgegen.system import open_regular, path_too_long, read_regular_text

if TYPE_CHECKING:
    from edgegen.bundle.arrays_file import Arrays
    from edgegen.graph.low_rank import LowRank

KEY_MEANS = "key_means.safetensors"
"""The file of what is subtracted from keys in a KV cache that a float32 one is converted to."""


@dataclass(frozen=True, slots=True, repr=False)
class Bundle:
    """A bundle and where its files lie; ``path`` is the folder of ``edgegen.json``, ``content`` the folder of the rest.

    ``manifest_digest``: the hash of ``edgegen.json``, and what it says of itself. ``base``: of an adapter bundle, the
    bundle that has its graphs and weights, where that was found.
    """

    path: Path
    manifest: Manifest
    content: Path
    manifest_digest: ManifestDigest
    base: "Bundle | None" = None

    @classmethod
    def open(cls, path: Path) -> "Bundle":
        """Read the manifest, and the manifest of an adapter bundle's base; nothing else is touched.

        Raises:
            BundleNotFoundError: no ``edgegen.json`` there.
            ManifestError: it is malformed.
        """
        manifest_path = path / MANIFEST_NAME
        try:
            with open_regular(manifest_path) as file:
                content = file.read(MOST_BYTES + 1)
            text = content.decode("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            if problem := path_too_long(manifest_path):
                raise BundleNotFoundError(f"{problem}.") from None
            raise BundleNotFoundError(f"{path} is not a bundle: it has no {MANIFEST_NAME}.") from None
        except UnicodeDecodeError:
            raise ManifestError(f"{manifest_path} is not UTF-8 text.") from None
        except OSError as error:
            raise ManifestError(f"{manifest_path} cannot be read: {error.strerror or error}.") from None
        if len(content) > MOST_BYTES:
            raise ManifestError(f"{manifest_path} is larger than {MOST_BYTES:,} bytes: it is not what an export wrote.")
        manifest = Manifest.from_json(text, str(manifest_path))
        base = None
        if manifest.base is not None:
            base = cls.open(found) if (found := base_folder(path, manifest.base)) else None
            if base is not None and base.manifest.base is not None:
                raise ManifestError(f"{manifest_path} names a base that is an adapter itself.")
        return cls(path, manifest, path / manifest.folder, ManifestDigest.of(content), base)

    @classmethod
    def with_manifest(cls, path: Path, manifest: Manifest, content: Path, base: "Bundle | None" = None) -> "Bundle":
        """A bundle whose ``edgegen.json`` is not written yet."""
        return cls(path, manifest, content, ManifestDigest.of(manifest.to_json().encode()), base)

    @property
    def variant(self) -> GraphVariant:
        """The preferred variant: the first."""
        return self.manifest.variants[0]

    @property
    def converted_variants(self) -> tuple[GraphVariant, ...]:
        """The float32 variant as our kernels run it with other KV caches, which there are no graphs over."""
        for one in self.manifest.variants:
            if one.kv.dtype == "float32" and one.kv.kind == "in_place" and one.kv.layers:
                return tuple(one.converted(form) for form in KV_FORMATS.values() if form.make_graph)
        return ()

    def variant_with(self, kv: KVDtype | None) -> GraphVariant:
        """The first variant with a KV cache of type ``kv``, or of the preferred variant's; one without any is of each.

        Raises:
            UsageError: there is no such variant; the message names what there is.
        """
        kv = kv or self.variant.kv.dtype
        for variant in (*self.manifest.variants, *self.converted_variants):
            if variant.kv.dtype == kv or not variant.kv.layers:
                return variant
        there = " and ".join(dict.fromkeys(variant.kv.dtype for variant in self.manifest.variants))
        traced = self.variant.kv.kind == "concat"
        advice = "graphs traced by optimum have no others" if traced else "export the model again, and see its warnings"
        raise UsageError(f"{self.path} has no variant with a KV cache in {kv}, only in {there}: {advice}.")

    @property
    def sha256(self) -> str:
        """The hash of ``edgegen.json``, in hex, and so of everything: the manifest has the hash of every other file."""
        return self.manifest_digest.found

    def expect(self, sha256: str) -> None:
        """Compare the hash of the bundle with the one that the caller trusts.

        Raises:
            VerificationError: the bundle has another hash.
        """
        if self.sha256 != sha256:
            raise VerificationError(
                f"{self.path} is not the bundle that was expected: its SHA-256 is {self.sha256}, not {sha256}."
            )

    @property
    def digest(self) -> str:
        """The same for bundles of the same content, whatever they are called and wherever they lie."""
        files = sorted((name, entry.sha256) for name, entry in self.manifest.files.items())
        if self.manifest.base is not None:
            files.append(("base", self.manifest.base.sha256))
        return hashlib.sha256(json.dumps(files).encode()).hexdigest()

    @property
    def nbytes(self) -> int:
        """Bytes of all files on disk but the manifest, and of its base's."""
        return sum(entry.size for entry in self.manifest.files.values())

    @property
    def weights_size(self) -> int:
        """Bytes of the preferred variant's weights on disk."""
        return self.size_of(self.variant.weights)

    def size_of(self, name: str) -> int:
        """Bytes of a file; of an adapter bundle, perhaps of its base's. 0 where the base is not there."""
        if name in self.manifest.files:
            return self.manifest.files[name].size
        return self.base.size_of(name) if self.base else 0

    def file(self, name: str) -> Path:
        """Where a file lies.

        Raises:
            BundleNotFoundError: it belongs to the base of an adapter bundle, which is not there.
        """
        return self.found_base.file(name) if self._is_of_base(name) else self.content / name

    @property
    def found_base(self) -> "Bundle":
        """The base of an adapter bundle.

        Raises:
            BundleNotFoundError: it is not there.
        """
        if self.base is None:
            assert self.manifest.base is not None
            wanted = self.manifest.base
            raise BundleNotFoundError(
                f"{self.path} is an adapter of the bundle {wanted.name}, and no bundle with its SHA-256 "
                f"({wanted.sha256}) is beside it or in the store: put it there, or export the adapter for another."
            )
        return self.base

    def low_rank(self) -> "LowRank | None":
        """The factors of an adapter bundle; None of any other.

        Raises:
            VerificationError: its file is not what the manifest says, or holds no factors.
        """
        if self.manifest.base is None:
            return None
        from edgegen.graph.low_rank import factors_of  # with NumPy, which help and lists do without

        name = self.manifest.base.adapter
        try:
            return factors_of(self._arrays(name))
        except ValueError as error:
            raise VerificationError(f"{self.content / name} has no factors: {error}") from None

    def conversion(self, variant: GraphVariant) -> KVConversion | None:
        """The conversion that makes the KV cache of ``variant``; None where its graphs have that.

        Raises:
            VerificationError: the file of means is not what the manifest says, or holds no arrays.
            BundleNotFoundError: the base of an adapter bundle is not there.
        """
        if variant.kv.format.make_graph is None:
            return None
        if self._is_of_base(KEY_MEANS):
            return self.found_base.conversion(variant)
        return KVConversion(variant.kv.format, self._arrays(KEY_MEANS) if KEY_MEANS in self.manifest.files else {})

    def embedding_defaults(self) -> EmbeddingDefaults:
        """How its embeddings are made where a request does not say.

        Raises:
            VerificationError: its file is not what the manifest says, or malformed.
            BundleNotFoundError: the base of an adapter bundle is not there.
        """
        if self._is_of_base(EMBEDDING):
            return self.found_base.embedding_defaults()
        if EMBEDDING not in self.manifest.files:
            return EmbeddingDefaults()
        return EmbeddingDefaults.of(self.json(EMBEDDING), str(self.content / EMBEDDING))

    def _arrays(self, name: str) -> "Arrays":
        """The arrays of one of its own files, verified."""
        from edgegen.bundle.arrays_file import read_arrays  # with NumPy, as above

        if problem := self._files.problem(name):
            raise VerificationError(f"the bundle {self.path} is damaged: {problem}. Export it again with --force.")
        try:
            return read_arrays(self.content / name)
        except (OSError, ValueError) as error:
            raise VerificationError(f"{self.content / name} has no arrays: {error}") from None

    def _is_of_base(self, name: str) -> bool:
        return self.manifest.base is not None and name not in self.manifest.files

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file of the bundle, verified and parsed.

        Raises:
            VerificationError: it is not what the manifest says, or not JSON.
        """
        if problem := self._files.problem(name):
            raise VerificationError(f"the bundle {self.path} is damaged: {problem}. Export it again with --force.")
        try:
            return json.loads(read_regular_text(self.file(name)))
        except ValueError as error:
            raise VerificationError(f"{self.file(name)} is not valid JSON: {error}") from None

    def verify(self, on_progress: Callable[[int], object] | None = None) -> None:
        """Compare every file with the manifest, whatever was remembered, and the manifest with its own hash.

        Of an adapter bundle, its base's files too.

        ``on_progress`` is called in this thread with how many bytes of its own have been read.

        Raises:
            VerificationError: lists every file that is missing, leads out of the bundle, or differs in size or hash.
            BundleNotFoundError: an adapter bundle's base is not there.
        """
        self._refuse(self._files.problems(on_progress))
        if self.manifest.base is not None:
            self.found_base.verify()

    def verify_once(self, on_progress: Callable[[int], object] | None = None) -> None:
        """:meth:`verify`, unless these very files have passed it before."""
        self._refuse(self._files.problems_once(on_progress))
        if self.manifest.base is not None:
            self.found_base.verify_once()

    def __repr__(self) -> str:
        model, scheme = self.manifest.model, self.manifest.quantization.scheme
        return f"Bundle({str(self.path)!r}: {model.family}, {model.parameters:,} parameters, {scheme})"

    @property
    def _files(self) -> VerifiedFiles:
        return VerifiedFiles(self.path, self.content, self.manifest.files, self._graph_problems)

    def _graph_problems(self) -> list[str]:
        """Return the problems of graphs that ONNX Runtime should not see, of files that match the manifest."""
        from edgegen.graph.check import MOST_GRAPH_BYTES, graph_problems

        sizes = {name: entry.size for name, entry in self.manifest.files.items() if "/" not in name}
        problems = list[str]()
        for variant in self.manifest.all_variants.values():
            for name in dict.fromkeys((variant.prefill, variant.decode)):
                if self._is_of_base(name):
                    continue
                with open_regular(self.file(name)) as file:
                    content = file.read(MOST_GRAPH_BYTES + 1)
                problems += [f"{name}: {problem}" for problem in graph_problems(content, sizes)]
        return problems

    def _refuse(self, problems: list[str]) -> None:
        if not (self.path / MANIFEST_NAME).resolve().is_relative_to(self.path.resolve()):
            problems = [f"{MANIFEST_NAME}: leads out of the bundle", *problems]
        if self.manifest_digest.differs:
            problems = [f"{MANIFEST_NAME}: contents differ from its own hash", *problems]
        if problems:
            raise VerificationError(
                f"the bundle {self.path} is damaged: {one_or_list(problems)}\nExport it again with --force."
            )
