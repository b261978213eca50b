"""The driver of test/sdk for the Python client: does what lines on its standard input say, and tells what comes of it."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pushmesh
from pushmesh import Position, Start


def tell(told: str, **more: Any) -> None:
    print(json.dumps({"told": told, **{name: value for name, value in more.items() if value}}), flush=True)


def reason(why: object) -> dict[str, Any]:
    """The members of a line that say what went wrong."""
    if isinstance(why, pushmesh.Refused):
        return {"code": why.code.name, "message": why.message, "unknown": why.unknown}
    if isinstance(why, pushmesh.ConfigError):
        return {"code": "INVALID_ARGUMENT", "message": str(why)}
    if isinstance(why, pushmesh.HeldByOther):
        return {"code": "CONFLICT"}
    if isinstance(why, pushmesh.Closed):
        return {"code": "CANCELLED", "message": str(why)}
    return {"message": str(why)}


def members(all: tuple[pushmesh.Member, ...]) -> list[dict[str, str]]:
    return [{"user": m.user, "state": m.state.decode()} for m in all]


class Driver:
    def __init__(self) -> None:
        self.client: pushmesh.Client
        self.subs: dict[str, pushmesh.Subscription] = {}
        self.filters: dict[str, str] = {}
        self.held: dict[tuple[str, str, int], tuple[asyncio.Future[pushmesh.Nack | None], pushmesh.Message | None]] = {}
        self.claims: dict[str, pushmesh.Claim] = {}
        self.watches: dict[str, pushmesh.PresenceWatch] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.calls: dict[str, asyncio.Task[None]] = {}
        self.closing = False

    def go(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(what)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def call(self, name: str, call: Awaitable[Any], then: Callable[[Any], None]) -> None:
        """Has a call go on, and tells what comes of it."""

        async def run() -> None:
            try:
                then(await call)
            except pushmesh.PushmeshError as why:
                tell("failed", name=name, **reason(why))
            except asyncio.CancelledError:
                tell("cancelled", name=name)

        self.calls[name] = self.go(run())

    async def cancel(self, d: dict[str, Any]) -> None:
        self.calls[d["name"]].cancel()

    async def connect(self, d: dict[str, Any]) -> None:
        tokens = d.get("tokens")

        async def get_token() -> str | None:
            token = tokens.pop(0) if len(tokens) > 1 else tokens[0]
            if isinstance(token, dict):
                raise RuntimeError(token["fails"])
            return str(token) if token is not None else None

        def gap(g: pushmesh.Gap) -> None:
            name = next((n for n, f in self.filters.items() if f == g.filter), "")
            tell("gap", name=name, topic=g.topic, epoch=str(g.epoch), **{"from": str(g.first)}, to=str(g.last), missed=str(g.missed), code=g.code.name)

        try:
            self.client = self.make(d, get_token if tokens else None, gap)
        except pushmesh.PushmeshError as why:
            tell("failed", **reason(why))
            return
        await self.client.open()
        self.go(self.end())

    def make(self, d: dict[str, Any], get_token: Any, gap: Callable[[pushmesh.Gap], None]) -> pushmesh.Client:
        return pushmesh.Client(
            d["addresses"], client_id=d.get("client_id", ""), session=d.get("session", ""), heartbeat=d.get("heartbeat_ms", 0) / 1000,
            receive_window=d.get("window", 0), profile=d.get("profile"), min_backoff=d["backoff_ms"][0] / 1000,
            max_backoff=d["backoff_ms"][1] / 1000, dial_timeout=d.get("attempt_ms", 5000) / 1000,
            get_token=get_token, websocket=d["transport"] == "websocket", on_gap=gap,
            on_connect=lambda c: tell("connected", edge=c.edge, client_id=c.client_id, user=c.user, resumed=c.resumed),
            on_disconnect=lambda why: tell("disconnected", **reason(why)),
            on_connect_failed=lambda why: tell("connect failed", **reason(why)),
            on_refused=lambda sub: tell("refused", name=self.name(sub), **reason(sub.refusal)),
        )

    def name(self, sub: pushmesh.Subscription) -> str:
        return next((n for n, f in self.filters.items() if f == sub.filter), "")

    async def end(self) -> None:
        try:
            await self.client.wait_ended()
        except pushmesh.PushmeshError as why:
            tell("ended", **reason(why))

    async def subscribe(self, d: dict[str, Any]) -> None:
        name, hold, manual = d["name"], d.get("hold", False), d.get("manual", False)

        async def handler(m: pushmesh.Message) -> None:
            tell(
                "message", name=name, topic=m.topic, seq=str(m.seq), epoch=str(m.epoch), payload=m.payload.decode(), headers=dict(m.headers),
                attempt=m.attempt, **{"from": m.sender}, score=m.score, unranked=m.unranked,
            )
            if not hold:
                return
            answer = asyncio.get_running_loop().create_future()
            self.held[name, m.topic, m.seq] = answer, m if manual else None
            if (nack := await answer) is not None:
                raise nack

        starts = {
            "live": Start.live, "earliest": Start.earliest, "session": Start.session, "last": lambda: Start.last(int(d["n"])),
            "after": lambda: Start.after(int(d["seq"]), int(d.get("epoch", 0))),
        }
        self.filters[name] = d["filter"]
        self.calls[name] = self.go(self.follow(name, self.client.subscribe(
            d["filter"], handler, ack=d.get("ack", False), start=starts[d.get("start") or "live"](),
            positions=[Position(p["topic"], int(p.get("epoch", 0)), int(p.get("seq", 0))) for p in d.get("positions", [])],
            group=d.get("group", ""), group_key=d.get("group_key", ""), where=d.get("where", ""), rank_top_k=d.get("rank_top_k", 0),
            no_echo=d.get("no_echo", False), manual=manual, skip_last=d.get("skip_last", False), receive_window=d.get("window", 0),
        )))

    async def follow(self, name: str, call: Awaitable[pushmesh.Subscription]) -> None:
        try:
            sub = self.subs[name] = await call
        except asyncio.CancelledError:
            tell("cancelled", name=name)
            return
        except pushmesh.Refused as why:
            if why is not self.client.error:
                # before anything was sent, or by the edge
                tell("failed" if why.code is pushmesh.Code.BAD_TOPIC else "ended", name=name, **reason(why))
            return
        except pushmesh.Closed:
            return
        except pushmesh.PushmeshError as why:
            tell("failed", name=name, **reason(why))
            return
        tell("subscribed", name=name)
        await sub.ended.wait()
        if sub.error is not None and sub.error is not self.client.error and not isinstance(sub.error, pushmesh.Closed):
            tell("ended", name=name, **reason(sub.error))

    async def answer(self, d: dict[str, Any]) -> None:
        nack = pushmesh.Nack(d.get("reason", ""), after=d.get("after_ms", 0) / 1000) if d["with"] == "nack" else None
        answer, by_call = self.held.pop((d["name"], d["topic"], int(d["seq"])))
        if by_call and not nack:
            by_call.ack()
        answer.set_result(nack)

    async def unsubscribe(self, d: dict[str, Any]) -> None:
        if sub := self.subs.get(d["name"]):
            self.call(d["name"], sub.unsubscribe(), lambda _: None)
        else:
            self.calls[d["name"]].cancel()

    async def positions(self, d: dict[str, Any]) -> None:
        all = [{"topic": p.topic, "epoch": str(p.epoch), "seq": str(p.seq)} for p in self.subs[d["name"]].positions()]
        tell("positions", name=d["name"], positions=all)

    async def publish(self, d: dict[str, Any]) -> None:
        self.call(
            d["name"], self.client.publish(d["topic"], d.get("payload", ""), headers=d.get("headers"), dedupe_key=d.get("dedupe_key", "")),
            lambda p: tell("published", name=d["name"], seq=str(p.seq), epoch=str(p.epoch), duplicate=p.duplicate),
        )

    async def claim(self, d: dict[str, Any]) -> None:
        name = d["name"]

        def claimed(claim: pushmesh.Claim) -> None:
            self.claims[name] = claim
            self.go(self.hold(name, claim))

        self.call(name, self.client.claim(
            d["resource"], ttl=d.get("ttl_ms", 0) / 1000, priority=d.get("priority", 0), no_wait=d.get("no_wait", False),
            on_position=lambda at: tell("queued", name=name, position=at),
        ), claimed)

    async def hold(self, name: str, claim: pushmesh.Claim) -> None:
        try:
            await claim.wait()
            tell("granted", name=name, token=str(claim.token))
        except pushmesh.PushmeshError:
            pass  # it is lost
        why = await claim.lost()
        if why is not None and not self.closing:
            tell("lost", name=name, **reason(why))

    async def release(self, d: dict[str, Any]) -> None:
        self.call(d["name"], self.claims[d["name"]].release(), lambda _: tell("released", name=d["name"]))

    async def watch(self, d: dict[str, Any]) -> None:
        name = d["name"]

        def watched(watch: pushmesh.PresenceWatch) -> None:
            self.watches[name] = watch
            self.go(self.seen(name, watch))

        self.call(name, self.client.watch_presence(d["topic"], lambda c: tell(
            "presence", name=name, topic=c.topic, all=c.all, joined=members(c.joined), changed=members(c.changed), left=list(c.left),
            count=c.count, counts_only=c.counts_only,
        )), watched)

    async def seen(self, name: str, watch: pushmesh.PresenceWatch) -> None:
        await watch.wait_ended()
        if watch.error is not None and watch.error is not self.client.error and not self.closing:
            tell("ended", name=name, **reason(watch.error))

    async def unwatch(self, d: dict[str, Any]) -> None:
        self.watches[d["name"]].stop()

    async def state(self, d: dict[str, Any]) -> None:
        self.call(d["name"], self.client.set_state(d["topic"], d.get("state", "")), lambda _: tell("stated", name=d["name"]))

    async def refresh(self, d: dict[str, Any]) -> None:
        self.call(d.get("name", ""), self.client.refresh_token(d["token"]), lambda _: tell("refreshed", name=d.get("name", "")))

    async def close(self, d: dict[str, Any]) -> None:
        async def run() -> None:
            self.closing = True
            await self.client.close()
            tell("closed")

        self.go(run())


async def main() -> None:
    driver = Driver()
    tell("ready", sdk=f"pushmesh-python {pushmesh.__version__}", transports=["tcp", "websocket"])
    while line := await asyncio.to_thread(sys.stdin.readline):
        d = json.loads(line)
        await getattr(driver, d["do"])(d)
    driver.closing = True
    if hasattr(driver, "client"):
        for answer, _ in driver.held.values():
            answer.cancel()
        await driver.client.close()
    for task in set(driver.tasks):
        task.cancel()


asyncio.run(main())
