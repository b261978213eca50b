import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message, Subscription } from "../src/index.js";
import { frame } from "../src/wire/frames.js";
import * as schema from "../src/wire/schema.js";
import { Inbox, type Peer } from "./edge.js";
import { harness } from "./harness.js";

const { FrameType } = schema;
const h = harness();

/** Resolves once the client has read everything that was sent to it. */
async function read(client: { publish(topic: string, payload: string): Promise<unknown> }, peer: Peer): Promise<void> {
  const published = client.publish("x/y", "behind it");
  const { id } = await peer.get(FrameType.PUBLISH, schema.Publish);
  peer.send(FrameType.PUBLISHED, schema.Published, { id });
  await published;
}

test("numbers that are none are refused, and so is a start that there is not", async () => {
  const { client } = await h.joined();
  for (const options of [
    { from: { last: Infinity } }, { from: { last: -1 } }, { from: { seq: NaN } }, { from: { seq: 1, epoch: 0.5 } }, { from: { positions: [{ topic: "a/b", epoch: 1, seq: -1 }] } },
    { window: -1 }, { rankTopK: 2 ** 32 }, { concurrency: NaN }, { from: "earlist" as "earliest" },
  ]) {
    assert.throws(() => client.subscribe("a/b", options), /INVALID_ARGUMENT/, JSON.stringify(options));
  }
});

test("a loop that is left has not handled what it has, without ACKs, too", async () => {
  const { client, peer } = await h.joined();
  const sub = client.subscribe("a/+", { concurrency: 3, from: { positions: ["a/b", "a/c"].map((topic) => ({ topic, epoch: 100, seq: 0 })) } });
  const { id } = await peer.subscribed({ positions: ["a/b", "a/c"].map((topic) => ({ topic, epoch: 100, head: 9, recovered: true, missed: 0 })) });
  for (const seq of [1, 2]) for (const topic of ["a/b", "a/c"]) peer.message({ topic, seq, subs: [id] });
  await read(client, peer);
  const loop = (async () => {
    for await (const m of sub) {
      if (m.seq === 2) throw new Error(`the body fails at ${m.topic} ${m.seq}`);
    }
  })();
  const left = await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id: left.id });
  await assert.rejects(loop, /fails at a\/b 2/);
  assert.deepEqual(sub.positions(), [{ topic: "a/b", epoch: 100, seq: 1 }, { topic: "a/c", epoch: 100, seq: 1 }]);
});

test("close counts nothing as handled that a loop has not had", async () => {
  const { client, peer } = await h.joined();
  const sub = client.subscribe("a/b", { from: { positions: [{ topic: "a/b", epoch: 100, seq: 0 }] } });
  const { id } = await peer.subscribed({ head: 9 });
  const loop = sub[Symbol.asyncIterator]();
  peer.message({ seq: 1, subs: [id] });
  await read(client, peer);
  await client.close();
  assert.deepEqual(await loop.next(), { done: true, value: undefined });
  assert.deepEqual(sub.positions(), [{ topic: "a/b", epoch: 100, seq: 0 }]);
});

test("a loop that is asked for two messages at once gets both", async () => {
  const { client, peer } = await h.joined();
  const sub = client.subscribe("a/b", { ack: true });
  await peer.subscribed();
  const loop = sub[Symbol.asyncIterator]();
  const both = Promise.all([loop.next(), loop.next()]);
  for (const seq of [1, 2]) peer.message({ seq });
  assert.deepEqual((await both).map((r) => (r.value as Message).seq), [1, 2]);
  await peer.acked(1);
});

test("a handler may throw anything", async () => {
  const { client, peer } = await h.joined();
  client.on("handlerFailed", () => undefined);
  const thrown = [Object.create(null), Object.assign(new Error(), { message: { of: "an answer" } }), Symbol("x"), undefined, { toString: () => { throw new Error(); } }];
  for (const [topic, fail] of [["a/b", (e: unknown) => { throw e; }], ["a/c", (e: unknown) => Promise.reject(e)]] as const) {
    client.subscribe(topic, (m) => (m.seq <= thrown.length ? fail(thrown[m.seq - 1]) : undefined), { ack: true });
    await peer.subscribed();
    for (let seq = 1; seq <= thrown.length + 1; seq++) peer.message({ topic, seq });
    for (let seq = 1; seq <= thrown.length; seq++) assert.equal((await peer.get(FrameType.NACK, schema.Nack)).seq, seq);
  }
});

test("anything with then is a promise", async () => {
  const { client, peer } = await h.joined();
  const failures: unknown[] = [];
  client.on("handlerFailed", (e) => failures.push(e));
  client.subscribe("a/b", () => ({ then: (done: () => void) => void setImmediate(done) }), { ack: true });
  await peer.subscribed();
  peer.message({ seq: 1 });
  await peer.acked(1);
  assert.deepEqual(failures, []);
});

test("a subscription that is ended when it is told of a gap stays ended", async () => {
  const { client, peer } = await h.joined();
  const sub: Subscription = client.subscribe("a/b", () => undefined, { from: { seq: 5 }, onGap: () => void sub.unsubscribe() });
  await peer.subscribed({ recovered: false, missed: 3, head: 9 });
  const { id } = await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id });
  await sub.ended;
  assert.equal(sub.state, "ended");
});

