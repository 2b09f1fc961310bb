"""The encoder's C code by itself, under sanitizers, over compiled tokenizers that are damaged."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
import tokenizers

from edgegen_export.tokenizer.compiled import compiled
from edgegen_export.tokenizer.opened_tokenizer import OpenedTokenizer
from edgegen_export.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from tests.learnt_tokenizer import SAMPLE, byte_level_tokenizer
from tests.root import ROOT

pytestmark = pytest.mark.slow  # compiling takes its time

FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'kernels'}", "-O1", "-g", "-fno-sanitize-recover=all"]
SANITIZERS = "-fsanitize=address,undefined"


def test_a_damaged_file_is_never_read_beyond(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    program, file, text = (tmp_path / name for name in ("program", "compiled", "text"))
    sources = [
        str(path) for path in (ROOT / "tests/kernels/tokenizer_driver.c", ROOT / "kernels/tokenizer/tokenizer.c")
    ]
    built = subprocess.run(["cc", *FLAGS, SANITIZERS, *sources, "-o", str(program)], capture_output=True, text=True)
    if "cannot find" in built.stderr:
        pytest.skip("this compiler has no such sanitizer")
    assert built.returncode == 0, built.stderr
    content = byte_level_tokenizer(PRE_TOKENIZERS["deepseek-v3"].component, ignore_merges=True)
    data, written = json.dumps(content).encode(), f"{SAMPLE}<|end|>s{'ab' * 100}"
    file.write_bytes(compiled(OpenedTokenizer.of(data)))
    text.write_text(written, encoding="utf-8", newline="")
    done = subprocess.run([program, file, text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    refused, ids = done.stdout.splitlines()
    assert 300 < int(refused.split()[0]) < 2700
    library = cast(Any, tokenizers).Tokenizer.from_buffer(data)
    assert [*map(int, ids.split())] == library.encode(written, add_special_tokens=False).ids
