"""What carries the bytes of a connection: TCP, TLS or a WebSocket."""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol

from . import _wire
from ._reconnect import Place, split

READ_SIZE = 64 << 10


class Transport(Protocol):
    """One open connection. One task reads it; whoever writes does not wait."""

    async def read(self) -> bytes:
        """Some bytes; none at the end. OSError: it broke."""

    def write(self, data: bytes) -> None:
        """Hands bytes over. A connection that broke takes them too: the reader tells."""

    @property
    def heard(self) -> float:
        """When some bytes came that read does not return yet, by _clock; 0: read returns whatever comes."""

    @property
    def half_closes(self) -> bool:
        """Whether hang_up waits until the other side has read everything."""

    def unsent(self) -> int:
        """How many bytes wait for the network."""

    async def hang_up(self) -> None:
        """Ends the connection in order, or at once where the wait for it is cancelled."""

    def abort(self) -> None:
        """Ends the connection at once. It may be called often."""


class TCP:
    """A TCP connection, with TLS or without."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._hung_up = False  # nothing more can be sent

    async def read(self) -> bytes:
        return await self._reader.read(READ_SIZE)

    def write(self, data: bytes) -> None:
        if not self._hung_up and not self._writer.is_closing():
            self._writer.write(data)

    @property
    def heard(self) -> float:
        return 0.0

    @property
    def half_closes(self) -> bool:
        return self._writer.can_write_eof()

    def unsent(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    async def hang_up(self) -> None:
        """Closing with unread bytes in the socket would reset the connection and take the last ACKs with it."""
        try:
            self._hung_up = True
            if self._writer.can_write_eof():
                self._writer.write_eof()
                while await self._reader.read(READ_SIZE):
                    pass
            self._writer.close()
            await self._writer.wait_closed()
        except OSError:
            pass  # it is closed
        finally:
            self.abort()

    def abort(self) -> None:
        self._writer.transport.abort()


async def tcp(place: Place, tls: ssl.SSLContext | None) -> TCP:
    """Connects to a place; with TLS, whose certificate must be for the place's name."""
    host, port = split(place.address)
    name = split(place.name)[0] if tls else None
    return TCP(*await asyncio.open_connection(host, port, ssl=tls, server_hostname=name))


def context(tls: ssl.SSLContext | bool | None, *, websocket: bool) -> ssl.SSLContext | None:
    """The TLS of a client: of its own, or what the system trusts."""
    if isinstance(tls, ssl.SSLContext):
        return tls
    if not tls:
        return None
    made = ssl.create_default_context()
    made.set_alpn_protocols(["http/1.1" if websocket else _wire.ALPN])
    return made
