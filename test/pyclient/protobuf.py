"""Just enough of protobuf (proto3) for the frames of docs/protocol.md.

A schema maps a field's name to (number, type), where type is one of
  "uint32" "uint64" "bool" "enum"     varints
  "fixed64" "double"                  eight bytes, little-endian
  "string" "bytes"                    length and content
  a dict                              an embedded message with that schema
  [type]                              repeated; numbers are packed
  (key type, value type)              a map
Messages are plain dicts; a field that is absent has its zero value.
"""

import struct

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_NUMBERS = {"uint32": _VARINT, "uint64": _VARINT, "bool": _VARINT, "enum": _VARINT, "fixed64": _FIXED64, "double": _FIXED64}


class DecodeError(ValueError):
    """The bytes are no message of the schema."""


def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_varint(data, at):
    n = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise DecodeError("a varint is cut off")
        byte = data[at]
        at += 1
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            return n & 0xFFFFFFFFFFFFFFFF, at
    raise DecodeError("a varint has no end")


def encode(schema, message):
    out = bytearray()
    for name, value in message.items():
        number, kind = schema[name]
        if isinstance(kind, list) and _is_number(kind[0]):
            packed = b"".join(_number(kind[0], v) for v in value)
            if value:
                out += _tag(number, _LENGTH) + varint(len(packed)) + packed
        elif isinstance(kind, list):
            for v in value:
                out += _field(number, kind[0], v)
        elif isinstance(kind, tuple):
            pair = {"key": (1, kind[0]), "value": (2, kind[1])}
            for k, v in value.items():
                out += _field(number, pair, {"key": k, "value": v})
        elif value or isinstance(kind, dict):
            out += _field(number, kind, value)
    return bytes(out)


def _is_number(kind):
    return isinstance(kind, str) and kind in _NUMBERS


def _tag(number, wire):
    return varint(number << 3 | wire)


def _number(kind, value):
    if kind == "double":
        return struct.pack("<d", value)
    if kind == "fixed64":
        return struct.pack("<Q", value)
    return varint(int(value))


def _field(number, kind, value):
    if _is_number(kind):
        return _tag(number, _NUMBERS[kind]) + _number(kind, value)
    if isinstance(kind, dict):
        value = encode(kind, value)
    elif kind == "string":
        value = value.encode()
    return _tag(number, _LENGTH) + varint(len(value)) + value


def decode(schema, data):
    """Reads a message; unknown fields are passed over, absent ones get their zero value."""
    names = {number: (name, kind) for name, (number, kind) in schema.items()}
    out = {name: _zero(kind) for name, (_, kind) in schema.items()}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        raw, at = _raw(data, at, tag & 7)
        if tag >> 3 in names:
            name, kind = names[tag >> 3]
            _put(out, name, kind, raw, tag & 7)
    return out


def _zero(kind):
    if isinstance(kind, list):
        return []
    if isinstance(kind, (tuple, dict)):
        return {}
    return {"string": "", "bytes": b"", "bool": False, "double": 0.0}.get(kind, 0)


def _raw(data, at, wire):
    if wire == _VARINT:
        return read_varint(data, at)
    if wire == _LENGTH:
        size, at = read_varint(data, at)
    elif wire in (_FIXED64, _FIXED32):
        size = 8 if wire == _FIXED64 else 4
    else:
        raise DecodeError(f"wire type {wire}")
    if at + size > len(data):
        raise DecodeError("a field is cut off")
    return data[at : at + size], at + size


def _put(out, name, kind, raw, wire):
    if isinstance(kind, list):
        if _is_number(kind[0]) and wire == _LENGTH:
            out[name] += _unpack(kind[0], raw)
        else:
            out[name].append(_value(kind[0], raw))
    elif isinstance(kind, tuple):
        pair = decode({"key": (1, kind[0]), "value": (2, kind[1])}, raw)
        out[name][pair["key"]] = pair["value"]
    else:
        out[name] = _value(kind, raw)


def _unpack(kind, raw):
    values, at = [], 0
    while at < len(raw):
        one, at = _raw(raw, at, _NUMBERS[kind])
        values.append(_value(kind, one))
    return values


def _value(kind, raw):
    try:
        if isinstance(kind, dict):
            return decode(kind, raw)
        if kind == "string":
            return raw.decode()
        if kind == "double":
            return struct.unpack("<d", raw)[0]
        if kind == "fixed64":
            return struct.unpack("<Q", raw)[0]
        return bool(raw) if kind == "bool" else raw
    except (struct.error, UnicodeDecodeError, AttributeError, TypeError) as fault:
        raise DecodeError(str(fault)) from fault
