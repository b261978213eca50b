// A page that subscribes with a session, and keeps in the browser's storage how far it has come.
//   page.html?edge=ws://HOST:PORT&client=NAME&topic=TOPIC
import { ACK, Cutter, ERROR, HELLO, MESSAGE, START_SESSION, SUBSCRIBE, SUBSCRIBED, WELCOME, encode, frame, text } from "./frames.mjs";

const query = new URLSearchParams(location.search);
const [edge, client, topic] = ["edge", "client", "topic"].map((name) => query.get(name));
const heartbeat = 2000;

// state is what the test reads. last is the number in the last message.
const state = (window.state = { last: Number(localStorage.getItem(client) ?? 0), again: 0, disorder: [], subscribed: 0, closes: [], faults: [], longestPause: 0 });

// A timer, as pages have them: hidden tabs run it once a minute.
let ran = performance.now();
setInterval(() => {
  const now = performance.now();
  state.longestPause = Math.max(state.longestPause, now - ran);
  ran = now;
}, 1000);

function connect() {
  const socket = new WebSocket(edge, ["pushmesh.v1"]);
  socket.binaryType = "arraybuffer";
  const cutter = new Cutter();
  socket.onopen = () => socket.send(frame(HELLO, [1, 1], [2, client], [4, "inbox"], [5, heartbeat]));
  socket.onmessage = ({ data }) => {
    for (const [type, fields] of cutter.frames(data)) take(socket, type, fields);
  };
  socket.onclose = ({ code }) => {
    state.closes.push(code);
    setTimeout(connect, 100);
  };
}

function take(socket, type, fields) {
  switch (type) {
    case WELCOME:
      socket.send(frame(SUBSCRIBE, [1, 1], [2, topic], [3, true], [4, START_SESSION]));
      return;
    case SUBSCRIBED:
      state.subscribed++;
      return;
    case MESSAGE:
      received(Number(text(fields[3])));
      socket.send(frame(ACK, [1, encode([1, topic], [2, fields[2]])]));
      return;
    case ERROR:
      state.faults.push(`${fields[1]} ${text(fields[2])}`);
  }
}

// received notes a message before it is ACKed: what comes again was noted, and its ACK was lost.
function received(n) {
  if (n <= state.last) {
    state.again++;
    return;
  }
  if (n !== state.last + 1) state.disorder.push(`${n} behind ${state.last}`);
  state.last = n;
  localStorage.setItem(client, n);
}

connect();
