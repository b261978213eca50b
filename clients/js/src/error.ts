import { codes } from "./wire/schema.js";

/** A reason: the one closed list of the wire, gRPC, logs and metrics, by name. */
export type Code = (typeof codes)[number];

/** A code that this client does not know is a fault of the mesh. */
export const codeOf = (number: number): Code => codes[number] ?? "INTERNAL";

// What may be tried again as it is.
const again: readonly Code[] = ["HANDSHAKE_TIMEOUT", "RATE_LIMITED", "OVERLOADED", "SLOW_CONSUMER", "IDLE_TIMEOUT", "UNHEALTHY", "DRAINING", "UNAVAILABLE", "INTERNAL", "TOO_MANY_CONNECTIONS", "ACK_TIMEOUT"];

/** A refusal, by the mesh or by this client, with its reason. */
export class MeshError extends Error {
  override readonly name = "MeshError";

  constructor(
    readonly code: Code,
    /** For people. */
    readonly reason = "",
    /** When trying again may help, in milliseconds; 0: not said. */
    readonly retryAfterMs = 0,
    /** The mesh may have done what was asked: the connection broke before the answer. */
    readonly unknown = false,
  ) {
    super(reason === "" ? code : `${code}: ${reason}`);
  }

  /** Whether the same, tried again later, can succeed. */
  get retryable(): boolean {
    return again.includes(this.code);
  }
}

export const invalid = (reason: string) => new MeshError("INVALID_ARGUMENT", reason);

/** What everything that is unanswered ends with when the client is closed. */
export const closedError = () => new MeshError("CANCELLED", "the client is closed");

/** Any thrown value as an Error. */
export const asError = (e: unknown): Error => (e instanceof Error ? e : new Error(String(e)));