test("what was refused comes again, however many messages lie between", async () => {
  const { client, peer } = await h.joined({ session: "s" });
  const seen = new Inbox<number>();
  client.subscribe("a/b", (m) => {
    seen.put(m.seq);
    if (m.seq === 3 && m.attempt === 0) m.nack();
  }, { ack: true, from: "session" });
  const { id } = await peer.subscribed({ head: 9000 });
  const seqs = Array.from({ length: 2000 }, (_, i) => 2 * i + 1); // another process has dealt with every second one
  for (const seq of seqs) peer.message({ seq, subs: [id] });
  for (const seq of seqs) assert.equal(await seen.next(), seq);
  peer.message({ seq: 3, attempt: 1, subs: [id] });
  assert.equal(await seen.next(), 3);
});

test("what was ACKed before a subscription is ended is ACKed", async () => {
  const { client, peer } = await h.joined({ session: "s" });
  const sub = client.subscribe("a/b", { ack: true, from: "session" });
  const { id } = await peer.subscribed();
  const loop = (async () => {
    for await (const m of sub) {
      m.ack();
      break;
    }
  })();
  peer.message({ seq: 1, subs: [id] });
  const types: number[] = [];
  while (types.at(-1) !== FrameType.UNSUBSCRIBE) types.push((await peer.frames.next())[0]);
  assert.deepEqual(types, [FrameType.ACK, FrameType.UNSUBSCRIBE]); // an edge knows nothing of the subscription behind that
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id });
  await loop;
});

test("an ACK of the epoch before is not one of the new epoch", async () => {
  const { client, peer } = await h.joined();
  const seen = new Inbox<number>();
  client.subscribe("a/b", (m) => seen.put(m.seq), { ack: true });
  await peer.subscribed({ epoch: 5, head: 8 });
  // Together, so that the first ACK still waits to be sent.
  peer.socket.send(Buffer.concat([
    frame(FrameType.MESSAGE, schema.Message, { topic: "a/b", seq: 9 }),
    frame(FrameType.PROGRESS, schema.Progress, { topic: "a/b", epoch: 6, code: schema.codes.indexOf("EPOCH_CHANGED") }),
    frame(FrameType.MESSAGE, schema.Message, { topic: "a/b", seq: 1 }),
  ]));
  assert.deepEqual([await seen.next(), await seen.next()], [9, 1]);
  while (!peer.acks.some((a) => a.epoch === 6)) await peer.frames.next();
  assert.deepEqual(peer.acks.map(({ epoch, seq }) => [epoch, seq]), [[5, 9], [6, 1]]);
});

test("word of what will not come does not pile up behind a handler", async () => {
  const { client, peer } = await h.joined();
  let done!: () => void;
  const sub = client.subscribe("a/+", () => new Promise<void>((resolve) => (done = resolve)), { where: "true" });
  const { id } = await peer.subscribed({ positions: ["a/b", "a/c"].map((topic) => ({ topic, epoch: 100, head: 0, recovered: true, missed: 0 })) });
  const topics = ["a/b", "a/c"];
  for (const topic of topics) peer.message({ topic, seq: 1, subs: [id] });
  for (let seq = 2; seq <= 1001; seq++) for (const topic of topics) peer.send(FrameType.PROGRESS, schema.Progress, { topic, epoch: 100, from: seq, to: seq, code: schema.codes.indexOf("FILTERED"), subs: [id] });
  await read(client, peer);
  assert.ok(sub.waiting.length <= 4, `${sub.waiting.length} wait`);
  done();
  await new Promise<void>((resolve) => setImmediate(resolve));
  done();
  await new Promise<void>((resolve) => setImmediate(resolve));
  assert.deepEqual(sub.positions().map((p) => p.seq), [1001, 1001]);
});

test("a message that a program keeps does not keep its connection and subscription", async () => {
  const { client, peer } = await h.joined();
  const kept: Message[] = [];
  client.subscribe("a/b", (m) => void kept.push(m), { ack: true });
  await peer.subscribed();
  peer.message({ seq: 1 });
  await peer.acked(1);
  assert.equal(typeof kept[0]!.ack, "function");
  assert.ok(!Object.values(kept[0]!).some((v) => typeof v === "function"), "what answered it is kept with it");
});

test("10,000 topics, each with a subscription", async (t) => {
  const { client, peer } = await h.joined({ window: 20_000 });
  const began = performance.now();
  const seen = new Inbox<string>();
  const subs = Array.from({ length: 10_000 }, (_, i) => client.subscribe(`room/${i}/chat`, (m) => seen.put(m.topic), { ack: true }));
  for (const sub of subs) {
    const s = await peer.get(FrameType.SUBSCRIBE, schema.Subscribe);
    assert.equal(s.id, sub.id);
    peer.send(FrameType.SUBSCRIBED, schema.Subscribed, { id: s.id, epoch: 100, recovered: true });
  }
  await Promise.all(subs.map((s) => s.ready));
  for (const sub of subs) peer.message({ topic: sub.filter, seq: 1 });
  for (const sub of subs) assert.equal(await seen.next(), sub.filter);
  await client.close();
  const took = Math.round(performance.now() - began);
  t.diagnostic(`10,000 topics took ${took} ms`);
});
