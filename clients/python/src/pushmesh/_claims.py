"""Claim requests of a connection: a few unanswered at a time, asked again where that helps."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from . import _clock, _frames, _wire
from ._engine import Engine
from ._link import Link
from ._reconnect import Backoff
from .codes import Code
from .errors import PushmeshError, Refused

if TYPE_CHECKING:
    from .claim import Claim, ClaimWatch

# How many Claims an edge has unanswered at a time.
WINDOW = 16

# Told when it was sent, and what came of it.
Done = Callable[[float, _wire.ClaimState | Refused], None]


@dataclass(eq=False, slots=True)
class Ask:
    """A Claim that is to be answered."""

    claims: Claims
    request: _wire.Claim
    done: Done
    sent: float = 0.0
    dead: bool = False  # nobody waits for it: if it was not sent, it is not

    def refused(self, why: Refused) -> None:
        self.claims.answered(self.request.id, why)


class Claims:
    """The claims and watches of a client, by resource."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.claims: dict[str, Claim] = {}
        self.watches: dict[str, ClaimWatch] = {}
        self.unwatched: set[str] = set()  # nobody watches it any more, but the edge does not know
        self._waiting: collections.deque[Ask] = collections.deque()
        self._sent: dict[int, Ask] = {}

    def ask(self, request: _wire.Claim, done: Done = lambda sent, answer: None) -> Ask:
        """Has a Claim sent as soon as there is a connection with room for it."""
        one = Ask(self, replace(request), done)
        self._waiting.append(one)
        self._pump()
        self.engine.moved.set()
        return one

    def pauses(self) -> Backoff:
        """How long to wait after refusals for now, longer each time."""
        return Backoff(self.engine.config.min_backoff, self.engine.config.max_backoff)

    def leave(self, resource: str, done: Done = lambda sent, answer: None) -> None:
        self.ask(_wire.Claim(resource=resource, op=_wire.Op.LEAVE), done)

    def _pump(self) -> None:
        link = self.engine.link
        while link is not None and self._waiting and len(self._sent) < WINDOW:
            one = self._waiting.popleft()
            if one.dead:
                continue
            one.request.id, one.sent = self.engine.next_id(), _clock.now()
            try:
                link.put(one.request)
            except Refused as refused:
                one.done(one.sent, refused)
                continue
            self._sent[one.request.id] = self.engine.answers[one.request.id] = one

    def answered(self, number: int, answer: _wire.ClaimState | Refused) -> None:
        one = self._sent.pop(number, None)
        if one is None:
            return
        del self.engine.answers[number]
        one.done(one.sent, answer)
        self._pump()

    def connected(self, link: Link) -> None:
        """Has everything asked again."""
        for claim in list(self.claims.values()):
            claim.connected()
        for watch in list(self.watches.values()):
            watch.connected()
        self._pump()

    def take(self, frame: _wire.Frame) -> None:
        if not isinstance(frame, _wire.ClaimState):
            return
        self.answered(frame.id, frame)
        if (claim := self.claims.get(frame.resource)) is not None:
            claim.told(frame)  # answers to others' requests tell of it, too
        if (watch := self.watches.get(frame.resource)) is not None:
            watch.told(frame)

    def broken(self) -> None:
        """Answers what the connection took with it."""
        for number in list(self._sent):
            self.answered(number, Refused(Code.UNAVAILABLE, "the connection broke before the answer", unknown=True))
        self.unwatched.clear()

    def end(self, why: PushmeshError) -> None:
        for claim in list(self.claims.values()):
            claim.end(why)
        for watch in list(self.watches.values()):
            watch.end(why)
        waiting, self._waiting = self._waiting, collections.deque()
        for one in waiting:
            one.done(0.0, Refused(Code.UNAVAILABLE, "the client ended", unknown=True))

    async def drain(self, within: float) -> None:
        pass

    def settle(self) -> None:
        pass

    async def call(self, request: _wire.Claim) -> tuple[_wire.ClaimState, bool]:
        """Asks, and asks again as long as that can help. It returns the answer, and whether an earlier request may have been done."""
        _frames.check(request)
        again, pauses = False, self.pauses()
        while True:
            self.engine.check_open()
            answer = await self._once(request)
            if isinstance(answer, _wire.ClaimState):
                return answer, again
            if not answer.retryable:
                raise answer
            again = again or answer.unknown or answer.code == Code.UNAVAILABLE
            if not answer.unknown:  # otherwise another connection is the pause
                await asyncio.sleep(pauses.next(answer.retry_after))

    async def _once(self, request: _wire.Claim) -> _wire.ClaimState | Refused:
        got: asyncio.Future[_wire.ClaimState | Refused] = asyncio.get_running_loop().create_future()
        ask = self.ask(request, lambda sent, answer: None if got.done() else got.set_result(answer))
        try:
            return await self.engine.wait(got, "no answer to a Claim")
        except asyncio.CancelledError:
            ask.dead = True
            raise

    async def release(self, resource: str, token: int, successor: str = "") -> None:
        """Ends the hold of a token."""
        state, again = await self.call(_wire.Claim(resource=resource, op=_wire.Op.RELEASE, token=token, successor=successor))
        if state.state != RELEASED and not again:
            raise Refused(Code.NOT_HELD, "it was not held any more")

    async def leave_line(self, resource: str) -> None:
        """Gives a place in the line up, also one that became a hold meanwhile."""
        state, _ = await self.call(_wire.Claim(resource=resource, op=_wire.Op.LEAVE))
        try:
            if state.state == GRANTED:
                await self.release(resource, state.token)
        finally:
            if (watch := self.watches.get(resource)) is not None:  # LEAVE has ended that, too
                watch.connected()

    def give_up(self, resource: str) -> None:
        """
        Leaves without waiting for it. Where there is no connection nothing is asked: the place ends
        with the grace. A watch of the resource goes on.
        """
        if self.engine.link is None:
            return

        def left(sent: float, answer: _wire.ClaimState | Refused) -> None:
            if not isinstance(answer, _wire.ClaimState):
                return
            if answer.state == GRANTED:
                self.ask(_wire.Claim(resource=resource, op=_wire.Op.RELEASE, token=answer.token))
            if (watch := self.watches.get(resource)) is not None:  # LEAVE has ended that, too
                watch.connected()

        self.leave(resource, left)


GRANTED, RELEASED = 0, 3
