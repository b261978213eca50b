"""Who is in a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from . import _wire
from ._crowd import Crowd
from ._reconnect import Backoff
from .codes import Code
from .errors import PushmeshError, Refused

if TYPE_CHECKING:
    from ._presences import Presences


class Member(NamedTuple):
    """A user in a topic, however many connections it has there."""

    # Of its token; without one "client:" and its client id.
    user: str
    # What it says of itself, of its connections the newest.
    state: bytes


@dataclass(frozen=True, slots=True)
class PresenceChange:
    """What is different in a topic from what was told before."""

    topic: str
    # joined is everybody, and what was told before holds no more.
    all: bool
    joined: tuple[Member, ...]
    # They say something else of themselves.
    changed: tuple[Member, ...]
    left: tuple[str, ...]
    # How many users there are.
    count: int
    # Users are not named, because there are too many, or the namespace does not show them. Once they
    # are again, a change has `all`.
    counts_only: bool


class PresenceWatch:
    """Tells who is in a topic. It outlives connections. Client.watch_presence makes it."""

    def __init__(self, presences: Presences, topic: str, callback: Callable[[PresenceChange], object] | None) -> None:
        self._presences, self.topic, self._callback = presences, topic, callback
        self._crowd = Crowd()
        self._id = 0  # of the request on this connection; 0: none
        self._begun = False  # it was answered: changes before are of an earlier watch
        config = presences.engine.config
        self._pauses = Backoff(config.min_backoff, config.max_backoff)  # after refusals; anew once something was told
        self._error: PushmeshError | None = None
        self._answered = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def members(self) -> list[Member]:
        """Those who are there, in the order of their users, as told last; none where counts_only was told."""
        return list(self._named(sorted(self._crowd.states)))

    @property
    def count(self) -> int:
        """How many users there are, as told last."""
        return self._crowd.count

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
        """Ends the watch."""
        link = self._presences.engine.link
        if not self.over and link is not None and self._id:
            link.put(_wire.Unsubscribe(self._id))
        self.end(None)

    # What follows is for the client.

    async def wait_answered(self) -> None:
        answered = asyncio.ensure_future(self._answered.wait())
        try:
            await self._presences.engine.wait(answered, "not watched")
        except asyncio.CancelledError:
            self.stop()
            raise
        if self._error is not None:
            raise self._error

    def ask(self) -> None:
        engine = self._presences.engine
        if engine.link is None or self._id or self.over:
            return
        if "presence" not in engine.link.welcome.features:
            if not self._crowd.known:
                self.end(Refused(Code.UNSUPPORTED, "this edge has no presence for clients"))
            return
        self._id, self._begun = engine.next_id(), False
        engine.answers[self._id] = self
        engine.moved.set()
        try:
            engine.link.put(_wire.Watch(self._id, self.topic))
        except Refused as refused:
            self.end(refused)

    def forget(self) -> None:
        """The request is no more."""
        self._presences.engine.answers.pop(self._id, None)
        self._id = 0

    def has(self, number: int) -> bool:
        return self._id == number

    def refused(self, why: Refused) -> None:
        """Takes a refusal, or that the edge has ended it: later each time it is asked for again, where that can help."""
        self.forget()
        if not why.retryable:
            self.end(why)
            return
        self._presences.engine.later(self._pauses.next(why.retry_after), self.ask)

    def told(self, frame: _wire.Presence) -> None:
        if not self._id or not (self._begun or frame.snapshot):
            return
        self._begun = True
        self._pauses.reset()
        if (d := self._crowd.take(frame)) is not None:
            joined = sorted(self._crowd.states) if d.all else d.joined
            self._presences.engine.tell(self._callback, PresenceChange(
                self.topic, d.all, tuple(self._named(joined)), tuple(self._named(d.changed)), tuple(d.left),
                self._crowd.count, self._crowd.counts_only,
            ))
        self._answered.set()

    def end(self, why: PushmeshError | None) -> None:
        if self.over:
            return
        self._error = why
        self.forget()
        self._ended.set()
        self._answered.set()
        self._presences.watches.pop(self.topic, None)

    def _named(self, users: Iterable[str]) -> Iterable[Member]:
        return (Member(user, self._crowd.states[user]) for user in users)
