"""Where and when a connection is tried next."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

LOOKUP_WITHIN = 5.0
_MAX_DOUBLINGS = 20


class Backoff:
    """Doubles from low to high, in seconds, with jitter."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self._high = low, high
        self._tries = 0

    def reset(self) -> None:
        self._tries = 0

    def next(self, asked: float = 0.0) -> float:
        """
        How long to wait before the next try: what the other side asked for and up to a quarter more,
        or half to all of the doubled wait where that is longer.
        """
        wait = min(self.low * 2 ** min(self._tries, _MAX_DOUBLINGS), self._high)
        self._tries += 1
        return max(random.uniform(wait / 2, wait), random.uniform(asked, asked * 1.25))


class Place(NamedTuple):
    """Where a connection may be made: the address to dial, and the one that a certificate there is for."""

    address: str
    name: str


Lookup = Callable[[str, int], Awaitable[Sequence[str]]]


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Route:
    """
    Picks places in random order, all of them once in a round; those of a detour come first, once.
    A name counts as many times as it has addresses, which are looked up for every round. Where a
    round begins with the place that was tried last, it comes last: so the clients of a server that
    dies spread over all the others.
    """

    def __init__(self, addresses: Sequence[str], lookup: Lookup = resolve) -> None:
        self._addresses, self._lookup = addresses, lookup
        self._order: list[Place] = []
        self._tried = 0  # of the order
        self._special: list[Place] = []
        self._last: Place | None = None

    async def next(self) -> Place:
        if self._special:
            self._last = self._special.pop(0)
            return self._last
        if self._tried == 0 or self._tried >= len(self._order):
            order = await self._expand()
            random.shuffle(order)
            if self._last in order:
                order.remove(self._last)
                order.append(self._last)
            self._order, self._tried = order, 0
        self._last = self._order[self._tried]
        self._tried += 1
        return self._last

    def found(self) -> None:
        """Begins a new round: a place that was good for a connection is none that was tried in vain."""
        self._tried = 0

    def round_over(self) -> bool:
        """Whether every place has been tried since it said so last."""
        if self._tried < len(self._order) or self._special:
            return False
        self._tried = 0
        return True

    def detour(self, addresses: Iterable[str]) -> None:
        """Tries these before the configured ones."""
        self._special = [Place(a, a) for a in addresses]
        random.shuffle(self._special)

    async def _expand(self) -> list[Place]:
        places: dict[Place, None] = {}
        for address in self._addresses:
            host, port = split(address)
            for found in await self._hosts(host, port):
                places[Place(join(found, port), address)] = None
        return list(places)

    async def _hosts(self, host: str, port: int) -> Sequence[str]:
        """A name without addresses stays: whoever dials it says why."""
        try:
            ipaddress.ip_address(host)
            return [host]
        except ValueError:
            pass
        try:
            async with asyncio.timeout(LOOKUP_WITHIN):
                return await self._lookup(host, port) or [host]
        except (OSError, TimeoutError):
            return [host]


def split(address: str) -> tuple[str, int]:
    """The host and the port of an address. ValueError: it is none."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise ValueError(f"{address!r} must be host:port, like 127.0.0.1:7400")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r} must be host:port, and an IPv6 address be in brackets, like [::1]:7400")
    return host, int(port)


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
