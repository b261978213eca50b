"""Subscribes with Debian's python3-websockets, ACKs what comes and says it in lines of JSON.

  receive.py URL TOKEN TOPIC
"""

import asyncio
import hashlib
import json
import os
import sys

import websockets

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "clients", "python", "src"))

from pushmesh import _frames, _wire  # noqa: E402


def say(**line):
    print(json.dumps(line), flush=True)


async def main(url, token, topic):
    # Without Pings of its own: that it answers those of the edge is all that keeps it.
    async with websockets.connect(url, subprotocols=["pushmesh.v1", "bearer." + token], ping_interval=None) as socket:
        await socket.send(_frames.frame(_wire.Hello(version=1, client_id="python", heartbeat_ms=1000)))
        splitter, edge = _frames.Splitter(), None
        try:
            while True:
                splitter.feed(await socket.recv())
                while came := splitter.take():
                    match _frames.decode(*came):
                        case _wire.Welcome() as m:
                            edge = m.edge
                            start = _wire.Begin.EARLIEST
                            await socket.send(_frames.frame(_wire.Subscribe(id=1, filter=topic, ack=True, start=start)))
                        case _wire.Subscribed():
                            say(joined=edge, protocol=socket.subprotocol)
                        case _wire.Message() as m:
                            say(seq=m.seq, attempt=m.attempt, size=len(m.payload), sum=hashlib.sha256(m.payload).hexdigest())
                            await socket.send(_frames.frame(_wire.Ack([_wire.Entry(m.topic, m.seq)])))
                        case _wire.Error() as m:
                            say(fault=str(m))
                        case _wire.GoAway() as m:
                            say(goAway=m.code)
        except websockets.ConnectionClosed as closed:
            say(closed=closed.rcvd.code if closed.rcvd else 1006, reason=closed.rcvd.reason if closed.rcvd else "", clean=closed.rcvd is not None and closed.sent is not None)


asyncio.run(main(*sys.argv[1:]))
