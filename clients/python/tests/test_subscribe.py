"""Subscriptions against an edge that does what the test says."""

from __future__ import annotations

import asyncio

import pushmesh
from pushmesh import Code, Gap, Nack, Position, Start, _wire

from case import Case
from edge import Conn


def message(seq: int, topic: str = "a", **more: object) -> _wire.Message:
    return _wire.Message(topic, seq, str(seq).encode(), **more)  # type: ignore[arg-type]


def entries(ack: _wire.Ack) -> list[tuple[str, int, bool, int]]:
    return [(e.topic, e.seq, e.through, e.sub) for e in ack.entries]


class Handlers(Case):
    async def test_a_message_is_acked_once_its_handler_has_returned(self) -> None:
        got: list[int] = []
        go = asyncio.Event()

        async def handler(m: pushmesh.Message) -> None:
            got.append(m.seq)
            await go.wait()

        client = await self.client()
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=handler, ack=True)
        conn.send(message(1), message(2), _wire.Ping(77))
        self.assertEqual((await conn.next(_wire.Pong)).sent_at, 77)  # what came before was read, and no Ack was sent
        self.assertEqual(got, [1])
        go.set()
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 2, True, 0)])
        self.assertEqual(got, [1, 2])

    async def test_a_handler_that_raises_has_it_again(self) -> None:
        attempts: list[tuple[int, int]] = []

        async def handler(m: pushmesh.Message) -> None:
            attempts.append((m.seq, m.attempt))
            if m.seq == 1 and m.attempt == 0:
                raise Nack("no room", after=0.5)
            if m.seq == 2 and m.attempt == 0:
                raise KeyError("x")

        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, handler=handler, ack=True)
        conn.send(message(1), message(2), message(3))
        with self.assertLogs("pushmesh"):
            first, second = await conn.next(_wire.Nack), await conn.next(_wire.Nack)
        self.assertEqual((first.seq, first.delay_ms, first.reason), (1, 500, "no room"))
        self.assertEqual((second.seq, second.delay_ms, second.reason), (2, 0, "KeyError('x')"))
        # Not "all up to" while something before it is owed.
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 3, False, 0)])
        self.assertEqual(sub.positions(), [Position("a", 5, 0)])
        conn.send(message(1, attempt=1))
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 1, False, 0)])
        self.assertEqual(sub.positions(), [Position("a", 5, 1)])
        conn.send(message(2, attempt=1))
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 2, True, 0)])
        self.assertEqual(attempts, [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1)])
        self.assertEqual((client.stats.delivered, client.stats.acked, client.stats.nacked), (5, 3, 2))

    async def test_a_wait_of_a_handler_that_is_cancelled_is_its_failure(self) -> None:
        async def handler(m: pushmesh.Message) -> None:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if m.attempt == 0:
                waiting.cancel()
                await waiting

        client = await self.client()
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=handler, ack=True)
        conn.send(message(1))
        with self.assertLogs("pushmesh"):
            self.assertEqual((await conn.next(_wire.Nack)).reason, "cancelled")
        conn.send(message(1, attempt=1))
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 1, True, 0)])

    async def test_what_comes_twice_is_handed_over_once_and_acked_again(self) -> None:
        got: list[int] = []
        client = await self.client()
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=lambda m: got.append(m.seq), ack=True)
        conn.send(message(1))
        await conn.next(_wire.Ack)
        conn.send(message(1, attempt=1))
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 1, True, 0)])
        self.assertEqual((got, client.stats.repeated), ([1], 1))

    async def test_plain_subscriptions_share_a_delivery(self) -> None:
        got: list[str] = []
        slow = asyncio.Event()

        async def wait(m: pushmesh.Message) -> None:
            await slow.wait()
            got.append("slow")

        client = await self.client()
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=lambda m: got.append("quick"), ack=True)
        await self.subscribed(client, conn, "+", handler=wait, ack=True)
        conn.send(message(1), _wire.Ping(1))
        await conn.next(_wire.Pong)
        self.assertEqual(got, ["quick"])
        slow.set()
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 1, True, 0)])
        self.assertEqual(got, ["quick", "slow"])

    async def test_ephemeral_messages_are_not_acked(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        got: list[bytes] = []
        sub = self.going(client.subscribe("a", lambda m: got.append(m.payload), ack=True))
        asked = await conn.next(_wire.Subscribe)
        conn.send(_wire.Subscribed(asked.id, recovered=True), message(0), _wire.Ping(1))
        await conn.next(_wire.Pong)
        await self.have(sub)
        self.assertEqual(got, [b"0"])
        self.assertEqual(self.gaps, [Gap("a", "a", code=Code.UNSUPPORTED)])

    async def test_a_handler_may_publish_and_wait_for_it(self) -> None:
        client = await self.client(receive_window=1)

        async def handler(m: pushmesh.Message) -> None:
            await client.publish("b", m.payload)

        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=handler)
        conn.send(*(message(n) for n in range(1, 200)))  # more than wait for a handler while nobody waits for an answer
        for n in range(1, 200):
            asked = await conn.next(_wire.Publish)
            self.assertEqual(asked.payload, str(n).encode())
            conn.send(_wire.Published(asked.id, n))
        conn.send(_wire.Ping(1))
        await conn.next(_wire.Pong)


