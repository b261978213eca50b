import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { after, before, mock, test } from "node:test";
import { promisify } from "node:util";
import { WebSocket } from "ws";
import { connect } from "../src/index.js";
import { startMesh, startWire, type Mesh } from "./mesh.js";
import { root } from "./root.js";

let mesh: Mesh;

before(async () => {
  mesh = await startMesh();
});

after(() => mesh.stop());

/** What the programs of README.md print. */
const prints: Record<string, string> = {
  chat: "client:ann: hello\nclient:ann: bye\n",
  jobs: "job 1 is done\njob 2 is done\njob 3 is done\n",
  resume: "seqs 1, 2, 3\nseqs 4, 5, 6\n",
  seat: "ann has the seat, with token true\nbob is number 1 in the line\nann has given it up\nbob has it: true, and a greater token: true\n",
  who: "there are 0\nclient:bob is there\nclient:bob is typing now\nclient:bob has left\n",
};

test("README.md shows the programs that are tested", () => {
  const readme = readFileSync(`${root}/README.md`, "utf8");
  assert.deepEqual(readdirSync(`${root}/examples`).sort(), Object.keys(prints).map((name) => `${name}.mjs`).sort());
  for (const name of Object.keys(prints)) {
    const program = readFileSync(`${root}/examples/${name}.mjs`, "utf8");
    assert.ok(readme.includes(`\`\`\`js\n${program}\`\`\``), `${name}.mjs is not in README.md as it is`);
  }
});

for (const [name, want] of Object.entries(prints)) {
  test(`${name}.mjs does what README.md says`, async () => {
    const { stdout } = await promisify(execFile)(process.execPath, ["--experimental-websocket", "--no-warnings", `${root}/examples/${name}.mjs`], { env: { ...process.env, EDGE: `ws://${mesh.edge}` }, timeout: 60_000 });
    assert.equal(stdout, want);
  });
}

test("a laptop that was closed for an hour gets everything that it missed, once", async () => {
  const wire = await startWire(mesh.edge);
  const options = { url: `ws://${wire.address}`, heartbeatMs: 1000, minBackoffMs: 5, maxBackoffMs: 20, WebSocket };
  const reader = connect({ ...options, clientId: "lid" });
  const sessions = connect({ ...options, clientId: "lid-session", session: "lid" });
  const writer = connect({ url: `ws://${mesh.edge}`, clientId: "writer", WebSocket });
  const gaps: unknown[] = [];
  const got = new Map<string, number[]>();
  let ready!: () => void;
  let all!: () => void;
  const half = new Promise<void>((resolve) => (ready = resolve));
  const done = new Promise<void>((resolve) => (all = resolve));
  const take = (name: string) => (m: { text(): string }) => {
    got.set(name, [...(got.get(name) ?? []), Number(m.text())]);
    const least = Math.min(...["plain", "acked"].map((n) => got.get(n)?.length ?? 0));
    if (least >= 100) ready();
    if (least >= 300) all();
  };
  let connections = 0;
  for (const c of [reader, sessions]) {
    c.on("gap", (gap) => gaps.push(gap));
    c.on("connected", () => connections++);
  }
  const subs = [reader.subscribe("room/lid", take("plain")), sessions.subscribe("room/lid", take("acked"), { ack: true, from: "session" })];
  await Promise.all(subs.map((s) => s.ready));
  const publish = (from: number, to: number) => Promise.all(Array.from({ length: to - from }, (_, i) => writer.publish("room/lid", String(from + i), { dedupeKey: `lid-${from + i}` })));
  await publish(0, 100);
  await half;
  const awake = Date.now.bind(Date);
  try {
    wire.freeze();
    await publish(100, 300);
    mock.method(Date, "now", () => awake() + 3_600_000); // and no timer has fired
    await done;
  } finally {
    mock.restoreAll();
  }
  await Promise.all([reader, sessions, writer].map((c) => c.close()));
  const want = Array.from({ length: 300 }, (_, n) => n);
  assert.deepEqual([got.get("plain"), got.get("acked"), gaps, connections], [want, want, [], 4]);
  wire.stop();
});

test("whatever is cut, nothing is missing and nothing comes twice", async (t) => {
  const messages = Number(process.env["PUSHMESH_JS_MESSAGES"] ?? 5000);
  const cuts = Number(process.env["PUSHMESH_JS_CUTS"] ?? 10);
  const wire = await startWire(mesh.edge);
  const options = { url: `ws://${wire.address}`, minBackoffMs: 5, maxBackoffMs: 20, WebSocket };
  const reader = connect({ ...options, clientId: "reader" });
  const sessions = connect({ ...options, clientId: "sessions", session: "cuts" });
  const writer = connect({ ...options, clientId: "writer" });
  const gaps: unknown[] = [];
  let connections = 0;
  for (const c of [reader, sessions]) {
    c.on("gap", (gap) => gaps.push(gap));
    c.on("connected", () => connections++);
  }
  const plain = reader.subscribe("room/cuts/#");
  const acked = sessions.subscribe("room/cuts/+", { ack: true, from: "session" });
  await Promise.all([plain.ready, acked.ready]);
  const cutEvery = messages / (cuts + 1);
  const read = async (sub: typeof plain) => {
    const next = new Map<string, number>(); // of each topic
    let n = 0;
    for await (const m of sub) {
      const want = next.get(m.topic) ?? Number(m.topic.slice(-1));
      assert.equal(Number(m.text()), want, m.topic);
      next.set(m.topic, want + 3);
      if (sub === plain && Math.floor(++n / cutEvery) > Math.floor((n - 1) / cutEvery) && n < messages) wire.cut();
      else if (sub !== plain) n++;
      if (n === messages) break;
    }
    return n;
  };
  const began = performance.now();
  const readers = Promise.all([read(plain), read(acked)]);
  const published = Promise.all(Array.from({ length: messages }, (_, n) => writer.publish(`room/cuts/${n % 3}`, String(n), { dedupeKey: `cut-${n}` })));
  assert.deepEqual(await readers, [messages, messages]);
  await published;
  assert.deepEqual(gaps, []);
  assert.ok(connections > cuts, `${connections} connections`);
  t.diagnostic(`${messages} messages to two readers through ${cuts} cuts, on ${connections} connections, took ${Math.round(performance.now() - began)} ms`);
  await Promise.all([reader, sessions, writer].map((c) => c.close()));
  wire.stop();
});
