import { connect } from "@pushmesh/client";

// Reads three messages, and says where it left.
async function read(from) {
  const client = connect({ url: process.env.EDGE ?? "ws://127.0.0.1:7400" });
  const news = client.subscribe("room/42/news", { from });
  const seqs = [];
  for await (const message of news) {
    seqs.push(message.seq);
    if (seqs.length < 3) continue;
    message.ack(); // it is handled, too, although the loop is left
    break;
  }
  await client.close();
  console.log(`seqs ${seqs.join(", ")}`);
  return news.positions(); // to be kept in localStorage, say
}

const backend = connect({ url: process.env.EDGE ?? "ws://127.0.0.1:7400" });
for (let n = 1; n <= 6; n++) await backend.publish("room/42/news", `item ${n}`);
await backend.close();

const positions = await read("earliest");
await read({ positions }); // another process, another day
