"""Claims by the clock: when they ask again, and what they leave behind."""

from __future__ import annotations

import asyncio
import selectors
import unittest
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from pushmesh import Claim, ClaimState, Code, Refused, _clock, _wire
from pushmesh._claims import Claims
from pushmesh._engine import Engine
from pushmesh._link import Link
from pushmesh.claim import ClaimWatch


class Passing(selectors.DefaultSelector):
    """Has nothing to wait for: what would be waited has passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen"
            self.now += timeout
        return ready


class Loop(asyncio.SelectorEventLoop):
    """A loop whose time passes as soon as nothing is left to do."""

    def __init__(self) -> None:
        self.passing = Passing()
        super().__init__(self.passing)

    def time(self) -> float:
        return self.passing.now


class Bench:
    """A client without a socket, and the Claims that it has sent."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.asked: asyncio.Queue[tuple[float, _wire.Claim]] = asyncio.Queue()
        self.last = 0.0  # the time of what came last, or was answered last
        self._id = 0
        self.engine = SimpleNamespace(
            config=SimpleNamespace(min_backoff=0.1, max_backoff=60.0), link=None, answers={}, moved=asyncio.Event(), next_id=self.next_id, check_open=lambda: None,
            later=lambda after, call: loop.call_later(after, call), tell=lambda callback, event: callback and callback(event), wait=self.wait,
        )
        self.claims = Claims(cast(Engine, self.engine))
        self.connect()

    async def wait(self, waiting: asyncio.Future[Any], *rest: object) -> Any:
        return await waiting

    def next_id(self) -> int:
        self._id += 1
        return self._id

    def connect(self) -> None:
        self.last = self.loop.time()
        self.engine.link = SimpleNamespace(put=lambda claim: self.asked.put_nowait((self.loop.time(), claim)))
        self.claims.connected(cast(Link, self.engine.link))

    def cut(self) -> None:
        self.engine.link = None
        self.claims.broken()

    async def next(self, op: _wire.Op, after: float = 0.0) -> _wire.Claim:
        """The next Claim, which is to come so many seconds after what was before."""
        at, claim = await self.asked.get()
        assert claim.op == op, f"{claim.op!r} came, not {op!r}"
        assert abs(at - self.last - after) < 0.001, f"{op!r} came after {at - self.last} s, not {after}"
        self.last = at
        return claim

    async def nothing(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        assert self.asked.empty(), f"{self.asked.get_nowait()} came"
        self.last = self.loop.time()

    def answer(self, claim: _wire.Claim, state: ClaimState, **more: Any) -> None:
        self.last = self.loop.time()
        self.claims.take(_wire.ClaimState(claim.id, claim.resource, state, **more))

    def refuse(self, claim: _wire.Claim, retry_after: float = 0.0) -> None:
        self.last = self.loop.time()
        self.claims.answered(claim.id, Refused(Code.OVERLOADED, "", retry_after=retry_after))

    def claim(self, resource: str) -> Claim:
        made = Claim(self.claims, _wire.Claim(resource=resource, op=_wire.Op.ACQUIRE), None)
        self.claims.claims[resource] = made
        made.pump()
        return made

    def watch(self, resource: str, told: Callable[[object], object] = lambda info: None) -> ClaimWatch:
        made = ClaimWatch(self.claims, resource, told)
        self.claims.watches[resource] = made
        made.pump()
        return made


class ByTheClock(unittest.TestCase):
    def played(self, scene: Callable[[Bench], Coroutine[Any, Any, None]], *, most: bool = False) -> None:
        """Plays a scene where random pauses are the shortest, or the longest."""
        loop = Loop()

        async def run() -> None:
            await scene(Bench(loop))

        with (
            mock.patch.object(_clock, "now", loop.time),
            mock.patch("pushmesh._reconnect.random.uniform", lambda low, high: high if most else low),
            asyncio.Runner(loop_factory=lambda: loop) as runner,
        ):
            runner.run(run())

    def test_what_is_refused_for_now_is_asked_later_each_time(self) -> None:
        for most, wants in ((False, (0.05, 0.1, 0.2, 0.4, 0.8)), (True, (0.1, 0.2, 0.4, 0.8, 1.6))):

            async def scene(b: Bench, most: bool = most, wants: tuple[float, ...] = wants) -> None:
                b.claim("seat")
                asked = await b.next(_wire.Op.ACQUIRE)
                for want in wants:
                    b.refuse(asked)
                    asked = await b.next(_wire.Op.ACQUIRE, want)
                b.refuse(asked, 4.0)  # what the mesh asks for is a lower bound
                asked = await b.next(_wire.Op.ACQUIRE, 5.0 if most else 4.0)
                b.answer(asked, ClaimState.QUEUED, position=1)
                b.watch("seat")
                asked = await b.next(_wire.Op.WATCH)
                for want in wants:
                    b.refuse(asked)
                    asked = await b.next(_wire.Op.WATCH, want)
                b.answer(asked, ClaimState.QUEUED, position=1)
                # An answer begins anew.
                b.cut()
                b.connect()
                for op in (_wire.Op.ACQUIRE, _wire.Op.WATCH):
                    b.refuse(await b.next(op))
                b.answer(await b.next(_wire.Op.ACQUIRE, wants[0]), ClaimState.QUEUED, position=1)
                b.answer(await b.next(_wire.Op.WATCH), ClaimState.QUEUED, position=1)
                checking = asyncio.ensure_future(b.claims.call(_wire.Claim(resource="other", op=_wire.Op.CHECK)))
                asked = await b.next(_wire.Op.CHECK)
                for want in wants:
                    b.refuse(asked)
                    asked = await b.next(_wire.Op.CHECK, want)
                b.answer(asked, ClaimState.FREE)
                self.assertEqual((await checking)[0].state, ClaimState.FREE)

            with self.subTest(most=most):
                self.played(scene, most=most)

    def test_however_often_a_renewal_is_refused_it_is_tried_again_while_the_hold_lasts(self) -> None:
        async def scene(b: Bench) -> None:
            claim = b.claim("seat")
            b.answer(await b.next(_wire.Op.ACQUIRE), ClaimState.GRANTED, token=7, expires_in_ms=9000)
            asked, left, pause = await b.next(_wire.Op.RENEW, 3.0), 6.0, 0.1
            while left > 0.3:
                b.refuse(asked)
                asked = await b.next(_wire.Op.RENEW, min(pause, left / 3))
                left, pause = left - min(pause, left / 3), pause * 2
                self.assertTrue(claim.held)
            b.answer(asked, ClaimState.GRANTED, token=7, expires_in_ms=9000)
            b.refuse(await b.next(_wire.Op.RENEW, 3.0), 3600.0)  # the mesh's word counts: it is lost in time
            lost = await claim.lost()
            assert isinstance(lost, Refused)
            self.assertEqual((lost.code, round(b.loop.time() - b.last, 3), b.asked.qsize()), (Code.UNAVAILABLE, 6.0, 0))

        self.played(scene, most=True)

    def test_a_connection_that_broke_is_no_refusal(self) -> None:
        """The next one asks at once, and nothing is asked before."""

        async def scene(b: Bench) -> None:
            claim = b.claim("seat")
            b.answer(await b.next(_wire.Op.ACQUIRE), ClaimState.GRANTED, token=7, expires_in_ms=60_000)
            b.watch("other")
            b.refuse(await b.next(_wire.Op.WATCH), 5.0)
            for _ in range(5):
                b.cut()
                await b.nothing(1.0)
                b.connect()
                await b.next(_wire.Op.RENEW)
                b.refuse(await b.next(_wire.Op.WATCH), 30.0)  # the pauses of the connections before are over
            await b.nothing(10.0)
            self.assertTrue(claim.held)

        self.played(scene, most=True)

    def test_a_claim_that_is_given_up_before_it_is_sent_is_not_sent(self) -> None:
        async def scene(b: Bench) -> None:
            claims = [b.claim(f"seat/{n}") for n in range(17)]  # an edge takes 16 at a time
            for _ in range(16):
                await b.next(_wire.Op.ACQUIRE)
            b.cut()
            claims[16].give_up()
            b.connect()
            for _ in range(16):
                asked = await b.next(_wire.Op.ACQUIRE)
                self.assertNotEqual(asked.resource, "seat/16")
                b.answer(asked, ClaimState.QUEUED, position=1)
            await b.nothing(1.0)

        self.played(scene)

    def test_a_watch_outlives_a_claim_beside_it_that_is_given_up(self) -> None:
        async def scene(b: Bench) -> None:
            told: list[Any] = []
            b.watch("seat", told.append)
            b.answer(await b.next(_wire.Op.WATCH), ClaimState.FREE)
            claim = b.claim("seat")
            await b.next(_wire.Op.ACQUIRE)
            claim.give_up()
            b.answer(await b.next(_wire.Op.LEAVE), ClaimState.RELEASED)  # which ends the watch at the edge, too
            b.answer(await b.next(_wire.Op.WATCH), ClaimState.HELD_BY_OTHER)
            self.assertEqual([i.state for i in told], [ClaimState.FREE, ClaimState.RELEASED, ClaimState.HELD_BY_OTHER])

        self.played(scene)
