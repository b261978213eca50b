"""The parts that need no connection."""

from __future__ import annotations

import unittest

from pushmesh import Code, Refused, _acks, _topics, _wire
from pushmesh._crowd import Crowd
from pushmesh._position import MAX_OWED, MAX_SPANS, Cursor, Seqs
from pushmesh._reconnect import Backoff, Route, join, split


class Filters(unittest.TestCase):
    def test_match(self) -> None:
        for filter, topic, wanted in (
            ("a/b", "a/b", True), ("a/+", "a/b", True), ("a/+", "a", False), ("a/+", "a/b/c", False), ("a/#", "a", True),
            ("a/#", "a/b/c", True), ("#", "a", True), ("#", "$dead/a", False), ("+/a", "$dead/a", False), ("$dead/#", "$dead/a", True),
            ("a", "a/b", False), ("a/b", "a", False),
        ):
            with self.subTest(filter=filter, topic=topic):
                self.assertEqual(_topics.match(filter, topic), wanted)

    def test_fault(self) -> None:
        for good in ("a", "a/+/b", "a/#", "#", "+"):
            self.assertEqual(_topics.fault(good), "")
        for bad in ("", "a//b", "/a", "a/", "a+", "a/#/b", "x" * 256):
            self.assertNotEqual(_topics.fault(bad), "")

    def test_what_can_be_published_to(self) -> None:
        _topics.check("a/é")
        for bad, code in (("a/+", Code.BAD_TOPIC), ("a\n", Code.BAD_TOPIC), ("$dead/a", Code.FORBIDDEN), ("", Code.BAD_TOPIC)):
            with self.assertRaises(Refused) as caught:
                _topics.check(bad)
            self.assertEqual(caught.exception.code, code)


class Sets(unittest.TestCase):
    def test_as_a_set_of_numbers(self) -> None:
        import random

        rand = random.Random(7)
        seqs, model = Seqs(), set[int]()
        for _ in range(2000):
            low = rand.randrange(1, 60)
            high = low + rand.randrange(-1, 8)
            if rand.random() < 0.6:
                seqs.add(low, high)
                model |= set(range(low, high + 1))
            else:
                seqs.remove(low, high)
                model -= set(range(low, high + 1))
            self.assertEqual([n for n in range(70) if n in seqs], sorted(model))
            self.assertEqual(seqs.min(), min(model, default=0))
            missing = [n for n in range(1, 41) if n not in model]
            self.assertEqual(seqs.lacks(40), (len(missing), min(missing, default=41)))

    def test_the_bound(self) -> None:
        seqs = Seqs()
        for n in range(MAX_SPANS + 1):
            seqs.add(10 * n, 10 * n)
        self.assertIn(5, seqs)  # the two lowest are one
        self.assertNotIn(15, seqs)


class Cursors(unittest.TestCase):
    def test_what_a_handler_refused_is_not_skipped(self) -> None:
        c = Cursor(epoch=5)
        c.succeeded(1)
        c.failed(2)
        c.succeeded(3)
        self.assertEqual((c.position(), 3 in c.done, 2 in c.done), (1, True, False))
        c.succeeded(2)
        self.assertEqual(c.position(), 3)

    def test_what_is_too_far_behind_is_given_up(self) -> None:
        c = Cursor(epoch=5)
        self.assertIsNone(c.failed(1))
        c.succeeded(MAX_OWED + 1)
        self.assertEqual(c.failed(MAX_OWED + 2), (1, 1))
        self.assertIn(1, c.done)

    def test_progress(self) -> None:
        c = Cursor(epoch=5, high=4)
        self.assertFalse(c.progress(_wire.Progress("a", 5, 5, 8, Code.RETENTION)))
        self.assertEqual(c.position(), 8)
        self.assertFalse(c.progress(_wire.Progress("a", 4, 1, 20, Code.RETENTION)))  # of a log that is gone
        self.assertEqual(c.position(), 8)
        self.assertTrue(c.progress(_wire.Progress("a", 6, code=Code.EPOCH_CHANGED)))
        self.assertEqual((c.epoch, c.position()), (6, 0))

    def test_the_first_epoch_is_no_new_one(self) -> None:
        c = Cursor()
        self.assertFalse(c.progress(_wire.Progress("a", 6, code=Code.EPOCH_CHANGED)))
        self.assertEqual(c.epoch, 6)


