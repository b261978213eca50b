import assert from "node:assert/strict";
import { test } from "node:test";
import { MeshError, connect } from "../src/index.js";
import type { WebSocketLike } from "../src/connect/websocket.js";
import { frame } from "../src/wire/frames.js";
import * as schema from "../src/wire/schema.js";
import { Inbox } from "./edge.js";
import { harness } from "./harness.js";

const { FrameType } = schema;
const h = harness();

test("a first frame that is no answer to Hello ends the attempt at once", async () => {
  const client = h.connect({ attemptMs: 3_600_000 });
  const failed = new Inbox<Error>();
  client.on("failed", (e) => failed.put(e));
  const peer = await h.edge.peers.next();
  peer.message({ seq: 1 });
  assert.match((await failed.next()).message, /can't be read/);
  await (await h.edge.peers.next()).welcome();
});

test("getToken that returns nothing says that there is none, as null does", async () => {
  const client = h.connect({ getToken: (() => undefined) as unknown as () => null });
  assert.equal(((await client.ended) as MeshError).code, "UNAUTHENTICATED");
});

test("whatever getToken throws is tried again", async () => {
  const thrown: unknown[] = [new MeshError("FORBIDDEN", "of another mesh"), Object.create(null), undefined];
  const client = h.connect({
    getToken: () => {
      if (thrown.length > 0) throw thrown.shift();
      return "t";
    },
  });
  const failed = new Inbox<Error>();
  client.on("failed", (e) => failed.put(e));
  const peer = await h.edge.peers.next();
  assert.equal((await peer.welcome()).token, "t");
  assert.equal(failed.size, 3);
  assert.match((await failed.next()).message, /of another mesh/);
});

test("a token that expires twice is asked for twice, and nothing is missed", async () => {
  const tokens = ["one", "two", "three"];
  const client = h.connect({ getToken: () => tokens.shift() ?? null });
  const seen = new Inbox<number>();
  client.subscribe("a/b", (m) => seen.put(m.seq));
  for (const [i, token] of ["one", "two", "three"].entries()) {
    const peer = await h.edge.peers.next();
    assert.equal((await peer.welcome()).token, token);
    const s = await peer.subscribed({ head: i === 0 ? 0 : i + 1 });
    if (i > 0) assert.deepEqual(s.positions, [{ topic: "a/b", epoch: 100, seq: i }]);
    peer.message({ seq: i + 1, subs: i > 0 ? [s.id] : [] });
    assert.equal(await seen.next(), i + 1);
    if (i < 2) peer.send(FrameType.ERROR, schema.Error, { code: schema.codes.indexOf("TOKEN_EXPIRED") });
  }
});

test("whose session is taken while an edge goes away does not take it back", async () => {
  const { client, peer } = await h.joined({ session: "s" });
  peer.send(FrameType.GO_AWAY, schema.GoAway, { code: schema.codes.indexOf("DRAINING"), reconnectAfterMs: 3_600_000 });
  peer.send(FrameType.ERROR, schema.Error, { code: schema.codes.indexOf("SESSION_TAKEN_OVER") });
  assert.equal(((await client.ended) as MeshError).code, "SESSION_TAKEN_OVER");
});

/** A WebSocket whose edge is the test. */
class Fake implements WebSocketLike {
  static made: Fake[] = [];
  binaryType = "";
  readonly protocol = "pushmesh.v1";
  readonly readyState = 1;
  bufferedAmount = 0;
  onopen: ((event: any) => void) | null = null;
  onmessage: ((event: any) => void) | null = null;
  onerror: ((event: any) => void) | null = null;
  onclose: ((event: any) => void) | null = null;
  closed = false;
  constructor() {
    Fake.made.push(this);
  }
  send(): void {}
  close(): void {
    this.closed = true;
  }
  welcome(): void {
    const bytes = frame(FrameType.WELCOME, schema.Welcome, { connectionId: 7n, clientId: "ann", version: 1 });
    this.onopen?.({});
    this.onmessage?.({ data: bytes.buffer });
  }
}

test("close ends whatever is going on, in each moment around Welcome", async () => {
  for (let between = -12; between <= 12; between++) {
    const client = connect({ url: "ws://x", WebSocket: Fake });
    while (!Fake.made.at(-1)?.onopen) await Promise.resolve();
    const socket = Fake.made.at(-1)!;
    let closed: Promise<void> | undefined;
    if (between < 0) closed = client.close();
    else socket.welcome();
    for (let i = 0; i < Math.abs(between); i++) await Promise.resolve();
    if (between < 0) socket.welcome();
    closed ??= client.close();
    let late: ReturnType<typeof setTimeout>;
    const hangs = new Promise((_, reject) => (late = setTimeout(() => reject(new Error(`close hangs, ${between} ticks from Welcome`)), 2000)));
    await Promise.race([closed, hangs]).finally(() => clearTimeout(late));
    assert.ok(socket.closed, `${between}`);
    Fake.made = [];
  }
});

test("a closed client leaves no timers", async () => {
  const timers = () => process.getActiveResourcesInfo().filter((r) => r === "Timeout").length;
  const before = timers();
  const client = connect({ url: "ws://x", WebSocket: Fake });
  while (!Fake.made.at(-1)?.onopen) await Promise.resolve();
  const socket = Fake.made.at(-1)!;
  socket.welcome();
  const sub = client.subscribe("a/b");
  await new Promise<void>((resolve) => setImmediate(resolve));
  // Refused for now, for an hour.
  const refusal = frame(FrameType.ERROR, schema.Error, { code: schema.codes.indexOf("OVERLOADED"), ref: sub.id, retryAfterMs: 3_600_000 });
  socket.onmessage!({ data: refusal.buffer });
  assert.equal(sub.state, "refused");
  await client.close();
  assert.equal(timers(), before);
  Fake.made = [];
});

test("where AbortSignals have no reason, as in React Native, the end says why all the same", async () => {
  const own = globalThis.AbortController;
  class Old {
    readonly signal = Object.assign(new EventTarget(), { aborted: false });
    abort(): void {
      this.signal.aborted = true;
      this.signal.dispatchEvent(new Event("abort"));
    }
  }
  globalThis.AbortController = Old as unknown as typeof AbortController;
  try {
    const client = connect({ url: "ws://x", WebSocket: Fake, attemptMs: 10 });
    const failed = new Inbox<Error>();
    client.on("failed", (e) => failed.put(e));
    assert.match((await failed.next()).message, /not answered in time/);
    const stop = new Old();
    const waits = client.publish("a/b", "x", { signal: stop.signal as unknown as AbortSignal });
    stop.abort();
    await assert.rejects(waits, /abort/);
    await assert.rejects(client.publish("a/b", "x", { signal: stop.signal as unknown as AbortSignal }), /abort/);
    await client.close();
    Fake.made = [];
  } finally {
    globalThis.AbortController = own;
  }
});

test("options that no client can work with are refused", () => {
  for (const [options, want] of [
    [{ url: "ws://a b" }, /url/],
    [{ url: "ws://a/#b" }, /url/],
    [{ minBackoffMs: 0 }, /minBackoffMs/],
    [{ maxBackoffMs: NaN }, /maxBackoffMs/],
    [{ attemptMs: -1 }, /attemptMs/],
    [{ window: 1.5 }, /window/],
    [{ sessionTtlSeconds: Infinity }, /sessionTtlSeconds/],
  ] as const) {
    assert.throws(() => connect({ url: "ws://x", WebSocket: Fake, ...options }).close(), want);
  }
});
