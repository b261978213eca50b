// Makes src/wire/schema.ts of the .proto files: the interface and the table of fields of every frame.
//   node scripts/generate.mjs [OUT]
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const proto = (name) => readFileSync(fileURLToPath(new URL(`../../../proto/pushmesh/wire/v1/${name}.proto`, import.meta.url)), "utf8");

// 64-bit numbers that may be 2^53 or more: those of a random kind, and fencing tokens. All others
// are microseconds since 1970, or count messages.
const big = new Set(["Welcome.connection_id", "Claim.token", "ClaimState.token", "Ping.sent_at", "Pong.sent_at"]);

// One letter for each kind of value; codec.ts knows them.
const kinds = { uint32: "u", uint64: "n", fixed64: "f", bool: "b", double: "d", float: "g", string: "s", bytes: "y" };
const types = { u: "number", n: "number", N: "bigint", f: "number", F: "bigint", b: "boolean", d: "number", g: "number", s: "string", y: "Uint8Array", e: "number" };

const camel = (name) => name.replace(/_(.)/g, (_, c) => c.toUpperCase());

/** parse reads messages and enums of a file; what it does not know is an error. */
function parse(text) {
  const enums = [], messages = [], open = [];
  for (const raw of text.split("\n")) {
    const line = raw.replace(/\/\/.*/, "").trim();
    let m;
    if (line === "" || /^(syntax|package|import|option|reserved) .*;$|^syntax =/.test(line)) continue;
    if ((m = /^(message|enum) (\w+) \{$/.exec(line))) {
      const at = { is: m[1], name: [...open.filter((o) => o.is === "message").map((o) => o.name), m[2]].join("_"), short: m[2], fields: [] };
      (m[1] === "enum" ? enums : messages).push(at);
      open.push(at);
    } else if (line === "}") {
      open.pop();
    } else if ((m = /^(\w+) = (\d+);$/.exec(line)) && open.at(-1)?.is === "enum") {
      open.at(-1).fields.push({ name: m[1], number: +m[2] });
    } else if ((m = /^(?:(repeated) )?(?:map<string, (\w+)>|(\w+)) (\w+) = (\d+);$/.exec(line)) && open.at(-1)?.is === "message") {
      open.at(-1).fields.push({ form: m[1] ? "r" : m[2] ? "m" : "", type: m[2] ?? m[3], name: m[4], number: +m[5] });
    } else {
      throw new Error(`generate.mjs does not know this line: ${raw}`);
    }
  }
  return { enums, messages };
}

/** kindOf is the letter of a field, or the name of another message. */
function kindOf(message, field, all) {
  const letter = kinds[field.type];
  if (letter) return big.has(`${message.name}.${field.name}`) ? letter.toUpperCase() : letter;
  const scoped = [`${message.name}_${field.type}`, field.type];
  if (all.enums.some((e) => scoped.includes(e.name))) return "e";
  const other = all.messages.find((m) => scoped.includes(m.name));
  if (!other) throw new Error(`${message.name}.${field.name} has a type that is not known: ${field.type}`);
  return { message: other.name };
}

function typeOf(kind, form) {
  const one = kind.message ?? types[kind];
  return form === "r" ? `${one}[]` : form === "m" ? `Record<string, ${one}>` : one;
}

const prefixOf = (name) => name.replace(/([a-z])([A-Z])/g, "$1_$2").toUpperCase();

export function generate() {
  const files = [parse(proto("code")), parse(proto("wire"))];
  const all = { enums: files.flatMap((f) => f.enums), messages: files.flatMap((f) => f.messages) };
  const out = ["// Made of proto/pushmesh/wire/v1 by scripts/generate.mjs. Do not edit.", 'import type { Schema } from "./codec.js";'];
  for (const e of all.enums) {
    const prefix = `${prefixOf(e.short)}_`;
    const short = (f) => f.name.slice(f.name.startsWith(prefix) ? prefix.length : 0);
    if (e.name === "Code") {
      if (e.fields.some((f, i) => f.number !== i)) throw new Error("the codes are not numbered 0, 1, 2, …");
      out.push("", "/** Names of the codes, by their numbers. */", `export const codes = [\n${e.fields.map((f) => `  "${short(f)}",`).join("\n")}\n] as const;`);
    } else {
      out.push("", `export const ${e.name} = {\n${e.fields.map((f) => `  ${short(f)}: ${f.number},`).join("\n")}\n} as const;`);
    }
  }
  // Those that others name come first.
  const done = new Set(), ordered = [];
  const visit = (m) => {
    if (done.has(m.name)) return;
    done.add(m.name);
    for (const f of m.fields) {
      const k = kindOf(m, f, all);
      if (k.message) visit(all.messages.find((o) => o.name === k.message));
    }
    ordered.push(m);
  };
  all.messages.forEach(visit);
  for (const m of ordered) {
    const fields = m.fields.map((f) => ({ ...f, kind: kindOf(m, f, all), camel: camel(f.name) }));
    out.push("", `export interface ${m.name} {\n${fields.map((f) => `  ${f.camel}: ${typeOf(f.kind, f.form)};`).join("\n")}\n}`);
    const row = (f) => `  [${f.number}, "${f.camel}", ${f.kind.message ?? `"${f.kind}"`}${f.form ? `, "${f.form}"` : ""}],`;
    out.push("", `export const ${m.name}: Schema<${m.name}> = [\n${fields.map(row).join("\n")}\n];`);
  }
  return out.join("\n") + "\n";
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(process.argv[2] ?? fileURLToPath(new URL("../src/wire/schema.ts", import.meta.url)), generate());
}
