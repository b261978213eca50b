"""
Receives messages in a laptop that is closed for an hour, and says what its programs see.

    lid.py ADDRESS TOPIC BEFORE ALL tcp|websocket

After BEFORE messages it is closed, and opened when it reads a line: time has gone on by an hour, and
no timer has fired. It ends when it has had ALL messages, by a plain subscription and by one of a
session.
"""

import asyncio
import sys
from collections.abc import Callable

import pushmesh
from pushmesh import _clock

HOUR = 3600.0


def sleep() -> None:
    """Has the clock of the client go on by an hour."""
    now = _clock.now
    _clock.now = lambda: now() + HOUR


async def main(address: str, topic: str, before: int, count: int, how: str) -> None:
    seen: dict[str, list[int]] = {"plain": [], "session": []}
    gaps: list[pushmesh.Gap] = []
    half, whole = asyncio.Event(), asyncio.Event()

    def taking(name: str) -> Callable[[pushmesh.Message], None]:
        def take(m: pushmesh.Message) -> None:
            seen[name].append(m.seq)
            least = min(map(len, seen.values()))
            if least >= before:
                half.set()
            if least >= count:
                whole.set()

        return take

    def make(client_id: str, session: str = "") -> pushmesh.Client:
        return pushmesh.Client(
            address, client_id=client_id, session=session, heartbeat=2, min_backoff=0.005, max_backoff=0.02,
            websocket=how == "websocket", on_gap=gaps.append,
        )

    async with make("lid-" + how) as reader, make("lid-session-" + how, "lid") as session:
        await reader.subscribe(topic, taking("plain"))
        await session.subscribe(topic, taking("session"), ack=True, start=pushmesh.Start.session())
        print("joined", flush=True)
        await half.wait()
        print("had", before, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        sleep()
        await whole.wait()
        connects = reader.stats.connects + session.stats.connects
    wrong = [name for name, seqs in seen.items() if seqs != list(range(1, count + 1))]
    print("wrong", wrong, "gaps", gaps, "connects", connects, flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
