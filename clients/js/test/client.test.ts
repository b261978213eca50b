import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { MeshError, type Client, type Gap, type Message } from "../src/index.js";
import * as schema from "../src/wire/schema.js";
import { Edge, Inbox, type Peer } from "./edge.js";

const { FrameType } = schema;

let edge: Edge;
let clients: Client[] = [];

beforeEach(async () => {
  edge = await Edge.start();
});

afterEach(async () => {
  await Promise.all(clients.map((c) => c.close()));
  clients = [];
  edge.stop();
});

async function joined(options: Parameters<Edge["connect"]>[0] = {}): Promise<{ client: Client; peer: Peer }> {
  const client = edge.connect(options);
  clients.push(client);
  const peer = await edge.peers.next();
  await peer.welcome();
  return { client, peer };
}

test("a loop has a message ACKed when it asks for the next one", async () => {
  const { client, peer } = await joined();
  const sub = client.subscribe("a/b", { ack: true });
  await peer.subscribed();
  const loop = sub[Symbol.asyncIterator]();
  for (const seq of [1, 2, 3]) peer.message({ seq, payload: new TextEncoder().encode(`{"n":${seq}}`) });
  assert.deepEqual((await loop.next()).value!.json(), { n: 1 });
  const second = (await loop.next()).value as Message;
  assert.equal(second.seq, 2);
  await peer.acked(1);
  assert.ok(!peer.acks.some((a) => a.seq >= 2));
  second.ack(); // and then the loop is left
  await peer.acked(2);
  const left = loop.return!();
  const { id } = await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id });
  await left;
  assert.equal(sub.state, "ended");
  assert.deepEqual(await loop.next(), { done: true, value: undefined });
});

test("a loop that is left gives back what it has", async () => {
  const { client, peer } = await joined();
  const sub = client.subscribe("a/b", { ack: true });
  await peer.subscribed();
  peer.message({ seq: 1 });
  const loop = (async () => {
    for await (const m of sub) throw new Error(`the body fails at ${m.seq}`);
  })();
  const nack = await peer.get(FrameType.NACK, schema.Nack);
  assert.equal(nack.seq, 1);
  const { id } = await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id });
  await assert.rejects(loop, /fails at 1/);
});

test("a loop ends with the reason why the subscription did", async () => {
  const { client, peer } = await joined();
  const sub = client.subscribe("secret/x");
  const loop = (async () => {
    for await (const m of sub) assert.fail(`got ${m.seq}`);
  })();
  const { id } = await peer.get(FrameType.SUBSCRIBE, schema.Subscribe);
  peer.send(FrameType.ERROR, schema.Error, { code: 6, ref: id, message: "no" });
  await assert.rejects(loop, (e) => e instanceof MeshError && e.code === "FORBIDDEN" && !e.retryable);
  await assert.rejects(sub.ready, /FORBIDDEN: no/);
});

test("with concurrency topics don't wait for each other, and a topic keeps its order", async () => {
  const { client, peer } = await joined();
  const told = new Inbox<string>();
  const open = new Map<string, () => void>();
  client.subscribe("a/+", (m) => {
    const key = `${m.topic} ${m.seq}`;
    told.put(key);
    return new Promise<void>((done) => open.set(key, done));
  }, { ack: true, concurrency: 2 });
  await peer.subscribed({ epoch: 0 });
  for (const topic of ["a/b", "a/c", "a/d"]) for (const seq of [1, 2]) peer.message({ topic, seq });
  assert.deepEqual([await told.next(), await told.next()], ["a/b 1", "a/c 1"]);
  open.get("a/c 1")!();
  assert.equal(await told.next(), "a/c 2");
  open.get("a/b 1")!();
  assert.equal(await told.next(), "a/b 2");
  open.get("a/c 2")!();
  assert.equal(await told.next(), "a/d 1");
  assert.equal(told.size, 0);
  for (const done of open.values()) done();
  assert.equal(await told.next(), "a/d 2");
  open.get("a/d 2")!();
});

test("what waits for handlers is bounded: durable messages come again, the oldest ephemeral ones go", async () => {
  const { client, peer } = await joined();
  const gaps: Gap[] = [];
  client.on("gap", (g) => gaps.push(g));
  const payload = new Uint8Array(2 ** 20);
  const seen: number[] = [];
  const sub = client.subscribe("a/b");
  await peer.subscribed({ epoch: 0 });
  for (let n = 0; n < 70; n++) peer.message({ payload, headers: { n: String(n) } });
  client.publish("x/y", "behind them").catch(() => undefined);
  const { id } = await peer.get(FrameType.PUBLISH, schema.Publish);
  peer.send(FrameType.PUBLISHED, schema.Published, { id });
  await new Promise<void>((resolve) => void client.on("gap", () => gaps.length >= 6 && resolve()));
  assert.ok(gaps.every((g) => g.code === "QUEUE_FULL" && g.missed === 1));
  const loop = sub[Symbol.asyncIterator]();
  while (seen.at(-1) !== 69) seen.push(Number((await loop.next()).value!.headers["n"]));
  void loop.next(); // the last one is handled
  assert.ok(seen.length <= 64 && seen.length >= 60, `${seen.length}`);
  assert.deepEqual(seen, Array.from({ length: seen.length }, (_, i) => 70 - seen.length + i));
});

