// Subscribes as receive.mjs does, with frames as JSON.
//   node json.mjs ws|undici URL TOKEN TOPIC
import { createHash } from "node:crypto";
import { createRequire } from "node:module";

const [client, url, token, topic] = process.argv.slice(2);
const require = createRequire(process.env.PUSHMESH_TEST_NODE_MODULES + "/");
const { WebSocket } = require(client);
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

const socket = new WebSocket(url, ["pushmesh.v1.json", `bearer.${token}`]);
const send = (frame) => socket.send(JSON.stringify(frame));
const CODE_DRAINING = 15;
let edge;

const takes = {
  welcome(m) {
    edge = m.edge;
    send({ subscribe: { id: 1, filter: topic, ack: true, start: "START_EARLIEST" } });
  },
  subscribed: () => say({ joined: edge, protocol: socket.protocol }),
  message(m) {
    const payload = "payload" in m ? Buffer.from(JSON.stringify(m.payload)) : Buffer.from(m.payloadBase64 ?? "", "base64");
    say({ seq: Number(m.seq), attempt: m.attempt ?? 0, size: payload.length, sum: createHash("sha256").update(payload).digest("hex") });
    send({ ack: { entries: [{ topic: m.topic, seq: m.seq }] } });
  },
  error: (m) => say({ fault: `${m.code} ${m.message}` }),
  goAway: (m) => say({ goAway: m.code === "CODE_DRAINING" ? CODE_DRAINING : 0 }),
};

socket.addEventListener("open", () => send({ hello: { version: 1, clientId: client, heartbeatMs: 1000 } }));
socket.addEventListener("message", ({ data }) => {
  for (const [name, frame] of Object.entries(JSON.parse(data))) takes[name]?.(frame);
});
socket.addEventListener("error", (event) => say({ fault: String(event.message ?? event.error ?? "error") }));
socket.addEventListener("close", ({ code, reason, wasClean }) => say({ closed: code, reason, clean: wasClean }));
