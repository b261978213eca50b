"""Publishing, claims and presence over connections that break."""

from __future__ import annotations

import asyncio

import pushmesh
from pushmesh import ClaimState, Code, _wire

from case import Case
from edge import Conn


class Publishes(Case):
    async def test_the_answer(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.publish("a", "hé", headers={"lang": "fr"}, dedupe_key="k"))
        asked = await conn.next(_wire.Publish)
        self.assertEqual((asked.topic, asked.payload, asked.headers, asked.dedupe_key), ("a", "hé".encode(), {"lang": "fr"}, "k"))
        conn.send(_wire.Published(asked.id, 4, b"i" * 16, True, 5))
        self.assertEqual(await self.have(going), pushmesh.Published(b"i" * 16, 4, 5, True))
        going = self.going(client.publish("a", b""))
        conn.send(_wire.Error(Code.RATE_LIMITED, "slower", (await conn.next(_wire.Publish)).id, 200))
        with self.assertRaises(pushmesh.Refused) as caught:
            await self.have(going)
        self.assertEqual((caught.exception.retry_after, caught.exception.retryable, caught.exception.unknown), (0.2, True, False))

    async def test_the_window_of_the_edge(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome(publish_window=2)
        going = [self.going(client.publish("a", str(n))) for n in range(5)]
        for n in range(0, 5, 2):
            asked = [await conn.next(_wire.Publish) for _ in range(min(2, 5 - n))]
            conn.send(_wire.Ping(1))
            await conn.next(_wire.Pong)  # and no third one
            conn.send(*(_wire.Published(a.id, 1) for a in asked))
        await self.have(asyncio.gather(*going))

    async def test_a_cut(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        keyed = [self.going(client.publish("a", str(n), dedupe_key=f"k{n}")) for n in range(3)]
        once = self.going(client.publish("a", b"once"))
        brief = self.going(client.publish("a", b"brief", dedupe_key="k", ephemeral=True))
        dropped = self.going(client.publish("a", b"dropped", dedupe_key="d"))
        for _ in range(6):
            await conn.next(_wire.Publish)
        dropped.cancel()
        conn.cut()
        conn = await self.edge.welcome()
        for n in range(3):  # again, in order
            asked = await conn.next(_wire.Publish)
            self.assertEqual((asked.payload, asked.dedupe_key), (str(n).encode(), f"k{n}"))
            conn.send(_wire.Published(asked.id, n + 1))
        self.assertEqual([(await self.have(k)).seq for k in keyed], [1, 2, 3])
        for lost in (once, brief):
            with self.assertRaises(pushmesh.Refused) as caught:
                await self.have(lost)
            self.assertTrue(caught.exception.unknown)

    async def test_what_can_t_be_published(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome(max_frame=1000)
        await self.have(client.connected())
        for topic, payload, more, code in (
            ("a/+", b"", {}, Code.BAD_TOPIC), ("$dead/a", b"", {}, Code.FORBIDDEN), ("a", b"x" * (1 << 20 | 1), {}, Code.PAYLOAD_TOO_LARGE),
            ("a", b"", {"headers": {"": "x"}}, Code.INVALID_ARGUMENT), ("a", b"", {"headers": {"x": "\ud800"}}, Code.INVALID_ARGUMENT),
            ("a", b"", {"dedupe_key": "k" * 257}, Code.INVALID_ARGUMENT), ("a", b"x" * 2000, {}, Code.FRAME_TOO_LARGE),
        ):
            with self.subTest(topic=topic, code=code), self.assertRaises(pushmesh.Refused) as caught:
                await self.have(client.publish(topic, payload, **more))  # type: ignore[arg-type]
            self.assertEqual(caught.exception.code, code)
        conn.send(_wire.Ping(1))
        await conn.next(_wire.Pong)  # nothing was sent


class Claims(Case):
    async def asked(self, conn: Conn, op: _wire.Op) -> _wire.Claim:
        asked = await conn.next(_wire.Claim)
        self.assertEqual(asked.op, op)
        return asked

    async def test_a_place_is_waited_for_taken_up_and_released(self) -> None:
        positions: list[int] = []
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.claim("r", ttl=30, on_position=positions.append))
        asked = await self.asked(conn, _wire.Op.ACQUIRE)
        self.assertEqual(asked.ttl_ms, 30_000)
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.QUEUED, position=2))
        claim = await self.have(going)
        waiting = self.going(claim.wait())
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.QUEUED, position=1))
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.GRANTED, token=7, expires_in_ms=60_000))
        renew = await self.asked(conn, _wire.Op.RENEW)  # an offer is no hold until it is taken up
        self.assertEqual((claim.held, claim.token, renew.token), (False, 0, 7))
        conn.send(_wire.ClaimState(renew.id, "r", ClaimState.GRANTED, token=7, expires_in_ms=60_000))
        await self.have(waiting)
        self.assertEqual((claim.held, claim.token, claim.position, positions), (True, 7, 0, [2, 1]))
        self.assertTrue(0 < claim.expires_in <= 60)
        releasing = self.going(claim.release("client:bob"))
        asked = await self.asked(conn, _wire.Op.RELEASE)
        self.assertEqual((asked.token, asked.successor, claim.held), (7, "client:bob", False))
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.RELEASED))
        await self.have(releasing)
        self.assertIsNone(await self.have(claim.lost()))

    async def test_a_hold_is_renewed_and_kept_over_a_cut(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.acquire("r"))
        asked = await self.asked(conn, _wire.Op.ACQUIRE)
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.GRANTED, token=7, expires_in_ms=600))
        claim = await self.have(going)
        asked = await self.asked(conn, _wire.Op.RENEW)  # after a third
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.GRANTED, token=7, expires_in_ms=60_000))
        conn.send(_wire.Ping(1))
        await conn.next(_wire.Pong)
        conn.cut()
        conn = await self.edge.welcome()
        asked = await self.asked(conn, _wire.Op.RENEW)
        self.assertTrue(claim.held)
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.LOST, code=Code.EXPIRED))
        lost = await self.have(claim.lost())
        assert isinstance(lost, pushmesh.Refused)
        self.assertEqual((lost.code, claim.held), (Code.NOT_HELD, False))

    async def test_a_hold_that_can_t_be_renewed_is_lost_in_time(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.acquire("r"))
        asked = await self.asked(conn, _wire.Op.ACQUIRE)
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.GRANTED, token=7, expires_in_ms=200))
        claim = await self.have(going)
        lost = await self.have(claim.lost())  # no RENEW is answered
        assert isinstance(lost, pushmesh.Refused)
        self.assertEqual((lost.code, lost.unknown, claim.held), (Code.UNAVAILABLE, True, False))

    async def test_no_wait(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.acquire("r", no_wait=True))
        asked = await self.asked(conn, _wire.Op.ACQUIRE)
        self.assertTrue(asked.no_wait)
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.HELD_BY_OTHER))
        with self.assertRaises(pushmesh.HeldByOther):
            await self.have(going)

    async def test_a_wait_that_is_cancelled_leaves_the_line(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.acquire("r"))
        asked = await self.asked(conn, _wire.Op.ACQUIRE)
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.QUEUED, position=1), _wire.Ping(1))
        await conn.next(_wire.Pong)
        going.cancel()
        asked = await self.asked(conn, _wire.Op.LEAVE)
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.GRANTED, token=9))  # it became a hold meanwhile
        self.assertEqual((await self.asked(conn, _wire.Op.RELEASE)).token, 9)

    async def test_watching(self) -> None:
        told: list[pushmesh.ClaimInfo] = []
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.watch_claim("r", told.append))
        asked = await self.asked(conn, _wire.Op.WATCH)
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.HELD_BY_OTHER, holder="client:bob", holding=1, waiting=2))
        watch = await self.have(going)
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.FREE), _wire.Ping(1))
        await conn.next(_wire.Pong)
        self.assertEqual([(i.state, i.holder, i.waiting) for i in told], [(ClaimState.HELD_BY_OTHER, "client:bob", 2), (ClaimState.FREE, "", 0)])
        conn.cut()
        conn = await self.edge.welcome()
        await self.asked(conn, _wire.Op.WATCH)
        checking = self.going(client.check_claim("r"))
        asked = await self.asked(conn, _wire.Op.CHECK)
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.FREE))
        self.assertEqual((await self.have(checking)).state, ClaimState.FREE)
        watch.stop()
        await self.asked(conn, _wire.Op.LEAVE)


