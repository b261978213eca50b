"""Frames: three bytes of length, most significant first, one of type, and a protobuf message."""

from __future__ import annotations

import struct

from . import _protobuf, _wire
from .errors import ConfigError


def header(size: int, kind: int) -> bytes:
    """What stands before a body."""
    return size.to_bytes(3, "big") + bytes((kind,))


def frame(message: _wire.Frame) -> bytes:
    """The bytes of a frame."""
    body = _protobuf.encode(message)
    return header(len(body), message.TYPE) + body


def check(message: _wire.Frame) -> None:
    """ConfigError: it has what can't be sent, such as text that is not UTF-8, or a number below 0."""
    try:
        _protobuf.encode(message)
    except (ValueError, TypeError, AttributeError, OverflowError, struct.error) as fault:
        raise ConfigError(f"{type(message).__name__} can't be sent: {fault}") from fault


def decode(kind: int, body: bytes) -> _wire.Frame | None:
    """The message of a frame; None: the type is of a later edition."""
    message = _wire.FRAMES.get(kind)
    return None if message is None else _protobuf.decode(message, body)


class Splitter:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        self._data = self._data[self._at :] + data
        self._at = 0

    def head(self) -> bytes:
        """The first bytes that belong to no frame yet, a header at most."""
        return self._data[self._at : self._at + _wire.HEADER]

    def take(self) -> tuple[int, bytes] | None:
        """The next whole frame: type and body."""
        data, at = self._data, self._at
        if len(data) - at < _wire.HEADER:
            return None
        end = at + _wire.HEADER + int.from_bytes(data[at : at + 3], "big")
        if end > len(data):
            return None
        self._at = end
        return data[at + 3], data[at + _wire.HEADER : end]
