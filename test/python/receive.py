"""
Receives messages through connections that are cut, and says what a handler sees.

    receive.py ADDRESS TOPIC COUNT EACH [tls CERTIFICATE | websocket]

It says whenever it has had EACH more, and ends when it has had COUNT messages.
"""

import asyncio
import ssl
import sys

import pushmesh


async def main(address: str, topic: str, count: int, each: int, how: str = "", certificate: str = "") -> None:
    tls = None
    if how == "tls":
        tls = ssl.create_default_context(cafile=certificate)
        tls.set_alpn_protocols(["pushmesh/1"])
    seen: list[int] = []
    done = asyncio.Event()

    async def handler(m: pushmesh.Message) -> None:
        seen.append(m.seq)
        if len(seen) % each == 0:
            print("had", len(seen), flush=True)
        if len(seen) >= count:
            done.set()

    def gap(gap: pushmesh.Gap) -> None:
        print("gap", gap, flush=True)

    async with pushmesh.Client(
        address, client_id="python", min_backoff=0.01, max_backoff=0.05, tls=tls, websocket=how == "websocket", on_gap=gap,
    ) as client:
        await client.subscribe(topic, handler, ack=True)
        print("joined", flush=True)
        await done.wait()
        stats = client.stats
    wrong = [n for n, seq in enumerate(seen, 1) if n != seq]
    print("wrong", wrong[:3], "connects", stats.connects, flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:]))
