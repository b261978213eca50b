import { connect } from "@pushmesh/client";

const client = connect({ url: process.env.EDGE ?? "ws://127.0.0.1:7400", clientId: "ann" });

let bye;
const heard = new Promise((resolve) => (bye = resolve));
const chat = client.subscribe("room/42/chat", (message) => {
  console.log(`${message.from}: ${message.text()}`);
  if (message.text() === "bye") bye();
});
await chat.ready; // from here on nothing is missed

await client.publish("room/42/chat", "hello"); // answered once it is on disk
await client.publish("room/42/chat", "bye");
await heard;
await client.close();
