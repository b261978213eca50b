"""Messages as handlers and loops get them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import Nack

if TYPE_CHECKING:
    from ._delivery import Entry


class Message:
    """One message. It may be kept."""

    __slots__ = ("_entry", "epoch", "filter")

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        # Of the topic; 0 where the edge has not named it.
        self.epoch = entry.track.cursor.epoch
        # Of the subscription that it is for.
        self.filter = entry.track.sub.filter

    def __repr__(self) -> str:
        return f"<Message {self.topic} seq={self.seq} {len(self.payload)} bytes>"

    @property
    def topic(self) -> str:
        return self._entry.message.topic

    @property
    def seq(self) -> int:
        """Counts 1, 2, 3, … in a durable topic, under its epoch; 0: ephemeral."""
        return self._entry.message.seq

    @property
    def payload(self) -> bytes:
        return self._entry.message.payload

    @property
    def text(self) -> str:
        """The payload as UTF-8."""
        return self.payload.decode()

    def json(self) -> Any:
        """The payload as JSON."""
        return json.loads(self.payload)

    @property
    def id(self) -> bytes:
        """A UUIDv7; empty where the mesh gave none."""
        return self._entry.message.id

    @property
    def headers(self) -> Mapping[str, str]:
        return self._entry.message.headers

    @property
    def attempt(self) -> int:
        """0 for the first delivery."""
        return self._entry.message.attempt

    @property
    def priority(self) -> int:
        return self._entry.message.priority

    @property
    def traceparent(self) -> str:
        """The producer's W3C context, where it was sampled."""
        return self._entry.message.traceparent

    @property
    def score(self) -> float:
        """Of a ranking; 0 too where the message was not ranked, or not among the best."""
        return self._entry.message.score

    @property
    def unranked(self) -> bool:
        """It should have been ranked, and was not: ranking was slow, refused or gone."""
        return self._entry.message.unranked

    @property
    def sender(self) -> str:
        """The publishing user, set by the mesh: without authentication "client:" and the client id; empty: a backend."""
        return self._entry.message.sender

    @property
    def published_at(self) -> datetime.datetime:
        """When the mesh took it, in UTC."""
        return _EPOCH + datetime.timedelta(microseconds=self._entry.message.published_at)

    def ack(self) -> None:
        """
        Says that the message is dealt with, now rather than when the handler returns or the loop goes
        on. What was answered before stays as it was.
        """
        self._entry.answer(None)

    def nack(self, reason: str = "", *, after: float = 0.0) -> None:
        """Asks for the message again, after so many seconds and not before."""
        self._entry.answer(Nack(reason, after=after))


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
