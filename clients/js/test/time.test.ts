import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Backoff } from "../src/connect/backoff.js";
import { Link } from "../src/connect/link.js";
import { Route, siblingOf } from "../src/connect/route.js";
import type { WebSocketLike } from "../src/connect/websocket.js";
import { Clock } from "../src/time.js";
import { decode } from "../src/wire/codec.js";
import { cut, frame } from "../src/wire/frames.js";
import { FrameType, Ping, Pong, Welcome } from "../src/wire/schema.js";
import { timed, type Machine } from "./machine.js";

function connection(machine: Machine) {
  const sent: bigint[] = [];
  let closed = false;
  let waits = 0;
  const socket: WebSocketLike = {
    binaryType: "", protocol: "", readyState: 1, get bufferedAmount() { return waits; }, onopen: null, onmessage: null, onerror: null, onclose: null,
    send: (data) => {
      if (waits > 0) waits += data.length;
      for (const [type, body] of cut(data)) if (type === FrameType.PING) sent.push(decode(Ping, body).sentAt);
    },
    close: () => (closed = true),
  };
  const link = new Link(socket, "ws://edge", decode(Welcome, new Uint8Array(0)), machine.timers);
  const hear = (bytes: Uint8Array) => link.heard(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  return {
    link,
    pings: () => {
      link.flush();
      return sent.length;
    },
    closed: () => closed,
    waits: (bytes: number) => (waits = bytes),
    pong: () => hear(frame(FrameType.PONG, Pong, { sentAt: sent.at(-1) ?? 0n })),
  };
}

timed("a Ping each heartbeat, the first after a random part of it", (machine) => {
  const c = connection(machine);
  machine.awake(30_000);
  assert.equal(c.pings(), 1);
  c.pong();
  machine.awake(30_000);
  assert.equal(c.pings(), 2);
});

timed("two and a half heartbeats without a byte end a connection", (machine) => {
  const c = connection(machine);
  machine.awake(74_900);
  assert.ok(!c.closed());
  machine.awake(200);
  assert.ok(c.closed());
});

timed("an edge that answers is not given up", (machine) => {
  const c = connection(machine);
  for (let i = 0; i < 100; i++) {
    machine.awake(30_000);
    c.pings();
    c.pong();
  }
  assert.ok(!c.closed());
});

timed("a machine that slept asks before it judges", (machine) => {
  const c = connection(machine);
  machine.awake(30_000);
  c.pong();
  machine.asleep(3_600_000);
  const before = c.pings();
  while (c.pings() === before) machine.awake(100); // the timer that was due an hour ago
  assert.ok(!c.closed());
  c.pong();
  machine.awake(60_000);
  assert.ok(!c.closed());
});

timed("after a sleep a dead connection is found within seconds", (machine) => {
  const c = connection(machine);
  machine.awake(30_000);
  c.pong();
  machine.asleep(3_600_000);
  machine.awake(30_100 + 5_100);
  assert.ok(c.closed());
});

timed("what is received runs what is due, without a timer", (machine) => {
  const c = connection(machine);
  machine.asleep(31_000);
  assert.equal(c.pings(), 0);
  c.pong(); // in a hidden tab that comes before any timer
  assert.equal(c.pings(), 1);
});

timed("a slow link is not given up while bytes go out, and one that takes none is", (machine) => {
  const c = connection(machine);
  const say = () => {
    c.link.append(Uint8Array.of(0, 0, 0, 99));
    c.link.flush();
  };
  c.link.append(new Uint8Array(64 * 2 ** 20));
  c.link.flush();
  for (let left = 64; left > 10; left--) {
    c.waits(left * 2 ** 20);
    machine.awake(20_000);
    c.pong();
    say();
    assert.ok(!c.closed(), `${left} MiB are left`);
  }
  for (let i = 0; i < 3; i++) {
    machine.awake(20_000);
    c.pong();
    say();
  }
  assert.ok(c.closed());
});

timed("a socket that does not say how much it has to send is not taken for stuck", (machine) => {
  const c = connection(machine);
  c.waits(undefined as unknown as number); // React Native's has no bufferedAmount
  for (let i = 0; i < 5; i++) {
    c.link.append(Uint8Array.of(0, 0, 0, 99));
    c.link.flush();
    machine.awake(20_000);
    c.pong();
  }
  assert.ok(!c.closed());
});

timed("timers fire when their time has come by the clock", (machine) => {
  let ran = 0;
  machine.timers.after(1000, () => ran++);
  const cancel = machine.timers.after(500, () => assert.fail("it was called off"));
  cancel();
  mock.timers.tick(1000); // the clock stands still
  assert.equal(ran, 0);
  machine.time = 1000;
  machine.timers.poke();
  machine.timers.poke();
  assert.equal(ran, 1);
});

test("the clock goes on while the machine sleeps, and never back", () => {
  let ticks = 0;
  let wall = 1e12;
  const perf = mock.method(performance, "now", () => ticks);
  const date = mock.method(Date, "now", () => wall);
  try {
    const clock = new Clock();
    ticks += 50;
    wall += 50;
    assert.equal(clock.now(), 50);
    wall += 3_600_000; // asleep: performance.now() stood still
    assert.equal(clock.now(), 3_600_050);
    wall -= 7_200_000; // somebody set the clock back
    ticks += 10;
    assert.equal(clock.now(), 3_600_060);
  } finally {
    perf.mock.restore();
    date.mock.restore();
  }
});

test("the pause doubles with jitter, and what the edge asks for is a lower bound", () => {
  for (const [random, want] of [[0, [50, 100, 200, 400, 500, 500]], [0.999999, [100, 200, 400, 800, 1000, 1000]]] as const) {
    const b = new Backoff(100, 1000, () => random);
    assert.deepEqual(want.map(() => Math.round(b.next())), want);
    assert.equal(Math.round(b.next(10_000)), random === 0 ? 10_000 : 12_500);
    b.reset();
    assert.equal(Math.round(b.next()), want[0]);
  }
});

test("all edges are tried in a round, detours first, and the last one last", () => {
  const r = new Route(["a", "b", "c"]);
  const round = () => [r.next(), r.next(), r.next()];
  const first = round();
  assert.deepEqual([...first].sort(), ["a", "b", "c"]);
  assert.ok(r.round());
  assert.equal(round().at(-1), first.at(-1));
  r.round();
  r.detour(["x", "y"]);
  assert.deepEqual([r.next(), r.next()].sort(), ["x", "y"]);
  assert.deepEqual(round().sort(), ["a", "b", "c"]);
  assert.equal(siblingOf("wss://edge.example.com/mesh?x=1", "other:7400"), "wss://other:7400/mesh?x=1");
});
