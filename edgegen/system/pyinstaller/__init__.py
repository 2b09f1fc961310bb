"""The PyInstaller hook of edgegen: PyInstaller finds it by the entry point ``pyinstaller40``."""

from pathlib import Path


def hook_folders() -> list[str]:
    """The folders of the hooks that come with edgegen."""
    return [str(Path(__file__).parent)]
