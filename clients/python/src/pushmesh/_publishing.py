"""Publishing over the client's own connection."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from . import _topics, _wire
from ._engine import Engine
from ._link import Link
from .codes import Code
from .errors import PushmeshError, Refused

# What an edge allows that does not say.
DEFAULT_WINDOW = 16
MAX_HEADERS = 64
MAX_HEADER_BYTES = 8 << 10
MAX_DEDUPE_KEY = 256
MAX_PAYLOAD = 1 << 20  # what the mesh carries at most; namespaces allow less


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a message."""

    # A UUIDv7.
    message_id: bytes
    # In the topic: it is on disk. 0: the topic is ephemeral, or the message scheduled.
    seq: int
    epoch: int
    # It had been published before; the rest is that of the first time.
    duplicate: bool
    # It waits for its time, and gets its seq then. Of backends alone.
    scheduled: bool = False


@dataclass(eq=False, slots=True)
class _Publishing:
    """A Publish that waits to be sent, or for its answer."""

    publishing: Publishing
    request: _wire.Publish
    again: bool  # a repetition is recognised
    done: asyncio.Future[Published]

    def refused(self, why: Refused) -> None:
        self.publishing.answered(self.request.id, why)


class Publishing:
    """Publishes of a client, in order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: collections.deque[_Publishing] = collections.deque()
        self._sent: dict[int, _Publishing] = {}

    async def publish(self, topic: str, payload: bytes, headers: Mapping[str, str], dedupe_key: str, *, ephemeral: bool) -> Published:
        check(topic, payload, headers, dedupe_key)
        self._engine.check_open()
        done: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
        request = _wire.Publish(0, topic, payload, dict(headers), dedupe_key)
        one = _Publishing(self, request, bool(dedupe_key) and not ephemeral, done)
        self._waiting.append(one)
        self._pump()
        try:
            return await self._engine.wait(done, "not published")
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):  # it was sent
                self._waiting.remove(one)
            raise

    def _pump(self) -> None:
        """Sends what waits, as far as the edge takes it."""
        link = self._engine.link
        while link is not None and self._waiting and len(self._sent) < (link.welcome.publish_window or DEFAULT_WINDOW):
            one = self._waiting.popleft()
            if one.done.done():
                continue  # nobody waits for it any more
            one.request.id = self._engine.next_id()
            try:
                link.put(one.request)
            except Refused as refused:
                one.done.set_exception(refused)
                continue
            self._sent[one.request.id] = self._engine.answers[one.request.id] = one
            self._engine.moved.set()

    def answered(self, number: int, answer: Published | Refused) -> None:
        one = self._sent.pop(number, None)
        if one is None:
            return
        del self._engine.answers[number]
        if one.done.done():
            pass  # nobody waits for it any more
        elif isinstance(answer, Refused):
            one.done.set_exception(answer)
        else:
            one.done.set_result(answer)
        self._pump()

    def connected(self, link: Link) -> None:
        self._pump()

    def take(self, frame: _wire.Frame) -> None:
        if isinstance(frame, _wire.Published):
            self.answered(frame.id, Published(frame.message_id, frame.seq, frame.epoch, frame.duplicate))

    def broken(self) -> None:
        """What the connection took with it is published again, in order and first, where that is recognised."""
        sent, self._sent = list(self._sent.values()), {}
        for one in reversed(sent):
            del self._engine.answers[one.request.id]
            if one.done.done():
                continue
            if one.again and not self._engine.closing:
                self._waiting.appendleft(one)
            else:
                one.done.set_exception(Refused(Code.UNAVAILABLE, "the connection broke before the answer", unknown=True))

    def end(self, why: PushmeshError) -> None:
        self.broken()
        for one in self._waiting:
            if not one.done.done():
                one.done.set_exception(why)
        self._waiting.clear()

    async def drain(self, within: float) -> None:
        pass

    def settle(self) -> None:
        pass


def check(topic: str, payload: bytes, headers: Mapping[str, str], dedupe_key: str) -> None:
    """Refuses what no edge and no router takes, whatever the topic's namespace."""
    _topics.check(topic)
    if len(payload) > MAX_PAYLOAD:
        raise Refused(Code.PAYLOAD_TOO_LARGE, f"the payload has {len(payload)} bytes, at most {MAX_PAYLOAD}")
    if (size := len(dedupe_key.encode(errors="surrogatepass"))) > MAX_DEDUPE_KEY:
        raise Refused(Code.INVALID_ARGUMENT, f"dedupe_key has {size} bytes, at most {MAX_DEDUPE_KEY}")
    if len(headers) > MAX_HEADERS:
        raise Refused(Code.INVALID_ARGUMENT, f"headers has {len(headers)} entries, at most {MAX_HEADERS}")
    if "" in headers:
        raise Refused(Code.INVALID_ARGUMENT, "headers: a name must not be empty")
    try:
        size = sum(len(k.encode()) + len(v.encode()) for k, v in headers.items())
        dedupe_key.encode()
    except (UnicodeEncodeError, AttributeError):
        raise Refused(Code.INVALID_ARGUMENT, "headers and dedupe_key must be strings of UTF-8") from None
    if size > MAX_HEADER_BYTES:
        raise Refused(Code.INVALID_ARGUMENT, f"headers has {size} bytes in all, at most {MAX_HEADER_BYTES}")
