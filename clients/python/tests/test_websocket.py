"""The same over a WebSocket."""

from __future__ import annotations

import asyncio
from unittest import mock

from pushmesh import _websocket

import test_connect
import test_subscribe
from case import Case


class Ends(test_connect.Ends):
    websocket = True


class Resumes(test_subscribe.Resumes):
    websocket = True


class Handlers(test_subscribe.Handlers):
    websocket = True


class Faults(Case):
    websocket = True

    async def test_what_speaks_no_websocket(self) -> None:
        failed: list[Exception] = []
        came = asyncio.Event()

        def fail(e: Exception) -> None:
            failed.append(e)
            came.set()

        client = self.make(on_connect_failed=fail)
        client._engine.config.edges = [self.edge.address]  # TCP alone
        async with client:
            conn = await self.have(self.edge._conns.get())
            conn.raw(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            await self.have(came.wait())
        self.assertIn("no connection to", str(failed[0]))
        self.assertIn("403", str(failed[0]))

    async def test_large_frames_come_whole(self) -> None:
        from pushmesh import _wire

        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn)
        conn.send(_wire.Message("a", 1, b"x" * 2_000_000))
        m = await self.have(anext(aiter(sub)))
        self.assertEqual(len(m.payload), 2_000_000)

    async def test_very_many_empty_messages_are_passed_over(self) -> None:
        from pushmesh import _wire

        client = await self.client()
        conn = await self.edge.welcome()
        sub = await self.subscribed(client, conn)
        for socket in self.sockets:
            for _ in range(2000):
                await socket.send(b"")
        conn.send(_wire.Message("a", 1, b"x"))
        self.assertEqual((await self.have(anext(aiter(sub)))).payload, b"x")
        self.assertIsNone(client.error)

    async def test_no_proxy_of_the_environment_is_asked(self) -> None:
        """The package does so since 15.0, and fails since the address was looked up already."""
        asked: list[object] = []

        class Newer:
            WebSocketException = OSError

            @staticmethod
            def connect(uri: str, *, proxy: object = True, **options: object) -> None:
                asked.append(proxy)
                raise OSError("asked")

        with mock.patch.object(_websocket, "websockets", Newer):
            failed = asyncio.Event()
            client = await self.client(on_connect_failed=lambda e: failed.set())
            await self.have(failed.wait())
            await self.have(client.close())
        self.assertEqual(set(asked), {None})
