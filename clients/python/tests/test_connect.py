"""Connecting, coming back and ending."""

from __future__ import annotations

import asyncio
import contextlib

import pushmesh
from pushmesh import Code, _wire

from case import Case
from edge import Edge


class Connecting(Case):
    async def test_hello_and_welcome(self) -> None:
        told: list[pushmesh.Connection] = []
        client = await self.client(client_id="", on_connect=told.append, heartbeat=1.5, receive_window=8, session_ttl=0.0)
        conn = await self.edge.welcome(user="ann", connection_id=7)
        await self.have(client.connected())
        self.assertEqual((conn.hello.version, conn.hello.heartbeat_ms, conn.hello.receive_window), (1, 1500, 8))
        self.assertTrue(conn.hello.agent.startswith("pushmesh-python/"))
        self.assertEqual((told[0].id, told[0].user, told[0].client_id, client.client_id), (7, "ann", "made-up", "made-up"))
        conn.cut()
        conn = await self.edge.welcome()
        self.assertEqual(conn.hello.client_id, "made-up")  # the name that an edge gave stays

    async def test_pings_report_the_round_trip_before(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome(heartbeat_ms=1000)
        first = await conn.next(_wire.Ping)
        self.assertEqual(first.last_rtt_us, 0)
        conn.send(_wire.Pong(first.sent_at))
        second = await conn.next(_wire.Ping)
        self.assertGreater(second.last_rtt_us, 0)
        self.assertGreater(client.stats.rtt, 0)

    async def test_an_edge_that_is_silent_is_gone(self) -> None:
        failed: list[Exception] = []
        await self.client(on_disconnect=failed.append)
        await self.edge.welcome(heartbeat_ms=1000)
        await self.edge.welcome()
        self.assertIn("nothing was heard for 2.5 s", str(failed[0]))

    async def test_garbage_ends_the_connection_and_not_the_client(self) -> None:
        failed: list[Exception] = []
        client = await self.client(on_disconnect=failed.append)
        conn = await self.edge.welcome()
        conn.raw(b"\0\0\1\x07\xff")
        conn = await self.edge.welcome()
        self.assertIn("can't be decoded", str(failed[0]))
        conn.raw(b"\0\0\1\x7f\xff")  # a frame of a later edition is passed over
        conn.send(_wire.Ping(1))
        await conn.next(_wire.Pong)
        self.assertEqual(client.stats.connects, 2)

    async def test_what_is_no_edge(self) -> None:
        failed: list[Exception] = []
        came = asyncio.Event()

        def fail(e: Exception) -> None:
            failed.append(e)
            came.set()

        client = await self.client(on_connect_failed=fail)
        conn = await self.edge.accept()
        conn.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await self.have(came.wait())
        self.assertIn("does not speak pushmesh", str(failed[0]))
        conn = await self.edge.accept()
        conn.cut()
        await self.edge.welcome()
        await self.have(client.connected())
        self.assertIn("ended the connection without an answer", str(failed[1]))

    async def test_refused_for_good(self) -> None:
        client = await self.client()
        sub = client.start("a")
        conn = await self.edge.accept()
        conn.send(_wire.Error(Code.UNSUPPORTED, "TLS alone"))
        with self.assertRaises(pushmesh.Refused) as caught:
            await self.have(client.wait_ended())
        self.assertEqual(caught.exception.code, Code.UNSUPPORTED)
        for what in (sub.wait_ready(), client.publish("a", b""), client.connected()):
            with self.assertRaises(pushmesh.Refused):
                await self.have(what)

    async def test_go_away_is_gone_to(self) -> None:
        async with Edge().serving() as other:
            client = await self.client()
            conn = await self.edge.welcome()
            sub = await self.subscribed(client, conn, ack=True)
            conn.send(_wire.Message("a", 1))
            loop = aiter(sub)
            m = await self.have(anext(loop))
            m.ack()
            conn.send(_wire.GoAway(Code.DRAINING, "stops", 200, [other.address]), _wire.Message("a", 2))
            (await self.have(anext(loop))).ack()  # what was begun goes on
            while (await conn.next(_wire.Ack)).entries[-1].seq < 2:
                pass
            await conn.ended()
            moved = await other.welcome()
            self.assertEqual((await moved.next(_wire.Subscribe)).positions, [_wire.Position("a", 5, 2)])
            await client.close()

    async def test_overloaded_edges_are_passed_at_once_and_others_wait(self) -> None:
        async with Edge().serving() as other:
            client = pushmesh.Client([self.edge.address, other.address], client_id="c1", min_backoff=20, max_backoff=20)
            async with client:
                first, second = self.going(self.edge.accept()), self.going(other.accept())
                done, _ = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
                (await done.pop()).send(_wire.Error(Code.OVERLOADED, retry_after_ms=60_000))
                conn = await self.have(second if first.done() else first)
                conn.send(_wire.Welcome(version=1))
                await self.have(client.connected())

    async def test_a_session_that_is_taken_over_does_not_come_back(self) -> None:
        client = await self.client(session="s")
        conn = await self.edge.welcome()
        conn.send(_wire.Error(Code.SESSION_TAKEN_OVER))
        with self.assertRaises(pushmesh.Refused):
            await self.have(client.wait_ended())

    async def test_unless_a_hello_of_its_own_may_have_done_it(self) -> None:
        client = await self.client(session="s", dial_timeout=0.2)
        await self.edge.accept()  # and says nothing
        conn = await self.edge.welcome()
        conn.send(_wire.Error(Code.SESSION_TAKEN_OVER))
        conn = await self.edge.welcome()
        conn.send(_wire.Error(Code.SESSION_TAKEN_OVER))
        with self.assertRaises(pushmesh.Refused):
            await self.have(client.wait_ended())


class Tokens(Case):
    async def connect(self, *tokens: str | None | Exception) -> tuple[pushmesh.Client, list[Exception]]:
        left, failed = list(tokens), list[Exception]()

        async def get_token() -> str | None:
            token = left.pop(0)
            if isinstance(token, Exception):
                raise token
            return token

        return await self.client(get_token=get_token, on_connect_failed=failed.append), failed

    async def test_an_expired_one_is_asked_for_once_more(self) -> None:
        client, _ = await self.connect("one", "two", "three")
        for wanted in ("one", "two"):
            conn = await self.edge.accept()
            self.assertEqual(conn.hello.token, wanted)
            conn.send(_wire.Error(Code.TOKEN_EXPIRED))
        with self.assertRaises(pushmesh.Refused) as caught:
            await self.have(client.wait_ended())
        self.assertEqual(caught.exception.code, Code.TOKEN_EXPIRED)

    async def test_one_that_expires_on_the_connection_is_renewed_as_often_as_needed(self) -> None:
        await self.connect("one", "two", "three")
        for wanted in ("one", "two", "three"):
            conn = await self.edge.welcome()
            self.assertEqual(conn.hello.token, wanted)
            if wanted != "three":
                conn.send(_wire.Error(Code.TOKEN_EXPIRED))

    async def test_none_gives_up(self) -> None:
        client, _ = await self.connect(None)
        with self.assertRaises(pushmesh.Refused) as caught:
            await self.have(client.wait_ended())
        self.assertEqual(caught.exception.code, Code.UNAUTHENTICATED)

    async def test_what_it_raises_is_tried_again(self) -> None:
        client, failed = await self.connect(OSError("no network"), TimeoutError("slow"), "one")
        conn = await self.edge.welcome()
        await self.have(client.connected())
        self.assertEqual(conn.hello.token, "one")
        self.assertIn("no network", str(failed[0]))

    async def test_a_new_one_on_the_same_connection(self) -> None:
        client, _ = await self.connect("one", "two", "three")
        conn = await self.edge.welcome()
        going = self.going(client.refresh_token())
        asked = await conn.next(_wire.RefreshToken)
        self.assertEqual(asked.token, "two")
        conn.send(_wire.Refreshed(asked.id, 1_795_000_000_500_000))
        self.assertEqual(await self.have(going), 1_795_000_000.5)
        going = self.going(client.refresh_token())
        conn.send(_wire.Error(Code.FORBIDDEN, "another user", (await conn.next(_wire.RefreshToken)).id))
        with self.assertRaises(pushmesh.Refused):
            await self.have(going)


class Ends(Case):
    """That no task is left is looked at after every test."""

    async def test_close_waits_for_the_handler_and_sends_its_ack(self) -> None:
        started, go = asyncio.Event(), asyncio.Event()

        async def handler(m: pushmesh.Message) -> None:
            started.set()
            await go.wait()

        client = await self.client(ack_delay=60)
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=handler, ack=True)
        conn.send(_wire.Message("a", 1), _wire.Message("a", 2))
        await self.have(started.wait())
        other = self.going(client.subscribe("b"))
        await conn.next(_wire.Subscribe)
        closing = self.going(client.close())
        going = self.going(conn.next(_wire.Ack))
        with self.assertRaises(pushmesh.Closed):
            await self.have(other)  # it has begun
        self.assertFalse(closing.done() or going.done())
        go.set()
        self.assertEqual([(e.seq, e.through) for e in (await self.have(going)).entries], [(1, True)])
        await conn.ended()
        await self.have(closing)
        self.assertIsNone(client.error)
        with self.assertRaises(pushmesh.Closed):
            client.start("b")

    async def test_a_handler_that_does_not_return_is_cancelled(self) -> None:
        started, cancelled = asyncio.Event(), False

        async def handler(m: pushmesh.Message) -> None:
            nonlocal cancelled
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled = True
                raise

        client = await self.client(close_timeout=0.01)
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=handler, ack=True)
        conn.send(_wire.Message("a", 1))
        await self.have(started.wait())
        going = self.going(client.close())
        with self.assertRaises(EOFError):  # and no Ack
            await conn.next(_wire.Ack)
        conn.writer.close()
        await self.have(going)
        self.assertTrue(cancelled)

    async def test_a_handler_of_a_subscription_that_has_ended_is_waited_for(self) -> None:
        started, go, ended = asyncio.Event(), asyncio.Event(), False

        async def handler(m: pushmesh.Message) -> None:
            nonlocal ended
            started.set()
            await go.wait()
            ended = True

        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, handler=handler)
        conn.send(_wire.Message("a", 1))
        await self.have(started.wait())
        conn.send(_wire.Unsubscribed(sub.id, Code.FORBIDDEN))
        await self.have(sub.ended.wait())
        other = self.going(client.subscribe("b"))
        await conn.next(_wire.Subscribe)
        closing = self.going(client.close())
        with self.assertRaises(pushmesh.Closed):
            await self.have(other)
        self.assertFalse(closing.done())
        go.set()
        await conn.ended()
        await self.have(closing)
        self.assertTrue(ended)

    async def test_cancelling_a_task_loses_no_ack_that_was_given(self) -> None:
        acked = asyncio.Event()

        async def program() -> None:
            async with self.make(ack_delay=60) as client:
                async for m in await client.subscribe("a", ack=True):
                    m.ack()
                    acked.set()

        going = self.going(program())
        conn = await self.edge.welcome()
        asked = await conn.next(_wire.Subscribe)
        conn.send(_wire.Subscribed(asked.id, 5, 0, True), _wire.Message("a", 1))
        await self.have(acked.wait())
        going.cancel()
        self.assertEqual((await conn.next(_wire.Ack)).entries[0].seq, 1)
        await conn.ended()
        with contextlib.suppress(asyncio.CancelledError):
            await self.have(going)
        self.assertTrue(going.cancelled())

    async def test_nor_does_the_end_of_the_loop(self) -> None:
        """What asyncio.run does at its end: all tasks are cancelled, the client's own too."""
        before = asyncio.all_tasks()
        acked = asyncio.Event()
        client = self.make(ack_delay=60)
        await client.open()
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=lambda m: acked.set(), ack=True)
        conn.send(_wire.Message("a", 1))
        await self.have(acked.wait())
        tasks = {t for t in asyncio.all_tasks() - before if t.get_name().startswith("pushmesh")}
        for task in tasks:
            task.cancel()
        self.assertEqual((await conn.next(_wire.Ack)).entries[0].seq, 1)
        await conn.ended()
        await self.have(asyncio.wait(tasks))

    async def test_while_connecting_waiting_and_dialling(self) -> None:
        client = self.make()  # no answer to Hello
        await client.open()
        await self.edge.accept()
        await self.have(client.close())
        client = self.make(min_backoff=60, max_backoff=60)  # waits for the next try
        failed = asyncio.Event()
        client._engine.config.on_connect_failed = lambda e: failed.set()
        await client.open()
        (await self.edge.accept()).cut()
        await self.have(failed.wait())
        await self.have(client.close())
        client = self.make()  # at once
        await client.open()
        await self.have(client.close())
        client = self.make()  # it was never opened
        await client.close()

    async def test_a_handler_may_close(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()

        async def handler(m: pushmesh.Message) -> None:
            await client.close()

        await self.subscribed(client, conn, handler=handler, ack=True)
        conn.send(_wire.Message("a", 1))
        self.assertEqual((await conn.next(_wire.Ack)).entries[0].seq, 1)
        await conn.ended()
        await self.have(client.wait_ended())

    async def test_everybody_who_waits_is_answered(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        await self.have(client.connected())
        waiting = [
            self.going(client.subscribe("a")), self.going(client.publish("a", b"", dedupe_key="k")), self.going(client.claim("r")),
            self.going(client.watch_presence("a")), self.going(client.set_state("a", b"x")), self.going(client.watch_claim("r", print)),
        ]
        for _ in range(6):
            await self.next_any(conn)
        closing = self.going(client.close())
        await conn.ended()
        await self.have(closing)
        for n, one in enumerate(waiting):
            with self.subTest(n=n), self.assertRaises(pushmesh.PushmeshError):
                await self.have(one)

    async def next_any(self, conn: object) -> None:
        from edge import Conn

        assert isinstance(conn, Conn)
        await conn.next(_wire.Frame)
