import io
import pathlib
import re
import unittest

import frames
import protobuf

PROTOCOL = pathlib.Path(__file__).parents[2] / "docs" / "protocol.md"


class Protobuf(unittest.TestCase):
    def test_round_trip_of_every_type(self):
        schema = {
            "n": (1, "uint64"), "f": (2, "fixed64"), "d": (3, "double"), "s": (4, "string"), "b": (5, "bytes"), "t": (6, "bool"),
            "r": (7, ["uint32"]), "l": (8, ["string"]), "m": (9, ("string", "double")), "e": (300, {"x": (1, "uint32")}),
            "es": (16, [{"x": (1, "uint32")}]),
        }
        message = {
            "n": 2**64 - 1, "f": 2**63, "d": -0.5, "s": "é", "b": b"\0\xff", "t": True, "r": [0, 1, 300], "l": ["", "a"],
            "m": {"a": 1.5, "": 0.0}, "e": {"x": 7}, "es": [{"x": 0}, {"x": 1}],
        }
        self.assertEqual(protobuf.decode(schema, protobuf.encode(schema, message)), message)

    def test_unknown_fields_are_passed_over(self):
        wide = {"a": (1, "uint32"), "b": (2, "string"), "c": (3, "fixed64"), "d": (4, ["uint32"])}
        data = protobuf.encode(wide, {"b": "x", "c": 1, "d": [1], "a": 9})
        self.assertEqual(protobuf.decode({"a": (1, "uint32")}, data), {"a": 9})

    def test_unpacked_numbers_are_read(self):
        self.assertEqual(protobuf.decode({"r": (7, ["uint32"])}, b"\x38\x01\x38\x02"), {"r": [1, 2]})

    def test_nonsense_is_refused(self):
        for data in (b"\x0a\x05ab", b"\x80", b"\x0b", b"\x09\x00", b"\x80" * 11, b"\x0a\x01\xff"):
            with self.subTest(data=data), self.assertRaises(protobuf.DecodeError):
                protobuf.decode({"s": (1, "string")}, data)


class Frames(unittest.TestCase):
    def test_a_frame_cut_off(self):
        whole = frames.frame(frames.HELLO, version=1, client_id="c1")
        for size in range(len(whole)):
            with self.subTest(size=size), self.assertRaises(EOFError):
                frames.read(io.BytesIO(whole[:size]))

    def test_unknown_frames_have_no_message(self):
        self.assertEqual(frames.read(io.BytesIO(b"\0\0\2\x7fab")), (0x7F, None))

    def test_the_bytes_in_the_documentation(self):
        """Every example in docs/protocol.md: the hexadecimal digits are what the message above them encodes to."""
        examples = re.findall(r"^    (\w+) (\{.*\})\n((?:    [0-9a-f]{2}.*\n)+)", PROTOCOL.read_text(), re.M)
        self.assertGreaterEqual(len(examples), 5)
        for name, message, dump in examples:
            with self.subTest(name=name):
                digits = "".join(re.match(r"    ((?:[0-9a-f]{2} ?)+)", line)[1] for line in dump.splitlines())
                kind, got = frames.read(io.BytesIO(bytes.fromhex(digits)))
                self.assertEqual(kind, getattr(frames, re.sub(r"(?<!^)([A-Z])", r"_\1", name).upper()))
                wanted = eval(message, {"__builtins__": {}})  # a Python literal of our own documentation
                self.assertEqual(frames.frame(kind, **wanted), bytes.fromhex(digits))
                self.assertEqual(frames.frame(kind, **got), bytes.fromhex(digits))


if __name__ == "__main__":
    unittest.main()
