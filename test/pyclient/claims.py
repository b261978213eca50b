"""Claims: a place at a resource, kept as docs/protocol.md says."""

import time

import frames


class Claim:
    """One resource, over a Client that is used by nothing else. It waits in line, takes its turn up, and knows until when it holds."""

    def __init__(self, client, resource):
        self.client, self.resource = client, resource
        self.token = 0  # 0: it waits
        self.position = 0
        self.deadline = 0.0  # by time.monotonic
        self.renew_at = 0.0
        self.lost = None  # the code, once the place is over

    def ask(self, op, **fields):
        """The answer to a request, and when that was sent."""
        number, self.client.next_id = self.client.next_id, self.client.next_id + 1
        sent = time.monotonic()
        self.client.send(frames.CLAIM, id=number, resource=self.resource, op=op, **fields)
        while True:
            state = self.client.wait(frames.CLAIM_STATE)
            if state["id"] == number:
                return state, sent
            self.told(state)

    def acquire(self, **fields):
        state, sent = self.ask(frames.ACQUIRE, **fields)
        if state["state"] == frames.GRANTED:
            self.hold(state, sent)
        else:
            self.told(state)
        return state

    def hold(self, state, sent):
        left = state["expires_in_ms"] / 1000
        self.token, self.position = state["token"], 0
        self.deadline, self.renew_at = sent + left, sent + left / 3

    def told(self, state):
        if state["state"] == frames.QUEUED:
            self.position = state["position"]
        elif state["state"] == frames.GRANTED:
            self.token = state["token"]  # no hold before RENEW was answered
        elif state["state"] in (frames.LOST, frames.RELEASED):
            self.lost, self.deadline = state["code"], 0.0

    def wait(self):
        """Waits for the turn and takes it up."""
        while not self.token and self.lost is None:
            self.told(self.client.wait(frames.CLAIM_STATE))
        if self.lost is None and not self.held():
            self.renew()

    def renew(self):
        self.hold(*self.ask(frames.RENEW, token=self.token))

    def held(self):
        return time.monotonic() < self.deadline

    def come_back(self):
        """On a new connection, within the grace."""
        if self.token:
            self.renew()
        else:
            self.acquire()

    def release(self, successor=""):
        self.deadline = 0.0
        return self.ask(frames.RELEASE, token=self.token, successor=successor)[0]
