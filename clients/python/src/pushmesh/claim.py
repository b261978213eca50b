"""A place at a resource: in the line for it, or holding it."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from . import _clock, _wire
from ._claims import Ask, Claims
from ._link import Link
from .codes import Code
from .errors import Closed, HeldByOther, PushmeshError, Refused

# The shortest pause between renewals of a hold: one that may last no longer is renewed in vain.
MIN_RENEWAL = 0.05


class ClaimState(enum.IntEnum):
    """What is so at a resource."""

    GRANTED = 0
    QUEUED = 1
    LOST = 2
    RELEASED = 3
    FREE = 4
    HELD_BY_OTHER = 5


_KNOWN = frozenset(ClaimState)  # others are of a later edition


@dataclass(frozen=True, slots=True)
class ClaimInfo:
    """What is so at a resource, for this client where it has a place there."""

    resource: str
    state: ClaimState
    # Of this client's hold.
    token: int
    # In the line, 1 is next.
    position: int
    # Seconds of the hold that were left when it was told; of HELD_BY_OTHER, of the hold that ends first.
    expires_in: float
    # Who holds it longest: "client:" and a client id, or a backend's owner.
    holder: str
    # How many hold it, and how many wait.
    holding: int
    waiting: int
    # Of LOST: why.
    code: Code


def info(state: _wire.ClaimState) -> ClaimInfo:
    if state.state not in _KNOWN:
        raise Refused(Code.INTERNAL, f"the edge says state {state.state}, which this edition does not know")
    return ClaimInfo(
        state.resource, ClaimState(state.state), state.token, state.position, state.expires_in_ms / 1000, state.holder,
        state.holding, state.waiting, Code(state.code),
    )


class Claim:
    """
    A place that outlives connections: whoever is back within the grace of the namespace's policy
    has the same one. Client.claim and Client.acquire make it.

    As a context manager it gives the place up at the end of the block.
    """

    def __init__(self, claims: Claims, request: _wire.Claim, on_position: Callable[[int], object] | None) -> None:
        self._claims = claims
        self._pauses = claims.pauses()
        self._request = request
        self._on_position = on_position
        self._asking = False  # a request is unanswered
        self._tied = False  # the edge of the present connection tells of it
        self._token = 0  # 0: it waits
        self._line = 0
        self._deadline = 0.0  # held for sure until then; 0: it is not held
        self._renew_at = 0.0
        self._paused_to = 0.0  # nothing is asked before
        self._timer: asyncio.TimerHandle | None = None
        self._ask: Ask | None = None  # the last one
        self._refusal: Refused | None = None
        self._error: PushmeshError | None = None
        self._answered = asyncio.Event()  # the first answer, or the end
        self._granted = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def resource(self) -> str:
        return self._request.resource

    @property
    def held(self) -> bool:
        """
        Whether the resource is held now, for sure as far as this process's clock can tell. What must
        not be touched by a former holder checks the token.
        """
        return not self.over and _clock.now() < self._deadline

    @property
    def expires_in(self) -> float:
        """For how many seconds it is held for sure, if it is not renewed; 0: it is not held."""
        return max(self._deadline - _clock.now(), 0.0)

    @property
    def token(self) -> int:
        """Greater than that of every hold of the resource before. 0 while it is not held."""
        return self._token if self._deadline else 0  # an offer is no hold

    @property
    def position(self) -> int:
        """In the line, 1 is next; 0 once it is held."""
        return self._line

    @property
    def over(self) -> bool:
        """The place was lost or given up."""
        return self._ended.is_set()

    @property
    def error(self) -> PushmeshError | None:
        """Why the place is over; None while it is not, and after release and leave."""
        return self._error

    async def wait(self) -> None:
        """Waits until the resource is held. It fails where the place in the line was lost; where the wait is cancelled, the place stays."""
        granted, ended = asyncio.ensure_future(self._granted.wait()), asyncio.ensure_future(self._ended.wait())
        try:
            await self._claims.engine.wait(asyncio.ensure_future(_first(granted, ended)), "not granted")
        finally:
            granted.cancel()
            ended.cancel()
        if self.over:
            raise self._error or Closed("the place was given up")

    async def lost(self) -> PushmeshError | None:
        """
        Waits until the place is over: the hold expired, was not renewed in time so that this process
        can't be sure of it any more, or was given up. It returns why.
        """
        await self._ended.wait()
        return self._error

    async def release(self, successor: str = "") -> None:
        """
        Ends the hold, which counts as lost from the call on, and waits until the mesh has confirmed
        it. NOT_HELD: it was lost before. A claim that waits leaves the line. The successor, "client:"
        and a client id or a backend's owner, has the resource next, before everybody who waits.
        """
        over, token = self.over, self._token
        self.end(None)
        if over:
            if self._error is not None:
                raise self._error
        elif token:
            await self._claims.release(self.resource, token, successor)
        else:
            await self._claims.leave_line(self.resource)

    async def leave(self) -> None:
        """Gives the place up, whichever it is, and waits until the mesh has confirmed it."""
        await self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.over:
            await self.release()

    # What follows is for the client.

    async def wait_answered(self) -> None:
        answered = asyncio.ensure_future(self._answered.wait())
        try:
            await self._claims.engine.wait(answered, "not claimed", lambda: self._refusal)
        except asyncio.CancelledError:
            self.give_up()
            raise
        if self._error is not None:
            raise self._error

    def give_up(self) -> None:
        """Leaves without waiting for it."""
        if not self.over:
            self.end(None)
            self._claims.give_up(self.resource)

    def connected(self) -> None:
        self._tied = False
        self.pump()

    def pump(self) -> None:
        """
        Asks what is to be asked now, and sets the timer for what is later: one request at a time.
        With a token that is RENEW, which takes an offer up, lasts over reconnects and never joins a
        line; without one, ACQUIRE on each connection.
        """
        if self.over:
            return
        now = _clock.now()
        if self._deadline and now >= self._deadline:
            self.end(Refused(Code.UNAVAILABLE, "the hold could not be renewed in time", unknown=True))
            return
        due = self._paused_to
        if self._token and self._tied:
            due = max(due, self._renew_at)
        if self._asking or self._claims.engine.link is None or (not self._token and self._tied):
            due = self._deadline
        elif now >= due:
            self._asking, due = True, self._deadline
            request = self._request
            if self._token:
                request = _wire.Claim(resource=self.resource, op=_wire.Op.RENEW, token=self._token, ttl_ms=request.ttl_ms)
            self._ask = self._claims.ask(request, lambda sent, answer: self._answer(request.op, sent, answer))
        elif self._deadline:
            due = min(due, self._deadline)
        self._wake(due - now if due else None)

    def _wake(self, after: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if after is not None and not self.over:
            self._timer = asyncio.get_running_loop().call_later(max(after, 0.0), self.pump)

    def _answer(self, op: int, sent: float, answer: _wire.ClaimState | Refused) -> None:
        """Takes what came of a request that was sent at a time."""
        self._asking = False
        if self.over:
            return
        if isinstance(answer, Refused):
            if not (answer.unknown or answer.retryable):
                self.end(answer)
            else:
                self._tied, self._refusal = False, answer
                # Where the connection broke, another connection is the pause.
                self._paused_to = 0.0 if answer.unknown else _clock.now() + self._pause_after(answer)
        elif answer.state == ClaimState.GRANTED:
            self._tied, self._paused_to = True, 0.0
            self._hold(sent, answer)
        elif op == _wire.Op.ACQUIRE and answer.state == ClaimState.QUEUED:
            self._tied, self._paused_to = True, 0.0
            self._queued(answer)
        elif self._request.no_wait:
            self.end(HeldByOther(f"{self.resource!r} is held by another"))
        else:
            self.end(Refused(Code.NOT_HELD, "the place is gone"))
        if not isinstance(answer, Refused):
            self._pauses.reset()
            self._answered.set()
        self.pump()

    def _pause_after(self, refusal: Refused) -> float:
        """
        How long to wait after a refusal for now: of what is held a third of what is left at most, so
        that it is asked again in time, but never less than the mesh asked for.
        """
        pause = self._pauses.next(refusal.retry_after)
        third = (self._deadline - _clock.now()) / 3
        if self._deadline and pause > third:
            return max(refusal.retry_after, third, self._pauses.low)
        return pause

    def _hold(self, sent: float, answer: _wire.ClaimState) -> None:
        """Notes that it is held for as long as the answer said, counted from before it was asked."""
        left = answer.expires_in_ms / 1000
        self._token, self._line = answer.token, 0
        self._deadline, self._renew_at = sent + left, sent + max(left / 3, MIN_RENEWAL)
        self._granted.set()

    def _queued(self, state: _wire.ClaimState) -> None:
        if state.position != self._line:
            self._line = state.position
            self._claims.engine.tell(self._on_position, self._line)

    def told(self, state: _wire.ClaimState) -> None:
        """Takes a state that was not asked for."""
        if self.over or not self._tied:
            return  # of a place before this one
        match state.state:
            case ClaimState.QUEUED if not self._token:
                self._queued(state)
            case ClaimState.GRANTED if not self._token:
                # How long ago it was granted is not known: it is held once RENEW was answered.
                self._token, self._renew_at = state.token, 0.0
                self.pump()
            case ClaimState.GRANTED if state.token != self._token:
                self.end(Refused(Code.NOT_HELD, "another process of this client has the place now"))
            case ClaimState.LOST | ClaimState.RELEASED if not self._token or state.token in (0, self._token):
                lost = state.state == ClaimState.LOST
                why = Refused(Code(state.code), "the place was lost") if lost else Refused(Code.NOT_HELD, "the place was given up elsewhere")
                self.end(why)

    def end(self, why: PushmeshError | None) -> None:
        """It may be called often."""
        if self.over:
            return
        self._error, self._deadline = why, 0.0
        self._ended.set()
        self._answered.set()
        self._wake(None)
        if self._ask is not None:
            self._ask.dead = True
        self._claims.claims.pop(self.resource, None)
        if self.resource in self._claims.unwatched and self._claims.engine.link is not None:
            self._claims.leave(self.resource)
        self._claims.unwatched.discard(self.resource)


class ClaimWatch:
    """Tells of a resource. It outlives connections. Client.watch_claim makes it."""

    def __init__(self, claims: Claims, resource: str, callback: Callable[[ClaimInfo], object]) -> None:
        self._claims, self._resource, self._callback = claims, resource, callback
        self._pauses = claims.pauses()
        self._asking = self._tied = self._active = False
        self._error: PushmeshError | None = None
        self._answered = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def error(self) -> PushmeshError | None:
        """Why it ended; None while it goes on, and after stop."""
        return self._error

    @property
    def over(self) -> bool:
        return self._ended.is_set()

    async def wait_ended(self) -> None:
        """Waits until nothing more is told."""
        await self._ended.wait()

    def stop(self) -> None:
        """Ends the watch. A claim on the resource stays."""
        if self.over:
            return
        self.end(None)
        if self._resource in self._claims.claims:
            self._claims.unwatched.add(self._resource)  # LEAVE would take its place; the claim does that at its end
        elif self._claims.engine.link is not None:
            self._claims.leave(self._resource)

    # What follows is for the client.

    async def wait_answered(self) -> None:
        answered = asyncio.ensure_future(self._answered.wait())
        try:
            await self._claims.engine.wait(answered, "not watched")
        except asyncio.CancelledError:
            self.stop()
            raise
        if self._error is not None:
            raise self._error

    def connected(self) -> None:
        self._tied = False
        self.pump()

    def pump(self) -> None:
        if self.over or self._asking or self._tied or self._claims.engine.link is None:
            return
        self._asking = True
        self._claims.ask(_wire.Claim(resource=self._resource, op=_wire.Op.WATCH), self._answer)

    def _answer(self, sent: float, answer: _wire.ClaimState | Refused) -> None:
        self._asking = False
        if self.over:
            return
        if not isinstance(answer, Refused):
            self._tied = self._active = True
            self._pauses.reset()
            self._answered.set()
        elif not answer.retryable:
            self.end(answer)
        elif not answer.unknown:
            link = self._claims.engine.link
            self._claims.engine.later(self._pauses.next(answer.retry_after), lambda: self._again(link))

    def _again(self, link: Link | None) -> None:
        if self._claims.engine.link is link:  # another connection has asked at once
            self.pump()

    def told(self, state: _wire.ClaimState) -> None:
        if self._active and not self.over and state.state in _KNOWN:
            self._claims.engine.tell(self._callback, info(state))

    def end(self, why: PushmeshError | None) -> None:
        if self.over:
            return
        self._error = why
        self._ended.set()
        self._answered.set()
        self._claims.watches.pop(self._resource, None)


async def _first(*waiting: asyncio.Future[Literal[True]]) -> None:
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