class Presence(Case):
    async def test_it_goes_on_over_a_cut(self) -> None:
        told: list[pushmesh.PresenceChange] = []
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.watch_presence("a", told.append))
        asked = await conn.next(_wire.Watch)
        ann, bob = _wire.Member("ann", b"typing"), _wire.Member("bob")
        conn.send(_wire.Presence("a", True, [ann, bob], count=2))
        watch = await self.have(going)
        self.assertEqual(watch.members, [pushmesh.Member("ann", b"typing"), pushmesh.Member("bob", b"")])
        saying = self.going(client.set_state("a", "here"))
        said = await conn.next(_wire.State)
        self.assertEqual(said.state, b"here")
        conn.send(_wire.Stated(said.id))
        await self.have(saying)
        conn.cut()
        conn = await self.edge.welcome()
        self.assertEqual((await conn.next(_wire.State)).state, b"here")
        await conn.next(_wire.Watch)
        conn.send(_wire.Presence("a", members=[bob], count=1))  # of an earlier watch
        conn.send(_wire.Presence("a", True, [ann], count=1), _wire.Ping(1))
        await conn.next(_wire.Pong)
        self.assertEqual([(c.all, len(c.joined), c.left, c.count) for c in told], [(True, 2, (), 2), (False, 0, ("bob",), 1)])
        watch.stop()
        self.assertGreater((await conn.next(_wire.Unsubscribe)).id, 0)
        self.assertEqual(asked.topic, "a")

    async def test_refused(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.watch_presence("a"))
        asked = await conn.next(_wire.Watch)
        conn.send(_wire.Error(Code.OVERLOADED, "", asked.id))
        again = await conn.next(_wire.Watch)
        conn.send(_wire.Unsubscribed(again.id, Code.FORBIDDEN, "no"))
        with self.assertRaises(pushmesh.Refused):
            await self.have(going)
        saying = self.going(client.set_state("a", b"x"))
        conn.send(_wire.Error(Code.RATE_LIMITED, "", (await conn.next(_wire.State)).id))
        conn.send(_wire.Error(Code.FORBIDDEN, "", (await conn.next(_wire.State)).id))
        with self.assertRaises(pushmesh.Refused):
            await self.have(saying)

    async def test_an_edge_without_presence(self) -> None:
        client = await self.client()
        await self.edge.welcome(features=[])
        await self.have(client.connected())
        for what in (client.watch_presence("a"), client.set_state("a", b"x")):
            with self.assertRaises(pushmesh.Refused) as caught:
                await self.have(what)
            self.assertEqual(caught.exception.code, Code.UNSUPPORTED)
