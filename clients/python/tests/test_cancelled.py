"""A call that is cancelled, wherever it waits, leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pushmesh
from pushmesh import ClaimState, Code, _wire

from case import Case
from edge import Conn

Call = Callable[[pushmesh.Client], Coroutine[Any, Any, object]]

# Turns of the loop before a call is cancelled: it has begun, and has its answers before the last ones.
TURNS = range(1, 15)


def answer(asked: _wire.Frame) -> list[_wire.Frame]:
    match asked:
        case _wire.Subscribe():
            return [_wire.Subscribed(asked.id, 5, 0, True)]
        case _wire.Unsubscribe():
            return [_wire.Unsubscribed(asked.id)]
        case _wire.Publish():
            return [_wire.Published(asked.id, 1)]
        case _wire.Claim(op=_wire.Op.ACQUIRE | _wire.Op.RENEW):
            return [_wire.ClaimState(asked.id, asked.resource, ClaimState.GRANTED, token=7, expires_in_ms=60_000)]
        case _wire.Claim(op=_wire.Op.LEAVE):
            return [_wire.ClaimState(asked.id, asked.resource, ClaimState.GRANTED, token=7)]
        case _wire.Claim(op=_wire.Op.RELEASE):
            return [_wire.ClaimState(asked.id, asked.resource, ClaimState.RELEASED)]
        case _wire.Claim():
            return [_wire.ClaimState(asked.id, asked.resource, ClaimState.FREE)]
        case _wire.Watch():
            return [_wire.Presence(asked.topic, True, [_wire.Member("ann")], count=1)]
        case _wire.State():
            return [_wire.Stated(asked.id)]
        case _wire.RefreshToken():
            return [_wire.Refreshed(asked.id, 5)]
        case _wire.Ping():
            return [_wire.Pong(asked.sent_at)]
    return []


class Serving:
    """Answers everything that comes over a connection, and keeps it."""

    def __init__(self, case: Case, conn: Conn) -> None:
        self.conn, self.came = conn, list[_wire.Frame]()
        self.task = case.going(self.serve())

    async def serve(self) -> None:
        try:
            while True:
                asked = await self.conn.next(_wire.Frame)
                self.came.append(asked)
                self.conn.send(*answer(asked))
        except (EOFError, OSError):
            pass
        self.conn.writer.close()


def standing(came: list[_wire.Frame]) -> set[str]:
    """What stands at the edge after what it was asked."""
    there: set[str] = set()
    for asked in came:
        match asked:
            case _wire.Subscribe() | _wire.Watch():
                there.add(f"{asked.id}")
            case _wire.Unsubscribe():
                there.discard(f"{asked.id}")
            case _wire.Claim(op=_wire.Op.ACQUIRE):
                there.add("held")
            case _wire.Claim(op=_wire.Op.RELEASE):
                there.discard("held")
            case _wire.Claim(op=_wire.Op.WATCH):
                there.add("watched")
            case _wire.Claim(op=_wire.Op.LEAVE):
                there.discard("watched")
    return there


class Anywhere(Case):
    async def cancelled(self, call: Call, *, cut: bool) -> None:
        """Cancels a call after each number of turns: once it is over, the edge and the client know nothing of it."""
        for turns in TURNS:
            with self.subTest(turns=turns):
                client = self.make(min_backoff=60.0, max_backoff=60.0)
                await client.open()
                serving = Serving(self, await self.edge.welcome())
                await self.have(client.connected())
                going = self.going(call(client))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if cut:
                    serving.conn.cut()
                done = going.done()
                going.cancel()
                await self.have(asyncio.wait([going]))
                if not cut:
                    await self.have(client.check_claim("other"))  # what the end of the call said was said before
                    await self.have(client.check_claim("other"))
                if going.cancelled() and not done:
                    self.assertEqual(standing(serving.came) if not cut else set(), set())
                    self.empty(client)
                await self.have(client.close())
                await self.have(serving.task)

    def empty(self, client: pushmesh.Client) -> None:
        self.assertEqual(
            (client._inbox._subs, client._claims.claims, client._claims.watches, client._presences.watches, list(client._publishing._waiting)),
            ({}, {}, {}, {}, []),
        )
        self.assertEqual([t for t in asyncio.all_tasks() - self.before if "wait" in repr(t.get_coro())], [])

    async def test_subscribe(self) -> None:
        for cut in (False, True):
            await self.cancelled(lambda c: c.subscribe("a", lambda m: None, ack=True), cut=cut)

    async def test_publish(self) -> None:
        for cut in (False, True):
            await self.cancelled(lambda c: c.publish("a", b"", dedupe_key="k"), cut=cut)

    async def test_claim(self) -> None:
        for cut in (False, True):
            await self.cancelled(lambda c: c.claim("r"), cut=cut)

    async def test_acquire(self) -> None:
        for cut in (False, True):
            await self.cancelled(lambda c: c.acquire("r"), cut=cut)

    async def test_watches(self) -> None:
        for cut in (False, True):
            await self.cancelled(lambda c: c.watch_claim("r", lambda i: None), cut=cut)
            await self.cancelled(lambda c: c.watch_presence("a", lambda p: None), cut=cut)

    async def test_what_has_nothing_to_leave(self) -> None:
        for cut in (False, True):
            await self.cancelled(lambda c: c.set_state("a", b"x"), cut=cut)
            await self.cancelled(lambda c: c.refresh_token("t"), cut=cut)
            await self.cancelled(lambda c: c.check_claim("r"), cut=cut)
            await self.cancelled(lambda c: c.connected(), cut=cut)

    async def test_a_publish_without_a_connection_is_forgotten(self) -> None:
        client = await self.client()
        for _ in range(100):
            going = self.going(client.publish("a", b"x" * 1000))
            await asyncio.sleep(0)
            going.cancel()
            await asyncio.wait([going])
        self.assertEqual(len(client._publishing._waiting), 0)
        conn = await self.edge.welcome()
        conn.send(_wire.Ping(1))
        await conn.next(_wire.Pong)

    async def test_a_message_is_not_lost_by_a_wait_that_is_cancelled(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn, ack=True)
        loop = aiter(sub)
        got: list[int] = []
        for seq in range(1, 60):
            waiting = self.going(anext(loop))
            for _ in range(seq % 6):
                await asyncio.sleep(0)
            conn.send(_wire.Message("a", seq))
            for _ in range(seq % 11):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            if not waiting.cancelled():
                got.append(waiting.result().seq)
            else:
                got.append((await self.have(anext(loop))).seq)
        self.assertEqual(got, list(range(1, 60)))

    async def test_unsubscribe_goes_on(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn)
        going = self.going(sub.unsubscribe())
        asked = await conn.next(_wire.Unsubscribe)
        going.cancel()
        conn.send(_wire.Unsubscribed(asked.id))
        await self.have(sub.wait_ended())

    async def test_a_token_whose_wait_was_cancelled_is_a_failed_attempt(self) -> None:
        asks = 0

        async def get_token() -> str:
            nonlocal asks
            asks += 1
            if asks == 1:
                other = asyncio.get_running_loop().create_task(asyncio.sleep(60))
                other.cancel()
                await other
            return "good"

        failed: list[Exception] = []
        client = await self.client(get_token=get_token, on_connect_failed=failed.append)
        self.assertEqual((await self.edge.welcome()).hello.token, "good")
        await self.have(client.connected())
        self.assertIn("get_token", str(failed[0]))

    async def test_a_refused_release_while_nobody_waits(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        going = self.going(client.acquire("r"))
        asked = await conn.next(_wire.Claim)
        conn.send(*answer(asked))
        claim = await self.have(going)
        going2 = self.going(claim.release())
        asked = await conn.next(_wire.Claim)
        going2.cancel()
        conn.send(_wire.Error(Code.NOT_HELD, "", asked.id), _wire.Ping(1))
        await conn.next(_wire.Pong)
        self.assertIsNone(client.error)
