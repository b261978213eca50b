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

/** Why a signal was aborted, as it says; those of React Native don't. */
export const reasonOf = (signal: AbortSignal): unknown => (signal.reason === undefined ? Object.assign(new Error("it was aborted"), { name: "AbortError" }) : signal.reason);

/** Throws why a signal was aborted, where it was. */
export function checkSignal(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw reasonOf(signal);
}

/** Calls f when a signal aborts; what it returns undoes that. */
export function onAbort(signal: AbortSignal | undefined, f: (why: unknown) => void): () => void {
  if (!signal) return () => undefined;
  const aborted = () => f(reasonOf(signal));
  signal.addEventListener("abort", aborted, { once: true });
  return () => signal.removeEventListener("abort", aborted);
}

/** Has a signal end what goes on, until that is over. */
export function endOnAbort(signal: AbortSignal | undefined, it: { ended: Promise<unknown>; abort(why: unknown): void }): void {
  void it.ended.then(onAbort(signal, (why) => it.abort(why)));
}

/** What comes of a call, or why its signal was aborted before; undo takes back what can be. */
export async function orAborted<T>(call: Promise<T>, signal: AbortSignal | undefined, undo: () => void = () => undefined): Promise<T> {
  let forget = () => undefined as void;
  const aborted = new Promise<never>((_, reject) => {
    forget = onAbort(signal, (why) => {
      undo();
      reject(why);
    });
  });
  try {
    return await Promise.race([call, aborted]);
  } finally {
    forget();
  }
}
