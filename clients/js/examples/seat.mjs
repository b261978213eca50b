import { acquire, claim, connect } from "@pushmesh/client";

const url = process.env.EDGE ?? "ws://127.0.0.1:7400";
const ann = connect({ url, clientId: "ann" });
const bob = connect({ url, clientId: "bob" });

// One client has the seat at a time. It is renewed until it is released, also over reconnects.
const seat = await acquire(ann, "room/42/seat", { ttlMs: 10_000 });
console.log(`ann has the seat, with token ${seat.token > 0n}`); // what checks tokens refuses smaller ones
seat.lost.then((why) => console.log(why ? `ann has lost it: ${why}` : "ann has given it up"));

const next = await claim(bob, "room/42/seat");
console.log(`bob is number ${next.position} in the line`);
await seat.release();
await next.granted;
console.log(`bob has it: ${next.held}, and a greater token: ${next.token > 0n}`);
await next.release();
await Promise.all([ann.close(), bob.close()]);
