"""The part of protobuf (proto3) that frames need.

A message is a dataclass below Record whose fields say their number and type:

    @dataclass(slots=True)
    class Position(Record):
        topic: str = string(1)
        seq: int = uint64(3)

A field with its zero value is left out; unknown fields are passed over.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable
from typing import Any, TypeVar, cast

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_MASK64 = 0xFFFFFFFFFFFFFFFF
_DOUBLE, _FLOAT, _UINT64 = struct.Struct("<d"), struct.Struct("<f"), struct.Struct("<Q")


class DecodeError(ValueError):
    """The bytes are no message of the type."""


class Record:
    """Base of all messages."""

    __slots__ = ()


R = TypeVar("R", bound=Record)


@dataclasses.dataclass(frozen=True)
class Field:
    """What a field of a message is in protobuf."""

    number: int
    kind: str  # as in .proto files; "message" where message is set
    name: str = ""  # in .proto files; empty: as the attribute
    repeated: bool = False
    value: str = ""  # of a map from strings
    message: type[Record] | None = None


def _scalar(default: object, field: Field) -> Any:
    return dataclasses.field(default=default, metadata={"protobuf": field})


def _made(factory: Callable[[], object], field: Field) -> Any:
    return dataclasses.field(default_factory=factory, metadata={"protobuf": field})


def string(number: int, name: str = "") -> str:
    return cast(str, _scalar("", Field(number, "string", name)))


def octets(number: int) -> bytes:
    return cast(bytes, _scalar(b"", Field(number, "bytes")))


def uint32(number: int) -> int:
    return cast(int, _scalar(0, Field(number, "uint32")))


def uint64(number: int, name: str = "") -> int:
    return cast(int, _scalar(0, Field(number, "uint64", name)))


def int32(number: int) -> int:
    return cast(int, _scalar(0, Field(number, "int32")))


def int64(number: int) -> int:
    return cast(int, _scalar(0, Field(number, "int64")))


def enum(number: int) -> int:
    return cast(int, _scalar(0, Field(number, "enum")))


def boolean(number: int) -> bool:
    return cast(bool, _scalar(False, Field(number, "bool")))


def fixed64(number: int) -> int:
    return cast(int, _scalar(0, Field(number, "fixed64")))


def double(number: int) -> float:
    return cast(float, _scalar(0.0, Field(number, "double")))


def strings(number: int) -> list[str]:
    return cast("list[str]", _made(list, Field(number, "string", repeated=True)))


def uint32s(number: int) -> list[int]:
    return cast("list[int]", _made(list, Field(number, "uint32", repeated=True)))


def floats(number: int) -> list[float]:
    return cast("list[float]", _made(list, Field(number, "float", repeated=True)))


def records(number: int, message: type[R]) -> list[R]:
    return cast("list[R]", _made(list, Field(number, "message", repeated=True, message=message)))


def record(number: int, message: type[R]) -> R | None:
    return cast("R | None", _scalar(None, Field(number, "message", message=message)))


def text_map(number: int) -> dict[str, str]:
    return cast("dict[str, str]", _made(dict, Field(number, "map", value="string")))


def number_map(number: int) -> dict[str, float]:
    return cast("dict[str, float]", _made(dict, Field(number, "map", value="double")))


def fields(message: type[Record]) -> dict[str, Field]:
    """The fields of a message by attribute."""
    return {f.name: f.metadata["protobuf"] for f in dataclasses.fields(cast(Any, message))}


def encode(message: Record) -> bytes:
    out = bytearray()
    for attribute, put in _encoders(_key(message.__class__)):
        value = getattr(message, attribute)
        if value:
            put(out, value)
    return bytes(out)


def decode(message: type[R], data: bytes) -> R:
    out = message()
    takers = _decoders(_key(message))
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag > 0x7F:
            tag, at = read_varint(data, at - 1)
        raw: int | bytes
        wire = tag & 7
        if wire == LENGTH:
            size, at = read_varint(data, at)
            raw, at = data[at : at + size], at + size
        elif wire == VARINT:
            raw, at = read_varint(data, at)
        elif wire == FIXED64 or wire == FIXED32:
            size = 8 if wire == FIXED64 else 4
            raw, at = data[at : at + size], at + size
        else:
            raise DecodeError(f"wire type {wire}")
        if at > end:
            raise DecodeError("a field is cut off")
        take = takers.get(tag)
        if take is not None:
            take(out, raw)
    return out


def varint(n: int) -> bytes:
    """ValueError: it is negative, or has more than 64 bits."""
    if 0 <= n < 0x80:
        return bytes((n,))
    if not 0 <= n <= _MASK64:
        raise ValueError(f"{n} is no number of 64 bits without a sign")
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    n = 0
    try:
        for shift in range(0, 70, 7):
            byte = data[at]
            at += 1
            n |= (byte & 0x7F) << shift
            if byte < 0x80:
                return n & _MASK64, at
    except IndexError:
        raise DecodeError("a varint is cut off") from None
    raise DecodeError("a varint has no end")


_Put = Callable[[bytearray, Any], None]
_Take = Callable[[Any, Any], None]
_WIRE = {"fixed64": FIXED64, "double": FIXED64, "float": FIXED32, "string": LENGTH, "bytes": LENGTH, "message": LENGTH}


def _key(message: type[Record]) -> Any:
    return message  # a class can be hashed, whatever its messages can


@functools.cache
def _encoders(message: type[Record]) -> list[tuple[str, _Put]]:
    return [(attribute, _encoder(field)) for attribute, field in fields(message).items()]


def _encoder(field: Field) -> _Put:
    if field.kind == "map":
        return _map_encoder(field)
    if field.repeated and _WIRE.get(field.kind) != LENGTH:
        tag, value = varint(field.number << 3 | LENGTH), _writer(field)

        def packed(out: bytearray, many: list[Any]) -> None:
            body = b"".join(map(value, many))
            out += tag
            out += varint(len(body))
            out += body

        return packed
    put = _one(field)
    if field.repeated:

        def each(out: bytearray, many: list[Any]) -> None:
            for one in many:
                put(out, one)

        return each
    return put


def _one(field: Field) -> _Put:
    wire = _WIRE.get(field.kind, VARINT)
    tag, value = varint(field.number << 3 | wire), _writer(field)

    def sized(out: bytearray, one: Any) -> None:
        body = value(one)
        out += tag
        out += varint(len(body))
        out += body

    def plain(out: bytearray, one: Any) -> None:
        out += tag
        out += value(one)

    return sized if wire == LENGTH else plain


def _map_encoder(field: Field) -> _Put:
    key, value = _one(Field(1, "string")), _one(Field(2, field.value))
    tag = varint(field.number << 3 | LENGTH)

    def put(out: bytearray, entries: dict[str, Any]) -> None:
        for k, v in entries.items():
            body = bytearray()
            key(body, k)
            value(body, v)
            out += tag
            out += varint(len(body))
            out += body

    return put


def _writer(field: Field) -> Callable[[Any], bytes]:
    if field.kind == "message":
        return encode
    writers: dict[str, Callable[[Any], bytes]] = {
        "string": lambda v: cast(bytes, v.encode()),
        "bytes": bytes,
        "bool": lambda v: b"\x01" if v else b"\x00",
        "fixed64": _UINT64.pack,
        "double": _DOUBLE.pack,
        "float": _FLOAT.pack,
        "int32": lambda v: varint(v & _MASK64),
        "int64": lambda v: varint(v & _MASK64),
        "uint32": _short,
    }
    return writers.get(field.kind, varint)


def _short(n: int) -> bytes:
    if n >> 32:
        raise ValueError(f"{n} is no number of 32 bits without a sign")
    return varint(n)


@functools.cache
def _decoders(message: type[Record]) -> dict[int, _Take]:
    takers: dict[int, _Take] = {}
    for attribute, field in fields(message).items():
        wire = _WIRE.get(field.kind, VARINT)
        if field.kind == "map":
            takers[field.number << 3 | LENGTH] = _map_decoder(attribute, field)
            continue
        takers[field.number << 3 | wire] = _decoder(attribute, field)
        if field.repeated and wire != LENGTH:
            takers[field.number << 3 | LENGTH] = _unpacker(attribute, field)
    return takers


def _decoder(attribute: str, field: Field) -> _Take:
    value = _reader(field)

    def append(out: Any, raw: Any) -> None:
        getattr(out, attribute).append(value(raw))

    def put(out: Any, raw: Any) -> None:
        setattr(out, attribute, value(raw))

    return append if field.repeated else put


def _map_decoder(attribute: str, field: Field) -> _Take:
    entry: Any = _TextEntry if field.value == "string" else _NumberEntry

    def take(out: Any, raw: bytes) -> None:
        pair: Any = decode(entry, raw)
        getattr(out, attribute)[pair.key] = pair.value

    return take


def _unpacker(attribute: str, field: Field) -> _Take:
    value = _reader(field)
    size = {"fixed64": 8, "double": 8, "float": 4}.get(field.kind)

    def take(out: Any, raw: bytes) -> None:
        into: list[Any] = getattr(out, attribute)
        at = 0
        while at < len(raw):
            if size is None:
                n, at = read_varint(raw, at)
                into.append(value(n))
            else:
                into.append(value(raw[at : at + size]))
                at += size

    return take


def _reader(field: Field) -> Callable[[Any], Any]:
    if field.message is not None:
        return functools.partial(decode, field.message)
    readers: dict[str, Callable[[Any], Any]] = {
        "string": _text,
        "bool": bool,
        "fixed64": functools.partial(_unpacked, _UINT64),
        "double": functools.partial(_unpacked, _DOUBLE),
        "float": functools.partial(_unpacked, _FLOAT),
        "uint32": lambda n: n & 0xFFFFFFFF,
        "int32": _signed,
        "int64": _signed,
    }
    return readers.get(field.kind, lambda raw: raw)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as fault:
        raise DecodeError(str(fault)) from None


def _unpacked(form: struct.Struct, raw: bytes) -> Any:
    try:
        return form.unpack(raw)[0]
    except struct.error as fault:
        raise DecodeError(str(fault)) from None


def _signed(n: int) -> int:
    return n - (1 << 64) if n >> 63 else n


@dataclasses.dataclass(slots=True)
class _TextEntry(Record):
    key: str = string(1)
    value: str = string(2)


@dataclasses.dataclass(slots=True)
class _NumberEntry(Record):
    key: str = string(1)
    value: float = double(2)
