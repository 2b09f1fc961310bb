"""The build hook of the package: compiles the kernels for a platform's wheel, or leaves them out of a pure one.

Three variables decide:

- `EDGEGEN_PURE_WHEEL=1`: no library, and a wheel for every platform.
- `EDGEGEN_KERNELS_REQUIRED=1`: a build without the library fails. Otherwise it says so in a line and goes on: an
  installation never breaks for want of a compiler.
- `EDGEGEN_WHEEL_PLATFORM`: the platform in the wheel's name instead of this machine's, such as
  `manylinux_2_28_aarch64` for what `CC=aarch64-linux-gnu-gcc` compiles. The library is required then.

Wheels and source distributions of a checkout record its commit; wheels have a software bill of materials.
"""

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "packaging"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import commit
import sbom
from kernels.build import LIBRARY, SUFFIXES, BuildError, build, compiler, is_current, target_of, without_kernels

ROOT = Path(__file__).resolve().parent
PURE, REQUIRED, PLATFORM = "EDGEGEN_PURE_WHEEL", "EDGEGEN_KERNELS_REQUIRED", "EDGEGEN_WHEEL_PLATFORM"


class Kernels(BuildHookInterface[Any]):
    """Puts the library of the kernels into a wheel, or beside the sources of an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is written."""
        if version != "editable":  # an editable installation changes with its checkout
            self._record_commit(build_data)
        if self.target_name != "wheel":
            return
        platform = os.environ.get(PLATFORM, "")
        required = _is_on(REQUIRED) or bool(platform)
        if _is_on(PURE):
            if required:
                self.app.abort(f"{PURE} contradicts {PLATFORM if platform else REQUIRED}: set one of them")
            if version == "editable":
                LIBRARY.unlink(missing_ok=True)
            else:
                self._add_sbom(build_data)
            return
        try:
            if version == "editable":
                self._build_in_place()
                return
            platform = platform or _this_platform()
            library = self._build_apart(platform)
        except BuildError as error:
            if required:
                self.app.abort(f"{error.output}the kernels cannot be built: {error}")
            if version == "editable":
                LIBRARY.unlink(missing_ok=True)  # what is older than its sources may not fit the package
            else:
                self._add_sbom(build_data)
            self.app.display_warning(without_kernels(error))
            return
        build_data["force_include"][str(library)] = f"edgegen/model/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        self._add_sbom(build_data, library, sbom.runtimes(platform, clang=target_of(compiler() or ()).is_clang))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the distribution has by now."""
        if self._folder is not None:
            self._folder.cleanup()

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def _apart(self) -> Path:
        """A folder until the distribution is written. Not beside the sources, where files of a build would be used."""
        self._folder = self._folder or tempfile.TemporaryDirectory()
        return Path(self._folder.name)

    def _build_in_place(self) -> None:
        if not is_current():
            build()

    def _build_apart(self, platform: str) -> Path:
        library = self._apart() / LIBRARY.with_suffix(SUFFIXES.get(platform.split("_")[0], ".so")).name
        build(library, platform=platform)
        return library

    def _record_commit(self, build_data: dict[str, Any]) -> None:
        """That of the checkout; a source distribution has its record already, and hands it on."""
        if (ROOT / commit.RECORD).exists() or (text := commit.record(ROOT)) is None:
            return
        file = self._apart() / commit.RECORD.name
        file.write_text(text, "utf-8")
        build_data["force_include"][str(file)] = commit.RECORD.as_posix()

    def _add_sbom(
        self, build_data: dict[str, Any], library: Path | None = None, runtimes: tuple[str, ...] = ()
    ) -> None:
        file = self._apart() / "edgegen.cdx.json"
        file.write_text(sbom.sbom(ROOT, self.metadata.version, library, runtimes), "utf-8")
        build_data["sbom_files"] = [str(file)]  # hatchling before 1.28 leaves it out


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def _this_platform() -> str:
    """This machine's, as wheels write it: ``linux_x86_64``."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
