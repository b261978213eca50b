// Calls that their program no longer waits for: they end with the signal's reason, and leave nothing behind.
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { acquire, checkClaim, claim, setState, watchClaim, watchPresence, type Client } from "../src/index.js";
import { Tab } from "../src/shared/serve.js";
import { TabClient } from "../src/shared/tab.js";
import { decode } from "../src/wire/codec.js";
import * as schema from "../src/wire/schema.js";
import type { Peer } from "./edge.js";
import { harness } from "./harness.js";

const { FrameType } = schema;
const h = harness();

/** A reason that is no Error, as a program may give one: it comes out as it is. */
const enough = { why: "enough" };
const isEnough = (e: unknown) => e === enough;

const frames = { [FrameType.SUBSCRIBE]: "Subscribe", [FrameType.UNSUBSCRIBE]: "Unsubscribe", [FrameType.PUBLISH]: "Publish", [FrameType.CLAIM]: "Claim", [FrameType.WATCH]: "Watch", [FrameType.STATE]: "State", [FrameType.REFRESH_TOKEN]: "RefreshToken" } as Record<number, string>;

/** What came over a connection until now, but for the publish that says that it is all. */
async function came(client: Client, peer: Peer): Promise<string[]> {
  const published = client.publish("x/y", "behind it");
  const names: string[] = [];
  for (;;) {
    const [type, body] = await peer.frames.next();
    if (type !== FrameType.PUBLISH) {
      names.push(frames[type] ?? `type ${type}`);
      continue;
    }
    peer.send(FrameType.PUBLISHED, schema.Published, { id: decode(schema.Publish, body).id });
    await published;
    return names;
  }
}

/** Each call that takes a signal. */
const calls: Record<string, (client: Client, signal: AbortSignal) => Promise<unknown>> = {
  subscribe: async (client, signal) => client.subscribe("a/b", () => undefined, { signal }).ready,
  "a loop": async (client, signal) => {
    for await (const m of client.subscribe("a/b", { signal })) assert.fail(m.topic);
  },
  publish: (client, signal) => client.publish("a/b", "x", { signal, dedupeKey: true }),
  claim: (client, signal) => claim(client, "seat", { signal }),
  acquire: (client, signal) => acquire(client, "seat", { signal }),
  checkClaim: (client, signal) => checkClaim(client, "seat", { signal }),
  watchClaim: async (client, signal) => watchClaim(client, "seat", () => undefined, { signal }).ready,
  watchPresence: async (client, signal) => watchPresence(client, "a/b", () => undefined, { signal }).ready,
  setState: (client, signal) => setState(client, "a/b", "here", { signal }),
  refreshToken: (client, signal) => client.refreshToken("t", { signal }),
};

for (const [name, call] of Object.entries(calls)) {
  test(`${name} with a signal that has aborted does nothing`, async () => {
    const { client, peer } = await h.joined();
    const stop = new AbortController();
    stop.abort(enough);
    await assert.rejects(call(client, stop.signal), isEnough);
    assert.deepEqual(await came(client, peer), []);
  });
}

/** What a call that is not answered sends, and what its end sends. */
const sent: Record<string, string[]> = {
  subscribe: ["Subscribe", "Unsubscribe"], "a loop": ["Subscribe", "Unsubscribe"], publish: [], claim: ["Claim", "Claim"], acquire: ["Claim", "Claim"], checkClaim: ["Claim"],
  watchClaim: ["Claim", "Claim"], watchPresence: ["Watch", "Unsubscribe"], setState: ["State"], refreshToken: ["RefreshToken"],
};

for (const [name, call] of Object.entries(calls)) {
  test(`${name} ends with the signal's reason, and is not asked again`, async () => {
    const { client, peer } = await h.joined();
    await came(client, peer); // it is connected
    const stop = new AbortController();
    const going = call(client, stop.signal);
    if (name === "publish") await peer.get(FrameType.PUBLISH, schema.Publish);
    stop.abort(enough);
    await assert.rejects(going, isEnough);
    assert.deepEqual(await came(client, peer), sent[name]);
    assert.equal(getEventListeners(stop.signal, "abort").length, 0);
    peer.socket.terminate();
    const second = await h.edge.peers.next();
    await second.welcome();
    const again = [...(await came(client, second)), ...(await came(client, second))]; // all parts of the client have had their turn
    assert.deepEqual(again, name === "setState" ? ["State"] : []); // what was said of oneself holds
  });
}

for (const name of ["subscribe", "a loop", "publish", "claim", "watchClaim", "watchPresence"]) {
  test(`${name} that ends while there is no connection is never asked`, async () => {
    const client = h.connect();
    const stop = new AbortController();
    const going = calls[name]!(client, stop.signal);
    stop.abort(enough);
    await assert.rejects(going, isEnough);
    const peer = await h.edge.peers.next();
    await peer.welcome();
    assert.deepEqual(await came(client, peer), []);
  });
}