class Acks(unittest.TestCase):
    def test_runs_share_a_frame(self) -> None:
        pending, a, b = _acks.Pending(), _acks.Run("a", epoch=5), _acks.Run("b", 3)
        self.assertTrue(pending.add(a, 1, through=True))
        self.assertTrue(pending.add(a, 2, through=True))
        self.assertFalse(pending.add(a, 1, through=False))
        self.assertTrue(pending.add(b, 7, through=False))
        (frame,) = pending.take()
        self.assertEqual(frame.entries, [_wire.Entry("a", 2, True, 0, 5), _wire.Entry("b", 7, False, 3, 0)])
        self.assertEqual(pending.take(), [])

    def test_many_singles_are_several_frames(self) -> None:
        pending, run = _acks.Pending(), _acks.Run("a")
        for n in range(2, 2 + 2 * _acks.MAX_SINGLES, 2):
            pending.add(run, n, through=False)
        self.assertTrue(run.full)
        frames = pending.take()
        self.assertEqual(sum(len(f.entries) for f in frames), _acks.MAX_SINGLES)
        self.assertGreater(len(frames), 1)


class Waits(unittest.TestCase):
    def test_doubles_with_jitter(self) -> None:
        for n, high in ((0, 0.1), (1, 0.2), (3, 0.8), (9, 10.0), (2000, 10.0)):
            wait = Backoff(0.1, 10)
            for _ in range(n):
                wait.next()
            for _ in range(20):
                wait._tries = n
                self.assertTrue(high / 2 <= wait.next() <= high)

    def test_not_before_the_time_that_was_asked_for(self) -> None:
        wait = Backoff(0.1, 10)
        for _ in range(50):
            wait.reset()
            self.assertTrue(2.0 <= wait.next(2.0) <= 2.5)


class Routes(unittest.IsolatedAsyncioTestCase):
    async def test_every_place_once_in_a_round(self) -> None:
        async def lookup(host: str, port: int) -> list[str]:
            found: dict[str, list[str]] = {"two": ["10.0.0.1", "::1"], "none": []}
            return found[host]

        route = Route(["two:1", "none:2", "10.0.0.9:3"], lookup)
        for _ in range(20):
            places = []
            while True:
                places.append(await route.next())
                if route.round_over():
                    break
            self.assertEqual(
                sorted(places), [("10.0.0.1:1", "two:1"), ("10.0.0.9:3", "10.0.0.9:3"), ("[::1]:1", "two:1"), ("none:2", "none:2")],
            )
        last = places[-1]
        self.assertNotEqual(await route.next(), last)
        route.detour(["elsewhere:7"])
        self.assertEqual((await route.next()).address, "elsewhere:7")

    def test_addresses(self) -> None:
        self.assertEqual(split("[::1]:7400"), ("::1", 7400))
        self.assertEqual(join("::1", 7400), "[::1]:7400")
        for bad in ("a", "a:", ":1", "a:x", "tcp://a:1", "::1:7400", "a:0", "a:70000"):
            with self.subTest(bad=bad), self.assertRaises(ValueError):
                split(bad)


class Crowds(unittest.TestCase):
    def test_what_is_different(self) -> None:
        crowd = Crowd()
        ann, bob, cat = (_wire.Member(user) for user in ("ann", "bob", "cat"))

        def told(**fields: object) -> object:
            d = crowd.take(_wire.Presence("t", **fields))  # type: ignore[arg-type]
            return None if d is None else (d.all, d.joined, d.changed, d.left)

        self.assertEqual(told(snapshot=True, members=[ann, bob], count=2), (True, [], [], []))
        self.assertEqual(told(members=[cat], left=["bob"], count=2), (False, ["cat"], [], ["bob"]))
        self.assertEqual(told(members=[_wire.Member("cat", b"typing")], count=2), (False, [], ["cat"], []))
        self.assertEqual(told(snapshot=True, members=[ann, _wire.Member("cat", b"typing")], count=2), None)
        self.assertEqual(told(snapshot=True, members=[bob], count=1), (False, ["bob"], [], ["ann", "cat"]))
        self.assertEqual(told(counts_only=True, count=500), (False, [], [], []))
        self.assertEqual(told(counts_only=True, count=500), None)
        self.assertEqual(crowd.states, {})
        self.assertEqual(told(snapshot=True, members=[ann], count=1), (True, [], [], []))
        self.assertEqual(list(crowd.states), ["ann"])


if __name__ == "__main__":
    unittest.main()
