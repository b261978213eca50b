import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { MeshError, type Client } from "../src/index.js";
import { Tab } from "../src/shared/serve.js";
import { TabClient, connectTab, type TabMessage } from "../src/shared/tab.js";
import * as schema from "../src/wire/schema.js";
import { Edge, Inbox, type Peer } from "./edge.js";

const { FrameType } = schema;

let edge: Edge;
let client: Client;
let peer: Peer;

beforeEach(async () => {
  edge = await Edge.start();
  client = edge.connect();
  peer = await edge.peers.next();
  await peer.welcome();
});

afterEach(async () => {
  await client.close();
  edge.stop();
});

/** A tab, as if the worker had it. */
function tab(): { tab: TabClient; served: Tab } {
  const { port1, port2 } = new MessageChannel();
  return { served: new Tab(client, port1 as unknown as MessagePort), tab: new TabClient(port2 as unknown as MessagePort) };
}

test("two tabs have one connection, and each its own handlers", async () => {
  const [one, two] = [tab(), tab()];
  const told = new Inbox<string>();
  const subs = [one, two].map(({ tab }, i) => tab.subscribe("a/b", (m) => told.put(`${i} ${m.seq} ${m.text()}`), { ack: true }));
  await peer.subscribed();
  await peer.subscribed();
  await Promise.all(subs.map((s) => s.ready));
  peer.message({ seq: 1, payload: new TextEncoder().encode("hi") });
  assert.deepEqual([await told.next(), await told.next()].sort(), ["0 1 hi", "1 1 hi"]);
  await peer.acked(1);
  assert.equal(edge.peers.size, 0);
  assert.equal(one.tab.connection?.edge, "edge");
  for (const { tab } of [one, two]) tab.close();
});

test("publishes, presence and refusals come back to the tab that asked", async () => {
  const { tab: t } = tab();
  const published = t.publish("a/b", { n: 1 });
  const { id } = await peer.get(FrameType.PUBLISH, schema.Publish);
  peer.send(FrameType.PUBLISHED, schema.Published, { id, seq: 5, epoch: 9 });
  assert.deepEqual(await published, { messageId: "", seq: 5, epoch: 9, duplicate: false });
  await assert.rejects(t.publish("a//b", "x"), (e) => e instanceof MeshError && e.code === "BAD_TOPIC");
  const changes = new Inbox<string[]>();
  const watch = t.watchPresence("a/b", (c) => changes.put(c.joined.map((m) => m.user)));
  await peer.get(FrameType.WATCH, schema.Watch);
  peer.send(FrameType.PRESENCE, schema.Presence, { topic: "a/b", snapshot: true, count: 1, members: [{ user: "ann", state: new Uint8Array() }] });
  assert.deepEqual(await changes.next(), ["ann"]);
  await watch.ready;
  const refused = t.subscribe("secret/x", () => undefined);
  const s = await peer.get(FrameType.SUBSCRIBE, schema.Subscribe);
  peer.send(FrameType.ERROR, schema.Error, { code: 6, ref: s.id });
  assert.equal((await refused.ended)?.code, "FORBIDDEN");
  t.close();
  await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe); // of the watch
});

test("what a tab that goes was handed comes again", async () => {
  const { tab: t } = tab();
  const handed = new Inbox<TabMessage>();
  t.subscribe("a/b", (m) => {
    handed.put(m);
    return new Promise(() => undefined);
  }, { ack: true });
  await peer.subscribed();
  peer.message({ seq: 1 });
  await handed.next();
  t.close();
  const { id } = await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id });
  assert.ok(!peer.acks.some((a) => a.seq === 1));
});

test("a client that is over is over in each tab", async () => {
  const { tab: t } = tab();
  const over = new Promise<MeshError>((resolve) => t.on("ended", resolve));
  peer.send(FrameType.ERROR, schema.Error, { code: 14 });
  assert.equal((await over).code, "SESSION_TAKEN_OVER");
  await assert.rejects(t.publish("a/b", "x"), /SESSION_TAKEN_OVER/);
});

