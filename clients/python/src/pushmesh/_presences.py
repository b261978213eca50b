"""What a client watches of topics, and says of itself there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from . import _wire
from ._engine import Engine
from ._link import Link
from ._reconnect import Backoff
from .codes import Code
from .errors import PushmeshError, Refused
from .presence import PresenceWatch


@dataclass(eq=False, slots=True)
class _Own:
    """What the client says of itself in a topic, until it says something else."""

    state: bytes
    waiting: list[asyncio.Future[None]]
    pauses: Backoff  # after refusals for now
    # Holds where this is refused for good; None: nothing does.
    before: _Own | None
    on: Link | None = None  # the connection on which it was answered last

    def tell(self, why: PushmeshError | None) -> None:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            if one.done():
                continue
            if why is None:
                one.set_result(None)
            else:
                one.set_exception(why)


def _offers(link: Link) -> bool:
    return "presence" in link.welcome.features


@dataclass(eq=False, slots=True)
class _Said:
    """A State that is not answered."""

    presences: Presences
    id: int
    topic: str
    own: _Own

    def refused(self, why: Refused) -> None:
        self.presences.stated(self.id, why)


class Presences:
    """Presence of a client."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.watches: dict[str, PresenceWatch] = {}
        self._own: dict[str, _Own] = {}
        self._said: dict[int, _Said] = {}

    async def set_state(self, topic: str, state: bytes) -> None:
        """Says it, and waits for the edge's answer; without a connection it is said on the next one."""
        self.engine.check_open()
        link = self.engine.link
        if link is not None and not _offers(link) and state:
            raise Refused(Code.UNSUPPORTED, "this edge has no presence for clients")
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before = said = self._own.get(topic)
        if before is not None and before.on is None:
            before = before.before
        self._own[topic] = own = _Own(bytes(state), [waiting], Backoff(self.engine.config.min_backoff, self.engine.config.max_backoff), before)
        if said is not None:
            said.tell(None)  # it was said again
        if self.engine.link is None:
            own.tell(None)
        else:
            self._say(topic, own)
        await self.engine.wait(waiting, "no answer to a State")

    def _say(self, topic: str, own: _Own) -> None:
        link = self.engine.link
        if link is None or self._own.get(topic) is not own:
            own.tell(None)  # it is said on the next connection, or was said again
            return
        if not _offers(link):
            own.tell(None)  # nobody sees anything there
            return
        said = _Said(self, self.engine.next_id(), topic, own)
        try:
            link.put(_wire.State(said.id, topic, own.state))
        except Refused as refused:
            self._take_back(topic, own)
            own.tell(refused)
            return
        self._said[said.id] = self.engine.answers[said.id] = said
        self.engine.moved.set()

    def stated(self, number: int, why: Refused | None) -> None:
        said = self._said.pop(number, None)
        if said is None:
            return
        del self.engine.answers[number]
        topic, own = said.topic, said.own
        if why is not None and why.retryable:
            self.engine.later(own.pauses.next(why.retry_after), lambda: self._say(topic, own))
            return
        newer = self._own.get(topic)
        if why is not None:
            if newer is own:
                self._take_back(topic, own)
            own.tell(why)
            return
        own.before, own.on = None, self.engine.link
        if newer is own:
            if not own.state:
                del self._own[topic]
        elif newer is not None:
            newer.before = own if own.state else None
        own.tell(None)

    def _take_back(self, topic: str, own: _Own) -> None:
        """What was said before holds again, where a state is refused for good, or can't be sent."""
        if own.before is None:
            del self._own[topic]
            return
        self._own[topic] = own.before
        if self.engine.link is not None and own.before.on is not self.engine.link:
            self._say(topic, own.before)

    def connected(self, link: Link) -> None:
        for topic, own in list(self._own.items()):
            self._say(topic, own)
        for watch in list(self.watches.values()):
            watch.ask()

    def take(self, frame: _wire.Frame) -> None:
        match frame:
            case _wire.Presence():
                if (watch := self.watches.get(frame.topic)) is not None:
                    watch.told(frame)
            case _wire.Stated():
                self.stated(frame.id, None)
            case _wire.Unsubscribed():
                for watch in list(self.watches.values()):
                    if watch.has(frame.id):
                        watch.refused(Refused(Code(frame.code), frame.reason))

    def broken(self) -> None:
        for said in self._said.values():
            del self.engine.answers[said.id]
            said.own.tell(None)  # it is said on the next one
        self._said.clear()
        for watch in self.watches.values():
            watch.forget()

    def end(self, why: PushmeshError) -> None:
        for watch in list(self.watches.values()):
            watch.end(why)
        for own in self._own.values():
            own.tell(why)
        for said in self._said.values():
            said.own.tell(why)

    async def drain(self, within: float) -> None:
        pass

    def settle(self) -> None:
        pass
