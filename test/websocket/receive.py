"""Subscribes with Debian's python3-websockets, ACKs what comes and says it in lines of JSON.

  receive.py URL TOKEN TOPIC
"""

import asyncio
import hashlib
import json
import os
import sys

import websockets

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pyclient"))

import frames  # noqa: E402
import protobuf  # noqa: E402


def say(**line):
    print(json.dumps(line), flush=True)


def cut(data):
    """The frames in data, and what is left of it."""
    all = []
    while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:3], "big"):
        end = 4 + int.from_bytes(data[:3], "big")
        schema = frames.SCHEMAS.get(data[3])
        all.append((data[3], protobuf.decode(schema, data[4:end]) if schema else None))
        data = data[end:]
    return all, data


async def main(url, token, topic):
    # Without Pings of its own: that it answers those of the edge is all that keeps it.
    async with websockets.connect(url, subprotocols=["pushmesh.v1", "bearer." + token], ping_interval=None) as socket:
        await socket.send(frames.frame(frames.HELLO, version=1, client_id="python", heartbeat_ms=1000))
        left, edge = b"", None
        try:
            while True:
                came, left = cut(left + await socket.recv())
                for kind, m in came:
                    if kind == frames.WELCOME:
                        edge = m["edge"]
                        await socket.send(frames.frame(frames.SUBSCRIBE, id=1, filter=topic, ack=True, start=frames.START_EARLIEST))
                    elif kind == frames.SUBSCRIBED:
                        say(joined=edge, protocol=socket.subprotocol)
                    elif kind == frames.MESSAGE:
                        payload = m["payload"]
                        say(seq=m["seq"], attempt=m["attempt"], size=len(payload), sum=hashlib.sha256(payload).hexdigest())
                        await socket.send(frames.frame(frames.ACK, entries=[{"topic": m["topic"], "seq": m["seq"]}]))
                    elif kind == frames.ERROR:
                        say(fault=str(m))
                    elif kind == frames.GO_AWAY:
                        say(goAway=m["code"])
        except websockets.ConnectionClosed as closed:
            say(closed=closed.rcvd.code if closed.rcvd else 1006, reason=closed.rcvd.reason if closed.rcvd else "", clean=closed.rcvd is not None and closed.sent is not None)


asyncio.run(main(*sys.argv[1:]))
