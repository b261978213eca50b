"""Publishing over gRPC, against a router that a test scripts."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import unittest
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from pushmesh import Closed, Code, ConfigError, Published, Refused, _api, _protobuf
from pushmesh.backend import Backend

Answer = Callable[[_api.PublishRequest], "_api.PublishResponse | Refusal"]


class Refusal:
    """A status as the mesh says it; without a code as gRPC does."""

    def __init__(self, status: grpc.StatusCode, code: str = "", after: int = 0) -> None:
        self.status, self.code, self.after = status, code, after

    def trailers(self) -> tuple[tuple[str, bytes], ...]:
        if not self.code:
            return ()
        details = [_api.Any("type.googleapis.com/google.rpc.ErrorInfo", _protobuf.encode(_api.ErrorInfo(self.code)))]
        if self.after:
            retry = _api.RetryInfo(_api.Duration(nanos=self.after * 10**6))
            details.append(_api.Any("type.googleapis.com/google.rpc.RetryInfo", _protobuf.encode(retry)))
        return (("grpc-status-details-bin", _protobuf.encode(_api.Status(1, "no", details))),)


@contextlib.asynccontextmanager
async def router(answer: Answer) -> AsyncIterator[str]:
    async def publish(request: _api.PublishRequest, context: Any) -> _api.PublishResponse:
        said = answer(request)
        if isinstance(said, Refusal):
            await context.abort(said.status, "no", said.trailers())
            raise AssertionError
        return said

    def decode(data: bytes) -> _api.PublishRequest:
        return _protobuf.decode(_api.PublishRequest, data)

    method = grpc.unary_unary_rpc_method_handler(publish, decode, _protobuf.encode)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pushmesh.v1.PublishService", {"Publish": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


class Publishes(unittest.IsolatedAsyncioTestCase):
    async def test_what_is_said(self) -> None:
        got: list[_api.PublishRequest] = []

        def answer(request: _api.PublishRequest) -> _api.PublishResponse:
            got.append(request)
            return _api.PublishResponse(b"i" * 16, 4, 5, True)

        at = datetime.datetime(2026, 1, 2, 3, 4, 5, 250_000, tzinfo=datetime.timezone.utc)
        async with router(answer) as address, Backend(address) as backend:
            done = await backend.publish(
                "a", "hé", headers={"lang": "fr"}, dedupe_key="k", priority=3, ttl=1.5, deliver_at=at, features={"x": 0.5}, vector=[0.25],
            )
        self.assertEqual(done, Published(b"i" * 16, 4, 5, True))
        self.assertEqual(got, [_api.PublishRequest(
            "a", "hé".encode(), {"lang": "fr"}, "k", 3, _api.Duration(1, 500_000_000),
            _api.Timestamp(1767323045, 250_000_000), {"x": 0.5}, vector=[0.25],
        )])

    async def test_what_is_refused_for_now_is_tried_again(self) -> None:
        said: list[Refusal | _api.PublishResponse] = [
            Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED", 1), Refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING"), _api.PublishResponse(seq=1),
        ]
        async with router(lambda request: said.pop(0)) as address, Backend(address, min_backoff=0.001) as backend:
            self.assertEqual((await backend.publish("a", b"")).seq, 1)

    async def test_what_is_refused_for_good_is_raised(self) -> None:
        async with router(lambda request: Refusal(grpc.StatusCode.PERMISSION_DENIED, "FORBIDDEN")) as address, Backend(address) as backend:
            with self.assertRaises(Refused) as caught:
                await backend.publish("a", b"")
        self.assertEqual((caught.exception.code, caught.exception.unknown), (Code.FORBIDDEN, False))

    async def test_an_answer_that_is_lost(self) -> None:
        said: list[Refusal | _api.PublishResponse] = [
            Refusal(grpc.StatusCode.UNAVAILABLE), Refusal(grpc.StatusCode.UNAVAILABLE), _api.PublishResponse(seq=1),
        ]
        async with router(lambda request: said.pop(0)) as address, Backend(address, min_backoff=0.001) as backend:
            with self.assertRaises(Refused) as caught:
                await backend.publish("a", b"")
            self.assertTrue(caught.exception.unknown)
            self.assertEqual((await backend.publish("a", b"", dedupe_key="k")).seq, 1)

    async def test_another_router(self) -> None:
        async with router(lambda request: _api.PublishResponse(seq=1)) as address:
            async with Backend(["127.0.0.1:1", address], dial_timeout=0.2, min_backoff=0.001) as backend:
                for _ in range(3):
                    self.assertEqual((await backend.publish("a", b"")).seq, 1)

    async def test_close_ends_what_waits_for_an_answer(self) -> None:
        asked = asyncio.Event()

        async def publish(request: Any, context: Any) -> None:
            asked.set()
            await asyncio.Event().wait()

        method = grpc.unary_unary_rpc_method_handler(publish)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pushmesh.v1.PublishService", {"Publish": method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with asyncio.timeout(30):
                backend = Backend(f"127.0.0.1:{port}")
                going = asyncio.create_task(backend.publish("a", b""))
                await asked.wait()
                await backend.close()
                with self.assertRaises(Closed):
                    await going
        finally:
            await server.stop(None)

    async def test_no_router(self) -> None:
        async with Backend("127.0.0.1:1", dial_timeout=0.05) as backend:
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await backend.publish("a", b"")

    async def test_what_can_t_work(self) -> None:
        for routers in ("127.0.0.1", "http://a:1", []):
            with self.assertRaises(ConfigError):
                Backend(routers)
        async with Backend("127.0.0.1:1") as backend:
            for more in (
                {"priority": 10}, {"ttl": -1}, {"deliver_at": datetime.datetime(2026, 1, 1)}, {"features": {"x": float("inf")}}, {"vector": [float("nan")]},
            ):
                with self.subTest(more=more), self.assertRaises(Refused):
                    await backend.publish("a", b"", **more)  # type: ignore[arg-type]
            with self.assertRaises(ConfigError):
                await backend.set_profile({"x": 1.0})
