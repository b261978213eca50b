import io
import unittest

import frames
from claims import Claim
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

    def test_a_position_that_is_void_hides_nothing(self):
        for had, answer, want in (
            ((5, 4), {"epoch": 6, "head": 9}, (6, 0)),  # another log
            ((5, 12), {"epoch": 5, "head": 9}, (5, 0)),  # beyond its head: it was rewound
            ((0, 12), {"epoch": 0, "head": 0}, (0, 0)),  # no log knows the topic
            ((0, 4), {"epoch": 6, "head": 9, "recovered": True}, (6, 4)),
            ((5, 4), {"epoch": 5, "head": 9}, (5, 4)),  # retention alone
        ):
            client = Scripted(frames.frame(frames.SUBSCRIBED, id=1, **answer))
            client.positions = {"a": had}
            client.subscribe("a", ack=True)
            self.assertEqual(client.positions["a"], want)

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


class Tokens(unittest.TestCase):
    """What connects again after each of an edge's answers to Hello, and with which tokens."""

    def connect(self, *answers, tokens=("a", "b", "c")):
        class Connecting(Scripted):
            def open(self):
                self.stream = io.BytesIO(answers[len(self.sent)])

            def close(self):
                self.stream.close()

        asked = iter(tokens)
        client = Connecting()
        client.token = (lambda: next(asked)) if tokens else None
        try:
            client.connect()
            fault = None
        except Refused as refused:
            fault = refused.fault["code"]
        return fault, [fields.get("token") for kind, fields in client.sent if kind == frames.HELLO]

    def test_an_expired_token_is_asked_for_once_more(self):
        welcome = frames.frame(frames.WELCOME, version=1)
        expired, bad = (frames.frame(frames.ERROR, code=c) for c in (frames.TOKEN_EXPIRED, frames.UNAUTHENTICATED))
        self.assertEqual(self.connect(welcome), (None, ["a"]))
        self.assertEqual(self.connect(expired, welcome), (None, ["a", "b"]))
        self.assertEqual(self.connect(expired, expired, welcome), (frames.TOKEN_EXPIRED, ["a", "b"]))
        self.assertEqual(self.connect(expired, bad, welcome), (frames.UNAUTHENTICATED, ["a", "b"]))
        self.assertEqual(self.connect(bad, welcome), (frames.UNAUTHENTICATED, ["a"]))
        self.assertEqual(self.connect(expired, welcome, tokens=()), (frames.TOKEN_EXPIRED, [None]))


class Claims(unittest.TestCase):
    def script(self, *states):
        return Claim(Scripted(*(frames.frame(frames.CLAIM_STATE, resource="r", **s) for s in states)), "r")

    def test_an_offer_is_no_hold_until_it_is_renewed(self):
        claim = self.script(
            {"id": 1, "state": frames.QUEUED, "position": 2}, {"id": 1, "state": frames.QUEUED, "position": 1},
            {"id": 1, "state": frames.GRANTED, "token": 7, "expires_in_ms": 60_000},
            {"id": 2, "state": frames.GRANTED, "token": 7, "expires_in_ms": 60_000},
        )
        claim.acquire()
        self.assertEqual((claim.position, claim.held()), (2, False))
        claim.wait()
        self.assertEqual((claim.token, claim.position, claim.held()), (7, 0, True))
        self.assertEqual(claim.client.sent[1], (frames.CLAIM, {"id": 2, "resource": "r", "op": frames.RENEW, "token": 7}))

    def test_what_is_lost_is_not_held(self):
        claim = self.script({"id": 1, "state": frames.QUEUED, "position": 1}, {"id": 1, "state": frames.LOST, "code": 12})
        claim.acquire()
        claim.wait()
        self.assertEqual((claim.lost, claim.held()), (12, False))


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