test("a tab that comes behind the client's end is told of it", async () => {
  peer.send(FrameType.ERROR, schema.Error, { code: schema.codes.indexOf("SESSION_TAKEN_OVER") });
  await client.ended;
  const { tab: t } = tab();
  const over = new Promise<MeshError>((resolve) => t.on("ended", resolve));
  assert.equal((await over).code, "SESSION_TAKEN_OVER");
  assert.equal(t.state, "closed");
});

test("the worker keeps nothing of a subscription that a tab has ended", async () => {
  const { tab: t, served } = tab();
  const handed = new Inbox<TabMessage>();
  const sub = t.subscribe("a/b", (m) => {
    handed.put(m);
    return new Promise(() => undefined);
  }, { ack: true });
  await peer.subscribed();
  peer.message({ seq: 1 });
  await handed.next();
  sub.end();
  const { id } = await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id });
  const published = t.publish("a/b", "behind it");
  const p = await peer.get(FrameType.PUBLISH, schema.Publish);
  peer.send(FrameType.PUBLISHED, schema.Published, { id: p.id });
  await published;
  assert.equal(served.holds, 0);
  t.close();
});

test("what a worker of another version does not know is refused", async () => {
  const { port1, port2 } = new MessageChannel();
  new Tab(client, port1 as unknown as MessagePort);
  const answers = new Inbox<{ told: string; n: number; fault: { code: string } }>();
  port2.onmessage = ({ data }) => data.told !== "state" && answers.put(data);
  port2.postMessage({ do: "something of tomorrow", n: 7 });
  const { told, n, fault } = await answers.next();
  assert.deepEqual([told, n, fault.code], ["failed call", 7, "UNSUPPORTED"]);
  port2.close();
});

test("a tab publishes the same bytes as a client would", async () => {
  const { tab: t } = tab();
  class Price {
    constructor(readonly cents: number) {}
    toJSON() {
      return `${this.cents / 100} EUR`;
    }
  }
  for (const [payload, want] of [[new Price(150), '"1.5 EUR"'], [{ at: new Date(0), f: () => 1 }, '{"at":"1970-01-01T00:00:00.000Z"}']] as const) {
    const published = t.publish("a/b", payload);
    const p = await peer.get(FrameType.PUBLISH, schema.Publish);
    assert.equal(new TextDecoder().decode(p.payload), want);
    peer.send(FrameType.PUBLISHED, schema.Published, { id: p.id });
    await published;
  }
  await assert.rejects(t.publish("a/b", (() => 1) as unknown as object), /INVALID_ARGUMENT/);
  t.close();
});

test("a tab whose worker can't be loaded says so", async () => {
  const worker = Object.assign(new EventTarget(), { port: new MessageChannel().port1 });
  const t = connectTab(worker as unknown as SharedWorker);
  const failed = new Promise<Error>((resolve) => t.on("failed", resolve));
  worker.dispatchEvent(new Event("error"));
  assert.match((await failed).message, /SharedWorker/);
  t.close();
});

test("a tab whose worker is gone is told, and a worker whose tab is gone forgets it", async () => {
  const held: { name: string; free: () => void }[] = [];
  const own = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  const tails = new Map<string, Promise<unknown>>();
  const locks = {
    request(name: string, run: () => unknown): Promise<unknown> {
      const got = (tails.get(name) ?? Promise.resolve()).then(() => {
        const gone = new Promise<void>((resolve) => held.push({ name, free: resolve }));
        return Promise.race([run(), gone]); // free: its holder has died
      });
      tails.set(name, got);
      return got;
    },
  };
  Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });
  try {
    const { tab: t } = tab();
    const over = new Promise<MeshError>((resolve) => t.on("ended", resolve));
    const sub = t.subscribe("a/b", () => undefined);
    await peer.subscribed();
    await sub.ready;
    held.find(({ name }) => name.endsWith("/worker"))!.free();
    assert.equal((await over).code, "UNAVAILABLE");
    await assert.rejects(t.publish("a/b", "x"), /SharedWorker/);
    const { id } = await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe); // its lock is free
    peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id });
  } finally {
    if (own) Object.defineProperty(globalThis, "navigator", own);
    else delete (globalThis as { navigator?: unknown }).navigator;
  }
});
