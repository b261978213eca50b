import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { root } from "./root.js";

/** What a program of these lines has of the package, minified and gzipped. */
async function sizeOf(program: string): Promise<{ gzipped: number; text: string }> {
  const { outputFiles, warnings } = await build({
    stdin: { contents: program, resolveDir: root, loader: "js" },
    bundle: true, minify: true, write: false, format: "esm", target: "es2022", platform: "browser", logLevel: "silent",
  });
  assert.deepEqual(warnings, []);
  return { gzipped: gzipSync(outputFiles[0]!.contents, { level: 9 }).length, text: outputFiles[0]!.text };
}

const base = `import { connect } from "@pushmesh/client"; const c = connect({ url: "ws://x" }); c.subscribe("a/b", console.log); c.publish("a/b", "x");`;

test("subscribe and publish have 25 KB gzipped at most, and what is not used is not there", async (t) => {
  const programs = {
    "subscribe and publish": base,
    "claims too": `${base} import { acquire, watchClaim } from "@pushmesh/client"; acquire(c, "x"); watchClaim(c, "x", console.log);`,
    "presence too": `${base} import { watchPresence, setState } from "@pushmesh/client"; watchPresence(c, "x", console.log); setState(c, "x", "y");`,
    everything: `export * from "@pushmesh/client";`,
    "a tab of a SharedWorker": `import { connectTab } from "@pushmesh/client/shared"; connectTab(new SharedWorker("x")).subscribe("a/b", console.log);`,
  };
  const sizes: Record<string, number> = {};
  for (const [name, program] of Object.entries(programs)) {
    const { gzipped, text } = await sizeOf(program);
    sizes[name] = gzipped;
    t.diagnostic(`${name}: ${gzipped} bytes`);
    if (name === "subscribe and publish") assert.ok(!/holding|countsOnly/.test(text), "claims or presence are in a bundle that does not use them");
    assert.ok(!/\bBuffer\b|\brequire\(|from"node:/.test(text), "something of Node is in the bundle");
  }
  assert.ok(sizes["subscribe and publish"]! <= 25_000, `${sizes["subscribe and publish"]}`);
  assert.ok(sizes["a tab of a SharedWorker"]! < sizes["subscribe and publish"]! / 2);
});
