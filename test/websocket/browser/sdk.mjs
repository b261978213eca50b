// A page that subscribes with the SDK; with "shared", by the client of a SharedWorker.
//   sdk.html?edge=ws://HOST:PORT&client=NAME&topic=TOPIC[&shared]
import { connect } from "./client/index.js";
import { connectTab } from "./client/shared/index.js";

const query = new URLSearchParams(location.search);
const [edge, client, topic] = ["edge", "client", "topic"].map((name) => query.get(name));

// state is what the test reads; numbers are those in the messages.
const state = (window.state = { last: 0, again: 0, disorder: [], subscribed: 0, closes: [], faults: [], longestPause: 0 });
addEventListener("error", (e) => state.faults.push(String(e.message)));
addEventListener("unhandledrejection", (e) => state.faults.push(String(e.reason)));

let ran = performance.now();
setInterval(() => {
  const now = performance.now();
  state.longestPause = Math.max(state.longestPause, now - ran);
  ran = now;
}, 1000);

const mesh = query.has("shared")
  ? connectTab(new SharedWorker(`sdk-worker.mjs?${query}`, { type: "module" }))
  : connect({ url: edge, clientId: client, heartbeatMs: 2000 });

mesh.on("disconnected", () => state.closes.push(0));
mesh.on("connected", () => state.subscribed++);
mesh.subscribe(topic, (message) => {
  const n = Number(message.text());
  if (n <= state.last) state.again++;
  else if (state.last > 0 && n !== state.last + 1) state.disorder.push(`${n} behind ${state.last}`);
  state.last = Math.max(state.last, n);
}, { ack: true });
