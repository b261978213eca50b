import { MeshError, codeOf } from "../error.js";
import { decode } from "../wire/codec.js";
import { Error as ErrorFrame, GoAway as GoAwayFrame } from "../wire/schema.js";

/** The edge's wish that the connection be made again elsewhere. */
export class GoAway extends MeshError {
  constructor(
    refusal: MeshError,
    readonly addresses: readonly string[],
    /** When to come back, by the client's clock; 0: whenever. */
    readonly due: number,
  ) {
    super(refusal.code, refusal.reason, refusal.retryAfterMs);
  }
}

export function goAwayOf(body: Uint8Array, now: number): GoAway {
  const m = decode(GoAwayFrame, body);
  return new GoAway(new MeshError(codeOf(m.code), m.reason, m.reconnectAfterMs), m.addresses, m.reconnectAfterMs > 0 ? now + m.reconnectAfterMs : 0);
}

/** A refusal, and the request that it answers; 0: the connection. */
export function refusalOf(body: Uint8Array): [error: MeshError, ref: number] {
  const m = decode(ErrorFrame, body);
  return [new MeshError(codeOf(m.code), m.message, m.retryAfterMs), m.ref];
}
