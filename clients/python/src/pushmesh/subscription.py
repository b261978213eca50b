"""Subscriptions: a filter with a handler, or with a loop that asks for messages."""

from __future__ import annotations

import asyncio
import collections
import enum
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from . import _wire
from ._delivery import Entry, Track
from ._reconnect import Backoff
from .codes import Code
from .errors import Closed, ConfigError, Nack, PushmeshError, Refused
from .events import Gap
from .message import Message

if TYPE_CHECKING:
    from ._inbox import Inbox

log = logging.getLogger("pushmesh")

# A handler that returns has the message ACKed; one that raises has it again.
Handler = Callable[[Message], Awaitable[object] | None]

# How many topics a resume may name: the mesh refuses more (TOO_MANY_TOPICS).
MAX_POSITIONS = 1000


class Overflow(enum.IntEnum):
    """What happens when a subscription can't keep up."""

    DEFAULT = 0
    DROP_OLDEST = 1
    CONFLATE = 2
    DISCONNECT = 3


class Position(NamedTuple):
    """A place in a topic's log: everything up to seq is had."""

    topic: str
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscription begins."""

    kind: int
    seq: int = 0
    epoch: int = 0

    @classmethod
    def live(cls) -> Start:
        """With what is published from now on."""
        return cls(_wire.Begin.LIVE)

    @classmethod
    def earliest(cls) -> Start:
        """With the oldest message that is retained."""
        return cls(_wire.Begin.EARLIEST)

    @classmethod
    def last(cls, count: int) -> Start:
        """With the last messages, so many of them."""
        return cls(_wire.Begin.LAST_N, count)

    @classmethod
    def after(cls, seq: int, epoch: int = 0) -> Start:
        """Behind seq of the epoch; 0: whichever holds."""
        return cls(_wire.Begin.AFTER_SEQ, seq, epoch)

    @classmethod
    def session(cls) -> Start:
        """Where the client's session stands; a new session starts at the head."""
        return cls(_wire.Begin.SESSION)


