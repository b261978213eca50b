"""Connects, reads until the connection ends, and does so again."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

from . import _clock, _frames, _transport, _websocket, _wire
from ._config import Config, milliseconds
from ._link import Broken, Link, Unanswered
from ._reconnect import Backoff, Place, Route
from .codes import Code
from .errors import Closed, NoConnection, PushmeshError, Refused
from .events import Connection

log = logging.getLogger("pushmesh")

# How long a connection must have lived for the next back-off to begin anew.
STEADY = 2.0
# How long after a Hello was left unanswered the loss of the session may be that Hello's doing.
GHOST_FOR = 60.0

T = TypeVar("T")


class Asked(Protocol):
    """What has the id of a request."""

    def refused(self, why: Refused) -> None:
        """Takes an Error that names the id."""


class Part(Protocol):
    """A part of the client that lives with the connection."""

    def connected(self, link: Link) -> None:
        """A new connection takes the place of the last one."""

    def take(self, frame: _wire.Frame) -> None:
        """Takes a frame, or leaves it to others."""

    def broken(self) -> None:
        """The connection is gone."""

    def end(self, why: PushmeshError) -> None:
        """The client ends; it may be called often."""

    async def drain(self, within: float) -> None:
        """Waits for what runs, and ends it where it takes longer."""

    def settle(self) -> None:
        """Puts what must leave before the connection is hung up."""


class Away(Refused):
    """The edge's wish that the connection be made again elsewhere."""

    def __init__(self, frame: _wire.GoAway) -> None:
        super().__init__(Code(frame.code), frame.reason, retry_after=frame.reconnect_after_ms / 1000)
        self.addresses = frame.addresses
        # When to come back; 0: whenever.
        self.due = _clock.now() + self.retry_after if frame.reconnect_after_ms else 0.0


class NoToken(Refused):
    """get_token has none any more."""

    def __init__(self) -> None:
        super().__init__(Code.UNAUTHENTICATED, "get_token returned None: there is no token")


def refusal(frame: _wire.Error) -> Refused:
    return Refused(Code(frame.code), frame.message, retry_after=frame.retry_after_ms / 1000)


