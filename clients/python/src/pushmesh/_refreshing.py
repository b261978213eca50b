"""New tokens for the connection that there is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from . import _frames, _wire
from ._engine import Engine
from ._link import Link
from .codes import Code
from .errors import ConfigError, PushmeshError, Refused


@dataclass(eq=False, slots=True)
class _Refresh:
    refreshing: Refreshing
    id: int
    done: asyncio.Future[int]

    def refused(self, why: Refused) -> None:
        self.refreshing.answered(self.id, why)


class Refreshing:
    """RefreshToken of a client."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sent: dict[int, _Refresh] = {}

    async def refresh(self, token: str | None) -> int:
        """Shows a new token; None: of get_token. It returns when that ends, in microseconds since 1970."""
        self._engine.check_open()
        if token is None:
            if self._engine.config.get_token is None:
                raise ConfigError("refresh_token needs a token, or get_token")
            token = await self._engine.token()
        _frames.check(_wire.RefreshToken(0, token))
        await self._engine.connected()
        link = self._engine.link
        if link is None:
            raise Refused(Code.UNAVAILABLE, "the connection broke; the next one shows a new token")
        one = _Refresh(self, self._engine.next_id(), asyncio.get_running_loop().create_future())
        link.put(_wire.RefreshToken(one.id, token))
        self._sent[one.id] = self._engine.answers[one.id] = one
        self._engine.moved.set()
        return await self._engine.wait(one.done, "no answer to a RefreshToken")

    def answered(self, number: int, answer: int | Refused) -> None:
        one = self._sent.pop(number, None)
        if one is None:
            return
        del self._engine.answers[number]
        if one.done.done():
            return
        if isinstance(answer, Refused):
            one.done.set_exception(answer)
        else:
            one.done.set_result(answer)

    def connected(self, link: Link) -> None:
        pass

    def take(self, frame: _wire.Frame) -> None:
        if isinstance(frame, _wire.Refreshed):
            self.answered(frame.id, frame.expires_at)

    def broken(self) -> None:
        for number in list(self._sent):
            self.answered(number, Refused(Code.UNAVAILABLE, "the connection broke before the answer", unknown=True))

    def end(self, why: PushmeshError) -> None:
        self.broken()

    async def drain(self, within: float) -> None:
        pass

    def settle(self) -> None:
        pass
