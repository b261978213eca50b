"""How a client is set up, checked at once."""

from __future__ import annotations

import inspect
import math
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import _transport, _websocket
from ._reconnect import Lookup, resolve, split
from .errors import ConfigError
from .events import Connection, Gap

if TYPE_CHECKING:
    from .subscription import Subscription

GetToken = Callable[[], Awaitable[str | None] | str | None]

MAX_CLIENT_ID = 64
MAX_SESSION = 255
MAX_WINDOW = 65536
MAX_FEATURES = 64
MAX_DIMENSIONS = 512
_MAX_UINT32 = 0xFFFFFFFF


@dataclass
class Config:
    """The arguments of Client, of which Client says what they mean."""

    edges: Sequence[str]
    client_id: str
    session: str
    session_ttl: float
    get_token: GetToken | None
    receive_window: int
    heartbeat: float
    agent: str
    profile: Mapping[str, float]
    profile_vector: Sequence[float]
    ack_delay: float
    min_backoff: float
    max_backoff: float
    dial_timeout: float
    close_timeout: float
    tls: ssl.SSLContext | bool | None
    websocket: bool
    on_gap: Callable[[Gap], object] | None
    on_connect: Callable[[Connection], object] | None
    on_disconnect: Callable[[Exception], object] | None
    on_connect_failed: Callable[[Exception], object] | None
    on_refused: Callable[[Subscription], object] | None
    lookup: Lookup = resolve
    context: ssl.SSLContext | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if not self.edges:
            raise ConfigError("edges is empty: name edges, like 127.0.0.1:7400")
        for edge in self.edges:
            try:
                split(edge)
            except ValueError as fault:
                raise ConfigError(f"edges: {fault}") from None
        self._check_names()
        self._check_numbers()
        check_profile(self.profile, self.profile_vector)
        for name in ("on_gap", "on_connect", "on_disconnect", "on_connect_failed", "on_refused"):
            check_callback(name, getattr(self, name))
        if self.websocket:
            _websocket.check()
        self.max_backoff = max(self.max_backoff, self.min_backoff)
        self.context = _transport.context(self.tls, websocket=self.websocket)

    def _check_names(self) -> None:
        for name, text, most in (
            ("client_id", self.client_id, MAX_CLIENT_ID), ("session", self.session, MAX_SESSION), ("agent", self.agent, 4096),
        ):
            try:
                size = len(text.encode())
            except UnicodeEncodeError:
                raise ConfigError(f"{name} is {text!r}, it must be UTF-8") from None
            if size > most:
                raise ConfigError(f"{name} has {size} bytes, at most {most}")
        if self.session and not self.client_id and self.get_token is None:
            raise ConfigError("session needs client_id: a session belongs to its client, and an edge makes up another client_id for every process")

    def _check_numbers(self) -> None:
        if not 0 <= self.receive_window <= MAX_WINDOW:
            raise ConfigError(f"receive_window is {self.receive_window}, it must be 1 to {MAX_WINDOW}, or 0 for 256")
        for name, value, unit in (("session_ttl", self.session_ttl, 1), ("heartbeat", self.heartbeat, 1000)):
            if not 0 <= value * unit <= _MAX_UINT32:
                raise ConfigError(f"{name} is {value} s, it must be 0 (the mesh's default) to {_MAX_UINT32 / unit:.0f} s")
        for name, value in (
            ("min_backoff", self.min_backoff), ("max_backoff", self.max_backoff), ("dial_timeout", self.dial_timeout),
        ):
            if not value > 0:
                raise ConfigError(f"{name} is {value} s, it must be above 0")
        for name, value in (("ack_delay", self.ack_delay), ("close_timeout", self.close_timeout)):
            if not value >= 0:
                raise ConfigError(f"{name} is {value} s, it must not be below 0")


def check_profile(profile: Mapping[str, float], vector: Sequence[float]) -> None:
    if len(profile) > MAX_FEATURES or len(vector) > MAX_DIMENSIONS:
        raise ConfigError(
            f"the profile has {len(profile)} features and {len(vector)} dimensions, at most {MAX_FEATURES} and {MAX_DIMENSIONS}"
        )
    for name, value in profile.items():
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            size = 0
        if not 0 < size <= 64 or not math.isfinite(value):
            raise ConfigError(f"profile[{name!r}] is {value}: names have 1 to 64 bytes of UTF-8, and values are finite")
    if not all(map(math.isfinite, vector)):
        raise ConfigError("profile_vector holds what is not finite")


def check_callback(name: str, callback: object) -> None:
    """ConfigError: it would never run, for callbacks are not awaited."""
    if inspect.iscoroutinefunction(callback) or inspect.isasyncgenfunction(callback):
        raise ConfigError(f"{name} is a coroutine function: it is called, and not awaited; it may begin a task")


def check_seconds(name: str, seconds: float) -> None:
    if not 0 <= seconds < math.inf:
        raise ConfigError(f"{name} is {seconds} s, it must not be below 0, and have an end")


def octets(name: str, data: bytes | str) -> bytes:
    """What is to be sent as bytes: text as UTF-8."""
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as fault:
            raise ConfigError(f"{name} is no UTF-8: {fault}") from fault
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ConfigError(f"{name} is a {type(data).__name__}, it must be bytes or a string")
    return bytes(data)


def milliseconds(seconds: float) -> int:
    """Rounded up: what is asked for is never taken for 0, which is the mesh's default."""
    if not seconds > 0:
        return 0
    return min(math.ceil(min(seconds * 1000, _MAX_UINT32)), _MAX_UINT32)
