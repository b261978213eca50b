// What a tab and the worker that has the connection say to each other, by structured clones.
import type { Connection, Events, Gap, State } from "../options.js";
import type { PublishOptions } from "../publish.js";
import type { PresenceChange } from "../presence/crowd.js";
import type { Position, SubscribeOptions } from "../subscribe/options.js";
import type { Code, MeshError } from "../error.js";

/** A MeshError without its class, which structured clones lose. */
export interface Fault {
  code: Code;
  reason: string;
  retryAfterMs: number;
  unknown: boolean;
}

export const faultOf = ({ code, reason, retryAfterMs, unknown }: MeshError): Fault => ({ code, reason, retryAfterMs, unknown });

/** A message without its methods. */
export interface Plain {
  topic: string;
  seq: number;
  epoch: number;
  payload: Uint8Array;
  id: string;
  headers: Readonly<Record<string, string>>;
  attempt: number;
  priority: number;
  from: string;
  score: number;
  unranked: boolean;
  traceparent: string;
  publishedAt: Date;
}

/** n names a call, a subscription or a watch of the tab; m a message of a subscription. */
export type FromTab =
  | { do: "hello"; lock: string }
  | { do: "subscribe"; n: number; filter: string; options: Omit<SubscribeOptions, "onGap" | "signal"> }
  | { do: "unsubscribe"; n: number }
  | { do: "answer"; n: number; m: number; refusal?: { afterMs: number; reason: string } }
  | { do: "publish"; n: number; topic: string; payload: Uint8Array; options: Omit<PublishOptions, "signal"> }
  /** Nobody waits for a publish any more. */
  | { do: "cancel"; n: number }
  | { do: "watch"; n: number; topic: string }
  | { do: "unwatch"; n: number }
  | { do: "state"; n: number; topic: string; state: Uint8Array }
  | { do: "bye" };

/** The lock that the worker has for a tab, as long as it lives. */
export const workerLock = (tabLock: string) => `${tabLock}/worker`;

export type ToTab =
  | { told: "hello" }
  | { told: "state"; state: State; connection: Connection | undefined }
  | { told: "disconnected" | "failed"; message: string }
  | { told: "over"; fault: Fault }
  | { told: "ready"; n: number }
  | { told: "message"; n: number; m: number; message: Plain }
  | { told: "gap"; n: number; gap: Gap }
  | { told: "positions"; n: number; positions: Position[] }
  | { told: "presence"; n: number; change: PresenceChange }
  | { told: "done"; n: number; value: unknown }
  | { told: "failed call"; n: number; fault: Fault }
  | { told: "ended"; n: number; fault: Fault | undefined };

/** The part of Events that tabs are told. */
export type TabEvents = Pick<Events, "state" | "ended"> & { connected: Connection; disconnected: Error; failed: Error };