class Loops(Case):
    async def test_going_on_acks_the_message_before(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, ack=True)
        conn.send(message(1), message(2), message(3), message(4))
        seqs = []
        async for m in sub:
            seqs.append(m.seq)
            if m.seq == 2:
                m.nack(after=1)
            if m.seq == 3:
                m.ack()
                break
        self.assertEqual((await conn.next(_wire.Ack)).entries[0].seq, 1)
        self.assertEqual((await conn.next(_wire.Nack)).delay_ms, 1000)
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 3, False, 0)])
        loop = aiter(sub)
        self.assertEqual((await anext(loop)).seq, 4)
        aiter(sub)  # another loop: what this one has not answered comes again
        self.assertEqual((await conn.next(_wire.Nack)).seq, 4)

    async def test_a_wait_that_is_cancelled_loses_nothing(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, ack=True)
        loop = aiter(sub)
        for _ in range(3):
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await anext(loop)
        conn.send(message(1))
        self.assertEqual((await self.have(anext(loop))).seq, 1)

    async def test_the_end_ends_the_loop(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        sub, other = await self.subscribed(client, conn), await self.subscribed(client, conn, "b")
        conn.send(_wire.Unsubscribed(sub.id, Code.FORBIDDEN, "no more"))
        with self.assertRaises(pushmesh.Refused) as caught:
            async for _ in sub:
                pass
        self.assertEqual(caught.exception.code, Code.FORBIDDEN)
        going = self.going(anext(aiter(other)))
        done = self.going(other.unsubscribe())
        conn.send(_wire.Unsubscribed((await conn.next(_wire.Unsubscribe)).id))
        await self.have(done)
        with self.assertRaises(StopAsyncIteration):
            try:
                await self.have(going)
            except RuntimeError as e:  # what a task makes of it
                raise e.__cause__ or e
        self.assertIsNone(other.error)

    async def test_messages_are_acked_in_any_order_by_hand(self) -> None:
        client = await self.client(ack_delay=0)
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, ack=True, manual=True)
        conn.send(message(1), message(2), message(3))
        loop = aiter(sub)
        one, two, three = [await self.have(anext(loop)) for _ in range(3)]
        three.ack()
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 3, False, 0)])
        self.assertEqual(sub.positions(), [Position("a", 5, 0)])
        conn.send(message(2, attempt=1), _wire.Ping(1))  # the application has it still
        await conn.next(_wire.Pong)
        one.ack()
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 1, True, 0)])
        two.ack()
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 2, True, 0)])
        self.assertEqual(sub.positions(), [Position("a", 5, 3)])


