"""Files that a frozen app needs beside edgegen's imports: the embedded model, the kernels, the page of the server."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError

from PyInstaller.utils.hooks import collect_data_files, collect_dynamic_libs, copy_metadata

datas = collect_data_files("edgegen")
binaries = collect_dynamic_libs("edgegen", search_patterns=["edgegen_kernels.*"])
with suppress(PackageNotFoundError):  # an installation for generating only has no grammars
    datas += copy_metadata("llguidance")  # it reads its own version
