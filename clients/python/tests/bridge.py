"""WebSockets in front of an edge that speaks TCP."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator
from typing import Any

websockets: Any = importlib.import_module("websockets")  # its names are loaded late


@contextlib.asynccontextmanager
async def bridging(address: str, sockets: list[Any]) -> AsyncIterator[str]:
    """The address of a server whose WebSockets, which it puts into a list, carry what connections to the other address do."""
    host, _, port = address.rpartition(":")

    async def serve(socket: Any, path: str = "") -> None:
        sockets.append(socket)
        reader, writer = await asyncio.open_connection(host, int(port))

        async def down() -> None:
            with contextlib.suppress(OSError, websockets.ConnectionClosed):
                while data := await reader.read(1 << 16):
                    await socket.send(data)
            socket.transport.abort()

        downward = asyncio.create_task(down())
        with contextlib.suppress(websockets.ConnectionClosed):
            async for data in socket:
                writer.write(data)
        writer.close()
        await downward

    async with websockets.serve(serve, "127.0.0.1", 0, subprotocols=["pushmesh.v1"], max_size=None) as server:
        yield "127.0.0.1:%d" % list(server.sockets)[0].getsockname()[1]