class Resumes(Case):
    async def again(self, conn: Conn) -> tuple[Conn, _wire.Subscribe]:
        conn.cut()
        conn = await self.edge.welcome()
        return conn, await conn.next(_wire.Subscribe)

    async def test_behind_what_was_handled(self) -> None:
        got: list[int] = []
        go = asyncio.Event()

        async def handler(m: pushmesh.Message) -> None:
            if m.seq == 9:
                await go.wait()
            got.append(m.seq)

        client = await self.client()
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, head=6, handler=handler, ack=True)
        conn.send(message(7), message(8), message(9), message(10), _wire.Ping(1))
        await conn.next(_wire.Ack)
        conn, asked = await self.again(conn)
        # A handler has 9, and 10 waits for it.
        self.assertEqual(asked.positions, [_wire.Position("a", 5, 8)])
        self.assertEqual((asked.start, asked.ack), (_wire.Begin.LIVE, True))
        conn.send(_wire.Subscribed(asked.id, 5, 10, True), message(9, subs=[asked.id]), message(10, subs=[asked.id]), _wire.Ping(1))
        await conn.next(_wire.Pong)
        go.set()
        ack = await conn.next(_wire.Ack)
        self.assertEqual(entries(ack)[-1][1:], (10, True, asked.id))
        self.assertEqual(got, [7, 8, 9, 10])
        self.assertEqual(self.gaps, [])

    async def test_a_message_that_a_handler_has_is_acked_where_it_came_again(self) -> None:
        go = asyncio.Event()

        async def handler(m: pushmesh.Message) -> None:
            await go.wait()

        client = await self.client()
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=handler, ack=True)
        conn.send(message(1), _wire.Ping(1))
        await conn.next(_wire.Pong)
        conn, asked = await self.again(conn)
        conn.send(_wire.Subscribed(asked.id, 5, 1, True), message(1, subs=[asked.id]), _wire.Ping(1))
        await conn.next(_wire.Pong)
        go.set()
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 1, True, asked.id)])
        self.assertEqual(client.stats.delivered, 1)

    async def test_what_is_answered_by_hand_is_acked_where_it_came_again(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, ack=True, manual=True)
        conn.send(message(1))
        loop = aiter(sub)
        one = await self.have(anext(loop))
        conn, asked = await self.again(conn)
        conn.send(_wire.Subscribed(asked.id, 5, 2, True), message(1, subs=[asked.id]), message(2, subs=[asked.id]))
        two = await self.have(anext(loop))  # and not 1 again
        one.ack()
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 1, True, asked.id)])
        two.nack()
        self.assertEqual((await conn.next(_wire.Nack)).seq, 2)

    async def test_what_is_let_go_makes_room(self) -> None:
        started, go = asyncio.Event(), asyncio.Event()

        async def handler(m: pushmesh.Message) -> None:
            started.set()
            await go.wait()

        client = await self.client(receive_window=1)  # 65 messages wait
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=handler, ack=True)
        for _ in range(3):
            conn.send(*(message(n, subs=[1]) for n in range(1, 61)), _wire.Ping(1))
            await conn.next(_wire.Pong)
            await self.have(started.wait())
            conn, asked = await self.again(conn)
            self.assertEqual(asked.positions, [_wire.Position("a", 5, 0)])
            conn.send(_wire.Subscribed(asked.id, 5, 60, True))
        go.set()

    async def test_what_a_session_lacks_may_lie_anywhere(self) -> None:
        client = await self.client(session="phone")
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, start=Start.session(), ack=True, head=8, handler=lambda m: None)
        conn.send(message(5, subs=[1]))
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 5, True, 1)])
        self.assertEqual(client.stats.delivered, 1)

    async def test_acks_that_wait_keep_their_name(self) -> None:
        client = await self.client(ack_delay=60)
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=lambda m: None, ack=True)
        conn.send(message(1), _wire.Ping(1))
        await conn.next(_wire.Pong)
        await self.subscribed(client, conn, start=Start.earliest(), handler=lambda m: None)
        conn.send(message(2))  # from now on an Ack without a name would be for both
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 1, True, 0)])

    async def test_an_ack_before_the_message_came_again_is_said_again(self) -> None:
        go, handled = asyncio.Event(), asyncio.Event()

        async def handler(m: pushmesh.Message) -> None:
            await go.wait()
            handled.set()

        client = await self.client()
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=handler, ack=True)
        conn.send(message(1), _wire.Ping(1))
        await conn.next(_wire.Pong)
        conn, asked = await self.again(conn)
        go.set()
        await self.have(handled.wait())
        conn.send(_wire.Subscribed(asked.id, 5, 1, True), message(1, subs=[asked.id]))
        self.assertEqual(entries(await conn.next(_wire.Ack)), [("a", 1, True, asked.id)])
        self.assertEqual(client.stats.delivered, 1)

    async def test_progress_moves_on_and_is_told(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, handler=lambda m: None, ack=True)
        conn.send(
            message(1), _wire.Progress("a", 5, 2, 4, Code.RETENTION), _wire.Progress("a", 5, 5, 6, Code.FILTERED), _wire.Ping(1),
        )
        await conn.next(_wire.Ack)
        self.assertEqual(sub.positions(), [Position("a", 5, 6)])
        self.assertEqual(self.gaps, [Gap("a", "a", 5, 2, 4, 3, Code.RETENTION)])
        conn, asked = await self.again(conn)
        self.assertEqual(asked.positions, [_wire.Position("a", 5, 6)])

    async def test_a_new_epoch_makes_positions_void(self) -> None:
        got: list[tuple[int, int]] = []
        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, head=8, handler=lambda m: got.append((m.epoch, m.seq)))
        conn, asked = await self.again(conn)
        conn.send(_wire.Subscribed(asked.id, 6, 3, False, 2), message(3))
        conn.send(_wire.Progress("a", 7, code=Code.EPOCH_CHANGED), message(1))
        conn.send(_wire.Progress("a", 6, 4, 9, Code.RETENTION), _wire.Ping(1))  # late word of a log that is gone
        await conn.next(_wire.Pong)
        self.assertEqual(got, [(6, 3), (7, 1)])
        self.assertEqual([(g.epoch, g.missed, g.code) for g in self.gaps], [(6, 2, Code.EPOCH_CHANGED), (7, 0, Code.EPOCH_CHANGED)])
        self.assertEqual(sub.positions(), [Position("a", 7, 1)])

    async def test_a_log_that_is_shorter_than_the_position(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, head=8)
        conn, asked = await self.again(conn)
        conn.send(_wire.Subscribed(asked.id, 5, 3, False), _wire.Ping(1))
        await conn.next(_wire.Pong)
        self.assertEqual(sub.positions(), [Position("a", 5, 0)])
        self.assertEqual(self.gaps, [Gap("a", "a", 5, code=Code.RETENTION)])

    async def test_a_session_and_a_group_ask_as_the_first_time(self) -> None:
        client = await self.client(session="phone")
        conn = await self.edge.welcome()
        self.assertEqual(conn.hello.session, "phone")
        await self.subscribed(client, conn, "a", start=Start.session(), ack=True, handler=lambda m: None)
        await self.subscribed(client, conn, "b", group="g", group_key="topic", ack=True, handler=lambda m: None)
        conn.send(message(1, subs=[1]), message(2, "b", subs=[2]))
        acked = entries(await conn.next(_wire.Ack))
        if len(acked) == 1:
            acked += entries(await conn.next(_wire.Ack))
        # What the session still lacks may lie anywhere; a group's messages are others' too.
        self.assertEqual(sorted(acked), [("a", 1, True, 1), ("b", 2, False, 2)])
        conn.cut()
        conn = await self.edge.welcome()
        first, second = await conn.next(_wire.Subscribe), await conn.next(_wire.Subscribe)
        self.assertEqual((first.start, first.positions), (_wire.Begin.SESSION, []))
        self.assertEqual((second.group, second.group_key, second.positions), ("g", "topic", []))

    async def test_a_wildcard_names_every_topic(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.subscribe("room/+", lambda m: None, positions=[Position("room/1", 5, 3)]))
        asked = await conn.next(_wire.Subscribe)
        self.assertEqual(asked.positions, [_wire.Position("room/1", 5, 3)])
        conn.send(_wire.Subscribed(asked.id, recovered=False, positions=[
            _wire.TopicPosition("room/1", 5, 9, False, 2), _wire.TopicPosition("room/2", 6, 4, True),
        ]))
        sub = await self.have(going)
        self.assertEqual(self.gaps, [Gap("room/+", "room/1", 5, missed=2, code=Code.RETENTION)])
        conn.send(message(5, "room/2"), _wire.Progress("room/3", 8, code=Code.EPOCH_CHANGED), message(1, "room/3"), _wire.Ping(1))
        await conn.next(_wire.Pong)
        self.assertEqual(sorted(sub.positions()), [Position("room/1", 5, 3), Position("room/2", 6, 5), Position("room/3", 8, 1)])

    async def test_a_ranked_subscription_tells_what_it_missed(self) -> None:
        client = await self.client(profile={"x": 1.0})
        conn = await self.edge.welcome()
        self.assertEqual(conn.hello.profile, {"x": 1.0})
        got: list[tuple[int, float]] = []
        sub = await self.subscribed(client, conn, handler=lambda m: got.append((m.seq, m.score)), rank_top_k=2, head=3)
        conn.send(message(5, subs=[1], score=2.0), message(4, subs=[1], score=1.0), _wire.Ping(1))
        await conn.next(_wire.Pong)
        self.assertEqual((got, sub.positions()), ([(5, 2.0), (4, 1.0)], []))
        conn, asked = await self.again(conn)
        self.assertEqual((asked.rank_top_k, asked.positions), (2, []))
        conn.send(_wire.Subscribed(asked.id, 5, 7, True), _wire.Ping(1))
        await conn.next(_wire.Pong)
        self.assertEqual(self.gaps, [Gap("a", "a", 5, 6, 7, 2, Code.RETENTION)])


