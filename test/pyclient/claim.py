"""Run as: claim.py ADDRESS CLIENT_ID RESOURCE. Claims the resource and does what it is told, a line at a time: wait, renew, break (and come back), release, check."""

import json
import sys

import frames
from claims import Claim
from client import Client


def say(what, claim, **more):
    print(json.dumps({"did": what, "token": claim.token, "position": claim.position, "held": claim.held(), "lost": claim.lost, **more}), flush=True)


def main(address, client_id, resource):
    client = Client(address, client_id, timeout=60.0)
    client.connect()
    claim = Claim(client, resource)
    claim.acquire()
    say("acquire", claim)
    for line in sys.stdin:
        did, more = line.strip(), {}
        if did == "wait":
            claim.wait()
        elif did == "renew":
            claim.renew()
        elif did == "break":
            client.close()
            client.connect()
            claim.come_back()
        elif did == "release":
            more["state"] = claim.release()["state"]
        elif did == "check":
            more["state"] = claim.ask(frames.CHECK)[0]["state"]
        say(did, claim, **more)
    client.close()


main(*sys.argv[1:])
