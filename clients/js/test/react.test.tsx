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
