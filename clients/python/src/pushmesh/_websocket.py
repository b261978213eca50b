"""A connection that is a WebSocket, by the package `websockets` (pushmesh[websocket])."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import importlib
import inspect
import ssl
from typing import Any

from . import _clock, _wire
from ._reconnect import Place, split
from .errors import ConfigError

websockets: Any = None  # the extra is not installed
with contextlib.suppress(ImportError):
    websockets = importlib.import_module("websockets")


def check() -> None:
    """ConfigError: the package is missing."""
    if websockets is None:
        raise ConfigError("websocket=True needs the package websockets: pip install 'pushmesh[websocket]', or apt install python3-websockets")


# How long the package waits for the other side at each step of closing, also where that is gone.
CLOSE_WITHIN = 0.1


class WebSocket:
    """A WebSocket. What is written waits for a task that sends it."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._outgoing: collections.deque[bytes] = collections.deque()
        self._unsent = 0
        self._sender: asyncio.Task[None] | None = None
        self._heard = 0.0
        # A message is read once it is whole, which takes its time on a slow link.
        self._received = socket.data_received
        socket.data_received = self._hear

    def _hear(self, data: bytes) -> None:
        self._heard = _clock.now()
        self._received(data)

    @property
    def heard(self) -> float:
        return self._heard

    async def read(self) -> bytes:
        data = b""
        while not data:  # a message may be empty
            try:
                data = await self._socket.recv()
            except websockets.ConnectionClosed as closed:
                if closed.rcvd is None:
                    raise ConnectionResetError("the WebSocket broke") from closed
                return b""
            if isinstance(data, str):
                raise ConnectionError("the edge sent a text message on a WebSocket of binary ones")
        return data

    def write(self, data: bytes) -> None:
        self._outgoing.append(data)
        self._unsent += len(data)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send(), name="pushmesh WebSocket")

    async def _send(self) -> None:
        with contextlib.suppress(websockets.ConnectionClosed, OSError):  # the reader tells
            while self._outgoing:
                data = self._outgoing.popleft()
                await self._socket.send(data)
                self._unsent -= len(data)

    @property
    def half_closes(self) -> bool:
        return True

    def unsent(self) -> int:
        return self._unsent

    async def hang_up(self) -> None:
        try:
            if self._sender is not None:
                await self._sender
            await self._socket.close()
        finally:
            self.abort()

    def abort(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
        transport = self._socket.transport
        if transport is not None:
            transport.abort()


async def websocket(place: Place, tls: ssl.SSLContext | None) -> WebSocket:
    """Connects to a place, and asks for a WebSocket there."""
    host, port = split(place.address)
    options: dict[str, Any] = {"ssl": tls, "server_hostname": split(place.name)[0]} if tls else {}
    if "proxy" in inspect.signature(websockets.connect).parameters:  # since 15.0 it takes one from the environment, and no host beside
        options["proxy"] = None
    # Pings are of the protocol above, messages as long as a frame, and what is compressed helps nobody.
    try:
        socket = await websockets.connect(
            f"{'wss' if tls else 'ws'}://{place.name}/", subprotocols=[_wire.SUBPROTOCOL], host=host, port=port,
            open_timeout=None, ping_interval=None, max_size=None, compression=None, close_timeout=CLOSE_WITHIN, **options,
        )
    except websockets.WebSocketException as fault:
        raise ConnectionError(str(fault)) from fault
    if socket.subprotocol != _wire.SUBPROTOCOL:
        socket.transport.abort()
        raise ConnectionError(f"{place.address} speaks WebSocket, and not {_wire.SUBPROTOCOL}: is it an edge's port (7400)?")
    return WebSocket(socket)
