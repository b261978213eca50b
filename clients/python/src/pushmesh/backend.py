"""Publishing as a backend, over gRPC, by the package `grpcio` (pushmesh[grpc])."""

from __future__ import annotations

import asyncio
import datetime
import functools
import math
import random
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from . import _api, _protobuf
from ._config import check_profile, octets
from ._publishing import Published, check
from ._reconnect import Backoff, split
from .codes import Code
from .errors import Closed, ConfigError, Refused

try:
    import grpc
    import grpc.aio
except ImportError as missing:
    raise ImportError("pushmesh.backend needs grpcio: pip install 'pushmesh[grpc]', or apt install python3-grpcio") from missing

R = TypeVar("R", bound=_protobuf.Record)

_PUBLISH, _SESSIONS = "/pushmesh.v1.PublishService/", "/pushmesh.v1.SessionService/"
_MAX_PRIORITY = 9
_UNSURE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


class Backend:
    """
    A backend of the mesh.

        async with pushmesh.backend.Backend("127.0.0.1:7401") as backend:
            await backend.publish("room/42/chat", "hello")

    One call is one message. What is refused for now is tried again, at another router where there
    are several, until the call is cancelled or has its answer.
    """

    def __init__(
        self,
        routers: str | Sequence[str],
        *,
        credentials: grpc.ChannelCredentials | None = None,
        token: str = "",
        min_backoff: float = 0.05,
        max_backoff: float = 5.0,
        dial_timeout: float = 3.0,
        answer_timeout: float = 15.0,
    ) -> None:
        """
        routers: host:port, one or several.
        credentials: of gRPC's channels; None: plaintext.
        token: names the producer to the mesh.
        answer_timeout: after which a router that does not answer is given up.
        """
        self._routers = [routers] if isinstance(routers, str) else list(routers)
        if not self._routers:
            raise ConfigError("routers is empty: name routers, like 127.0.0.1:7401")
        for router in self._routers:
            try:
                split(router)
            except ValueError as fault:
                raise ConfigError(f"routers: {str(fault).replace('7400', '7401')}") from None
        self._credentials, self._metadata = credentials, (("authorization", f"Bearer {token}"),) if token else ()
        self._min_backoff, self._max_backoff = min_backoff, max_backoff
        self._dial_timeout, self._answer_timeout = dial_timeout, answer_timeout
        self._channels: dict[str, Any] = {}
        self._router = ""  # that was ready last
        self._left = ""  # that is to be tried last
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends what is under way."""
        self._closed = True
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def publish(
        self,
        topic: str,
        payload: bytes | str,
        *,
        headers: Mapping[str, str] | None = None,
        dedupe_key: str = "",
        priority: int = 0,
        ttl: float = 0.0,
        deliver_at: datetime.datetime | None = None,
        features: Mapping[str, float] | None = None,
        vector: Sequence[float] = (),
        traceparent: str = "",
    ) -> Published:
        """
        Publishes a message; once it returns, one of a durable topic is on disk.

        dedupe_key: a second publish with this key answers with the first one's result. With it a
            message whose answer was lost is sent again, and stored once; without, Refused has `unknown`.
        priority: 0 to 9.
        ttl: seconds after which nobody gets it any more; 0: while it is retained.
        deliver_at: when to publish it, with a time zone. It has no seq until then.
        features, vector: what content filters and rankings see of it.
        """
        data = octets("payload", payload)
        check(topic, data, headers or {}, dedupe_key)
        request = _api.PublishRequest(
            topic, data, dict(headers or {}), dedupe_key, priority, _duration(ttl), _timestamp(deliver_at), dict(features or {}),
            traceparent, vector=list(vector),
        )
        _check(request)
        answer = await self._call(_PUBLISH + "Publish", request, _api.PublishResponse, again=bool(dedupe_key))
        return Published(answer.message_id, answer.seq, answer.epoch, answer.duplicate, answer.scheduled)

    async def cancel_scheduled(self, message_id: bytes) -> None:
        """Withdraws a message that waits for its deliver_at. CONFLICT: it was delivered already."""
        await self._call(_PUBLISH + "CancelScheduled", _api.CancelScheduledRequest(message_id), _api.CancelScheduledResponse, again=True)

    async def set_profile(self, profile: Mapping[str, float], vector: Sequence[float] = (), *, client_id: str = "", user: str = "") -> int:
        """
        Replaces the profile that messages are ranked for, of the connections of a client id or of a
        token's user, until they end. It returns how many there are.
        """
        if not client_id and not user:
            raise ConfigError("set_profile needs client_id or user")
        check_profile(profile, vector)
        request = _api.SetProfileRequest(client_id, user, dict(profile), list(vector))
        return (await self._call(_SESSIONS + "SetProfile", request, _api.SetProfileResponse, again=True)).connections

    async def _call(self, method: str, request: _protobuf.Record, answer: type[R], *, again: bool) -> R:
        """Calls until there is an answer. again: what may have been done may be asked for again."""
        wait = Backoff(self._min_backoff, self._max_backoff)
        while True:
            if self._closed:
                raise Closed
            try:
                channel = await self._connect()
                call = channel.unary_unary(method, _protobuf.encode, functools.partial(_protobuf.decode, answer))
                got: R = await call(request, timeout=self._answer_timeout, metadata=self._metadata)
                return got
            except grpc.aio.UsageError as fault:
                raise Closed from fault
            except asyncio.CancelledError as fault:
                task = asyncio.current_task()
                if not self._closed or task is None or task.cancelling():
                    raise
                raise Closed from fault  # by close, and not by whoever waits
            except grpc.aio.AioRpcError as fault:
                refused = _refused(fault, self._router)
                if refused.code in (Code.DRAINING, Code.UNAVAILABLE):
                    self._left = self._router
                if not (refused.retryable and (again or not refused.unknown)):
                    raise refused from fault
                await asyncio.sleep(wait.next(refused.retry_after))
            except Refused:  # there is no connection
                await asyncio.sleep(wait.next())

    async def _connect(self) -> Any:
        """A channel to a router that takes calls: the present one, or another in random order."""
        others = [r for r in self._routers if r != self._left]
        random.shuffle(others)
        if self._router in others:
            others.remove(self._router)
            others.insert(0, self._router)
        for router in others + [r for r in self._routers if r == self._left]:
            if self._closed:
                raise Closed
            if (channel := self._channels.get(router)) is None:
                channel = self._channels[router] = self._open(router)
            try:
                async with asyncio.timeout(self._dial_timeout):
                    await channel.channel_ready()
            except TimeoutError:
                continue
            self._router, self._left = router, ""
            return channel
        raise Refused(Code.UNAVAILABLE, f"no router of {', '.join(self._routers)} can be reached")

    def _open(self, router: str) -> Any:
        if self._credentials is None:
            return grpc.aio.insecure_channel(router)
        return grpc.aio.secure_channel(router, self._credentials)


def _refused(fault: Any, router: str) -> Refused:
    """The reason of a status; one without a reason does not come from the mesh: there may have been no answer."""
    for key, value in fault.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return _detailed(_protobuf.decode(_api.Status, value))
    unsure = fault.code() in _UNSURE or fault.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    code = Code.UNAVAILABLE if unsure else Code.INVALID_ARGUMENT
    return Refused(code, f"{router}: {fault.details()}", unknown=unsure)


def _detailed(status: _api.Status) -> Refused:
    code, after = Code.INTERNAL, 0.0
    for detail in status.details:
        if detail.type_url.endswith("/google.rpc.ErrorInfo"):
            reason = _protobuf.decode(_api.ErrorInfo, detail.value).reason
            code = Code.__members__.get(reason, Code.INTERNAL)
        elif detail.type_url.endswith("/google.rpc.RetryInfo"):
            delay = _protobuf.decode(_api.RetryInfo, detail.value).retry_delay
            after = delay.seconds + delay.nanos / 1e9 if delay is not None else 0.0
    return Refused(code, status.message, retry_after=after, unknown=code == Code.INTERNAL)


def _check(request: _api.PublishRequest) -> None:
    """Refuses what no router takes."""
    if not 0 <= request.priority <= _MAX_PRIORITY:
        raise Refused(Code.INVALID_ARGUMENT, f"priority is {request.priority}, it must be 0 to {_MAX_PRIORITY}")
    for name, value in (*request.features.items(), *enumerate(request.vector)):
        if not math.isfinite(value):
            raise Refused(Code.INVALID_ARGUMENT, f"features and vector: {name!r} is {value}, it must be finite")


def _duration(seconds: float) -> _api.Duration | None:
    if not 0 <= seconds < math.inf:
        raise Refused(Code.INVALID_ARGUMENT, f"ttl is {seconds} s, it must be above 0, or 0 for none")
    if not seconds:
        return None
    nanos = math.ceil(seconds * 1e9)
    return _api.Duration(nanos // 10**9, nanos % 10**9)


def _timestamp(at: datetime.datetime | None) -> _api.Timestamp | None:
    if at is None:
        return None
    if at.tzinfo is None:
        raise Refused(Code.INVALID_ARGUMENT, "deliver_at has no time zone")
    micros = (at - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) // datetime.timedelta(microseconds=1)
    if micros <= 0:
        raise Refused(Code.INVALID_ARGUMENT, f"deliver_at is {at}, it must be after 1970")
    return _api.Timestamp(micros // 10**6, micros % 10**6 * 1000)


__all__ = ["Backend"]