test("a backlog of durable messages has the connection made again, behind what was handled", async () => {
  const { client, peer } = await joined();
  const sub = client.subscribe("a/b");
  await peer.subscribed();
  const payload = new Uint8Array(2 ** 20);
  for (let seq = 1; seq <= 66; seq++) peer.message({ seq, payload });
  await peer.ended;
  const second = await edge.peers.next();
  await second.welcome({ heartbeatMs: 1000 });
  await second.get(FrameType.PING, schema.Ping); // it was connected for a while, and nobody read
  assert.equal(second.frames.size, 0);
  const loop = sub[Symbol.asyncIterator]();
  const first = loop.next();
  const { positions } = await second.subscribed({ head: 66 });
  assert.deepEqual(positions, [{ topic: "a/b", epoch: 100, seq: 0 }]);
  second.message({ seq: 1, subs: [1] });
  assert.equal((await first).value!.seq, 1);
  void loop.next();
});

test("an edge that goes away names host and port: scheme and path stay", async () => {
  const other = await Edge.start();
  const { peer } = await joined({ url: `ws://${edge.address}/mesh?x=1` });
  assert.equal(peer.path, "/mesh?x=1");
  peer.send(FrameType.GO_AWAY, schema.GoAway, { code: 15, reconnectAfterMs: 20, addresses: [other.address] });
  const there = await other.peers.next();
  assert.equal(there.path, "/mesh?x=1");
  await there.welcome();
  await Promise.all(clients.map((c) => c.close()));
  other.stop();
});

test("with follow: false it stays with its own address", async () => {
  const { peer } = await joined({ follow: false });
  peer.send(FrameType.GO_AWAY, schema.GoAway, { code: 15, reconnectAfterMs: 20, addresses: ["127.0.0.1:1"] });
  await (await edge.peers.next()).welcome();
});

test("publishes go out in the order of the calls, also over a cut", async () => {
  const { client, peer } = await joined();
  const all = Promise.all(["1", "2", "3"].map((n) => client.publish("a/b", n, { dedupeKey: true })));
  const keys: string[] = [];
  for (let i = 0; i < 3; i++) keys.push((await peer.get(FrameType.PUBLISH, schema.Publish)).dedupeKey);
  assert.equal(new Set(keys).size, 3);
  peer.socket.terminate();
  const second = await edge.peers.next();
  await second.welcome({ publishWindow: 2 });
  for (const [i, key] of keys.entries()) {
    const p = await second.get(FrameType.PUBLISH, schema.Publish);
    assert.deepEqual([p.dedupeKey, new TextDecoder().decode(p.payload)], [key, String(i + 1)]);
    second.send(FrameType.PUBLISHED, schema.Published, { id: p.id, seq: i + 1, duplicate: i === 0, messageId: Uint8Array.from({ length: 16 }, (_, n) => n) });
  }
  const results = await all;
  assert.deepEqual(results.map((r) => [r.seq, r.duplicate]), [[1, true], [2, false], [3, false]]);
  assert.equal(results[0]!.messageId, "00010203-0405-0607-0809-0a0b0c0d0e0f");
});

test("what no mesh takes is refused before it is sent", async () => {
  const { client } = await joined();
  for (const [topic, payload, options, code] of [
    ["a//b", "x", {}, "BAD_TOPIC"],
    ["a/+", "x", {}, "BAD_TOPIC"],
    ["$mesh/x", "x", {}, "FORBIDDEN"],
    ["a/b", new Uint8Array(2 ** 20 + 1), {}, "PAYLOAD_TOO_LARGE"],
    ["a/b", "x", { headers: { "": "x" } }, "INVALID_ARGUMENT"],
    ["a/b", "x", { dedupeKey: "k".repeat(257) }, "INVALID_ARGUMENT"],
  ] as const) {
    await assert.rejects(client.publish(topic, payload, options), (e) => e instanceof MeshError && e.code === code, topic);
  }
  assert.throws(() => client.subscribe("a/b", { from: "session" }), /INVALID_ARGUMENT/);
  assert.throws(() => edge.connect({ url: "http://x" }), /ws:\/\//);
});

test("a signal ends the wait for an answer", async () => {
  const { client, peer } = await joined();
  const stop = new AbortController();
  const waits = client.publish("a/b", "x", { signal: stop.signal });
  await peer.get(FrameType.PUBLISH, schema.Publish);
  stop.abort(new Error("enough"));
  await assert.rejects(waits, /enough/);
});

test("a handler that throws is told, and its message comes again", async () => {
  const { client, peer } = await joined();
  const failures = new Inbox<unknown>();
  client.on("handlerFailed", (e) => failures.put(e));
  const seen = new Inbox<number>();
  client.subscribe("a/b", (m) => {
    seen.put(m.attempt);
    if (m.attempt === 0) throw new Error("not now");
  }, { ack: true });
  await peer.subscribed();
  peer.message({ seq: 1 });
  const nack = await peer.get(FrameType.NACK, schema.Nack);
  assert.deepEqual([nack.seq, nack.reason], [1, "not now"]);
  assert.match(String(await failures.next()), /not now/);
  peer.message({ seq: 1, attempt: 1 });
  await peer.acked(1);
  assert.deepEqual([await seen.next(), await seen.next()], [0, 1]);
});

test("a client without a WebSocket says how to get one", () => {
  const { WebSocket: own } = globalThis as { WebSocket?: unknown };
  delete (globalThis as { WebSocket?: unknown }).WebSocket;
  try {
    assert.throws(() => edge.connect({ WebSocket: undefined }), /package ws/);
  } finally {
    if (own) (globalThis as { WebSocket?: unknown }).WebSocket = own;
  }
});
