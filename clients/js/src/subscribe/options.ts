import { MeshError, invalid } from "../error.js";
import { whole, type Gap } from "../options.js";
import { filterFault } from "../position/filter.js";
import { Overflow, Start, type Subscribe } from "../wire/schema.js";
import type { Message } from "./message.js";

/** A place in a topic's log: everything up to seq is had. */
export interface Position {
  topic: string;
  epoch: number;
  seq: number;
}

/** Where a subscription begins. */
export type From =
  /** What is published from now on. */
  | "live"
  /** Everything that is retained. */
  | "earliest"
  /** What the session has not ACKed. */
  | "session"
  /** The last so many messages. */
  | { last: number }
  /** Behind a seq; without epoch, whichever the topic has. */
  | { seq: number; epoch?: number }
  /** Behind positions that were saved; topics that they don't name begin live. */
  | { positions: readonly Position[] };

/** How to subscribe. */
export interface SubscribeOptions {
  /** ACK messages of durable topics: they come again until their handlers have ended well. */
  ack?: boolean;
  from?: From;
  /** Share the filter's messages with all other subscriptions of this group. */
  group?: string;
  /** Which of a group's messages go to the same member: those of a topic, or of a header's value. */
  groupKey?: "topic" | { header: string };
  /** Only messages for which this CEL expression is true. */
  where?: string;
  /** The best so many come first, ranked for the client's profile. */
  rankTopK?: number;
  /** Most messages that may be un-ACKed; by default the client's. */
  window?: number;
  /** What happens when the client can't keep up. */
  overflow?: keyof typeof Overflow;
  /** Leave out what this client publishes itself. */
  noEcho?: boolean;
  /** Begin behind the last message of topics that keep it. */
  skipLast?: boolean;
  /** How many messages may be with the handler at once, each of another topic; 1. */
  concurrency?: number;
  /** Told of messages that will not come. */
  onGap?: (gap: Gap) => void;
  /** Ends it when it aborts, as unsubscribe does. ready, where the mesh has not promised yet, and a loop are rejected with its reason. */
  signal?: AbortSignal;
}

/**
 * Deals with a message. When it returns, or its promise is fulfilled, the message is ACKed; when it
 * throws, or the promise is rejected, it comes again. Without ack both are the same.
 */
export type Handler = (message: Message) => unknown;

/** The most topics that a subscription may name positions of. */
export const MOST_POSITIONS = 1000;

/** The request, or why it can't work. */
export function requestOf(filter: string, o: SubscribeOptions, session: string): Omit<Subscribe, "id"> {
  const fault = filterFault(filter);
  if (fault) throw new MeshError("BAD_TOPIC", `filter ${JSON.stringify(filter.slice(0, 40))}: ${fault}`);
  const from = o.from ?? "live";
  if (!(o.concurrency === undefined || o.concurrency >= 1)) throw invalid(`concurrency is ${o.concurrency}, it must be 1 or more`);
  const request: Omit<Subscribe, "id"> = {
    filter,
    ack: o.ack ?? false,
    start: startOf(from),
    seq: typeof from === "object" ? ("last" in from ? from.last : "seq" in from ? from.seq : 0) : 0,
    epoch: typeof from === "object" && "seq" in from ? (from.epoch ?? 0) : 0,
    group: o.group ?? "",
    groupKey: typeof o.groupKey === "object" ? `header:${o.groupKey.header}` : (o.groupKey ?? ""),
    where: o.where ?? "",
    rankTopK: o.rankTopK ?? 0,
    receiveWindow: o.window ?? 0,
    overflow: Overflow[o.overflow ?? "DEFAULT"],
    noEcho: o.noEcho ?? false,
    skipLast: o.skipLast ?? false,
    positions: typeof from === "object" && "positions" in from ? [...from.positions] : [],
  };
  for (const [name, n] of [["window", request.receiveWindow], ["rankTopK", request.rankTopK]] as const) whole(name, n, 2 ** 32 - 1);
  for (const p of [request, ...request.positions]) {
    whole("seq, or last", p.seq);
    whole("epoch", p.epoch);
  }
  if (request.start === Start.SESSION && !session) throw invalid('from "session" needs the name of the session: connect({ session })');
  if (request.groupKey && !request.group) throw invalid("groupKey needs group");
  if (request.rankTopK > 0 && (request.group || request.start === Start.AFTER_SEQ || request.positions.length > 0)) {
    throw invalid('rankTopK does not go with group, or from a seq or positions: from "session" goes on where it stood');
  }
  if (request.positions.length > MOST_POSITIONS) throw new MeshError("TOO_MANY_TOPICS", `from has ${request.positions.length} positions, ${MOST_POSITIONS} at most`);
  return request;
}

function startOf(from: From): number {
  if (from === "earliest") return Start.EARLIEST;
  if (from === "session") return Start.SESSION;
  if (typeof from === "object" && "last" in from) return Start.LAST_N;
  if (typeof from === "object" && "seq" in from) return Start.AFTER_SEQ;
  if (from === "live" || (typeof from === "object" && "positions" in from)) return Start.LIVE;
  throw invalid(`there is no start from ${JSON.stringify(from)}`);
}
