// Protobuf for the frames of pushmesh: a table of fields says how a message is read and written.
import { fromUTF8, toUTF8 } from "./utf8.js";

/**
 * A field: its number, its name, its kind, and whether it is repeated ("r") or a map from strings
 * ("m"). Kinds: u uint32, n and f uint64 and fixed64 that stay below 2^53, N and F those that may
 * not, b bool, e enum, d double, g float, s string, y bytes, or the table of another message.
 */
export type Field = readonly [number: number, name: string, kind: string | readonly Field[], form?: "r" | "m"];

/** The fields of a message in the order of their numbers. */
export type Schema<T> = readonly Field[] & { readonly __of?: T };

/** Thrown for bytes that are no such message. */
export class BadBytes extends Error {}

const VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5;

const wireTypes: Record<string, number> = { u: VARINT, n: VARINT, N: VARINT, b: VARINT, e: VARINT, f: FIXED64, F: FIXED64, d: FIXED64, g: FIXED32, s: BYTES, y: BYTES };

const wireType = (kind: Field[2]) => (typeof kind === "string" ? wireTypes[kind] : BYTES);

class Writer {
  private bytes = new Uint8Array(128);
  private view = new DataView(this.bytes.buffer);
  length = 0;

  private room(n: number): void {
    const need = this.length + n;
    if (need <= this.bytes.length) return;
    const grown = new Uint8Array(Math.max(need, 2 * this.bytes.length));
    grown.set(this.bytes);
    this.bytes = grown;
    this.view = new DataView(grown.buffer);
  }

  done(): Uint8Array {
    return this.bytes.subarray(0, this.length);
  }

  varint(n: number | bigint): void {
    if (!(n >= 0 && n < 2 ** 64 && (typeof n === "bigint" || Number.isInteger(n)))) throw new BadBytes(`${n} is no number that a frame can say`);
    this.room(10);
    if (typeof n === "bigint") {
      for (; n > 0x7fn; n >>= 7n) this.bytes[this.length++] = Number(n & 0x7fn) | 0x80;
      n = Number(n);
    }
    for (; n > 0x7f; n = Math.floor(n / 128)) this.bytes[this.length++] = (n % 128) | 0x80;
    this.bytes[this.length++] = n;
  }

  raw(bytes: Uint8Array): void {
    this.room(bytes.length);
    this.bytes.set(bytes, this.length);
    this.length += bytes.length;
  }

  fixed(kind: string, value: unknown): void {
    this.room(8);
    if (kind === "g") this.view.setFloat32(this.length, value as number, true);
    else if (kind === "d") this.view.setFloat64(this.length, value as number, true);
    else this.view.setBigUint64(this.length, BigInt(value as number | bigint), true);
    this.length += kind === "g" ? 4 : 8;
  }
}

function write(w: Writer, kind: Field[2], value: unknown): void {
  if (typeof kind !== "string") value = encode(kind, value as object);
  else if (kind === "s") value = toUTF8(value as string);
  switch (wireType(kind)) {
    case VARINT:
      return w.varint(typeof value === "bigint" ? value : Number(value));
    case BYTES:
      w.varint((value as Uint8Array).length);
      return w.raw(value as Uint8Array);
  }
  w.fixed(kind as string, value);
}

const isZero = (value: unknown) => value === undefined || value === 0 || value === 0n || value === false || value === "" || (value instanceof Uint8Array && value.length === 0);

/** Encodes a message. What is absent or zero is left out. */
export function encode<T extends object>(schema: Schema<T>, message: Partial<T>): Uint8Array {
  const w = new Writer();
  for (const [number, name, kind, form] of schema) {
    const value = (message as Record<string, unknown>)[name];
    const tag = (type: number | undefined) => w.varint(number * 8 + (type ?? 0));
    if (form === "m") {
      for (const entry of Object.entries((value ?? {}) as object)) {
        tag(BYTES);
        const inner = encode(entrySchema(kind), { key: entry[0], value: entry[1] });
        w.varint(inner.length);
        w.raw(inner);
      }
    } else if (form === "r") {
      const all = (value ?? []) as unknown[];
      const packed = wireType(kind) !== BYTES;
      if (packed && all.length > 0) {
        const inner = new Writer();
        for (const one of all) write(inner, kind, one);
        tag(BYTES);
        w.varint(inner.length);
        w.raw(inner.done());
      } else if (!packed) {
        for (const one of all) {
          tag(BYTES);
          write(w, kind, one);
        }
      }
    } else if (!isZero(value)) {
      tag(wireType(kind));
      write(w, kind, value);
    }
  }
  return w.done();
}

type Entry = Schema<{ key: string; value: unknown }>;

const textEntry: Entry = [[1, "key", "s"], [2, "value", "s"]];

const entrySchema = (kind: Field[2]): Entry => (kind === "s" ? textEntry : [[1, "key", "s"], [2, "value", kind]]);

