"""A service for other programs on this machine, in asyncio: a line of JSON in, lines of JSON out, on a local socket.

``{"prompt": "Once"}`` is answered with ``{"text": …}`` for each chunk, then ``{"finish_reason": …}``. Requests of
several connections run together; a connection that closes cancels its request.

Run it with ``python examples/desktop/asyncio_service.py [BUNDLE]``; the port is the first line it prints.
"""

import asyncio
import json
import sys
from functools import partial
from typing import Any

from edgegen import LLM, EdgegenError

MOST_BYTES = 1 << 16
"""Of one line."""


async def main(model: str) -> None:
    llm = await asyncio.to_thread(LLM.load, model)  # the event loop goes on meanwhile
    try:
        server = await asyncio.start_server(partial(serve, llm), "127.0.0.1", 0, limit=MOST_BYTES)
        async with server:
            print(server.sockets[0].getsockname()[1], flush=True)
            await server.serve_forever()
    finally:
        llm.close()


async def serve(llm: LLM, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection: its requests one after the other."""
    try:
        while line := await reader.readline():
            await answer(llm, line, writer)
    except (ConnectionError, ValueError):  # it went away, or its line is too long
        pass
    finally:
        writer.close()


async def answer(llm: LLM, line: bytes, writer: asyncio.StreamWriter) -> None:
    try:
        asked: Any = json.loads(line)
        async with llm.stream(asked["prompt"], max_new_tokens=int(asked.get("max_new_tokens", 100))) as stream:
            async for chunk in stream:
                await send(writer, {"text": chunk.text})
        await send(writer, {"finish_reason": stream.result.finish_reason})
    except EdgegenError as error:
        await send(writer, {"error": str(error)})
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        await send(writer, {"error": 'a line such as {"prompt": "Once upon a time"} expected'})


async def send(writer: asyncio.StreamWriter, message: dict[str, str]) -> None:
    """A client that reads slowly makes its own request wait, and raises ConnectionError once it is gone."""
    writer.write(json.dumps(message).encode() + b"\n")
    await writer.drain()


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "stories"))
    except KeyboardInterrupt:
        sys.exit(130)
