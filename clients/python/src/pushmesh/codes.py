"""The one closed list of reasons, the same on the wire, in gRPC, logs and metrics."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """Why something was refused, ended, or did not come. What each asks for says docs/protocol.md."""

    OK = 0
    BAD_FRAME = 1
    FRAME_TOO_LARGE = 2
    UNKNOWN_FRAME = 3
    HANDSHAKE_TIMEOUT = 4
    UNAUTHENTICATED = 5
    FORBIDDEN = 6
    BAD_TOPIC = 7
    TOO_MANY_SUBSCRIPTIONS = 8
    RATE_LIMITED = 9
    OVERLOADED = 10
    SLOW_CONSUMER = 11
    IDLE_TIMEOUT = 12
    UNHEALTHY = 13
    SESSION_TAKEN_OVER = 14
    DRAINING = 15
    UNAVAILABLE = 16
    INTERNAL = 17
    UNSUPPORTED = 18
    TOKEN_EXPIRED = 19
    NOT_HELD = 20
    TOO_MANY_CONNECTIONS = 21
    INVALID_ARGUMENT = 22
    NOT_FOUND = 23
    ALREADY_EXISTS = 24
    CONFLICT = 25
    OUT_OF_ORDER = 26
    ACK_TIMEOUT = 27
    EPOCH_CHANGED = 28
    PAYLOAD_TOO_LARGE = 29
    TOO_MANY_TOPICS = 30
    EXPIRED = 31
    RETENTION = 32
    QUEUE_FULL = 33
    CONFLATED = 34
    FILTERED = 35
    RANKED_OUT = 36
    NOT_YOURS = 37
    MEMORY_BUDGET = 38
    ATTEMPTS_EXHAUSTED = 39
    NO_SUBSCRIBER = 40
    CANCELLED = 41

    @classmethod
    def _missing_(cls, value: object) -> Code:
        return cls.INTERNAL  # of a later edition

    @property
    def retryable(self) -> bool:
        """Whether the same, tried again later, can succeed."""
        return self in _RETRYABLE

    @property
    def lost(self) -> bool:
        """Whether a message that did not come for this reason was wanted."""
        return self not in _UNWANTED


_RETRYABLE = frozenset({
    Code.HANDSHAKE_TIMEOUT, Code.RATE_LIMITED, Code.OVERLOADED, Code.SLOW_CONSUMER, Code.IDLE_TIMEOUT, Code.UNHEALTHY,
    Code.DRAINING, Code.UNAVAILABLE, Code.INTERNAL, Code.TOO_MANY_CONNECTIONS, Code.ACK_TIMEOUT,
})

# A log that began anew is told by the restart of its cursor: of a topic of which nothing was had,
# it is the first word of its epoch.
_UNWANTED = frozenset({
    Code.OK, Code.EPOCH_CHANGED, Code.FILTERED, Code.NOT_YOURS, Code.CONFLATED, Code.RANKED_OUT, Code.EXPIRED,
})
