"""A subscriber: connects, subscribes, receives, ACKs, and knows where it is when it comes back."""

import socket
import time

import frames


class Refused(Exception):
    """An Error or GoAway of the edge."""

    def __init__(self, kind, fault):
        super().__init__(f"{kind} {fault}")
        self.fault = fault


def matches(filter, topic):
    """Whether a filter with + and # covers a topic; no wildcard covers a first level that begins with $."""
    wanted, levels = filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for i, level in enumerate(wanted):
        if level == "#":
            return True
        if i == len(levels) or level not in ("+", levels[i]):
            return False
    return len(wanted) == len(levels)


class Client:
    def __init__(self, address, client_id, timeout=10.0, token=None):
        """token returns what proves who this is; it is called for every connection."""
        self.address, self.client_id, self.timeout, self.token = address, client_id, timeout, token
        self.positions = {}  # topic: (epoch, highest seq had or given up)
        self.inbox = []  # Messages that came while an answer was awaited
        self.last_rtt_us = 0
        self.next_id = 1

    def connect(self):
        """Connects and returns Welcome. A token whose time is over is asked for once more."""
        try:
            return self.greet()
        except Refused as refused:
            self.close()
            if self.token is None or refused.fault["code"] != frames.TOKEN_EXPIRED:
                raise
        return self.greet()

    def greet(self):
        fields = {"token": self.token()} if self.token else {}
        self.open()
        self.next_id = 1
        self.last_rtt_us = 0  # of another connection
        self.send(frames.HELLO, version=1, client_id=self.client_id, agent="pyclient", **fields)
        return self.wait(frames.WELCOME)

    def open(self):
        host, port = self.address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), self.timeout)
        self.stream = self.socket.makefile("rb")

    def close(self):
        self.stream.close()
        self.socket.close()
        self.inbox.clear()

    def send(self, kind, **fields):
        self.socket.sendall(frames.frame(kind, **fields))

    def wait(self, wanted, **match):
        """Waits for a frame of a type; Messages on the way go to the inbox."""
        while True:
            kind, message = self.step()
            if kind == wanted and all(message[k] == v for k, v in match.items()):
                return message
            if kind == frames.MESSAGE:
                self.inbox.append(message)

    def step(self):
        """Reads one frame and keeps account of positions."""
        kind, message = frames.read(self.stream)
        if kind in (frames.ERROR, frames.GO_AWAY):
            raise Refused("Error" if kind == frames.ERROR else "GoAway", message)
        if kind == frames.PROGRESS:
            self.progress(message)
        return kind, message

    def progress(self, message):
        epoch, seq = self.positions.get(message["topic"], (0, 0))
        if message["code"] == frames.EPOCH_CHANGED or epoch != message["epoch"]:
            seq = 0  # the log began anew
        self.positions[message["topic"]] = (message["epoch"], max(seq, message["to"]))

    def subscribe(self, filter, **options):
        """Subscribes after what this client already had, where it had something."""
        sub, self.next_id = self.next_id, self.next_id + 1
        known = [{"topic": t, "epoch": e, "seq": s} for t, (e, s) in self.positions.items() if matches(filter, t)]
        self.send(frames.SUBSCRIBE, id=sub, filter=filter, positions=known, **options)
        answer = self.wait(frames.SUBSCRIBED, id=sub)
        for at in answer["positions"] or [{**answer, "topic": filter}]:
            epoch, seq = self.positions.get(at["topic"], (0, None))
            if seq is None:
                # Nothing had yet: the live part begins after the head, whatever replay brings before it.
                self.positions[at["topic"]] = (at["epoch"], 0 if options.get("start") else at["head"])
            elif not at["recovered"] and (seq > at["head"] or epoch not in (0, at["epoch"])):
                self.positions[at["topic"]] = (at["epoch"], 0)  # void: delivery begins with what is retained
            else:
                self.positions[at["topic"]] = (at["epoch"], seq)
        return answer

    def receive(self):
        """The next Message, in the order received."""
        while not self.inbox:
            kind, message = self.step()
            if kind == frames.MESSAGE:
                self.inbox.append(message)
        return self.inbox.pop(0)

    def had(self, message):
        """Whether a Message was ACKed before, as far as this client's positions say."""
        return message["seq"] <= self.positions.get(message["topic"], (0, 0))[1]

    def ack(self, *messages):
        """ACKs messages one by one and moves this client's positions past them."""
        for m in messages:
            epoch, seq = self.positions.get(m["topic"], (0, 0))
            self.positions[m["topic"]] = (epoch, max(seq, m["seq"]))
        self.send(frames.ACK, entries=[{"topic": m["topic"], "seq": m["seq"]} for m in messages if m["seq"]])

    def ping(self):
        """One round trip, in microseconds; the edge is told of the one before."""
        began = time.monotonic_ns()
        self.send(frames.PING, sent_at=began, last_rtt_us=self.last_rtt_us)
        self.wait(frames.PONG, sent_at=began)
        self.last_rtt_us = max(1, (time.monotonic_ns() - began) // 1000)
        return self.last_rtt_us