class Reader {
  private at = 0;
  private made: DataView | undefined;

  constructor(private readonly bytes: Uint8Array) {}

  private get view(): DataView {
    return (this.made ??= new DataView(this.bytes.buffer, this.bytes.byteOffset, this.bytes.length));
  }

  more(): boolean {
    return this.at < this.bytes.length;
  }

  private take(n: number): number {
    const at = this.at;
    if (n > this.bytes.length - at) throw new BadBytes("a field ends behind its message");
    this.at += n;
    return at;
  }

  varint(): number {
    let n = 0;
    for (let scale = 1; ; scale *= 128) {
      const b = this.bytes[this.take(1)]!;
      n += (b & 0x7f) * scale;
      if (b < 0x80) break;
      if (scale >= 2 ** 63) throw new BadBytes("a number has more than ten bytes");
    }
    return n;
  }

  big(): bigint {
    let n = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const b = this.bytes[this.take(1)]!;
      n |= BigInt(b & 0x7f) << shift;
      if (b < 0x80) return BigInt.asUintN(64, n);
    }
    throw new BadBytes("a number has more than ten bytes");
  }

  slice(): Uint8Array {
    const n = this.varint();
    const at = this.take(n);
    return this.bytes.subarray(at, at + n);
  }

  value(kind: Field[2]): unknown {
    if (typeof kind !== "string") return decode(kind, this.slice());
    switch (kind) {
      case "u":
      case "e":
        return this.varint() % 2 ** 32;
      case "b":
        return this.varint() !== 0;
      case "N":
        return this.big();
      case "n":
        return exact(this.varint());
      case "f":
        return this.fixed(this.take(8));
      case "F":
        return this.view.getBigUint64(this.take(8), true);
      case "d":
        return this.view.getFloat64(this.take(8), true);
      case "g":
        return this.view.getFloat32(this.take(4), true);
      case "s":
        return fromUTF8(this.slice());
    }
    return this.slice();
  }

  private fixed(at: number): number {
    return exact(this.view.getUint32(at, true) + this.view.getUint32(at + 4, true) * 2 ** 32);
  }

  skip(type: number): void {
    if (type === VARINT) this.big();
    else if (type === FIXED64) this.take(8);
    else if (type === FIXED32) this.take(4);
    else if (type === BYTES) this.slice();
    else throw new BadBytes(`there is no wire type ${type}`);
  }
}

/** What is beyond 2^53 where only times and counts may be is no time and no count. */
function exact(n: number): number {
  if (n > Number.MAX_SAFE_INTEGER) throw new BadBytes("a number is above 2^53");
  return n;
}

const zeros: Record<string, unknown> = { N: 0n, F: 0n, b: false, s: "", y: new Uint8Array(0) };

/** Fields by their numbers, made at a schema's first use. */
const indexes = new WeakMap<readonly Field[], (Field | undefined)[]>();

function indexOf(schema: readonly Field[]): (Field | undefined)[] {
  let index = indexes.get(schema);
  if (!index) {
    index = [];
    for (const field of schema) index[field[0]] = field;
    indexes.set(schema, index);
  }
  return index;
}

const zero = (kind: Field[2], form: Field[3]): unknown => {
  if (form) return form === "r" ? [] : {};
  return typeof kind === "string" ? (zeros[kind] ?? 0) : undefined;
};

/** Decodes a message; unknown fields are passed over. Its bytes share the memory of those given. */
export function decode<T extends object>(schema: Schema<T>, bytes: Uint8Array): T {
  const message: Record<string, unknown> = {};
  for (const [, name, kind, form] of schema) message[name] = zero(kind, form);
  const r = new Reader(bytes);
  const index = indexOf(schema);
  while (r.more()) {
    const tag = r.varint();
    const type = tag % 8;
    const number = (tag - type) / 8;
    const field = index[number];
    if (!field) {
      r.skip(type);
      continue;
    }
    const [, name, kind, form] = field;
    if (form === "m" && type === BYTES) {
      const entry = decode(entrySchema(kind), r.slice());
      // as defineProperty does, not by a setter: "__proto__" is a name like any other
      if (entry.key !== "__proto__") (message[name] as Record<string, unknown>)[entry.key] = entry.value;
      else Object.defineProperty(message[name], entry.key, { value: entry.value, enumerable: true, configurable: true, writable: true });
    } else if (form === "r" && type === BYTES && wireType(kind) !== BYTES) {
      const packed = new Reader(r.slice());
      while (packed.more()) (message[name] as unknown[]).push(packed.value(kind));
    } else if (type !== wireType(kind)) {
      r.skip(type);
    } else if (form === "r") {
      (message[name] as unknown[]).push(r.value(kind));
    } else {
      message[name] = r.value(kind);
    }
  }
  return message as T;
}
