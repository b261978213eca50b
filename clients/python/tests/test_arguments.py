"""Arguments that can't be sent are refused where they are named, and end nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pushmesh
from pushmesh import Position, Start, _wire

from case import Case

LONE = "\ud800"  # half of a pair, as json.loads makes it of "\ud800": it has no UTF-8

Call = Callable[[pushmesh.Client], Coroutine[Any, Any, object]]

CALLS: dict[str, Call] = {
    "filter": lambda c: c.subscribe(LONE),
    "window below 0": lambda c: c.subscribe("a", receive_window=-1),
    "window above 32 bits": lambda c: c.subscribe("a", receive_window=1 << 32),
    "rank_top_k": lambda c: c.subscribe("a", rank_top_k=-1),
    "last": lambda c: c.subscribe("a", start=Start.last(-1)),
    "after": lambda c: c.subscribe("a", start=Start.after(-1)),
    "epoch": lambda c: c.subscribe("a", start=Start.after(1, 1 << 64)),
    "position": lambda c: c.subscribe("a", positions=[Position("a", 0, 1 << 64)]),
    "position's topic": lambda c: c.subscribe("a", positions=[Position(LONE, 0, 1)]),
    "group": lambda c: c.subscribe("a", group=LONE),
    "where": lambda c: c.subscribe("a", where=LONE),
    "topic": lambda c: c.publish(LONE, b""),
    "payload": lambda c: c.publish("a", LONE),
    "payload that is a number": lambda c: c.publish("a", 5),  # type: ignore[arg-type]
    "header": lambda c: c.publish("a", b"", headers={"a": LONE}),
    "header that is no text": lambda c: c.publish("a", b"", headers={"a": 1}),  # type: ignore[dict-item]
    "dedupe_key": lambda c: c.publish("a", b"", dedupe_key=LONE),
    "resource": lambda c: c.claim(LONE),
    "priority": lambda c: c.claim("a", priority=-1),
    "ttl": lambda c: c.claim("a", ttl=float("nan")),
    "resource to look at": lambda c: c.check_claim(LONE),
    "resource to watch": lambda c: c.watch_claim(LONE, print),
    "topic to watch": lambda c: c.watch_presence(LONE),
    "topic of a state": lambda c: c.set_state(LONE, b""),
    "state": lambda c: c.set_state("a", LONE),
    "token": lambda c: c.refresh_token(LONE),
}


class Arguments(Case):
    async def test_without_a_connection(self) -> None:
        client = await self.client()
        for name, call in CALLS.items():
            with self.subTest(name):
                if name == "token":
                    continue  # it needs a connection
                with self.assertRaises(pushmesh.PushmeshError):
                    await self.have(call(client))
        self.assertEqual((client._inbox._subs, client._claims.claims, client._claims.watches, client._presences.watches), ({}, {}, {}, {}))
        conn = await self.edge.welcome()
        conn.send(_wire.Ping(1))
        await conn.next(_wire.Pong)  # nothing was asked for before, and the client lives
        self.assertIsNone(client.error)

    async def test_with_a_connection(self) -> None:
        client = await self.client()
        conn = await self.edge.welcome()
        await self.have(client.connected())
        for name, call in CALLS.items():
            with self.subTest(name), self.assertRaises(pushmesh.PushmeshError):
                await self.have(call(client))
        conn.send(_wire.Ping(1))
        await conn.next(_wire.Pong)
        await self.subscribed(client, conn)
        conn.cut()
        await (await self.edge.welcome()).next(_wire.Subscribe)
        self.assertIsNone(client.error)

    async def test_a_token_that_can_t_be_sent_is_a_failed_attempt(self) -> None:
        tokens: list[Any] = [b"bytes", LONE, "good"]

        async def get_token() -> str:
            token: str = tokens.pop(0)
            return token

        client = await self.client(get_token=get_token)
        conn = await self.edge.welcome()
        self.assertEqual(conn.hello.token, "good")
        self.assertIsNone(client.error)


class Callbacks(Case):
    """A callback is called and not awaited: one that is a coroutine function would never run."""

    async def test_those_of_a_client(self) -> None:
        async def late(event: object) -> None:
            raise AssertionError

        for name in ("on_gap", "on_connect", "on_disconnect", "on_connect_failed", "on_refused"):
            with self.subTest(name), self.assertRaises(pushmesh.ConfigError):
                self.make(**{name: late})

    async def test_those_of_calls(self) -> None:
        async def late(event: object) -> None:
            raise AssertionError

        client = await self.client()
        calls: dict[str, Call] = {
            "claim": lambda c: c.claim("r", on_position=late), "watch_claim": lambda c: c.watch_claim("r", late),
            "watch_presence": lambda c: c.watch_presence("a", late),
        }
        for name, call in calls.items():
            with self.subTest(name), self.assertRaises(pushmesh.ConfigError):
                await self.have(call(client))

    async def test_a_handler_that_yields_would_never_begin(self) -> None:
        async def generator(m: pushmesh.Message) -> AsyncIterator[None]:
            yield

        def plain(m: pushmesh.Message) -> Any:
            yield

        client = await self.client()
        for handler in (generator, plain):
            with self.assertRaises(pushmesh.ConfigError):
                client.start("a", handler)
