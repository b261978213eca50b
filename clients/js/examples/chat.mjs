import { connect } from "@pushmesh/client";

const client = connect({ url: process.env.EDGE ?? "ws://127.0.0.1:7400", clientId: "ann" });

await new Promise((bye) => {
  const chat = client.subscribe("room/42/chat", (message) => {
    console.log(`${message.from}: ${message.text()}`);
    if (message.text() === "bye") bye();
  });
  chat.ready.then(async () => {
    // From here on nothing is missed. A publish that is answered is on disk.
    await client.publish("room/42/chat", "hello");
    await client.publish("room/42/chat", "bye");
  });
});
await client.close();
