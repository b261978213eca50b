"""An edge that does what a test says, in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

from pushmesh import _frames, _wire

PATIENCE = 30.0
F = TypeVar("F", bound=_wire.Frame)


class Conn:
    """One connection of the client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._splitter = _frames.Splitter()
        self.hello = _wire.Hello()

    async def next(self, wanted: type[F]) -> F:
        """The next frame but Pings and Pongs, which must be of that type."""
        async with asyncio.timeout(PATIENCE):
            while True:
                while came := self._splitter.take():
                    frame = _frames.decode(*came)
                    if isinstance(frame, _wire.Ping | _wire.Pong) and not issubclass(wanted, type(frame)):
                        continue
                    if not isinstance(frame, wanted):
                        raise AssertionError(f"{frame} came, {wanted.__name__} is wanted")
                    return frame
                data = await self.reader.read(1 << 16)
                if not data:
                    raise EOFError
                self._splitter.feed(data)

    def send(self, *frames: _wire.Frame) -> None:
        self.writer.write(b"".join(map(_frames.frame, frames)))

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    def cut(self) -> None:
        self.writer.transport.abort()

    async def ended(self) -> None:
        """Waits until the client has ended the connection, and ends it, too."""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(OSError):
                while await self.reader.read(1 << 16):
                    pass
        self.writer.close()


class Edge:
    """Listens, and hands connections to whoever asks for them."""

    def __init__(self) -> None:
        self._conns: asyncio.Queue[Conn] = asyncio.Queue()
        self._all: list[Conn] = []
        self.address = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Edge]:
        async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            conn = Conn(reader, writer)
            self._all.append(conn)
            self._conns.put_nowait(conn)

        server = await asyncio.start_server(met, "127.0.0.1", 0)
        self.address = "127.0.0.1:%d" % server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for conn in self._all:
                conn.cut()
                with contextlib.suppress(OSError):
                    await conn.writer.wait_closed()

    async def accept(self) -> Conn:
        """The next connection, whose Hello has come."""
        async with asyncio.timeout(PATIENCE):
            conn = await self._conns.get()
        conn.hello = await conn.next(_wire.Hello)
        return conn

    async def welcome(self, **more: object) -> Conn:
        """The next connection, which gets Welcome."""
        conn = await self.accept()
        fields: dict[str, object] = {
            "version": 1, "edge": "edge-1", "client_id": conn.hello.client_id or "made-up", "heartbeat_ms": 30000, "max_frame": 1 << 20,
            "publish_window": 64, "features": ["ack", "presence", "claim"], **more,
        }
        conn.send(_wire.Welcome(**fields))  # type: ignore[arg-type]
        return conn
