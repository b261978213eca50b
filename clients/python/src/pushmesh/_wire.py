"""The frames of the subscriber protocol, as wire.proto has them; a test compares the two."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from ._protobuf import (
    Record,
    boolean,
    double,
    enum as enumeration,
    fixed64,
    floats,
    number_map,
    octets,
    records,
    string,
    strings,
    text_map,
    uint32,
    uint32s,
    uint64,
)

VERSION = 1
ALPN = "pushmesh/1"
SUBPROTOCOL = "pushmesh.v1"
HEADER = 4
MAX_BODY = (1 << 24) - 1
MAX_HELLO = 12 << 10
DEFAULT_MAX_FRAME = 1 << 20


class Begin(enum.IntEnum):
    """wire.proto's Start."""

    LIVE = 0
    EARLIEST = 1
    AFTER_SEQ = 2
    LAST_N = 3
    SESSION = 4


class Op(enum.IntEnum):
    """wire.proto's Claim.Op."""

    ACQUIRE = 0
    RENEW = 1
    RELEASE = 2
    CHECK = 3
    LEAVE = 4
    WATCH = 5


class Frame(Record):
    """A message that is the body of a frame."""

    __slots__ = ()
    TYPE: ClassVar[int] = 0


@dataclass(slots=True)
class Hello(Frame):
    TYPE: ClassVar[int] = 1
    version: int = uint32(1)
    client_id: str = string(2)
    token: str = string(3)
    session: str = string(4)
    heartbeat_ms: int = uint32(5)
    traceparent: str = string(6)
    receive_window: int = uint32(7)
    agent: str = string(8)
    profile: dict[str, float] = number_map(9)
    session_ttl_s: int = uint32(10)
    features: list[str] = strings(11)
    ticket: bytes = octets(12)
    profile_vector: list[float] = floats(13)


@dataclass(slots=True)
class Welcome(Frame):
    TYPE: ClassVar[int] = 2
    connection_id: int = fixed64(1)
    edge: str = string(2)
    heartbeat_ms: int = uint32(3)
    max_frame: int = uint32(4)
    user: str = string(5)
    resumed: bool = boolean(6)
    client_id: str = string(7)
    features: list[str] = strings(8)
    version: int = uint32(9)
    publish_window: int = uint32(10)


@dataclass(slots=True)
class Position(Record):
    topic: str = string(1)
    epoch: int = fixed64(2)
    seq: int = uint64(3)


@dataclass(slots=True)
class Subscribe(Frame):
    TYPE: ClassVar[int] = 3
    id: int = uint32(1)
    filter: str = string(2)
    ack: bool = boolean(3)
    start: int = enumeration(4)
    seq: int = uint64(5)
    epoch: int = fixed64(6)
    group: str = string(7)
    overflow: int = enumeration(8)
    rank_top_k: int = uint32(9)
    where: str = string(10)
    positions: list[Position] = records(11, Position)
    receive_window: int = uint32(12)
    no_echo: bool = boolean(13)
    group_key: str = string(14)
    skip_last: bool = boolean(15)


@dataclass(slots=True)
class TopicPosition(Record):
    topic: str = string(1)
    epoch: int = fixed64(2)
    head: int = uint64(3)
    recovered: bool = boolean(4)
    missed: int = uint64(5)


@dataclass(slots=True)
class Subscribed(Frame):
    TYPE: ClassVar[int] = 4
    id: int = uint32(1)
    epoch: int = fixed64(2)
    head: int = uint64(3)
    recovered: bool = boolean(4)
    missed: int = uint64(5)
    positions: list[TopicPosition] = records(6, TopicPosition)


@dataclass(slots=True)
class Unsubscribe(Frame):
    TYPE: ClassVar[int] = 5
    id: int = uint32(1)


@dataclass(slots=True)
class Unsubscribed(Frame):
    TYPE: ClassVar[int] = 6
    id: int = uint32(1)
    code: int = enumeration(2)
    reason: str = string(3)


@dataclass(slots=True)
class Message(Frame):
    """Without `mesh`, which never reaches a client."""

    TYPE: ClassVar[int] = 7
    topic: str = string(1)
    seq: int = uint64(2)
    payload: bytes = octets(3)
    published_at: int = fixed64(4)
    id: bytes = octets(5)
    headers: dict[str, str] = text_map(6)
    attempt: int = uint32(7)
    priority: int = uint32(8)
    traceparent: str = string(9)
    score: float = double(10)
    subs: list[int] = uint32s(11)
    sender: str = string(13, name="from")
    unranked: bool = boolean(15)


@dataclass(slots=True)
class Entry(Record):
    topic: str = string(1)
    seq: int = uint64(2)
    through: bool = boolean(3)
    sub: int = uint32(4)
    epoch: int = fixed64(5)