class Subscription:
    """One filter. It outlives connections. Client.subscribe makes it."""

    def __init__(self, inbox: Inbox, request: _wire.Subscribe, handler: Handler | None, *, manual: bool) -> None:
        self._inbox = inbox
        self.request = request  # as first asked for
        self._handler = handler
        self._manual = manual
        self._queue: collections.deque[tuple[Track, Entry | _wire.Progress]] = collections.deque()
        self._wake = asyncio.Event()  # something is in the queue, or it is over
        self._loop: _Loop | None = None
        self._refusal: Refused | None = None  # why the last Subscribe was refused, for now
        self._unasked: asyncio.Future[None] | None = None
        self._error: PushmeshError | None = None
        self._pauses = Backoff(inbox.engine.config.min_backoff, inbox.engine.config.max_backoff)  # after refusals
        self.active: bool = False  # Subscribed has come at least once
        self.sent: bool = False  # Subscribe is on the present connection
        self.plain: bool = False  # it asked for what is live: its messages name no subscription
        self.over = False
        self.ready = asyncio.Event()  # at the first Subscribed, or at the end
        self.ended = asyncio.Event()

    @property
    def id(self) -> int:
        return self.request.id

    @property
    def filter(self) -> str:
        return self.request.filter

    @property
    def error(self) -> PushmeshError | None:
        """Why it ended; None while it goes on, and after unsubscribe and close."""
        return self._error

    @property
    def client_error(self) -> PushmeshError | None:
        """Why the client ended by itself, which its subscriptions are told once all handlers have returned."""
        return self._inbox.engine.error

    @property
    def refusal(self) -> Refused | None:
        """Why it is refused for now, so that it is asked for again after a pause."""
        return self._refusal

    @property
    def shared(self) -> bool:
        """Its messages are those of a group, which keeps the positions: nothing is known here of what others have had."""
        return bool(self.request.group)

    @property
    def ranked(self) -> bool:
        """Its messages come in the order of their scores: the highest seq says nothing about what was had."""
        return self.request.rank_top_k > 0

    @property
    def named(self) -> bool:
        """All messages for it name it."""
        return bool(self.request.where) or self.request.no_echo or self.ranked

    @property
    def awaited(self) -> bool:
        """Somebody waits for an answer of the edge."""
        return (self.sent and not self.active) or self._unasked is not None

    def positions(self) -> list[Position]:
        """Of the topics seen so far, good for `positions=` of a later subscription. A group's members and ranked subscriptions have none."""
        if self.shared or self.ranked:
            return []
        return [
            Position(topic, t.cursor.epoch, t.position())
            for topic, t in self._inbox.tracks(self)
            if t.cursor.epoch or t.cursor.high or t.cursor.void
        ]

    async def wait_ready(self) -> None:
        """
        Waits for the mesh's promise: every message whose publish begins after this returned is
        delivered. Refused: it was refused for good.
        """
        ready = asyncio.ensure_future(self.ready.wait())
        await self._inbox.engine.wait(ready, "not subscribed", lambda: self._refusal)
        if self.over:
            raise self._error or Closed()

    async def wait_ended(self) -> None:
        """Waits until no more messages will come, and raises why, unless that was asked for."""
        await self.ended.wait()
        if self._error is not None:
            raise self._error

    async def unsubscribe(self) -> None:
        """Ends the subscription, whose messages come no more from the call on, and waits until the edge has confirmed it."""
        link = self._inbox.engine.link
        if self.over or link is None or not self.sent:
            self.end(None)
            return
        if self._unasked is None:
            self._unasked = asyncio.get_running_loop().create_future()
            self._let_go()
            self._inbox.flush()  # behind Unsubscribe nobody would know whose these ACKs are
            link.put(_wire.Unsubscribe(self.id))
            self._inbox.engine.moved.set()
        await asyncio.shield(self._unasked)

    def __aiter__(self) -> AsyncIterator[Message]:
        """
        The messages, in order. With ack=True, going on to the next one ACKs the one before, unless it
        was answered; a loop that is left leaves its last message un-ACKed, and it comes again.
        """
        if self._handler is not None:
            raise ConfigError("the subscription has a handler, which gets its messages")
        if self._loop is not None:
            self._loop.leave()
            self._wake.set()
        self._loop = _Loop(self, self._manual)
        return self._loop

    # What follows is for the parts of the client.

    def start(self) -> None:
        if self._handler is not None:
            self._inbox.work(self._work(self._handler), f"pushmesh {self.filter}")

    def push(self, track: Track, item: Entry | _wire.Progress) -> None:
        """Has something wait for its turn."""
        if self.over or self._unasked is not None:
            if isinstance(item, Entry):
                self._inbox.dropped(item)
            return
        if isinstance(item, _wire.Progress) and not self._queue and not track.held:
            self._inbox.progress(track, item)
            return
        self._queue.append((track, item))
        self._wake.set()

    def drop_durable(self) -> None:
        """Takes out what the next connection will send again. Ephemeral messages would be lost: they stay."""
        kept: collections.deque[tuple[Track, Entry | _wire.Progress]] = collections.deque()
        for track, item in self._queue:
            if isinstance(item, Entry) and item.message.seq == 0:
                kept.append((track, item))
            elif isinstance(item, Entry):
                self._inbox.dropped(item)
        self._queue = kept

    async def next(self, left: Callable[[], bool] = lambda: False) -> Entry | None:
        """The next message to hand over; None: no more will come, or whoever asks has left."""
        while not (self.over or self._unasked is not None or self._inbox.closing or left()):
            while self._queue:
                track, item = self._queue.popleft()
                if isinstance(item, _wire.Progress):
                    self._inbox.progress(track, item)
                elif self._inbox.hand(item):
                    return item
            self._wake.clear()
            await self._wake.wait()
        return None

    def answered(self) -> None:
        """A message was answered: what follows it and needs nobody goes on."""
        while self._queue and isinstance(self._queue[0][1], _wire.Progress) and not self._queue[0][0].held:
            track, progress = self._queue.popleft()
            assert isinstance(progress, _wire.Progress)
            self._inbox.progress(track, progress)

    async def _work(self, handler: Handler) -> None:
        while (entry := await self.next()) is not None:
            nack = await _handle(handler, Message(entry))
            if nack is not None or not self._manual:
                entry.answer(nack)

    def frame(self) -> _wire.Subscribe:
        """To send on a new connection: the first request, or one that resumes."""
        if not self.active or self.shared or self.request.start == _wire.Begin.SESSION:
            return self.request
        positions = self.positions()
        if not positions and not self.ranked:
            return self.request
        again = replace(self.request, start=_wire.Begin.LIVE, seq=0, epoch=0, positions=[])
        if len(positions) > MAX_POSITIONS:
            self._inbox.gap(Gap(self.filter, code=Code.TOO_MANY_TOPICS))
            return again
        again.positions = [_wire.Position(*p) for p in positions]
        return again

    def was_sent(self, request: _wire.Subscribe) -> None:
        self.sent = True
        self.plain = (
            request.start == _wire.Begin.LIVE and not request.positions and not self.shared and not self.named
        )

    def refused(self, why: Refused) -> None:
        """Takes a refusal: it tries again where that can help."""
        self.sent, self._refusal = False, why
        if self._unasked is not None:
            self.end(None)  # it is not to come back
        elif not why.retryable:
            self.end(why)
        else:
            self._inbox.engine.later(self._pauses.next(why.retry_after), lambda: self._inbox.ask_again(self))
            self._inbox.engine.tell(self._inbox.engine.config.on_refused, self)

    def unsubscribed(self, why: Refused) -> None:
        """Takes the confirmation of Unsubscribe, or the edge's own decision."""
        if self._unasked is not None or why.code == Code.OK:
            self.end(None)
        else:
            self.refused(why)

    def disconnected(self) -> None:
        self.sent = False
        if self._unasked is not None:
            self.end(None)

    def end(self, why: PushmeshError | None) -> None:
        """It may be called often."""
        if self.over:
            return
        self.over = True
        self._error = None if isinstance(why, Closed) else why
        if isinstance(why, Closed) and not self.active:
            self._error = why
        self._let_go()
        self._inbox.forget(self)
        self.ready.set()
        self.ended.set()
        if self._unasked is not None and not self._unasked.done():
            self._unasked.set_result(None)

    def stands(self) -> None:
        """The edge serves it."""
        self._refusal, self.active = None, True
        self._pauses.reset()
        self.ready.set()

    def _let_go(self) -> None:
        """What waits is not handed over any more."""
        for _, item in self._queue:
            if isinstance(item, Entry):
                self._inbox.dropped(item)
        self._queue.clear()
        self._wake.set()

    def stop(self) -> None:
        """Has whoever waits for messages look whether there will be any."""
        self._wake.set()