class Refusals(Case):
    async def test_nothing_comes_after_unsubscribe(self) -> None:
        got: list[int] = []
        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, handler=lambda m: got.append(m.seq), ack=True)
        going = self.going(sub.unsubscribe())
        asked = await conn.next(_wire.Unsubscribe)
        conn.send(message(1), _wire.Error(Code.UNAVAILABLE, "", asked.id))
        await self.have(going)
        self.assertEqual((got, sub.error), ([], None))
        conn.cut()
        conn = await self.edge.welcome()
        conn.send(_wire.Ping(1))
        await conn.next(_wire.Pong)  # and no Subscribe before

    async def test_for_now_and_for_good(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.subscribe("a"))
        asked = await conn.next(_wire.Subscribe)
        conn.send(_wire.Error(Code.UNAVAILABLE, "later", asked.id))
        self.assertEqual((await conn.next(_wire.Subscribe)).id, asked.id)
        conn.send(_wire.Error(Code.FORBIDDEN, "no", asked.id))
        with self.assertRaises(pushmesh.Refused) as caught:
            await self.have(going)
        self.assertEqual((caught.exception.code, caught.exception.message, caught.exception.retryable), (Code.FORBIDDEN, "no", False))

    async def test_a_wait_says_what_stands_in_the_way(self) -> None:
        client = await self.client()

        async def subscribe() -> list[str]:
            try:
                await client.subscribe("a")
            except asyncio.CancelledError as cancelled:
                return cancelled.__notes__
            return []

        conn = await self.edge.welcome()
        going = self.going(subscribe())
        asked = await conn.next(_wire.Subscribe)
        conn.send(_wire.Error(Code.OVERLOADED, "too much", asked.id, 60_000), _wire.Ping(1))
        await conn.next(_wire.Pong)
        going.cancel()
        self.assertEqual(await self.have(going), ["pushmesh: not subscribed: OVERLOADED: too much"])

    async def test_what_can_t_work_is_refused_where_it_is_asked_for(self) -> None:
        client = await self.client(session="s")
        for options in (
            {"start": Start.session(), "positions": [Position("a", 0, 1)]}, {"start": Start.after(1), "positions": [Position("a", 0, 1)]},
            {"manual": True}, {"group_key": "topic"}, {"group": "g", "where": "true"}, {"rank_top_k": 1, "group": "g"},
        ):
            with self.subTest(options=options), self.assertRaises(pushmesh.ConfigError):
                client.start("a", **options)  # type: ignore[arg-type]
        with self.assertRaises(pushmesh.Refused) as caught:
            client.start("a//b")
        self.assertEqual(caught.exception.code, Code.BAD_TOPIC)
        for arguments in (
            {"edges": []}, {"edges": "127.0.0.1"}, {"edges": "ws://a:1"}, {"edges": "a:1", "client_id": "x" * 65}, {"edges": "a:1", "session": "s"},
            {"edges": "a:1", "heartbeat": -1}, {"edges": "a:1", "min_backoff": 0}, {"edges": "a:1", "profile": {"x": float("nan")}},
        ):
            with self.subTest(arguments=arguments), self.assertRaises(pushmesh.ConfigError):
                pushmesh.Client(**arguments)  # type: ignore[arg-type]
