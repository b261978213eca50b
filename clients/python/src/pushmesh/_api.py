"""The gRPC messages that a backend says, as publish.proto and session.proto have them; a test compares them."""

from __future__ import annotations

from dataclasses import dataclass

from ._protobuf import (
    Record,
    boolean,
    enum,
    fixed64,
    floats,
    int32,
    int64,
    number_map,
    octets,
    record,
    records,
    string,
    strings,
    text_map,
    uint32,
    uint64,
)


@dataclass(slots=True)
class Duration(Record):
    seconds: int = int64(1)
    nanos: int = int32(2)


@dataclass(slots=True)
class Timestamp(Record):
    seconds: int = int64(1)
    nanos: int = int32(2)


@dataclass(slots=True)
class PublishRequest(Record):
    topic: str = string(1)
    payload: bytes = octets(2)
    headers: dict[str, str] = text_map(3)
    dedupe_key: str = string(4)
    priority: int = uint32(5)
    ttl: Duration | None = record(6, Duration)
    deliver_at: Timestamp | None = record(7, Timestamp)
    features: dict[str, float] = number_map(8)
    traceparent: str = string(9)
    topics: list[str] = strings(10)
    vector: list[float] = floats(11)


@dataclass(slots=True)
class TopicResult(Record):
    seq: int = uint64(1)
    epoch: int = fixed64(2)
    duplicate: bool = boolean(3)
    code: int = enum(4)
    error: str = string(5)


@dataclass(slots=True)
class PublishResponse(Record):
    message_id: bytes = octets(1)
    seq: int = uint64(2)
    epoch: int = fixed64(3)
    duplicate: bool = boolean(4)
    scheduled: bool = boolean(5)
    results: list[TopicResult] = records(6, TopicResult)


@dataclass(slots=True)
class CancelScheduledRequest(Record):
    message_id: bytes = octets(1)


@dataclass(slots=True)
class CancelScheduledResponse(Record):
    pass


@dataclass(slots=True)
class SetProfileRequest(Record):
    client_id: str = string(1)
    user: str = string(2)
    profile: dict[str, float] = number_map(3)
    vector: list[float] = floats(4)


@dataclass(slots=True)
class SetProfileResponse(Record):
    connections: int = uint32(1)


# Of google.rpc, in the trailers of a refusal.


@dataclass(slots=True)
class Any(Record):
    type_url: str = string(1)
    value: bytes = octets(2)


@dataclass(slots=True)
class Status(Record):
    code: int = int32(1)
    message: str = string(2)
    details: list[Any] = records(3, Any)


@dataclass(slots=True)
class ErrorInfo(Record):
    reason: str = string(1)


@dataclass(slots=True)
class RetryInfo(Record):
    retry_delay: Duration | None = record(1, Duration)
