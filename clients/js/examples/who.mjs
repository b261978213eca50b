import { connect, setState, watchPresence } from "@pushmesh/client";

const url = process.env.EDGE ?? "ws://127.0.0.1:7400";
const ann = connect({ url, clientId: "ann" });
const bob = connect({ url, clientId: "bob" });
const text = (member) => `${member.user} ${new TextDecoder().decode(member.state)}`.trim();

const done = new Promise((resolve) => {
  watchPresence(ann, "room/42/chat", ({ all, joined, changed, left, count }) => {
    if (all) console.log(`there are ${count}`);
    for (const member of joined) console.log(`${text(member)} is there`);
    for (const member of changed) console.log(`${text(member)} now`);
    for (const user of left) console.log(`${user} has left`);
    if (left.length > 0) resolve();
  });
});

// Who is there is who subscribes; a state says more.
const chat = bob.subscribe("room/42/chat", () => {});
await chat.ready;
await new Promise((resolve) => setTimeout(resolve, 500));
await setState(bob, "room/42/chat", "is typing");
await new Promise((resolve) => setTimeout(resolve, 500));
await bob.close();
await done;
await ann.close();
