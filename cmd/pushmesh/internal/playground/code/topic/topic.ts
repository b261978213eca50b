// Any topics, many at a time: + is one level, # is all that
// follow.
import { connect } from "@pushmesh/client";

const client = connect({
  url: "ws://127.0.0.1:7400",
  clientId: "tilda",
});

// What can't be had any more is told, with the reason.
client.on("gap", (gap) => {
  console.log(`${gap.missed} missed: ${gap.code}`);
});

const news = client.subscribe("play/news/#", (m) => {
  const late = Date.now() - m.publishedAt.getTime();
  console.log(m.topic, m.seq, `${late} ms`, m.text());
});
await news.ready;

// Clients publish where the policy of a namespace lets them.
const { seq } = await client.publish(
  "play/news/today",
  "hello from TypeScript",
);
console.log(`on disk as seq ${seq}`);