@dataclass(slots=True)
class Ack(Frame):
    TYPE: ClassVar[int] = 8
    entries: list[Entry] = records(1, Entry)


@dataclass(slots=True)
class Nack(Frame):
    TYPE: ClassVar[int] = 9
    topic: str = string(1)
    seq: int = uint64(2)
    delay_ms: int = uint32(3)
    reason: str = string(4)
    sub: int = uint32(5)


@dataclass(slots=True)
class Ping(Frame):
    TYPE: ClassVar[int] = 10
    sent_at: int = fixed64(1)
    last_rtt_us: int = uint32(2)


@dataclass(slots=True)
class Pong(Frame):
    TYPE: ClassVar[int] = 11
    sent_at: int = fixed64(1)


@dataclass(slots=True)
class Publish(Frame):
    TYPE: ClassVar[int] = 12
    id: int = uint32(1)
    topic: str = string(2)
    payload: bytes = octets(3)
    headers: dict[str, str] = text_map(4)
    dedupe_key: str = string(5)


@dataclass(slots=True)
class Published(Frame):
    TYPE: ClassVar[int] = 13
    id: int = uint32(1)
    seq: int = uint64(2)
    message_id: bytes = octets(3)
    duplicate: bool = boolean(4)
    epoch: int = fixed64(5)


@dataclass(slots=True)
class Claim(Frame):
    TYPE: ClassVar[int] = 14
    id: int = uint32(1)
    resource: str = string(2)
    op: int = enumeration(3)
    ttl_ms: int = uint32(4)
    token: int = uint64(5)
    priority: int = uint32(6)
    successor: str = string(7)
    wait_ms: int = uint32(8)
    no_wait: bool = boolean(9)


@dataclass(slots=True)
class ClaimState(Frame):
    TYPE: ClassVar[int] = 15
    id: int = uint32(1)
    resource: str = string(2)
    state: int = enumeration(3)
    token: int = uint64(4)
    position: int = uint32(5)
    expires_at: int = fixed64(6)
    holder: str = string(7)
    poll_after_ms: int = uint32(8)
    expires_in_ms: int = uint32(9)
    code: int = enumeration(10)
    holding: int = uint32(11)
    waiting: int = uint32(12)


@dataclass(slots=True)
class Error(Frame):
    TYPE: ClassVar[int] = 16
    code: int = enumeration(1)
    message: str = string(2)
    ref: int = uint32(3)
    retry_after_ms: int = uint32(4)


@dataclass(slots=True)
class GoAway(Frame):
    TYPE: ClassVar[int] = 17
    code: int = enumeration(1)
    reason: str = string(2)
    reconnect_after_ms: int = uint32(3)
    addresses: list[str] = strings(4)


@dataclass(slots=True)
class RefreshToken(Frame):
    TYPE: ClassVar[int] = 18
    id: int = uint32(1)
    token: str = string(2)


@dataclass(slots=True)
class Progress(Frame):
    TYPE: ClassVar[int] = 19
    topic: str = string(1)
    epoch: int = fixed64(2)
    first: int = uint64(3, name="from")
    last: int = uint64(4, name="to")
    code: int = enumeration(5)
    subs: list[int] = uint32s(6)


@dataclass(slots=True)
class Refreshed(Frame):
    TYPE: ClassVar[int] = 20
    id: int = uint32(1)
    expires_at: int = fixed64(2)


@dataclass(slots=True)
class Watch(Frame):
    TYPE: ClassVar[int] = 21
    id: int = uint32(1)
    topic: str = string(2)


@dataclass(slots=True)
class Member(Record):
    user: str = string(1)
    state: bytes = octets(2)


@dataclass(slots=True)
class Presence(Frame):
    TYPE: ClassVar[int] = 22
    topic: str = string(1)
    snapshot: bool = boolean(2)
    members: list[Member] = records(3, Member)
    left: list[str] = strings(4)
    count: int = uint64(5)
    counts_only: bool = boolean(6)


@dataclass(slots=True)
class State(Frame):
    TYPE: ClassVar[int] = 23
    id: int = uint32(1)
    topic: str = string(2)
    state: bytes = octets(3)


@dataclass(slots=True)
class Stated(Frame):
    TYPE: ClassVar[int] = 24
    id: int = uint32(1)


_ALL: tuple[type[Frame], ...] = (
    Hello, Welcome, Subscribe, Subscribed, Unsubscribe, Unsubscribed, Message, Ack, Nack, Ping, Pong, Publish, Published,
    Claim, ClaimState, Error, GoAway, RefreshToken, Progress, Refreshed, Watch, Presence, State, Stated,
)
FRAMES = {frame.TYPE: frame for frame in _ALL}
