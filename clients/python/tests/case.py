"""What the tests of the client have in common."""

from __future__ import annotations

import asyncio
import contextlib
import unittest
from collections.abc import Awaitable
from typing import Any, TypeVar

import pushmesh
from pushmesh import _wire

from bridge import bridging
from edge import PATIENCE, Conn, Edge

T = TypeVar("T")


class Case(unittest.IsolatedAsyncioTestCase):
    """A test with an edge. Once it is over no task is left."""

    websocket = False

    async def asyncSetUp(self) -> None:
        self.before = asyncio.all_tasks()
        self.sockets: list[Any] = []  # of WebSockets, at the edge
        self.stack = contextlib.AsyncExitStack()
        self.edge = await self.stack.enter_async_context(Edge().serving())
        self.address = self.edge.address
        if self.websocket:
            self.address = await self.stack.enter_async_context(bridging(self.edge.address, self.sockets))
        self.gaps: list[pushmesh.Gap] = []

    async def asyncTearDown(self) -> None:
        await self.stack.aclose()
        async with asyncio.timeout(PATIENCE):
            while left := asyncio.all_tasks() - self.before - {asyncio.current_task()}:
                await asyncio.wait(left)

    def make(self, **more: Any) -> pushmesh.Client:
        options: dict[str, Any] = {"client_id": "c1", "websocket": self.websocket, "min_backoff": 0.01, "max_backoff": 0.02, "on_gap": self.gaps.append, **more}
        return pushmesh.Client(self.address, **options)

    async def client(self, **more: Any) -> pushmesh.Client:
        return await self.stack.enter_async_context(self.make(**more))

    def going(self, what: Awaitable[T]) -> asyncio.Task[T]:
        """Has something go on beside the test."""

        async def run() -> T:
            return await what

        return asyncio.create_task(run())

    async def have(self, what: Awaitable[T]) -> T:
        async with asyncio.timeout(PATIENCE):
            return await what

    async def subscribed(self, client: pushmesh.Client, conn: Conn, filter: str = "a", *, head: int = 0, **options: Any) -> pushmesh.Subscription:
        going = self.going(client.subscribe(filter, **options))
        asked = await conn.next(_wire.Subscribe)
        conn.send(_wire.Subscribed(asked.id, 5, head, True))
        return await self.have(going)
