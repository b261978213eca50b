// Frames: three bytes of length, one of type, and the body.
import { BadBytes, encode, type Schema } from "./codec.js";

/** The WebSocket subprotocol of native frames. */
export const SUBPROTOCOL = "pushmesh.v1";

const HEADER = 4;

/** A frame as it is sent. */
export function frame<T extends object>(type: number, schema: Schema<T>, message: Partial<T>): Uint8Array {
  const body = encode(schema, message);
  if (body.length >= 2 ** 24) throw new BadBytes(`a frame of ${body.length} bytes can't be sent`);
  const out = new Uint8Array(HEADER + body.length);
  out.set([body.length >> 16, (body.length >> 8) & 0xff, body.length & 0xff, type]);
  out.set(body, HEADER);
  return out;
}

/** The frames of a message from the edge, each whole: its type and its body. */
export function* cut(bytes: Uint8Array): Generator<[type: number, body: Uint8Array]> {
  for (let at = 0; at < bytes.length; ) {
    if (bytes.length - at < HEADER) throw new BadBytes("a frame is cut off in its header");
    const length = bytes[at]! * 65536 + bytes[at + 1]! * 256 + bytes[at + 2]!;
    const type = bytes[at + 3]!;
    at += HEADER;
    if (bytes.length - at < length) throw new BadBytes("a frame is cut off in its body");
    yield [type, bytes.subarray(at, at + length)];
    at += length;
  }
}
