"""Frames, against their schema and the bytes in the documentation."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import unittest

from pushmesh import Code, _api, _frames, _protobuf, _wire
from pushmesh._protobuf import Record, decode, encode

ROOT = pathlib.Path(__file__).parents[3]
PROTOCOL = ROOT / "docs" / "protocol.md"
PROTO = ROOT / "proto" / "pushmesh"


def blocks(text: str, kind: str) -> dict[str, str]:
    """The bodies of messages or enums, by name, without what is nested in them."""
    found = {}
    for m in re.finditer(rf"\b{kind} (\w+) \{{", text):
        depth, at, body = 1, m.end(), ""
        while depth:
            if text[at] == "{":
                depth += 1
            elif text[at] == "}":
                depth -= 1
            elif depth == 1:
                body += text[at]
            at += 1
        found[m[1]] = body
    return found


def schema(path: pathlib.Path) -> str:
    return re.sub(r"//.*", "", path.read_text())


def proto_fields(body: str) -> dict[str, tuple[int, str, bool]]:
    fields = {}
    for repeated, kind, name, number in re.findall(r"(repeated )?(map<[^>]*>|[\w.]+) (\w+) = (\d+);", body):
        fields[name] = (int(number), kind, bool(repeated))
    return fields


def kind_of(field: _protobuf.Field) -> str:
    if field.kind == "map":
        return f"map<string, {field.value}>"
    return field.kind


class Schema(unittest.TestCase):
    """Every message has every field of its schema, with its number and type."""

    def compare(self, record: type[Record], body: str, without: set[str], messages: dict[str, str], enums: set[str]) -> None:
        ours = {f.name or attribute: (f.number, kind_of(f), f.repeated) for attribute, f in _protobuf.fields(record).items()}
        theirs = {}
        for name, (number, kind, repeated) in proto_fields(body).items():
            last = kind.rsplit(".", 1)[-1]
            kind = "enum" if last in enums else "message" if kind[0].isupper() or kind.startswith("google.") else kind
            theirs[name] = (number, kind, repeated)
        self.assertEqual(ours, {n: f for n, f in theirs.items() if n not in without}, record.__name__)

    def test_frames(self) -> None:
        text = schema(PROTO / "wire" / "v1" / "wire.proto")
        messages = blocks(text, "message")
        enums = set(blocks(text, "enum")) | {"Code"}
        records = {name: r for name, r in vars(_wire).items() if dataclasses.is_dataclass(r)}
        self.assertEqual(set(records), set(messages))
        for name, record in records.items():
            self.compare(record, messages[name], {"mesh"}, messages, enums)

    def test_types_of_frames(self) -> None:
        values = re.findall(r"FRAME_TYPE_(\w+) = (\d+);", schema(PROTO / "wire" / "v1" / "wire.proto"))
        named = {re.sub(r"(?<!^)([A-Z])", r"_\1", f.__name__).upper(): n for n, f in _wire.FRAMES.items()}
        self.assertEqual({**named, "UNSPECIFIED": 0}, {name: int(n) for name, n in values})

    def test_calls(self) -> None:
        for file, names in (
            ("publish.proto", ("PublishRequest", "PublishResponse", "TopicResult", "CancelScheduledRequest", "CancelScheduledResponse")),
            ("session.proto", ("SetProfileRequest", "SetProfileResponse")),
        ):
            messages = blocks(schema(PROTO / "v1" / file), "message")
            for name in names:
                self.compare(getattr(_api, name), messages.get(name, ""), set(), messages, {"Code"})

    def test_codes(self) -> None:
        values = re.findall(r"CODE_(\w+) = (\d+);", schema(PROTO / "wire" / "v1" / "code.proto"))
        self.assertEqual({c.name: c.value for c in Code}, {name: int(n) for name, n in values})
        self.assertIs(Code(4711), Code.INTERNAL)

    def test_enums(self) -> None:
        bodies = blocks(schema(PROTO / "wire" / "v1" / "wire.proto"), "enum")
        from pushmesh import ClaimState, Overflow

        for ours, name, prefix in (
            (_wire.Begin, "Start", "START_"), (_wire.Op, "Op", "OP_"), (Overflow, "Overflow", "OVERFLOW_"), (ClaimState, "State", "STATE_"),
        ):
            values = re.findall(rf"{prefix}(\w+) = (\d+);", bodies[name])
            self.assertEqual({v.name: v.value for v in ours}, {n: int(v) for n, v in values})


class Bytes(unittest.TestCase):
    def test_the_bytes_in_the_documentation(self) -> None:
        """Every example in docs/protocol.md: the hexadecimal digits are what the message above them encodes to."""
        examples = re.findall(r"^    (\w+) (\{.*\})\n((?:    [0-9a-f]{2}.*\n)+)", PROTOCOL.read_text(), re.M)
        self.assertGreaterEqual(len(examples), 5)
        for name, message, dump in examples:
            digits = "".join(re.match(r"    ((?:[0-9a-f]{2} ?)+)", line)[1] for line in dump.splitlines())  # type: ignore[index]
            fields = eval(message, {"__builtins__": {}})  # a Python literal of our own documentation
            if "entries" in fields:
                fields["entries"] = [_wire.Entry(**e) for e in fields["entries"]]
            made = getattr(_wire, name)(**fields)
            with self.subTest(name=name):
                self.assertEqual(_frames.frame(made), bytes.fromhex(digits))
                splitter = _frames.Splitter()
                splitter.feed(bytes.fromhex(digits))
                came = splitter.take()
                assert came is not None
                self.assertEqual(_frames.decode(*came), made)

    def test_every_frame_comes_back(self) -> None:
        for frame in _wire.FRAMES.values():
            made = frame()
            for attribute, field in _protobuf.fields(frame).items():
                setattr(made, attribute, sample(field))
            with self.subTest(frame=frame.__name__):
                self.assertEqual(decode(frame, encode(made)), made)

    def test_frames_are_cut_anywhere(self) -> None:
        frames: list[_wire.Frame] = [_wire.Ping(7, 1), _wire.Message("a", 1, b"x" * 300), _wire.Stated()]
        data = b"".join(map(_frames.frame, frames))
        for size in (1, 2, 3, 5, 100, len(data)):
            splitter, got = _frames.Splitter(), []
            for at in range(0, len(data), size):
                splitter.feed(data[at : at + size])
                while came := splitter.take():
                    got.append(_frames.decode(*came))
            self.assertEqual(got, frames)
        self.assertEqual(splitter.head(), b"")

    def test_unknown_fields_are_passed_over(self) -> None:
        data = encode(_wire.Subscribe(9, "f", True, positions=[_wire.Position("t", 1, 2)], rank_top_k=3))
        self.assertEqual(decode(_wire.Unsubscribe, data), _wire.Unsubscribe(9))

    def test_unpacked_numbers_are_read(self) -> None:
        self.assertEqual(decode(_wire.Message, b"\x58\x01\x58\x02").subs, [1, 2])

    def test_nonsense_is_refused(self) -> None:
        for data in (b"\x0a\x05ab", b"\x80", b"\x0b", b"\x21\x00", b"\x80" * 11, b"\x0a\x01\xff", b"\x32\x03\x0a\x05a"):
            with self.subTest(data=data), self.assertRaises(_protobuf.DecodeError):
                decode(_wire.Message, data)


def sample(field: _protobuf.Field) -> object:
    if field.kind == "map":
        made_up: dict[str, object] = {"a": "é", "": ""}
        return made_up if field.value == "string" else {"a": 1.5, "": 0.0}
    one: object = {
        "string": "é", "bytes": b"\0\xff", "bool": True, "double": -0.5, "float": 0.25, "uint64": 2**64 - 1, "fixed64": 2**63,
    }.get(field.kind, 300)
    if field.message is not None:
        made = field.message()
        for attribute, inner in _protobuf.fields(field.message).items():
            setattr(made, attribute, sample(inner))
        one = made
    return [one, one] if field.repeated else one


if __name__ == "__main__":
    unittest.main()
