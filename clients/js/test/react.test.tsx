import assert from "node:assert/strict";
import { after, test } from "node:test";
import { connect } from "@pushmesh/client";
import { StrictMode, createElement as h } from "react";
import { create, type ReactTestRenderer } from "react-test-renderer";
import { WebSocket } from "ws";
import { useMessages, usePresence, type Messages, type PresenceOf } from "../react/src/index.js";
import * as schema from "../src/wire/schema.js";
import { Edge } from "./edge.js";

const { FrameType } = schema;

const edge = await Edge.start();
const client = connect({ url: `ws://${edge.address}`, clientId: "ann", WebSocket });
const peer = await edge.peers.next();
await peer.welcome();
after(async () => {
  await client.close();
  edge.stop();
});

/** Renders, and waits until what is shown is so. */
async function until(what: () => boolean): Promise<void> {
  for (const ends = Date.now() + 10_000; !what(); ) {
    if (Date.now() > ends) throw new Error("it is not shown");
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
}

test("a component shows the newest messages of a topic, and ends with its subscription", async () => {
  let shown!: Messages;
  const Chat = ({ topic }: { topic: string }) => {
    shown = useMessages(client, topic, { ack: true, keep: 2 });
    return h("ul", null, shown.messages.map((m) => h("li", { key: m.seq }, m.text())));
  };
  const tree: ReactTestRenderer = create(h(Chat, { topic: "a/b" }));
  await until(() => shown?.status === "joining");
  await peer.subscribed();
  await until(() => shown.status === "live");
  for (const seq of [1, 2, 3]) peer.message({ seq, payload: new TextEncoder().encode(`m${seq}`) });
  await peer.acked(3);
  await until(() => shown.messages.length === 2 && shown.messages[1]!.seq === 3);
  assert.match(JSON.stringify(tree.toJSON()), /m2.*m3/);
  tree.update(h(Chat, { topic: "a/c" })); // another topic, another subscription
  const { id } = await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id });
  const s = await peer.subscribed();
  assert.equal(s.filter, "a/c");
  assert.deepEqual(shown.messages, []);
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id: s.id, code: 6, reason: "no more" });
  await until(() => shown.status === "ended");
  assert.equal(shown.error?.code, "FORBIDDEN");
  tree.unmount();
});

test("a component shows who is there; in StrictMode, too", async () => {
  let shown!: PresenceOf;
  const Who = () => {
    shown = usePresence(client, "a/d");
    return h("p", null, shown.members.map((m) => m.user).join(", "));
  };
  const tree: ReactTestRenderer = create(h(StrictMode, null, h(Who)));
  await peer.get(FrameType.WATCH, schema.Watch);
  const state = new Uint8Array();
  const tell = (of: Partial<schema.Presence>) => peer.send(FrameType.PRESENCE, schema.Presence, { topic: "a/d", ...of });
  tell({ snapshot: true, count: 2, members: [{ user: "bob", state }, { user: "ann", state }] });
  await until(() => shown.count === 2);
  assert.match(JSON.stringify(tree.toJSON()), /ann, bob/);
  tell({ count: 1, left: ["bob"] });
  await until(() => shown.count === 1);
  tree.unmount();
  await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
});

test("what is shown is never another topic's, and keep: 0 keeps none", async () => {
  const shown: [topic: string, texts: string[]][] = [];
  let last!: Messages;
  const Chat = ({ topic, keep }: { topic: string; keep: number }) => {
    last = useMessages(client, topic, { keep });
    shown.push([topic, last.messages.map((m) => m.topic)]);
    return null;
  };
  const tree = create(h(Chat, { topic: "a/e", keep: 5 }));
  await peer.subscribed();
  peer.message({ topic: "a/e", seq: 1 });
  await until(() => last?.messages.length === 1);
  tree.update(h(Chat, { topic: "a/f", keep: 0 }));
  const { id } = await peer.get(FrameType.UNSUBSCRIBE, schema.Unsubscribe);
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id });
  await peer.subscribed();
  for (const seq of [1, 2, 3]) peer.message({ topic: "a/f", seq });
  peer.send(FrameType.UNSUBSCRIBED, schema.Unsubscribed, { id: (client as unknown as { subscriptions: { subs: Set<{ id: number }> } }).subscriptions.subs.values().next().value!.id, code: 6 });
  await until(() => last.status === "ended");
  assert.deepEqual(last.messages, []);
  for (const [topic, texts] of shown) assert.ok(texts.every((t) => t === topic), `${topic} shows ${texts}`);
  tree.unmount();
});

test("what can't be subscribed to is an error of the hook, and not of the page", async () => {
  const closed = connect({ url: `ws://${edge.address}`, WebSocket });
  await closed.close();
  let messages!: Messages;
  let presence!: PresenceOf;
  const Both = ({ filter, of }: { filter: string; of: typeof client }) => {
    messages = useMessages(of, filter);
    presence = usePresence(of, "a/d");
    return null;
  };
  const tree = create(h(Both, { filter: "a/b", of: closed }));
  await until(() => messages?.status === "ended" && presence?.error !== undefined);
  assert.deepEqual([messages.error?.code, presence.error?.code], ["CANCELLED", "CANCELLED"]);
  tree.update(h(Both, { filter: "a//b", of: client }));
  await until(() => messages.error?.code === "BAD_TOPIC");
  tree.unmount();
});
