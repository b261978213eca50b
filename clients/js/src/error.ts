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

/** Any thrown value as an Error whose message is text. */
export function asError(e: unknown): Error {
  if (e instanceof Error && typeof e.message === "string") return e;
  let text = "something that is no text was thrown";
  try {
    text = String(e instanceof Error ? e.message : e);
  } catch {
    // of an object without a prototype, for one
  }
  return new Error(text, { cause: e });
}

/** Why a signal was aborted. Those of React Native don't say. */
export const reasonOf = (signal: AbortSignal): Error => (signal.reason === undefined ? new Error("it was aborted") : asError(signal.reason));

/** Calls f when a signal aborts; what it returns undoes that. One that has aborted throws. */
export function onAbort(signal: AbortSignal | undefined, f: (why: Error) => void): () => void {
  if (!signal) return () => undefined;
  if (signal.aborted) throw reasonOf(signal);
  const aborted = () => f(reasonOf(signal));
  signal.addEventListener("abort", aborted, { once: true });
  return () => signal.removeEventListener("abort", aborted);
}
