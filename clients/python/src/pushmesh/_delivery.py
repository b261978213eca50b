"""Messages between the edge and those who handle them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import _acks, _wire
from ._link import Link
from ._position import Cursor
from .errors import Nack

if TYPE_CHECKING:
    from ._inbox import Inbox
    from .subscription import Subscription


@dataclass(eq=False, slots=True)
class Track:
    """One subscription in one topic: how far it has come, and what the application has of it."""

    sub: Subscription
    cursor: Cursor
    run: _acks.Run
    # The highest seq that came over the present connection.
    arrived: int = 0
    # Handed over and not answered, by seq.
    held: dict[int, Entry] = field(default_factory=dict)

    def position(self) -> int:
        """The seq to resume after."""
        return min(self.cursor.position(), self._lowest_held() - 1)

    def clear_below(self, seq: int) -> bool:
        """Whether everything that came before seq was dealt with."""
        return not self.cursor.owed and self._lowest_held() >= seq

    def has(self, seq: int) -> Entry | None:
        """The entry with which the application has seq of this log."""
        held = self.held.get(seq)
        return held if held is not None and held.epoch in (0, self.cursor.epoch) else None

    def _lowest_held(self) -> int:
        return min((seq for seq in self.held if self.has(seq)), default=1 << 64)


@dataclass(eq=False, slots=True)
class Topic:
    """A track for every subscription that matches a topic."""

    name: str
    plain: _acks.Run  # of messages that name no subscription
    tracks: list[Track] = field(default_factory=list)

    def track(self, sub: Subscription) -> Track | None:
        return next((t for t in self.tracks if t.sub is sub), None)

    @property
    def ephemeral(self) -> bool:
        return all(t.cursor.high == 0 and t.cursor.epoch == 0 for t in self.tracks)

    def any_plain(self) -> bool:
        return any(t.sub.plain for t in self.tracks)

    def involved(self, message: _wire.Message) -> list[Track]:
        """
        The tracks that a message is for. One that names no subscription is for the plain ones.
        Another one gets messages of its own; it takes a plain one only where that comes next, so that
        it misses nothing where an edge counts it as plain once it has caught up.
        """
        if message.subs:
            return [t for t in self.tracks if t.sub.id in message.subs]
        plain = self.any_plain()
        return [
            t for t in self.tracks
            if not t.sub.named and (t.sub.plain or not plain or 0 < message.seq == max(t.cursor.high, t.arrived) + 1)
        ]

    def concerned(self, progress: _wire.Progress) -> list[Track]:
        """The tracks that a Progress is for: what does not come to the plain subscriptions may come to others."""
        if progress.subs:
            return [t for t in self.tracks if t.sub.id in progress.subs]
        plain = self.any_plain()
        return [t for t in self.tracks if t.sub.plain or not plain]

    def plain_sub(self) -> int:
        """A plain subscription where the topic has others too: ACKs without a name would count for these."""
        plain = [t.sub for t in self.tracks if t.sub.plain]
        if len(plain) == len(self.tracks):
            return 0
        return next((s.id for s in plain if s.request.ack), plain[0].id if plain else 0)


@dataclass(eq=False, slots=True)
class Delivery:
    """One Message frame. It is settled once all subscriptions that it is for have answered."""

    message: _wire.Message
    link: Link
    topic: Topic
    entries: list[Entry] = field(default_factory=list)
    queued: int = 0  # entries that wait in a queue
    unanswered: int = 0


@dataclass(eq=False, slots=True)
class Entry:
    """One subscription's part of a delivery."""

    inbox: Inbox
    delivery: Delivery
    track: Track
    epoch: int = 0  # under which it was handed over
    answered: bool = False
    nack: Nack | None = None
    void: bool = False  # it is of a log that is gone, or its subscription is
    # It came again while the application has it.
    again: list[Entry] = field(default_factory=list)

    @property
    def message(self) -> _wire.Message:
        return self.delivery.message

    def answer(self, nack: Nack | None) -> None:
        self.inbox.answer(self, nack)
