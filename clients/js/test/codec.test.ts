import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { build } from "esbuild";
import { decode, encode, type Field, type Schema } from "../src/wire/codec.js";
import { cut, frame } from "../src/wire/frames.js";
import * as schema from "../src/wire/schema.js";
import { slowly, toUTF8 } from "../src/wire/utf8.js";
import { root } from "./root.js";

interface Vector {
  message: string;
  hex: string;
  json: unknown;
}

const vectors = JSON.parse(readFileSync(`${root}/test/vectors.json`, "utf8")) as Vector[];
const schemas = schema as unknown as Record<string, Schema<object> | undefined>;
const bytesOf = (hex: string) => Uint8Array.from(hex.match(/../g) ?? [], (b) => parseInt(b, 16));
const hexOf = (bytes: Uint8Array) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

/** A message as protobuf's JSON: 64-bit numbers are strings, bytes are base64. */
function jsonOf(fields: readonly Field[], message: Record<string, unknown>): unknown {
  const one = (kind: Field[2], v: unknown): unknown => {
    if (typeof kind !== "string") return jsonOf(kind, v as Record<string, unknown>);
    if ("nNfF".includes(kind)) return String(v);
    return kind === "y" ? Buffer.from(v as Uint8Array).toString("base64") : v;
  };
  return Object.fromEntries(
    fields.map(([, name, kind, form]) => {
      const v = message[name];
      if (form === "r") return [name, (v as unknown[]).map((x) => one(kind, x))];
      if (form === "m") return [name, Object.fromEntries(Object.entries(v as object).map(([k, x]) => [k, one(kind, x)]))];
      return [name, one(kind, v)];
    }),
  );
}

test("every frame is read and written as Go does, with every field", () => {
  assert.ok(vectors.length >= 24);
  for (const { message, hex, json } of vectors) {
    const fields = schemas[message];
    assert.ok(fields, `there is no ${message}`);
    const decoded = decode(fields, bytesOf(hex));
    assert.deepEqual(jsonOf(fields, decoded as Record<string, unknown>), json, message);
    assert.equal(hexOf(encode(fields, decoded)), hex, message);
  }
});

test("no frame of the schema is without a vector", () => {
  const named = new Set(vectors.map((v) => v.message));
  const missing = Object.entries(schemas).filter(([name, fields]) => Array.isArray(fields?.[0]) && !name.includes("_") && !named.has(name));
  assert.deepEqual(missing.map(([name]) => name), []);
});

test("schema.ts is what the .proto files say", async () => {
  const { generate } = (await import(`${root}/scripts/generate.mjs`)) as { generate: () => string };
  assert.equal(readFileSync(`${root}/src/wire/schema.ts`, "utf8"), generate(), "npm run generate");
});

test("what is cut off or too large is no message", () => {
  for (const { message, hex } of vectors) {
    const bytes = bytesOf(hex);
    for (let n = 1; n < Math.min(bytes.length, 200); n++) {
      try {
        decode(schemas[message]!, bytes.subarray(0, n)); // it may end between two fields
      } catch (e) {
        assert.match(String(e), /ends behind|ten bytes|utf-8|encoded data/i);
      }
    }
  }
  const above = encode<{ n: bigint }>([[2, "n", "N"]], { n: 2n ** 53n });
  assert.throws(() => decode(schema.Message, above), /2\^53/);
  assert.throws(() => decode(schema.Message, new Uint8Array(12).fill(0xff)), /ten bytes/);
  assert.throws(() => decode(schema.Message, Uint8Array.of(0x0a, 1, 0xff)), TypeError);
});

/** Numbers that look random, and are the same each time. */
function numbers(seed: number): (n: number) => number {
  return (n) => (seed = (seed * 48271) % 2147483647) % n;
}

