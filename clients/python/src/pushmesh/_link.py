"""One connection to an edge: its frames, in and out, and its Pings."""

from __future__ import annotations

import asyncio
import contextlib
import random

from . import _clock, _frames, _protobuf, _wire
from ._protobuf import DecodeError
from ._transport import Transport
from .codes import Code
from .errors import PushmeshError, Refused

HANG_UP_WITHIN = 0.25
# Heartbeats without a byte after which an edge is gone: one that is alive answers every Ping.
SILENT_BEATS = 2.5
_GREETINGS = (_wire.Welcome.TYPE, _wire.Error.TYPE, _wire.GoAway.TYPE)


class Unanswered(PushmeshError):
    """A Hello was sent and not answered."""


class Broken(PushmeshError):
    """The connection ended, or what came is no frame."""


class Link:
    """One connection. One task reads it; anybody puts frames, which leave together at the end of the loop's turn."""

    def __init__(self, transport: Transport, address: str) -> None:
        self._transport, self._address = transport, address
        self._splitter = _frames.Splitter()
        self._outgoing = bytearray()
        self._flush: asyncio.Handle | None = None
        self._beat = 30.0
        self._pinger: asyncio.TimerHandle | None = None
        self._waiting: float | None = None  # since when the reader waits for the network
        self._stuck: tuple[float, int] | None = None  # since when, and how many, bytes have not left
        self._suspect = False  # the edge was silent for too long, and has one Ping more to answer
        self._unreported = 0  # the last round trip in µs, until a Ping has told the edge
        self.silent = False  # it was ended for that
        self.rtt = 0.0  # of the last Ping that was answered
        self.welcome = _wire.Welcome()

    async def greet(self, hello: bytes) -> _wire.Frame:
        """Sends Hello and returns its answer: Welcome, Error or GoAway."""
        self._transport.write(hello)
        first = True
        while True:
            try:
                data = await self._transport.read()
            except OSError:
                data = b""
            if not data:
                raise Unanswered(f"{self._address} ended the connection without an answer: is it an edge's port (7400), and does it want TLS?")
            self._splitter.feed(data)
            if first and len(self._splitter.head()) == _wire.HEADER:
                first = False
                if not _greets(self._splitter.head()):
                    raise PushmeshError(f"{self._address} accepts connections but does not speak pushmesh: is it an edge's port (7400)?")
            while came := self._splitter.take():
                if came[0] in _GREETINGS:
                    return self._decode(*came)

    def welcomed(self, welcome: _wire.Welcome) -> None:
        """Notes what the edge said, and begins to send Pings, the first one at a random part of the heartbeat."""
        self.welcome = welcome
        self._beat = max(welcome.heartbeat_ms / 1000, 1.0) if welcome.heartbeat_ms else 30.0
        self._pinger = asyncio.get_running_loop().call_later(random.uniform(0, self._beat), self._ping)

    async def next(self) -> _wire.Frame:
        """The next frame that is known. Broken: the connection has ended."""
        while True:
            while came := self._splitter.take():
                if came[0] in _wire.FRAMES:
                    return self._decode(*came)
            self._waiting = _clock.now()
            try:
                data = await self._transport.read()
            except OSError as fault:
                raise self._broken(str(fault)) from fault
            finally:
                self._waiting = None
            self._suspect = False
            if not data:
                raise self._broken("the edge closed it")
            self._splitter.feed(data)

    def put(self, message: _wire.Frame) -> None:
        """Has a frame sent. Refused: it is longer than the edge takes."""
        body = _protobuf.encode(message)
        most = self.welcome.max_frame or _wire.DEFAULT_MAX_FRAME
        if len(body) > most:
            raise Refused(Code.FRAME_TOO_LARGE, f"the frame has {len(body)} bytes, the edge takes {most} at most")
        self._outgoing += _frames.header(len(body), message.TYPE)
        self._outgoing += body
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Sends what was put."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._outgoing:
            data, self._outgoing = bytes(self._outgoing), bytearray()
            self._transport.write(data)

    def pong(self, pong: _wire.Pong) -> None:
        """Takes the answer to a Ping."""
        took = _clock.now() - pong.sent_at / 1e6
        if 0 <= took < 3600:
            self.rtt = took
            self._unreported = max(int(took * 1e6), 1)

    async def hang_up(self) -> None:
        """Sends what waits, lets the edge read it, and ends the connection, soon."""
        if self._pinger is not None:
            self._pinger.cancel()
        with contextlib.suppress(TimeoutError, Broken, OSError):
            async with asyncio.timeout(HANG_UP_WITHIN):
                if not self._transport.half_closes:  # what comes before a Pong was read
                    self.put(last := _wire.Ping(int(_clock.now() * 1e6)))
                    self.flush()
                    while await self.next() != _wire.Pong(last.sent_at):
                        pass
                self.flush()
                await self._transport.hang_up()
        self.abort()

    def abort(self) -> None:
        """Ends the connection at once. It may be called often."""
        if self._flush is not None:
            self._flush.cancel()
        if self._pinger is not None:
            self._pinger.cancel()
        self._transport.abort()

    def _ping(self) -> None:
        if self._dead():
            self.silent = True
            self.abort()
            return
        beat = min(self._beat, 1.0) if self._suspect else self._beat
        self._pinger = asyncio.get_running_loop().call_later(beat, self._ping)
        self.put(_wire.Ping(int(_clock.now() * 1e6), self._unreported))
        self._unreported = 0

    def _dead(self) -> bool:
        """
        Whether the edge is gone. A reader that is held up does not wait for the network and proves
        nothing; nor does a process that was held up itself until it has looked once more.
        """
        silent, now = SILENT_BEATS * self._beat, _clock.now()
        unsent = self._transport.unsent()
        if not unsent or self._stuck is None or self._stuck[1] != unsent:
            self._stuck = (now, unsent) if unsent else None
        elif now - self._stuck[0] > silent:
            return True
        if self._waiting is None or now - max(self._waiting, self._transport.heard) <= silent:
            self._suspect = False
            return False
        suspect, self._suspect = self._suspect, True
        return suspect

    def _decode(self, kind: int, body: bytes) -> _wire.Frame:
        try:
            message = _frames.decode(kind, body)
        except DecodeError as fault:
            raise Broken(f"{self._address} sent a frame of type {kind} that can't be decoded: {fault}") from fault
        assert message is not None
        return message

    def _broken(self, why: str) -> Broken:
        if self.silent:
            why = f"nothing was heard for {SILENT_BEATS * self._beat:.1f} s"
        return Broken(f"the connection to {self._address} ended: {why}")


def _greets(head: bytes) -> bool:
    """
    Whether an edge may have answered Hello with a frame that begins so. What gRPC, HTTP and TLS
    servers say first looks like other frames, or like very long ones.
    """
    known = head[3] in _wire.FRAMES  # an unknown one is of a later edition
    return (head[3] in _GREETINGS or not known) and int.from_bytes(head[:3], "big") <= _wire.DEFAULT_MAX_FRAME