class _Loop:
    """What `async for` goes through."""

    def __init__(self, sub: Subscription, manual: bool) -> None:
        self._sub, self._manual = sub, manual
        self._last: Entry | None = None
        self._left = False  # another loop has begun

    def __aiter__(self) -> _Loop:
        return self

    async def __anext__(self) -> Message:
        last, self._last = self._last, None
        if last is not None and not self._manual:
            last.answer(None)
        entry = await self._sub.next(lambda: self._left)
        if self._left:
            raise ConfigError("another loop over the subscription has begun: one at a time has its messages")
        if entry is None:
            if (why := self._sub.error or self._sub.client_error) is not None:
                raise why
            raise StopAsyncIteration
        self._last = entry
        return Message(entry)

    def leave(self) -> None:
        """Another loop begins: what this one has not answered comes again."""
        last, self._last, self._left = self._last, None, True
        if last is not None and not self._manual:
            last.answer(Nack("the loop was left"))


def check_handler(handler: object) -> None:
    """ConfigError: calling it would do nothing."""
    if inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler):
        raise ConfigError("the handler is a generator, which does nothing when it is called: it must not yield")


async def _handle(handler: Handler, message: Message) -> Nack | None:
    """Calls a handler. What it raises is its word that the message shall come again."""
    try:
        result = handler(message)
        if inspect.isawaitable(result):
            await result
    except Nack as nack:
        return nack
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # the client ends
        log.exception("what the handler of %r waited for with %r was cancelled", message.filter, message)
        return Nack("cancelled")
    except Exception as fault:
        log.exception("the handler of %r failed with %r", message.filter, message)
        return Nack(repr(fault))
    return None