test("whatever bytes come, a message or a refusal comes of them", () => {
  const random = numbers(11);
  const refusal = /ends behind|ten bytes|2\^53|no wire type|utf-8|encoded data|cut off/i;
  let read = 0;
  for (let i = 0; i < 40_000; i++) {
    const { message, hex } = vectors[random(vectors.length)]!;
    const bytes = bytesOf(hex);
    for (let n = 1 + random(4); n > 0; n--) {
      const at = random(bytes.length);
      bytes[at] = [0x00, 0x7f, 0x80, 0xff, random(256)][random(5)]!;
    }
    const from = random(4) === 0 ? random(bytes.length) : 0;
    const cutTo = random(4) === 0 ? from + random(bytes.length - from) : bytes.length;
    const fields = schemas[message]!;
    let decoded: object;
    try {
      decoded = decode(fields, bytes.subarray(from, cutTo));
      read++;
    } catch (e) {
      assert.match(String(e), refusal);
      continue;
    }
    // What was read can be written, and is then read as the same.
    assert.deepEqual(decode(fields, encode(fields, decoded)), decoded, `${message} ${hexOf(bytes.subarray(from, cutTo))}`);
  }
  assert.ok(read > 1000 && read < 39_000, `${read}`);
  for (let i = 0; i < 20_000; i++) {
    const bytes = Uint8Array.from({ length: random(40) }, () => [0, 0, 0, 1, 4, random(256)][random(6)]!);
    try {
      let all = 0;
      for (const [, body] of cut(bytes)) all += 4 + body.length;
      assert.equal(all, bytes.length);
    } catch (e) {
      assert.match(String(e), refusal);
    }
  }
});

test("a number that no frame can say is refused", () => {
  for (const n of [-1, 1.5, NaN, Infinity, 2 ** 64]) assert.throws(() => encode(schema.Subscribe, { id: n }), /no number/, String(n));
  for (const n of [-1n, 2n ** 64n]) assert.throws(() => encode(schema.Claim, { token: n }), /no number/, String(n));
});

test("a TextDecoder that knows no options is done without", async () => {
  const own = globalThis.TextDecoder;
  globalThis.TextDecoder = class {
    constructor(_: string, options?: { fatal?: boolean }) {
      if (options?.fatal) throw new Error("the 'fatal' option is unsupported");
    }
  } as unknown as typeof TextDecoder;
  try {
    const { outputFiles } = await build({ entryPoints: [`${root}/src/wire/utf8.ts`], bundle: true, write: false, format: "esm", logLevel: "silent" });
    const { fromUTF8 } = (await import(`data:text/javascript,${encodeURIComponent(outputFiles[0]!.text)}`)) as { fromUTF8: (b: Uint8Array) => string };
    assert.equal(fromUTF8(toUTF8("grüße, und mehr als zweiunddreißig Bytes 🙂")), "grüße, und mehr als zweiunddreißig Bytes 🙂");
  } finally {
    globalThis.TextDecoder = own;
  }
});

test("unknown fields are passed over", () => {
  const later: Schema<Record<string, unknown>> = [[1, "topic", "s"], [2, "seq", "n"], [99, "a", "u"], [100, "b", "s"], [101, "c", "f"], [102, "d", "g"]];
  const bytes = encode(later, { topic: "a/b", seq: 7, a: 1, b: "x", c: 2, d: 3 });
  const { topic, seq } = decode(schema.Message, bytes);
  assert.deepEqual([topic, seq], ["a/b", 7]);
});

test("numbers in a list come packed or not", () => {
  const unpacked = Uint8Array.of(0x58, 3, 0x58, 0x80, 1); // subs 3, 128
  assert.deepEqual(decode(schema.Message, unpacked).subs, [3, 128]);
});

test("a header may have any name", () => {
  const m = decode(schema.Message, encode(schema.Message, { headers: JSON.parse('{"__proto__":"x","constructor":"y"}') as Record<string, string> }));
  assert.deepEqual(Object.entries(m.headers), [["__proto__", "x"], ["constructor", "y"]]);
});

test("frames are cut where they end", () => {
  const two = Buffer.concat([frame(schema.FrameType.PING, schema.Ping, { sentAt: 5n }), frame(schema.FrameType.STATED, schema.Stated, { id: 3 })]);
  assert.deepEqual([...cut(two)].map(([type, body]) => [type, body.length]), [[10, 9], [24, 2]]);
  for (const n of [1, 3, 5, 12, 14, 18]) assert.throws(() => [...cut(two.subarray(0, n))], /cut off/);
});

test("UTF-8 by hand is as the platform's", () => {
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const result = (f: () => string) => {
    try {
      return f();
    } catch {
      return undefined;
    }
  };
  for (const text of ["", "plain", "grüße", "語", "🙂", "\u0000\u007f\u0080\u07ff\u0800\uffff", "\ufeffx"]) assert.equal(slowly(toUTF8(text)), text);
  let seed = 1;
  const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  const starts = [0x00, 0x41, 0x7f, 0x80, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff, 0x90, 0xa0];
  for (let i = 0; i < 20_000; i++) {
    const bytes = Uint8Array.from({ length: 1 + random(5) }, () => starts[random(starts.length)]!);
    assert.equal(result(() => slowly(bytes)), result(() => strict.decode(bytes)), hexOf(bytes));
  }
});