test("a subscription that stands ends with its signal, and so does a loop over it", async () => {
  const { client, peer } = await h.joined();
  const stop = new AbortController();
  const seen: number[] = [];
  const sub = client.subscribe("a/b", { signal: stop.signal, ack: true });
  await peer.subscribed();
  await sub.ready;
  const loop = (async () => {
    for await (const m of sub) {
      seen.push(m.seq);
      stop.abort(enough);
    }
  })();
  for (const seq of [1, 2]) peer.message({ seq });
  await assert.rejects(loop, isEnough);
  await sub.ended;
  assert.deepEqual([seen, sub.state, sub.error], [[1], "ended", undefined]);
  await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
});

test("a signal that aborts when all is over changes nothing, and has no listener", async () => {
  const { client, peer } = await h.joined();
  const stop = new AbortController();
  const { signal } = stop;
  const sub = client.subscribe("a/b", () => undefined, { signal });
  const { id } = await peer.subscribed();
  const unsubscribed = sub.unsubscribe();
  await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id });
  await unsubscribed;
  const presence = watchPresence(client, "a/b", () => undefined, { signal });
  const seat = watchClaim(client, "seat", () => undefined, { signal });
  presence.stop();
  seat.stop();
  await Promise.all([presence.ended, seat.ended]);
  const made = claim(client, "seat", { signal });
  let asked = await peer.get(FrameType.CLAIM, schema.Claim);
  while (asked.op !== schema.Claim_Op.ACQUIRE) asked = await peer.get(FrameType.CLAIM, schema.Claim);
  peer.send(FrameType.CLAIM_STATE, schema.ClaimState, { id: asked.id, resource: "seat", state: schema.ClaimState_State.GRANTED, token: 7n, expiresInMs: 60_000 });
  const held = await made;
  assert.equal(getEventListeners(signal, "abort").length, 0);
  stop.abort(enough);
  assert.ok(held.held);
});

test("a release that nobody waits for is a release all the same", async () => {
  const { client, peer } = await h.joined();
  const made = claim(client, "seat");
  const { id } = await peer.get(FrameType.CLAIM, schema.Claim);
  peer.send(FrameType.CLAIM_STATE, schema.ClaimState, { id, resource: "seat", state: schema.ClaimState_State.GRANTED, token: 7n, expiresInMs: 60_000 });
  const held = await made;
  const stop = new AbortController();
  const released = held.release({ successor: "client:bob", signal: stop.signal });
  const asked = await peer.get(FrameType.CLAIM, schema.Claim);
  assert.deepEqual([asked.op, asked.token, asked.successor], [schema.Claim_Op.RELEASE, 7n, "client:bob"]);
  stop.abort(enough);
  await assert.rejects(released, isEnough);
  assert.equal(held.held, false);
  assert.equal(await held.lost, undefined);
});

test("a tab's calls end with their signals, too", async () => {
  const { client, peer } = await h.joined();
  await came(client, peer); // it is connected
  const { port1, port2 } = new MessageChannel();
  new Tab(client, port1 as unknown as MessagePort);
  const tab = new TabClient(port2 as unknown as MessagePort);
  const stop = new AbortController();
  const { signal } = stop;
  const ended = [tab.subscribe("a/b", () => undefined, { signal }).ready, tab.watchPresence("a/b", () => undefined, { signal }).ready, tab.publish("a/b", "x", { signal, dedupeKey: "k" }), tab.setState("a/b", "x", { signal })];
  for (const [type, of] of [[FrameType.SUBSCRIBE, schema.Subscribe], [FrameType.WATCH, schema.Watch], [FrameType.PUBLISH, schema.Publish], [FrameType.STATE, schema.State]] as const) await peer.get<object>(type, of as never);
  stop.abort(enough);
  for (const call of ended) await assert.rejects(call, isEnough);
  for (const _ of [1, 2]) await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
  await assert.rejects(tab.publish("a/b", "x", { signal }), isEnough);
  assert.throws(() => tab.subscribe("a/b", () => undefined, { signal }), isEnough);
  assert.equal(getEventListeners(signal, "abort").length, 0);
  // The word that nobody waits for the publish has come before what is asked behind it.
  const behind = tab.publish("a/b", "y", { dedupeKey: "l" });
  await peer.get(FrameType.PUBLISH, schema.Publish);
  peer.socket.terminate();
  const second = await h.edge.peers.next();
  await second.welcome();
  const again = await second.get(FrameType.PUBLISH, schema.Publish);
  assert.equal(again.dedupeKey, "l");
  second.send(FrameType.PUBLISHED, schema.Published, { id: again.id });
  await behind;
  tab.close();
});
