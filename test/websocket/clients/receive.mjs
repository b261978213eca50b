// Subscribes with a WebSocket client of npm, ACKs what comes and says it in lines of JSON.
//   node receive.mjs ws|undici URL TOKEN TOPIC
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { ACK, Cutter, ERROR, GO_AWAY, HELLO, MESSAGE, START_EARLIEST, SUBSCRIBE, SUBSCRIBED, WELCOME, encode, frame, text } from "./frames.mjs";

const [client, url, token, topic] = process.argv.slice(2);
const require = createRequire(process.env.PUSHMESH_TEST_NODE_MODULES + "/");
const { WebSocket } = require(client);
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

const socket = new WebSocket(url, ["pushmesh.v1", `bearer.${token}`]);
socket.binaryType = "arraybuffer";
const cutter = new Cutter();
let edge;

// Without Pings of its own: that it answers those of the edge is all that keeps it.
socket.addEventListener("open", () => socket.send(frame(HELLO, [1, 1], [2, client], [5, 1000])));
socket.addEventListener("message", ({ data }) => {
  for (const [type, fields] of cutter.frames(data)) take(type, fields);
});
socket.addEventListener("error", (event) => say({ fault: String(event.message ?? event.error ?? "error") }));
socket.addEventListener("close", ({ code, reason, wasClean }) => say({ closed: code, reason, clean: wasClean }));

function take(type, fields) {
  switch (type) {
    case WELCOME:
      edge = text(fields[2]);
      socket.send(frame(SUBSCRIBE, [1, 1], [2, topic], [3, true], [4, START_EARLIEST]));
      return;
    case SUBSCRIBED:
      say({ joined: edge, protocol: socket.protocol });
      return;
    case MESSAGE:
      say(heard(fields));
      socket.send(frame(ACK, [1, encode([1, topic], [2, fields[2]])]));
      return;
    case ERROR:
      say({ fault: `${fields[1]} ${text(fields[2])}` });
      return;
    case GO_AWAY:
      say({ goAway: Number(fields[1]) });
  }
}

function heard(fields) {
  const payload = fields[3];
  const attempt = Number(fields[7] ?? 0);
  return { seq: Number(fields[2]), attempt, size: payload.length, sum: createHash("sha256").update(payload).digest("hex") };
}