class Engine:
    """Owns the connection, and the one task that makes and reads it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.parts: list[Part] = []
        # Takes what comes for subscriptions, and waits until there is room for it.
        self.receive: Callable[[_wire.Message | _wire.Progress, Link], Awaitable[None]]
        self.answers: dict[int, Asked] = {}
        self.link: Link | None = None  # None: not connected
        self.error: PushmeshError | None = None  # why it ended
        self.closing = False
        self.ended = asyncio.Event()
        # The reader may have to read on: something left a queue, or an answer is waited for.
        self.moved = asyncio.Event()
        self.client_id = config.client_id
        self.connects = 0
        self._failure: Exception | None = None  # of the last attempt, or the end of the last connection
        self._came = asyncio.Event()  # set while there is a connection
        self._task: asyncio.Task[None] | None = None
        self._scope: asyncio.Timeout | None = None  # what close interrupts
        self._last_id = 0
        self._away: Away | None = None
        self._ghost_at: float | None = None
        self._timers: set[asyncio.TimerHandle] = set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="pushmesh")

    @property
    def started(self) -> bool:
        return self._task is not None

    def interrupt(self) -> None:
        """Has the engine end, soon."""
        self.closing = True
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())

    def check_open(self) -> None:
        if self.error is not None:
            raise self.error
        if self.closing:
            raise Closed()
        if not self.started:
            raise Closed("the client is not open: use `async with`, or open()")

    def end_error(self) -> PushmeshError:
        return self.error or Closed()

    def next_id(self) -> int:
        """An id that names nothing on the connection."""
        while True:
            self._last_id = self._last_id % 0xFFFFFFFF + 1
            if self._last_id not in self.answers:
                return self._last_id

    def fault(self) -> Exception | None:
        """Why there is no connection; None where there is one, or none was tried yet."""
        return None if self.link is not None else self._failure

    async def wait(self, waiting: asyncio.Future[T], what: str, why: Callable[[], object] = lambda: None) -> T:
        """Waits for an answer. A cancelled wait, such as that of a timeout, gets a note of what stood in the way."""
        try:
            return await waiting
        except asyncio.CancelledError as cancelled:
            cause = self.fault() or why()
            if cause is not None:
                cancelled.add_note(f"pushmesh: {what}: {cause}")
            raise

    async def connected(self) -> None:
        """Waits until there is a connection."""
        self.check_open()
        came, ended = asyncio.create_task(self._came.wait()), asyncio.create_task(self.ended.wait())
        try:
            await self.wait(_either(came, ended), "not connected")
        finally:
            came.cancel()
            ended.cancel()
        if self.ended.is_set():
            raise self.end_error()

    def later(self, after: float, call: Callable[[], None]) -> None:
        """Has something done after some seconds, unless the client has ended."""

        def run() -> None:
            self._timers.discard(handle)
            if not self.closing and self.error is None:
                call()

        handle = asyncio.get_running_loop().call_later(after, run)
        self._timers.add(handle)

    def tell(self, callback: Callable[[T], object] | None, event: T) -> None:
        """Calls back. What a callback raises is its own matter, and is logged."""
        if callback is None:
            return
        try:
            result = callback(event)
            if inspect.iscoroutine(result):
                result.close()
                raise TypeError("it returned a coroutine: callbacks are called, and not awaited")
        except Exception:
            log.exception("a callback failed")

    async def _run(self) -> None:
        try:
            await self._connect_for_ever()
        except asyncio.CancelledError:
            pass  # the loop ends: what follows is the orderly end
        except Exception as fault:  # a fault of this package must not leave anybody waiting
            log.exception("the client failed")
            self.error = PushmeshError(f"the client failed: {fault!r}")
        finally:
            self.closing = True
            await self._finish()

    async def _connect_for_ever(self) -> None:
        config = self.config
        route, wait = Route(config.edges, config.lookup), Backoff(config.min_backoff, config.max_backoff)
        expired = False  # a Hello was refused for its token's time since the last Welcome
        while not self.closing:
            link, why = await self._try(route)
            if self.closing and link is None:
                return
            if link is not None:
                expired, began = False, _clock.now()
                route.found()
                why = await self._serve(link)
                if _clock.now() - began >= STEADY:
                    wait.reset()
                if not self.closing:
                    self.tell(config.on_disconnect, why)
            if isinstance(why, Away):
                route.detour(why.addresses)
            final = self._final(why)
            if link is None:
                if isinstance(why, Refused) and why.code == Code.TOKEN_EXPIRED:
                    final, expired = (why if expired else final), True
                if isinstance(why, Unanswered):
                    self._ghost_at = _clock.now()
                if final is None and not route.round_over() and not _asked(why):
                    continue  # another address may do at once
            if final is not None and not self._by_ghost(final):
                self.error = final
                return
            await self._pause(_wait_after(wait, why))

    async def _try(self, route: Route) -> tuple[Link | None, Exception]:
        try:
            async with self._interruptible():
                return await self._open(await route.next()), Closed()
        except TimeoutError:
            return None, Closed()
        except PushmeshError as fault:
            self._failure = fault
            if not self.closing:
                self.tell(self.config.on_connect_failed, fault)
            return None, fault

    async def _open(self, place: Place) -> Link:
        """Dials, says Hello and waits for Welcome."""
        greeted = False
        link: Link | None = None
        try:
            async with asyncio.timeout(self.config.dial_timeout):
                hello = await self._hello()
                link = Link(await self._dial(place), place.address)
                greeted = True
                welcomed = _welcomed(link, await link.greet(hello))
                link = None
                return welcomed
        except TimeoutError:
            if greeted:
                raise Unanswered(f"{place.address} accepts connections but does not answer: is it an edge's port (7400)?") from None
            raise NoConnection(f"no connection to {place.address} within {self.config.dial_timeout} s") from None
        except OSError as fault:
            raise NoConnection(f"no connection to {place.address}: {fault}") from fault
        except ValueError as fault:  # an address that an edge named
            raise NoConnection(f"no connection: {fault}") from fault
        finally:
            if link is not None:
                link.abort()

    async def _dial(self, place: Place) -> _transport.Transport:
        if self.config.websocket:
            return await _websocket.websocket(place, self.config.context)
        return await _transport.tcp(place, self.config.context)

    async def _hello(self) -> bytes:
        config = self.config
        hello = _wire.Hello(
            version=_wire.VERSION, client_id=self.client_id, session=config.session, heartbeat_ms=milliseconds(config.heartbeat),
            receive_window=config.receive_window, agent=config.agent, session_ttl_s=math.ceil(config.session_ttl),
            profile=dict(config.profile), profile_vector=list(config.profile_vector), token=await self.token(),
            features=["ping"],
        )
        frame = _frames.frame(hello)
        if (size := len(frame) - _wire.HEADER) > _wire.MAX_HELLO:
            raise Refused(Code.FRAME_TOO_LARGE, f"Hello has {size} bytes, {_wire.MAX_HELLO} at most: a shorter token or profile helps")
        return frame

    async def token(self) -> str:
        """PushmeshError: get_token failed, and may do better the next time."""
        if self.config.get_token is None:
            return ""
        try:
            asked = self.config.get_token()
            token = await asked if isinstance(asked, Awaitable) else asked
            if token is None:
                raise NoToken
            token.encode()
            return token
        except NoToken:
            raise
        except TimeoutError as fault:
            raise PushmeshError("get_token took too long") from fault
        except asyncio.CancelledError as fault:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise PushmeshError("what get_token waited for was cancelled") from fault
        except (AttributeError, UnicodeEncodeError) as fault:
            raise PushmeshError(f"get_token failed, or returned no string of UTF-8: {fault!r}") from fault
        except Exception as fault:
            raise PushmeshError(f"get_token failed: {fault!r}") from fault

    async def _serve(self, link: Link) -> Exception:
        """Owns one connection until it ends, and returns why."""
        self._away = None
        self._connect(link)
        why: Exception = Closed()
        try:
            async with self._interruptible():
                await self._read(link)
        except TimeoutError:
            why = Closed()
        except PushmeshError as fault:
            why = fault
        except asyncio.CancelledError:
            self.closing = True
            raise
        finally:
            why = self._away or why
            await self._disconnect(link, why)
        return why

    async def _read(self, link: Link) -> None:
        while True:
            frame = await link.next()
            match frame:
                case _wire.Message() | _wire.Progress():
                    await self.receive(frame, link)
                case _wire.Pong():
                    link.pong(frame)
                case _wire.Ping():
                    link.put(_wire.Pong(frame.sent_at))
                case _wire.Error(ref=0):
                    raise refusal(frame)
                case _wire.Error():
                    if (asked := self.answers.get(frame.ref)) is not None:
                        asked.refused(refusal(frame))
                case _wire.GoAway():
                    self._go_away(frame)
                case _:
                    for part in self.parts:
                        part.take(frame)

    def _go_away(self, frame: _wire.GoAway) -> None:
        """
        Goes on with the connection until the edge's time for reconnecting has come, so that nothing
        under way is cut off; the edge may end it earlier.
        """
        self._away = Away(frame)
        if self._final(self._away) is not None or not self._away.due:
            raise self._away
        if self._scope is not None and not self.closing:
            loop = asyncio.get_running_loop()
            self._scope.reschedule(loop.time() + self._away.due - _clock.now())

    def _connect(self, link: Link) -> None:
        welcome = link.welcome
        self.link, self._failure, self.client_id = link, None, self.config.client_id or welcome.client_id
        self.connects += 1
        self._came.set()
        for part in self.parts:
            part.connected(link)
        self.tell(self.config.on_connect, Connection(
            welcome.connection_id, welcome.edge, welcome.client_id, welcome.user, welcome.resumed, tuple(welcome.features),
        ))

    async def _disconnect(self, link: Link, why: Exception) -> None:
        self._failure = why
        try:
            if self.closing:
                self._let_go()
                for part in self.parts:
                    await part.drain(self.config.close_timeout)
            if self.closing or isinstance(why, Away):
                for part in self.parts:
                    part.settle()
                await link.hang_up()
        finally:
            link.abort()
            self.link = None
            self._came.clear()
            for part in self.parts:
                part.broken()

    def _let_go(self) -> None:
        """Answers everybody who waits for the mesh: no answer comes any more."""
        self.closing = True
        for part in self.parts:
            part.end(self.end_error())

    async def _finish(self) -> None:
        try:
            for timer in self._timers:
                timer.cancel()
            self._let_go()
            for part in self.parts:
                await part.drain(self.config.close_timeout)
        finally:
            self.ended.set()

    @contextlib.asynccontextmanager
    async def _interruptible(self) -> AsyncIterator[None]:
        """What is done in it ends with a TimeoutError once close interrupts."""
        async with asyncio.timeout(0 if self.closing else None) as scope:
            self._scope = scope
            try:
                yield
            finally:
                self._scope = None

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with self._interruptible():
                await asyncio.sleep(seconds)

    def _final(self, why: Exception) -> Refused | None:
        """The refusal that trying again can't help, as it can with another token."""
        if not isinstance(why, Refused) or why.retryable or why.code == Code.OK:
            return None
        if why.code == Code.TOKEN_EXPIRED and self.config.get_token is not None:
            return None
        return why

    def _by_ghost(self, why: Refused) -> bool:
        """
        Whether a Hello that was left unanswered may be why the session is lost. An edge that was
        frozen reads it when it goes on, and takes the session from the connection that this client
        has made elsewhere meanwhile. Where edges can't know that, it comes back, once.
        """
        at = self._ghost_at
        if why.code != Code.SESSION_TAKEN_OVER or at is None or _clock.now() - at > GHOST_FOR:
            return False
        self._ghost_at = None
        return True


def _welcomed(link: Link, answer: _wire.Frame) -> Link:
    match answer:
        case _wire.Error():
            raise refusal(answer)
        case _wire.GoAway():
            raise Away(answer)
        case _wire.Welcome():
            link.welcomed(answer)
            return link
    raise Broken("the edge's answer to Hello is none")


def _asked(why: Exception) -> bool:
    """Whether the mesh named a time to come back. What an edge that has too much to do names holds for that edge alone."""
    return isinstance(why, Refused) and why.retry_after > 0 and why.code != Code.OVERLOADED


def _wait_after(wait: Backoff, why: Exception) -> float:
    """How long to wait: what the edge asked for, if it did."""
    if isinstance(why, Away):
        wait.next()
        if why.due:
            return max(why.due - _clock.now(), 0.0)  # jittered by the edge already
    return wait.next(why.retry_after if isinstance(why, Refused) else 0.0)


async def _first(*waiting: asyncio.Task[bool]) -> None:
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)


def _either(*waiting: asyncio.Task[bool]) -> asyncio.Future[None]:
    return asyncio.ensure_future(_first(*waiting))
