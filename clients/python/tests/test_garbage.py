"""Whatever an edge says, the client lives: the connection ends, or what was said is passed over."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pushmesh
from pushmesh import Code, _protobuf, _wire

from case import Case

SEED, ROUNDS, FRAMES = 20261129, 30, 200
TEXTS = ("", "a", "r", "b/c", "#", "x" * 300, "é")
NUMBERS = (0, 1, 2, 3, 4, 5, 6, 7, 41, 42, 255, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


def some(rng: random.Random, record: type[_protobuf.Record]) -> Any:
    """A message whose fields hold whatever their types can hold, small numbers and known names most often."""
    made = record()
    for attribute, field in _protobuf.fields(record).items():
        if rng.random() < 0.3:
            continue
        many: list[Any] = [one(rng, field) for _ in range(rng.randrange(3))]
        if field.kind == "map":
            setattr(made, attribute, dict.fromkeys(rng.sample(TEXTS, 2), "é" if field.value == "string" else 1.5))
        else:
            setattr(made, attribute, many if field.repeated else one(rng, field))
    return made


def one(rng: random.Random, field: _protobuf.Field) -> Any:
    if field.message is not None:
        return some(rng, field.message)
    match field.kind:
        case "string":
            return rng.choice(TEXTS)
        case "bytes":
            return rng.randbytes(rng.randrange(20))
        case "bool":
            return rng.random() < 0.5
        case "double" | "float":
            return rng.choice((0.0, -1.5, float("inf"), float("nan")))
        case "uint32":
            return rng.choice(NUMBERS) & 0xFFFFFFFF
        case _:
            return rng.choice(NUMBERS)


class Edges(Case):
    async def test_frames_of_all_types_with_anything_in_them(self) -> None:
        """With everything asked for that a client asks for, so that ids and names are those of something."""
        faults: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(f"{context['message']}: {context.get('exception')!r}"))
        rng = random.Random(SEED)
        kinds = [k for k in _wire.FRAMES.values() if k not in (_wire.Error, _wire.GoAway)]
        for round in range(ROUNDS):
            with self.subTest(round=round, seed=SEED):
                client = self.make(receive_window=8)
                await client.open()
                conn = await self.edge.welcome()
                client.start("a", lambda m: None, ack=True)
                client.start("#", ack=True)
                client.start("b/+", lambda m: None, group="g", ack=True)
                client.start("a", lambda m: None, rank_top_k=3)
                asks = [
                    self.going(cast(Any, what)) for what in (
                        client.claim("r"), client.watch_claim("r", lambda i: None), client.watch_presence("a", lambda c: None),
                        client.set_state("a", b"x"), client.publish("a", b"", dedupe_key="k"), client.check_claim("b/c"),
                    )
                ]
                for _ in range(6):
                    await conn.next(_wire.Frame)
                for _ in range(FRAMES):
                    frame = some(rng, rng.choice(kinds))
                    if isinstance(frame, _wire.Message) and rng.random() < 0.9:
                        frame.topic, frame.seq = "a", rng.randrange(20)
                    conn.send(frame)
                    if rng.random() < 0.2:
                        conn.send(_wire.Error(rng.choice(NUMBERS[:12]), "", rng.randrange(1, 12), rng.randrange(3)))
                    if rng.random() < 0.2:
                        await asyncio.sleep(0)
                await self.have(client.close())
                self.assertIsNone(client.error)
                await self.have(asyncio.gather(*asks, return_exceptions=True))
                self.assertEqual(faults, [])
                faults.clear()

    async def test_bytes_that_are_no_frames(self) -> None:
        rng = random.Random(SEED)
        client = await self.client()
        sub = client.start("a")
        for _ in range(ROUNDS):
            conn = await self.edge.welcome()
            await conn.next(_wire.Subscribe)
            kind = rng.choice(list(_wire.FRAMES))
            body = rng.randbytes(rng.randrange(1, 200))
            conn.raw(len(body).to_bytes(3, "big") + bytes((kind,)) + body)
            conn.cut()
        conn = await self.edge.welcome()
        asked = await conn.next(_wire.Subscribe)
        conn.send(_wire.Subscribed(asked.id, 5, 0, True), _wire.Message("a", 1, b"x"))
        self.assertEqual((await self.have(anext(aiter(sub)))).payload, b"x")

    async def test_a_window_that_nothing_fits(self) -> None:
        """An edge whose frames are too short for what is asked refuses that, and nothing else ends."""
        client = await self.client()
        sub = client.start("a" * 40)
        await self.edge.welcome(max_frame=10)
        with self.assertRaises(pushmesh.Refused) as caught:
            await self.have(sub.wait_ready())
        self.assertEqual(caught.exception.code, Code.FRAME_TOO_LARGE)
        self.assertIsNone(client.error)
