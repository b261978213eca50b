"""The client: one connection that is made again whenever it breaks, and what goes on over it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from . import _frames, _topics, _wire
from ._claims import Claims
from ._config import Config, GetToken, check_callback, check_profile, check_seconds, milliseconds, octets
from ._engine import Engine
from ._inbox import Inbox
from ._presences import Presences
from ._publishing import Published, Publishing
from ._refreshing import Refreshing
from ._version import __version__
from .claim import Claim, ClaimInfo, ClaimWatch, info
from .codes import Code
from .errors import ConfigError, PushmeshError, Refused
from .events import Connection, Gap, Stats
from .presence import PresenceChange, PresenceWatch
from .subscription import MAX_POSITIONS, Handler, Overflow, Position, Start, Subscription, check_handler


class Client:
    """
    One client of the mesh.

        async with pushmesh.Client("127.0.0.1:7400", client_id="ann") as client:
            ...

    It connects in the background and keeps trying until close, or until the mesh refuses it for
    good (see wait_ended). All its methods are for the event loop that it was opened in. Times are
    seconds.
    """

    def __init__(
        self,
        edges: str | Sequence[str],
        *,
        client_id: str = "",
        session: str = "",
        session_ttl: float = 0.0,
        get_token: GetToken | None = None,
        receive_window: int = 0,
        heartbeat: float = 0.0,
        agent: str = f"pushmesh-python/{__version__}",
        profile: Mapping[str, float] | None = None,
        profile_vector: Sequence[float] = (),
        ack_delay: float = 0.002,
        min_backoff: float = 0.1,
        max_backoff: float = 10.0,
        dial_timeout: float = 5.0,
        close_timeout: float = 5.0,
        tls: ssl.SSLContext | bool | None = None,
        websocket: bool = False,
        on_gap: Callable[[Gap], object] | None = None,
        on_connect: Callable[[Connection], object] | None = None,
        on_disconnect: Callable[[Exception], object] | None = None,
        on_connect_failed: Callable[[Exception], object] | None = None,
        on_refused: Callable[[Subscription], object] | None = None,
    ) -> None:
        """
        edges: host:port, one or several. One is picked at random; the others are tried, in random
            order, when it fails. A name counts as many times as it has addresses.
        client_id: at most 64 bytes; empty: the edge makes one up.
        session: the name of a durable session, for subscriptions with Start.session(). It needs a
            client_id, whose session it is, or get_token.
        session_ttl: how long the session lives without a connection; 0: the mesh's default.
        get_token: returns what proves who this is, or a coroutine that does; it is called before every connection. None: there
            is none any more, and the client ends. What it raises has it called again, after a pause.
            After TOKEN_EXPIRED it is called once more; UNAUTHENTICATED ends the client.
        receive_window: the most un-ACKed messages on the connection; 0: 256.
        heartbeat: how often to say that the client lives; 0: the edge's choice.
        agent: names the program to the mesh's operators.
        profile, profile_vector: what messages are ranked for, 64 features and 512 dimensions at most.
        ack_delay: how long an ACK may wait for others to share a frame with.
        min_backoff, max_backoff: bounds of the wait between rounds over edges.
        dial_timeout: bounds one attempt to connect, get_token included.
        close_timeout: bounds how long close waits for handlers.
        tls: True: as the system trusts; or a context of your own, which should offer pushmesh/1 by ALPN.
        websocket: the connection is a WebSocket, for networks that let nothing else through.
        on_gap: is told of messages that will not come, and of positions that were lost.
        on_connect, on_disconnect: after every Welcome, and every end of a connection.
        on_connect_failed: after every attempt that failed and is made again.
        on_refused: is told of a subscription that is refused for now, and asked for again later. Callbacks
            are called and not awaited, and must not block.
        """
        config = Config(
            [edges] if isinstance(edges, str) else list(edges), client_id, session, session_ttl, get_token, receive_window,
            heartbeat, agent, dict(profile or {}), list(profile_vector), ack_delay, min_backoff, max_backoff, dial_timeout,
            close_timeout, tls, websocket, on_gap, on_connect, on_disconnect, on_connect_failed, on_refused,
        )
        self._engine = Engine(config)
        self._inbox = Inbox(self._engine)
        self._publishing = Publishing(self._engine)
        self._claims = Claims(self._engine)
        self._presences = Presences(self._engine)
        self._refreshing = Refreshing(self._engine)
        self._engine.receive = self._inbox.receive
        self._engine.parts = [self._inbox, self._publishing, self._claims, self._presences, self._refreshing]

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def open(self) -> None:
        """Begins to connect, and does not wait for it. A client is opened once."""
        if self._engine.started:
            raise ConfigError("the client was opened before: make another one")
        self._engine.start()

    async def connected(self) -> None:
        """Waits until there is a connection. Refused: the mesh refuses the client for good."""
        await self._engine.connected()

    async def close(self) -> None:
        """
        Lets handlers that run finish (close_timeout at most), sends the ACKs that wait and hangs up.
        What waited for a handler is left un-ACKed. It goes on where the wait for it is cancelled.
        A handler can't wait for its own end: called by one, it begins and does not wait.
        """
        self._engine.interrupt()
        if self._engine.started and asyncio.current_task() not in self._inbox.workers():
            await self._engine.ended.wait()

    @property
    def error(self) -> PushmeshError | None:
        """Why the client has ended by itself; None while it works, and after close."""
        return self._engine.error

    async def wait_ended(self) -> None:
        """Waits until the client has ended, and raises why, unless it was closed."""
        await self._engine.ended.wait()
        if self._engine.error is not None:
            raise self._engine.error

    @property
    def client_id(self) -> str:
        """Its own, or the one that the edge made up; empty: not yet."""
        return self._engine.client_id

    @property
    def stats(self) -> Stats:
        """Counts as they are now."""
        stats, link = self._inbox.stats, self._engine.link
        return Stats(
            link is not None, stats.connects, stats.delivered, stats.repeated, stats.acked, stats.nacked,
            link.rtt if link is not None else 0.0,
        )

    def set_profile(self, profile: Mapping[str, float], vector: Sequence[float] = ()) -> None:
        """
        Has messages ranked for another profile from the next connection on. For the connections that
        there are a backend says it, of a client id or of a token's user (Backend.set_profile).
        """
        check_profile(profile, vector)
        self._engine.config.profile, self._engine.config.profile_vector = dict(profile), list(vector)

    async def refresh_token(self, token: str | None = None) -> float:
        """
        Shows the edge another token, that of get_token where none is named, without a new connection. It returns when that one
        ends, in seconds since 1970. Refused: the connection goes on with the token before.
        """
        return await self._refreshing.refresh(token) / 1e6

    async def subscribe(
        self,
        filter: str,
        handler: Handler | None = None,
        *,
        ack: bool = False,
        start: Start | None = None,
        positions: Iterable[Position] = (),
        group: str = "",
        group_key: str = "",
        where: str = "",
        rank_top_k: int = 0,
        receive_window: int = 0,
        overflow: Overflow = Overflow.DEFAULT,
        no_echo: bool = False,
        skip_last: bool = False,
        manual: bool = False,
    ) -> Subscription:
        """
        Subscribes and waits until the mesh has promised to deliver: every message whose publish
        begins after that comes. Where the wait is cancelled there is no subscription. Messages come to
        the handler, one at a time and in order, or to `async for m in subscription`.

        ack: every message is ACKed once its handler has returned, or the loop goes on, and is
            delivered again until it was.
        manual: it is ACKed by Message.ack alone, in any order.
        start: where to begin; Start.live() where nothing is said.
        positions: go on behind these; topics that are not named start where `start` says.
        group: shares the messages with all other subscriptions of this group and filter.
        group_key: "topic" or "header:NAME": messages of one key go to one subscription of the group.
        where: a CEL expression; other messages count as ACKed.
        rank_top_k: the best of a topic's messages come first, for the client's profile.
        receive_window: the most un-ACKed messages of the subscription; 0: the client's.
        no_echo: leaves out what this client publishes itself.
        skip_last: begins at the head in topics that keep their last message, too.
        """
        sub = self.start(
            filter, handler, ack=ack, start=start, positions=positions, group=group, group_key=group_key, where=where,
            rank_top_k=rank_top_k, receive_window=receive_window, overflow=overflow, no_echo=no_echo, skip_last=skip_last, manual=manual,
        )
        try:
            await sub.wait_ready()
        except asyncio.CancelledError:
            self._inbox.drop(sub)
            raise
        return sub

    def start(
        self,
        filter: str,
        handler: Handler | None = None,
        *,
        ack: bool = False,
        start: Start | None = None,
        positions: Iterable[Position] = (),
        group: str = "",
        group_key: str = "",
        where: str = "",
        rank_top_k: int = 0,
        receive_window: int = 0,
        overflow: Overflow = Overflow.DEFAULT,
        no_echo: bool = False,
        skip_last: bool = False,
        manual: bool = False,
    ) -> Subscription:
        """Subscribes without waiting; see Subscription.wait_ready. It fails only where the arguments can't work."""
        begin = start or Start.live()
        request = _wire.Subscribe(
            filter=filter, ack=ack, start=begin.kind, seq=begin.seq, epoch=begin.epoch, group=group, overflow=overflow,
            rank_top_k=rank_top_k, where=where, positions=[_wire.Position(*p) for p in positions],
            receive_window=receive_window, no_echo=no_echo, group_key=group_key, skip_last=skip_last,
        )
        self._check(request, manual)
        check_handler(handler)
        _frames.check(request)
        sub = Subscription(self._inbox, request, handler, manual=manual)
        self._inbox.add(sub)
        return sub

    def _check(self, request: _wire.Subscribe, manual: bool) -> None:
        if why := _topics.fault(request.filter):
            raise Refused(Code.BAD_TOPIC, f"filter {request.filter[:40]!r}: {why}")
        session = request.start == _wire.Begin.SESSION
        after = request.start == _wire.Begin.AFTER_SEQ
        if session and not self._engine.config.session:
            raise ConfigError("Start.session() needs the client's session, its name")
        if session and request.positions:
            raise ConfigError("positions do not go with Start.session(), which knows where it stands")
        if after and request.positions:
            raise ConfigError("positions do not go with Start.after(): name that position among them")
        if manual and not request.ack:
            raise ConfigError("manual=True needs ack=True")
        if request.group_key and not request.group:
            raise ConfigError("group_key needs group")
        if request.group and (session or request.where or request.no_echo):
            raise ConfigError("group does not go with Start.session(), where or no_echo")
        if request.rank_top_k and (request.group or after or request.positions):
            raise ConfigError("rank_top_k does not go with group, Start.after() or positions: use Start.session() to go on where it stood")
        if len(request.positions) > MAX_POSITIONS:
            raise Refused(Code.TOO_MANY_TOPICS, f"there are {len(request.positions)} positions, {MAX_POSITIONS} at most")

    async def publish(
        self, topic: str, payload: bytes | str, *, headers: Mapping[str, str] | None = None, dedupe_key: str = "", ephemeral: bool = False,
    ) -> Published:
        """
        Publishes over the client's connection and waits for the answer; it waits for a connection, and
        for room in the edge's window, too. Where the connection breaks first, a message with a
        dedupe_key is published again, in order, and stored once; without one, or where it is said to be
        ephemeral, Refused has `unknown`. Backends use Backend.publish.
        """
        return await self._publishing.publish(topic, octets("payload", payload), headers or {}, dedupe_key, ephemeral=ephemeral)

    async def claim(
        self,
        resource: str,
        *,
        ttl: float = 0.0,
        priority: int = 0,
        max_wait: float = 0.0,
        no_wait: bool = False,
        on_position: Callable[[int], object] | None = None,
    ) -> Claim:
        """
        Asks for a resource and waits for the first answer: it is held, or waits in the line from then
        on; see Claim.wait. The owner of the place is the client: two with one client_id have one place.

        ttl: how long the hold lasts without being renewed, which the claim does; 0: as the policy says.
        priority: of the line to wait in, 0 to 9: a higher one goes first.
        max_wait: leaves the line after so long.
        no_wait: HeldByOther is raised where there would be a line to wait in.
        on_position: is told the place in the line, 1 is next, whenever it changes.
        """
        self._engine.check_open()
        if resource in self._claims.claims:
            raise Refused(Code.ALREADY_EXISTS, "this client has a claim on the resource already")
        check_callback("on_position", on_position)
        check_seconds("ttl", ttl)
        check_seconds("max_wait", max_wait)
        request = _wire.Claim(
            resource=resource, ttl_ms=milliseconds(ttl), priority=priority, wait_ms=milliseconds(max_wait), no_wait=no_wait,
        )
        _frames.check(request)
        claim = Claim(self._claims, request, on_position)
        self._claims.claims[resource] = claim
        claim.pump()
        await claim.wait_answered()
        return claim

    async def acquire(
        self,
        resource: str,
        *,
        ttl: float = 0.0,
        priority: int = 0,
        max_wait: float = 0.0,
        no_wait: bool = False,
        on_position: Callable[[int], object] | None = None,
    ) -> Claim:
        """Claim and Claim.wait: it returns once the resource is held. Where that fails, or is cancelled, it leaves the line."""
        claim = await self.claim(
            resource, ttl=ttl, priority=priority, max_wait=max_wait, no_wait=no_wait, on_position=on_position,
        )
        try:
            await claim.wait()
        except BaseException:
            claim.give_up()
            raise
        return claim

    async def check_claim(self, resource: str) -> ClaimInfo:
        """Asks what is so at a resource."""
        state, _ = await self._claims.call(_wire.Claim(resource=resource, op=_wire.Op.CHECK))
        return info(state)

    async def watch_claim(self, resource: str, callback: Callable[[ClaimInfo], object]) -> ClaimWatch:
        """
        Has the callback told of a resource and of every change of it: while this client has a place
        there, of that; otherwise who holds it, ten times a second at most, the last state always.
        After a reconnect it is told again. There is one watch of a resource.
        """
        self._engine.check_open()
        if resource in self._claims.watches:
            raise Refused(Code.ALREADY_EXISTS, "this client watches the resource already")
        check_callback("callback", callback)
        _frames.check(_wire.Claim(resource=resource))
        watch = ClaimWatch(self._claims, resource, callback)
        self._claims.watches[resource] = watch
        self._claims.unwatched.discard(resource)
        watch.pump()
        await watch.wait_answered()
        return watch

    async def watch_presence(self, topic: str, callback: Callable[[PresenceChange], object] | None = None) -> PresenceWatch:
        """
        Has the callback told who is in a topic, and of whoever comes and goes. The first change names
        all; after a reconnect it is told what is different since. The topic's namespace must let
        clients see that. There is one watch of a topic.
        """
        self._engine.check_open()
        if topic in self._presences.watches:
            raise Refused(Code.ALREADY_EXISTS, "this client watches the topic already")
        check_callback("callback", callback)
        _frames.check(_wire.Watch(0, topic))
        watch = PresenceWatch(self._presences, topic, callback)
        self._presences.watches[topic] = watch
        watch.ask()
        await watch.wait_answered()
        return watch

    async def set_state(self, topic: str, state: bytes | str) -> None:
        """
        Says what others see of this client in a topic, 1 KiB at most; nothing: they see nothing. It
        holds on later connections, too, until it is set again.
        """
        data = octets("state", state)
        _frames.check(_wire.State(0, topic, data))
        await self._presences.set_state(topic, data)
