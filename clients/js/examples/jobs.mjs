import { connect } from "@pushmesh/client";

// A session is kept by the mesh: what is not ACKed comes when the client is back, days later, too.
const client = connect({ url: process.env.EDGE ?? "ws://127.0.0.1:7400", clientId: "worker-1", session: "jobs" });
client.on("gap", (gap) => console.log(`${gap.missed} jobs are gone: ${gap.code}`));

const jobs = client.subscribe("room/42/jobs", { ack: true, from: "session" });
await jobs.ready;

// With a dedupe key a message is published once, also where the connection breaks before the answer.
for (const n of [1, 2, 3]) await client.publish("room/42/jobs", { n }, { dedupeKey: true });

// A message is ACKed when the loop asks for the next one, and comes again where the loop fails.
for await (const message of jobs) {
  const { n } = message.json();
  console.log(`job ${n} is done`);
  if (n === 3) {
    message.ack();
    break;
  }
}
await client.close();
