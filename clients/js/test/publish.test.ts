import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { checkClaim, claim } from "../src/index.js";
import * as schema from "../src/wire/schema.js";
import { harness } from "./harness.js";

const { FrameType } = schema;
const h = harness();
const textOf = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

test("a publish that nobody waits for any more is not sent again", async () => {
  const { client, peer } = await h.joined();
  const stop = new AbortController();
  const waits = client.publish("a/b", "1", { dedupeKey: "k1", signal: stop.signal });
  await peer.get(FrameType.PUBLISH, schema.Publish);
  stop.abort(new Error("enough"));
  await assert.rejects(waits, /enough/);
  const other = client.publish("a/b", "2", { dedupeKey: "k2" });
  await peer.get(FrameType.PUBLISH, schema.Publish);
  peer.socket.terminate();
  const second = await h.edge.peers.next();
  await second.welcome();
  const p = await second.get(FrameType.PUBLISH, schema.Publish);
  assert.equal(p.dedupeKey, "k2");
  second.send(FrameType.PUBLISHED, schema.Published, { id: p.id, seq: 1 });
  await other;
});

test("nothing of a call that is over stays with its signal", async () => {
  const { client, peer } = await h.joined();
  const { signal } = new AbortController();
  const published = client.publish("a/b", "x", { signal });
  const { id } = await peer.get(FrameType.PUBLISH, schema.Publish);
  peer.send(FrameType.PUBLISHED, schema.Published, { id });
  await published;
  const checked = checkClaim(client, "seat/1", { signal });
  for (const [type, of] of [[FrameType.ERROR, { code: schema.codes.indexOf("UNAVAILABLE") }], [FrameType.CLAIM_STATE, {}]] as const) {
    const c = await peer.get(FrameType.CLAIM, schema.Claim);
    if (type === FrameType.ERROR) peer.send(type, schema.Error, { ...of, ref: c.id });
    else peer.send(type, schema.ClaimState, { ...of, id: c.id });
  }
  await checked;
  assert.equal(getEventListeners(signal, "abort").length, 0);
});

test("a signal ends a pause between two asks, too", async () => {
  const { client, peer } = await h.joined();
  const stop = new AbortController();
  const checked = checkClaim(client, "seat/1", { signal: stop.signal });
  const c = await peer.get(FrameType.CLAIM, schema.Claim);
  peer.send(FrameType.ERROR, schema.Error, { ref: c.id, code: schema.codes.indexOf("OVERLOADED"), retryAfterMs: 3_600_000 });
  client.publish("a/b", "behind it").catch(() => undefined);
  const { id } = await peer.get(FrameType.PUBLISH, schema.Publish);
  peer.send(FrameType.PUBLISHED, schema.Published, { id });
  setImmediate(() => stop.abort(new Error("enough")));
  await assert.rejects(checked, /enough/);
});

test("bytes are those of the call, whatever becomes of the buffer, and of any kind of view", async () => {
  const client = h.connect();
  const buffer = Uint8Array.of(1, 2, 3);
  const calls = [client.publish("a/b", buffer), client.publish("a/b", new DataView(Uint8Array.of(9, 8, 7).buffer, 1)), client.publish("a/b", Uint8Array.of(5).buffer)];
  buffer.fill(0);
  const peer = await h.edge.peers.next();
  await peer.welcome();
  for (const want of [[1, 2, 3], [8, 7], [5]]) {
    const p = await peer.get(FrameType.PUBLISH, schema.Publish);
    assert.deepEqual([...p.payload], want);
    peer.send(FrameType.PUBLISHED, schema.Published, { id: p.id });
  }
  await Promise.all(calls);
});

test("a dedupe key is made up without the platform's crypto, too", async () => {
  const { client, peer } = await h.joined();
  const own = Object.getOwnPropertyDescriptor(globalThis, "crypto")!;
  Object.defineProperty(globalThis, "crypto", { value: undefined, configurable: true });
  try {
    const calls = ["1", "2"].map((n) => client.publish("a/b", n, { dedupeKey: true }));
    const keys: string[] = [];
    for (const n of ["1", "2"]) {
      const p = await peer.get(FrameType.PUBLISH, schema.Publish);
      assert.equal(textOf(p.payload), n);
      keys.push(p.dedupeKey);
      peer.send(FrameType.PUBLISHED, schema.Published, { id: p.id });
    }
    await Promise.all(calls);
    assert.ok(keys.every((k) => /^[0-9a-f]{32}$/.test(k)) && keys[0] !== keys[1], String(keys));
  } finally {
    Object.defineProperty(globalThis, "crypto", own);
  }
});

test("times that no frame can say are the longest that one can", async () => {
  const { client, peer } = await h.joined();
  void claim(client, "seat/1", { ttlMs: Infinity, waitMs: Infinity, priority: 3 }).catch(() => undefined);
  const c = await peer.get(FrameType.CLAIM, schema.Claim);
  assert.deepEqual([c.ttlMs, c.waitMs, c.priority], [2 ** 32 - 1, 2 ** 32 - 1, 3]);
  await assert.rejects(claim(client, "seat/2", { priority: -1 }), /priority/);
  client.subscribe("a/b", (m) => m.nack(Infinity), { ack: true });
  await peer.subscribed();
  peer.message({ seq: 1 });
  assert.equal((await peer.get(FrameType.NACK, schema.Nack)).delayMs, 2 ** 32 - 1);
});
