"""Frames and messages of the subscriber protocol, as docs/protocol.md states them."""

import protobuf

HELLO, WELCOME, SUBSCRIBE, SUBSCRIBED, UNSUBSCRIBE, UNSUBSCRIBED = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
MESSAGE, ACK, NACK, PING, PONG, PUBLISH, PUBLISHED = 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x0D
CLAIM, CLAIM_STATE, ERROR, GO_AWAY, PROGRESS = 0x0E, 0x0F, 0x10, 0x11, 0x13

START_LIVE, START_EARLIEST, START_AFTER_SEQ, START_LAST_N, START_SESSION = range(5)
EPOCH_CHANGED = 28
UNAUTHENTICATED, TOKEN_EXPIRED = 5, 19
ACQUIRE, RENEW, RELEASE, CHECK, LEAVE, WATCH = range(6)
GRANTED, QUEUED, LOST, RELEASED, FREE, HELD_BY_OTHER = range(6)

_POSITION = {"topic": (1, "string"), "epoch": (2, "fixed64"), "seq": (3, "uint64")}
_TOPIC_POSITION = {
    "topic": (1, "string"), "epoch": (2, "fixed64"), "head": (3, "uint64"), "recovered": (4, "bool"), "missed": (5, "uint64"),
}
_ENTRY = {"topic": (1, "string"), "seq": (2, "uint64"), "through": (3, "bool"), "sub": (4, "uint32"), "epoch": (5, "fixed64")}

SCHEMAS = {
    HELLO: {
        "version": (1, "uint32"), "client_id": (2, "string"), "token": (3, "string"), "session": (4, "string"),
        "heartbeat_ms": (5, "uint32"), "traceparent": (6, "string"), "receive_window": (7, "uint32"), "agent": (8, "string"),
        "profile": (9, ("string", "double")), "session_ttl_s": (10, "uint32"), "features": (11, ["string"]),
    },
    WELCOME: {
        "connection_id": (1, "fixed64"), "edge": (2, "string"), "heartbeat_ms": (3, "uint32"), "max_frame": (4, "uint32"),
        "user": (5, "string"), "resumed": (6, "bool"), "client_id": (7, "string"), "features": (8, ["string"]),
        "version": (9, "uint32"), "publish_window": (10, "uint32"),
    },
    SUBSCRIBE: {
        "id": (1, "uint32"), "filter": (2, "string"), "ack": (3, "bool"), "start": (4, "enum"), "seq": (5, "uint64"),
        "epoch": (6, "fixed64"), "group": (7, "string"), "overflow": (8, "enum"), "rank_top_k": (9, "uint32"),
        "where": (10, "string"), "positions": (11, [_POSITION]), "receive_window": (12, "uint32"), "no_echo": (13, "bool"),
    },
    SUBSCRIBED: {
        "id": (1, "uint32"), "epoch": (2, "fixed64"), "head": (3, "uint64"), "recovered": (4, "bool"), "missed": (5, "uint64"),
        "positions": (6, [_TOPIC_POSITION]),
    },
    UNSUBSCRIBE: {"id": (1, "uint32")},
    UNSUBSCRIBED: {"id": (1, "uint32"), "code": (2, "enum"), "reason": (3, "string")},
    MESSAGE: {
        "topic": (1, "string"), "seq": (2, "uint64"), "payload": (3, "bytes"), "published_at": (4, "fixed64"), "id": (5, "bytes"),
        "headers": (6, ("string", "string")), "attempt": (7, "uint32"), "priority": (8, "uint32"), "traceparent": (9, "string"),
        "score": (10, "double"), "subs": (11, ["uint32"]), "from": (13, "string"), "unranked": (15, "bool"),
    },
    ACK: {"entries": (1, [_ENTRY])},
    NACK: {"topic": (1, "string"), "seq": (2, "uint64"), "delay_ms": (3, "uint32"), "reason": (4, "string"), "sub": (5, "uint32")},
    PING: {"sent_at": (1, "fixed64"), "last_rtt_us": (2, "uint32")},
    PONG: {"sent_at": (1, "fixed64")},
    PUBLISH: {
        "id": (1, "uint32"), "topic": (2, "string"), "payload": (3, "bytes"), "headers": (4, ("string", "string")),
        "dedupe_key": (5, "string"),
    },
    PUBLISHED: {
        "id": (1, "uint32"), "seq": (2, "uint64"), "message_id": (3, "bytes"), "duplicate": (4, "bool"), "epoch": (5, "fixed64"),
    },
    CLAIM: {
        "id": (1, "uint32"), "resource": (2, "string"), "op": (3, "enum"), "ttl_ms": (4, "uint32"), "token": (5, "uint64"),
        "priority": (6, "uint32"), "successor": (7, "string"), "wait_ms": (8, "uint32"), "no_wait": (9, "bool"),
    },
    CLAIM_STATE: {
        "id": (1, "uint32"), "resource": (2, "string"), "state": (3, "enum"), "token": (4, "uint64"), "position": (5, "uint32"),
        "expires_at": (6, "fixed64"), "holder": (7, "string"), "poll_after_ms": (8, "uint32"), "expires_in_ms": (9, "uint32"),
        "code": (10, "enum"), "holding": (11, "uint32"), "waiting": (12, "uint32"),
    },
    ERROR: {"code": (1, "enum"), "message": (2, "string"), "ref": (3, "uint32"), "retry_after_ms": (4, "uint32")},
    GO_AWAY: {"code": (1, "enum"), "reason": (2, "string"), "reconnect_after_ms": (3, "uint32"), "addresses": (4, ["string"])},
    PROGRESS: {
        "topic": (1, "string"), "epoch": (2, "fixed64"), "from": (3, "uint64"), "to": (4, "uint64"), "code": (5, "enum"),
        "subs": (6, ["uint32"]),
    },
}


def frame(kind, **fields):
    body = protobuf.encode(SCHEMAS[kind], fields)
    return len(body).to_bytes(3, "big") + bytes([kind]) + body


def read(stream):
    """Reads one frame from a binary stream: (type, message), message None for a type that is not known here."""
    head = _exactly(stream, 4)
    body = _exactly(stream, int.from_bytes(head[:3], "big"))
    schema = SCHEMAS.get(head[3])
    return head[3], protobuf.decode(schema, body) if schema else None


def _exactly(stream, size):
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the connection ended")
    return data
