"""Long test: processes that save sessions are killed at random moments; the file is always the old or the new one.

python -m tests.long.kill_sessions [--kills N]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from edgegen.generation.session import Session

SAVES = """
import sys
from edgegen import LLM, EngineOptions, Session
llm, path = LLM.load(options=EngineOptions(kv="int8", threads=1)), sys.argv[1]
for n in range(100_000):
    session = Session()
    llm.generate("Once" + " upon" * (40 + n % 300), max_new_tokens=2, session=session)
    session.save(path)
    print("saved", flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    kills = parser.parse_args().kills
    random, whole = Random(0), 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.session"
        for _ in range(kills):
            with subprocess.Popen([sys.executable, "-c", SAVES, str(path)], stdout=subprocess.PIPE) as process:
                assert process.stdout
                for _ in range(random.randint(1, 4)):
                    process.stdout.readline()
                time.sleep(random.random() * 0.05)
                process.kill()
            whole += len(Session.load(path).ids) >= 42  # raises if a byte is wrong
        left = len(list(Path(folder).glob(".*.tmp")))
    print(f"{kills} kills: {whole} times a complete session; {left} temporary files left, removed an hour later")
    assert whole == kills


if __name__ == "__main__":
    main()
