import { connect, setState, watchPresence } from "@pushmesh/client";

const url = process.env.EDGE ?? "ws://127.0.0.1:7400";
const ann = connect({ url, clientId: "ann" });
const bob = connect({ url, clientId: "bob" });
const text = (member) => `${member.user} ${new TextDecoder().decode(member.state)}`.trim();

let said;
await new Promise((done) => {
  const watch = watchPresence(ann, "room/42/chat", ({ all, joined, changed, left, count }) => {
    if (all) console.log(`there are ${count}`);
    for (const member of joined) console.log(`${text(member)} is there`);
    for (const member of changed) console.log(`${text(member)} now`);
    for (const user of left) console.log(`${user} has left`);

    if (joined.length > 0) said = setState(bob, "room/42/chat", "is typing");
    if (changed.length > 0) said.then(() => bob.close());
    if (left.length > 0) done();
  });
  // Who is there is who subscribes.
  watch.ready.then(() => bob.subscribe("room/42/chat", () => {}));
});
await ann.close();
