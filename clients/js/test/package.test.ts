import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { root } from "./root.js";

const programs = {
  "client.ts": `
    import { MeshError, acquire, checkClaim, connect, setState, watchClaim, watchPresence, type Client, type Message, type Subscription } from "@pushmesh/client";
    const client: Client = connect({ url: ["wss://a"], clientId: "x", getToken: async ({ signal }) => (signal.aborted ? null : "t") });
    const sub: Subscription = client.subscribe("a/b", async (m: Message) => m.json<{ n: number }>().n + m.publishedAt.getTime(), { ack: true, from: { last: 3 }, onGap: (g) => g.code });
    for await (const m of client.subscribe("a/c")) m.text().at(m.payload.length);
    client.on("ended", (e: MeshError) => void e.retryable);
    const { seq } = await client.publish("a/b", { n: 1 }, { dedupeKey: true });
    const seat = await acquire(client, "x", { waitMs: 5 });
    export const all = [seq, seat.token > 0n, sub.standing, sub.positions(), checkClaim, setState, watchClaim, watchPresence];`,
  "page.tsx": `
    import { connect } from "@pushmesh/client";
    import { connectTab, serveTabs, type TabMessage } from "@pushmesh/client/shared";
    import { useMessages, usePresence } from "@pushmesh/react";
    const mesh = connect({ url: "wss://a", WebSocket });
    serveTabs(mesh);
    connectTab(new SharedWorker("x")).subscribe("a", (m: TabMessage) => m.json());
    export function Room() {
      const { messages, gap } = useMessages(mesh, "a", { from: { last: 2 }, keep: 3, onMessage: (m) => m.seq });
      return <p>{messages.map((m) => m.text())}{gap?.missed}{usePresence(mesh, "a").count}</p>;
    }`,
};

let folder: string;

before(() => {
  folder = mkdtempSync(`${tmpdir()}/pushmesh-js-user-`);
  for (const [name, at] of [["client", root], ["react", `${root}/react`]] as const) {
    for (const part of ["dist", "package.json"]) cpSync(`${at}/${part}`, `${folder}/node_modules/@pushmesh/${name}/${part}`, { recursive: true });
  }
  symlinkSync(`${root}/node_modules/@types`, `${folder}/node_modules/@types`);
  writeFileSync(`${folder}/package.json`, '{"private": true, "type": "module"}');
  for (const [name, text] of Object.entries(programs)) writeFileSync(`${folder}/${name}`, text);
});

after(() => rmSync(folder, { recursive: true, force: true }));

for (const [name, options, files] of [
  ["a bundler's", { module: "esnext", moduleResolution: "bundler", lib: ["es2022", "dom", "dom.iterable"], types: [], jsx: "react-jsx" }, ["client.ts", "page.tsx"]],
  ["a page's of Node's modules, as strict as can be", { module: "node16", lib: ["es2022", "dom"], types: [], jsx: "react-jsx", exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, verbatimModuleSyntax: true }, ["client.ts", "page.tsx"]],
  ["Node's, without a page's types", { module: "node16", lib: ["es2022"], types: ["node"] }, ["client.ts"]],
  ["a worker's", { module: "esnext", moduleResolution: "bundler", lib: ["es2022", "webworker"], types: [] }, ["client.ts"]],
] as const) {
  test(`the types are those of ${name} program`, async () => {
    writeFileSync(`${folder}/tsconfig.json`, JSON.stringify({ compilerOptions: { strict: true, skipLibCheck: false, noEmit: true, target: "es2022", ...options }, files }));
    await promisify(execFile)(process.execPath, [`${root}/node_modules/typescript/bin/tsc`, "-p", folder]).catch((e: { stdout: string }) => assert.fail(e.stdout));
  });
}

test("the packages have what they say", () => {
  for (const at of [root, `${root}/react`]) {
    const { exports, types, files, sideEffects, publishConfig } = JSON.parse(readFileSync(`${at}/package.json`, "utf8"));
    for (const file of [types, ...Object.values(exports as Record<string, string | Record<string, string>>).flatMap((e) => (typeof e === "string" ? [e] : Object.values(e))), ...files]) {
      assert.ok(existsSync(`${at}/${file}`), `${at}: ${file}`);
    }
    for (const entry of Object.values(exports as Record<string, string | Record<string, string>>)) if (typeof entry !== "string") assert.equal(Object.keys(entry)[0], "types");
    assert.equal(sideEffects, false);
    assert.equal(publishConfig?.access, "public", "a package with a scope is private unless it says so");
  }
});
