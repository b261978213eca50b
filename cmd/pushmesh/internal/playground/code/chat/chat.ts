// A chat: who is there, the last 20 messages, and all that
// follow.
import { connect, watchPresence } from "@pushmesh/client";

const client = connect({
  url: "ws://127.0.0.1:7400",
  clientId: "tess",
});

watchPresence(client, "play/chat", ({ count }) => {
  console.log(`${count} here`);
});

// A message is ACKed when its handler returns; after a break
// the rest comes, in order.
const chat = client.subscribe(
  "play/chat",
  (m) => console.log(`${m.from}: ${m.text()}`),
  { ack: true, from: { last: 20 } },
);
await chat.ready;

// It is answered once it is on disk. With a key it is
// published once, whatever breaks.
const text = "hello from TypeScript";
await client.publish("play/chat", text, { dedupeKey: true });
