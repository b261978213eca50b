import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { after, before, test } from "node:test";
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

test("whatever is cut, nothing is missing and nothing comes twice", async (t) => {
  const messages = Number(process.env["PUSHMESH_JS_MESSAGES"] ?? 5000);
  const cuts = Number(process.env["PUSHMESH_JS_CUTS"] ?? 10);
  const wire = await startWire(mesh.edge);
  const options = { url: `ws://${wire.address}`, minBackoffMs: 5, maxBackoffMs: 20, WebSocket };
  const reader = connect({ ...options, clientId: "reader" });
  const sessions = connect({ ...options, clientId: "sessions", session: "cuts" });
  const writer = connect({ ...options, clientId: "writer" });
  const gaps: unknown[] = [];
  for (const c of [reader, sessions]) c.on("gap", (gap) => gaps.push(gap));
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
  t.diagnostic(`${messages} messages to two readers through ${cuts} cuts took ${Math.round(performance.now() - began)} ms`);
  await Promise.all([reader, sessions, writer].map((c) => c.close()));
  wire.stop();
});
