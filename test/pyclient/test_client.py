import io
import unittest

import frames
from client import Client, Refused, matches


class Scripted(Client):
    """A client whose edge has said everything already."""

    def __init__(self, *script):
        super().__init__("nowhere:0", "c")
        self.stream = io.BytesIO(b"".join(script))
        self.sent = []

    def send(self, kind, **fields):
        self.sent.append((kind, fields))


class Positions(unittest.TestCase):
    def test_messages_before_the_answer_are_kept(self):
        client = Scripted(
            frames.frame(frames.MESSAGE, topic="other", payload=b"early"),
            frames.frame(frames.SUBSCRIBED, id=1, epoch=5, head=3, recovered=True),
            frames.frame(frames.MESSAGE, topic="a", seq=4, payload=b"x"),
        )
        client.subscribe("a", ack=True)
        self.assertEqual(client.receive()["payload"], b"early")
        message = client.receive()
        self.assertEqual(client.positions, {"a": (5, 3)})
        self.assertFalse(client.had(message))
        client.ack(message)
        self.assertTrue(client.had(message))
        self.assertEqual(client.positions, {"a": (5, 4)})
        self.assertEqual(client.sent[-1], (frames.ACK, {"entries": [{"topic": "a", "seq": 4}]}))

    def test_positions_are_named_on_return(self):
        client = Scripted(frames.frame(frames.SUBSCRIBED, id=1, epoch=5, head=9, recovered=True))
        client.positions = {"a": (5, 4), "b/c": (5, 1)}
        client.subscribe("a", ack=True)
        self.assertEqual(client.sent[0][1]["positions"], [{"topic": "a", "epoch": 5, "seq": 4}])
        self.assertEqual(client.positions["a"], (5, 4))

    def test_progress_moves_on_and_a_new_epoch_begins_anew(self):
        client = Scripted(
            frames.frame(frames.PROGRESS, topic="a", epoch=5, to=8, code=32, **{"from": 5}),
            frames.frame(frames.PROGRESS, topic="a", epoch=6, code=frames.EPOCH_CHANGED),
        )
        client.positions = {"a": (5, 4)}
        client.step()
        self.assertEqual(client.positions, {"a": (5, 8)})
        client.step()
        self.assertEqual(client.positions, {"a": (6, 0)})

    def test_an_error_is_raised(self):
        client = Scripted(frames.frame(frames.ERROR, code=7, message="bad", ref=1))
        with self.assertRaises(Refused):
            client.subscribe("a//b")


class Filters(unittest.TestCase):
    def test_matches(self):
        for filter, topic, wanted in (
            ("a/b", "a/b", True), ("a/+", "a/b", True), ("a/+", "a", False), ("a/+", "a/b/c", False), ("a/#", "a", True),
            ("a/#", "a/b/c", True), ("#", "a", True), ("#", "$dead/a", False), ("+/a", "$dead/a", False), ("$dead/#", "$dead/a", True),
        ):
            with self.subTest(filter=filter, topic=topic):
                self.assertEqual(matches(filter, topic), wanted)


if __name__ == "__main__":
    unittest.main()
