"""Receives messages and prints what happened as JSON lines; test/pyclient's Go test reads them.

    python3 receive.py ADDRESS FILTER COUNT [LEAVE_AFTER]

Subscribes with `ack`, receives COUNT messages in all and ACKs each. After LEAVE_AFTER of them it closes the connection,
says {"left": true}, waits for a line on standard input, and comes back with its positions.
"""

import json
import sys

from client import Client


def say(**what):
    print(json.dumps(what), flush=True)


def main(address, filter, count, leave_after=0):
    client = Client(address, "python", timeout=120.0)
    join(client, filter)
    for n in range(1, count + 1):
        message = client.receive()
        while message["attempt"] and client.had(message):  # its Ack was too late
            client.ack(message)
            message = client.receive()
        client.ack(message)
        say(topic=message["topic"], seq=message["seq"], payload=message["payload"].decode(), attempt=message["attempt"])
        if n == leave_after:
            client.ping()  # its Pong follows what was sent before, so the Acks are with the edge
            client.close()
            say(left=True)
            sys.stdin.readline()
            join(client, filter)
    say(rtt_us=client.ping())
    client.close()


def join(client, filter):
    welcome = client.connect()
    subscribed = client.subscribe(filter, ack=True)
    say(edge=welcome["edge"], recovered=subscribed["recovered"], missed=subscribed["missed"], head=subscribed["head"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
