// Frames of the subscriber protocol (docs/protocol.md), as far as a subscriber needs them: a header of four bytes and a protobuf message.

export const HELLO = 1, WELCOME = 2, SUBSCRIBE = 3, SUBSCRIBED = 4, MESSAGE = 7, ACK = 8, ERROR = 16, GO_AWAY = 17;

// Of Subscribe.start.
export const START_EARLIEST = 1, START_SESSION = 4;

function varint(n) {
  const out = [];
  for (n = BigInt(n); n > 127n; n >>= 7n) out.push(Number(n & 127n) | 128);
  out.push(Number(n));
  return out;
}

// encode makes a message of [number, value] pairs: numbers and booleans are varints, strings and arrays of bytes have a length.
export function encode(...fields) {
  const out = [];
  for (const [number, value] of fields) {
    if (typeof value === "string" || Array.isArray(value)) {
      const bytes = typeof value === "string" ? new TextEncoder().encode(value) : value;
      out.push(...varint((number << 3) | 2), ...varint(bytes.length), ...bytes);
    } else {
      out.push(...varint(number << 3), ...varint(value));
    }
  }
  return out;
}

export function frame(type, ...fields) {
  const body = encode(...fields);
  return new Uint8Array([body.length >> 16, (body.length >> 8) & 255, body.length & 255, type, ...body]);
}

function readVarint(b, at) {
  let n = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = b[at++];
    n |= BigInt(byte & 127) << shift;
    if (byte < 128) return [n, at];
  }
}

// decode gives a message's fields by number: the last value of each, a BigInt or bytes.
export function decode(b) {
  const fields = {};
  for (let at = 0; at < b.length; ) {
    let tag, value;
    [tag, at] = readVarint(b, at);
    switch (Number(tag & 7n)) {
      case 0:
        [value, at] = readVarint(b, at);
        break;
      case 1:
        value = b.subarray(at, at + 8);
        at += 8;
        break;
      case 2: {
        let size;
        [size, at] = readVarint(b, at);
        value = b.subarray(at, at + Number(size));
        at += Number(size);
        break;
      }
      default:
        throw new Error(`a field of wire type ${tag & 7n}`);
    }
    fields[Number(tag >> 3n)] = value;
  }
  return fields;
}

export const text = (bytes) => new TextDecoder().decode(bytes ?? new Uint8Array());

// Cutter cuts frames from what messages hold, one behind the other.
export class Cutter {
  left = new Uint8Array();

  *frames(data) {
    let b = new Uint8Array(data);
    if (this.left.length > 0) {
      const all = new Uint8Array(this.left.length + b.length);
      all.set(this.left);
      all.set(b, this.left.length);
      b = all;
    }
    for (;;) {
      const size = b.length < 4 ? Infinity : (b[0] << 16) | (b[1] << 8) | b[2];
      if (b.length < 4 + size) break;
      yield [b[3], decode(b.subarray(4, 4 + size))];
      b = b.subarray(4 + size);
    }
    this.left = b;
  }
}
