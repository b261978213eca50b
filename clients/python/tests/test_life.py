"""What a client keeps and gives up while its program does the unexpected."""

from __future__ import annotations

import asyncio
import contextlib
from unittest import mock

import pushmesh
from pushmesh import ClaimState, Code, _inbox, _wire

from case import Case


class Handlers(Case):
    async def test_one_that_never_ends_does_not_hold_up_close(self) -> None:
        """It takes no notice of being cancelled."""
        started, go = asyncio.Event(), asyncio.Event()

        async def handler(m: pushmesh.Message) -> None:
            started.set()
            while not go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await go.wait()

        client = await self.client(close_timeout=0.01)
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=handler, ack=True)
        conn.send(_wire.Message("a", 1), _wire.Message("a", 2))
        await self.have(started.wait())
        with self.assertLogs("pushmesh", "ERROR"):
            closing = self.going(client.close())
            await conn.ended()
            async with asyncio.timeout(10):
                await closing
        self.assertFalse(go.is_set())
        go.set()

    @mock.patch.object(_inbox, "HANDLER_PATIENCE", 60.0)
    async def test_a_watch_is_answered_while_a_queue_is_full(self) -> None:
        """The reader goes on to an answer that a handler waits for."""
        answered = asyncio.Event()

        async def handler(m: pushmesh.Message) -> None:
            if not answered.is_set():
                started.set()
                await full.wait()
                await client.watch_presence("a")
                answered.set()

        started, full = asyncio.Event(), asyncio.Event()
        client = await self.client(receive_window=1)
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=handler)
        conn.send(*(_wire.Message("a") for _ in range(100)))
        await self.have(started.wait())
        while client._inbox._count < 65 or client._engine.moved.is_set():
            await asyncio.sleep(0)
        full.set()
        await conn.next(_wire.Watch)
        conn.send(_wire.Presence("a", True, count=0))
        await self.have(answered.wait())
        self.assertEqual(client.stats.connects, 1)

    async def test_a_subscription_that_ends_while_the_reader_waits_takes_nothing_along(self) -> None:
        """What it was to have makes room, and is ACKed for the others."""
        go = asyncio.Event()

        async def handler(m: pushmesh.Message) -> None:
            await go.wait()

        client = await self.client(receive_window=1)
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, handler=handler, ack=True)
        other = await self.subscribed(client, conn, "+", handler=handler, ack=True)
        with mock.patch.object(_inbox, "HANDLER_PATIENCE", 60.0):
            conn.send(*(_wire.Message("a", n) for n in range(1, 80)))
            while client._inbox._count < 65:
                await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
            client._inbox.drop(other)
            await conn.next(_wire.Unsubscribe)
            go.set()
            seen = 0
            while seen < 79:
                seen = max(e.seq for e in (await conn.next(_wire.Ack)).entries)
        self.assertEqual((client._inbox._count, client._inbox._bytes), (0, 0))


class Ends(Case):
    async def test_nothing_is_sent_behind_the_end(self) -> None:
        """A Ping that is due while the connection is hung up."""
        faults: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(str(context)))
        client = await self.client()
        conn = await self.edge.welcome()
        await self.have(client.connected())
        link = client._engine.link
        assert link is not None
        closing = self.going(client.close())
        with self.assertRaises(EOFError):
            await conn.next(_wire.Ack)
        link._ping()
        await asyncio.sleep(0)
        conn.writer.close()
        await self.have(closing)
        self.assertEqual(faults, [])


class Loops(Case):
    async def test_the_end_of_the_client_is_raised_while_handlers_run(self) -> None:
        started, go = asyncio.Event(), asyncio.Event()

        async def handler(m: pushmesh.Message) -> None:
            started.set()
            await go.wait()

        async def follow() -> None:
            async for _ in sub:
                pass

        client = await self.client()
        conn = await self.edge.welcome()
        await self.subscribed(client, conn, "b", handler=handler)
        sub = await self.subscribed(client, conn)
        following = self.going(follow())
        conn.send(_wire.Message("b"))
        await self.have(started.wait())
        conn.send(_wire.Error(Code.FORBIDDEN, "out"))
        with self.assertRaises(pushmesh.Refused):
            await self.have(following)
        go.set()

    async def test_a_second_loop_ends_the_first(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, ack=True)
        first = aiter(sub)
        conn.send(_wire.Message("a", 1))
        await self.have(anext(first))
        second = aiter(sub)
        self.assertEqual((await conn.next(_wire.Nack)).seq, 1)
        with self.assertRaises(pushmesh.ConfigError):
            await self.have(anext(first))
        conn.send(_wire.Message("a", 1, attempt=1))
        self.assertEqual((await self.have(anext(second))).seq, 1)

    async def test_a_first_loop_that_waits_is_ended_too(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn)
        waiting = self.going(anext(aiter(sub)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        aiter(sub)
        with self.assertRaises(pushmesh.ConfigError):
            await self.have(waiting)


class Claims(Case):
    async def test_a_hold_that_is_lost_before_anybody_looks_is_not_had(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.acquire("r"))
        asked = await conn.next(_wire.Claim)
        conn.send(_wire.ClaimState(asked.id, "r", ClaimState.QUEUED, position=1), _wire.ClaimState(0, "r", ClaimState.GRANTED, token=7))
        asked = await conn.next(_wire.Claim)  # RENEW
        conn.send(
            _wire.ClaimState(asked.id, "r", ClaimState.GRANTED, token=7, expires_in_ms=60_000),
            _wire.ClaimState(0, "r", ClaimState.LOST, token=7, code=Code.EXPIRED),
        )
        with self.assertRaises(pushmesh.PushmeshError):
            await self.have(going)

    async def test_refusals_wait_longer_each_time_and_not_in_step(self) -> None:
        pauses: list[float] = []
        client = await self.client(min_backoff=0.001, max_backoff=1.0)
        conn = await self.edge.welcome()
        loop = asyncio.get_running_loop()
        going = self.going(client.acquire("r"))
        last = 0.0
        for _ in range(9):
            asked = await conn.next(_wire.Claim)
            pauses.append(loop.time() - last)
            last = loop.time()
            conn.send(_wire.Error(Code.OVERLOADED, "", asked.id))
        self.assertGreater(pauses[8], 0.06)  # half of 0.001 * 2**7
        going.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await going
