"""Opens a checkpoint or an adapter, and says in JSON what it has or what is wrong.

``python -m tests.export.checkpoint.opener SOURCE REVISION GGUF_FILE``; ``SOURCE --adapter ""`` is an adapter.
"""

import json
import sys

from edgegen.errors import EdgegenError
from edgegen_export.checkpoint import Adapter, Checkpoint


def main() -> None:
    source, revision, gguf_file = sys.argv[1:]
    said = list[str]()
    try:
        if revision == "--adapter":
            opened = Adapter.open(source, progress=said.append)
        else:
            opened = Checkpoint.open(
                source, revision=revision or None, gguf_file=gguf_file or None, progress=said.append
            )
        answer = {
            "kind": opened.source.kind,
            "id": opened.source.id,
            "revision": opened.source.revision,
            "sums": {name: float(tensor.read().sum()) for name, tensor in opened.tensors.items()},
            "files": sorted(path.name for path in opened.listing.folder.rglob("*") if path.is_file()),
            "said": said,
        }
    except EdgegenError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
