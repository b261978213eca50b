// Made of proto/pushmesh/wire/v1 by scripts/generate.mjs. Do not edit.
import type { Schema } from "./codec.js";

/** Names of the codes, by their numbers. */
export const codes = [
  "OK",
  "BAD_FRAME",
  "FRAME_TOO_LARGE",
  "UNKNOWN_FRAME",
  "HANDSHAKE_TIMEOUT",
  "UNAUTHENTICATED",
  "FORBIDDEN",
  "BAD_TOPIC",
  "TOO_MANY_SUBSCRIPTIONS",
  "RATE_LIMITED",
  "OVERLOADED",
  "SLOW_CONSUMER",
  "IDLE_TIMEOUT",
  "UNHEALTHY",
  "SESSION_TAKEN_OVER",
  "DRAINING",
  "UNAVAILABLE",
  "INTERNAL",
  "UNSUPPORTED",
  "TOKEN_EXPIRED",
  "NOT_HELD",
  "TOO_MANY_CONNECTIONS",
  "INVALID_ARGUMENT",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "CONFLICT",
  "OUT_OF_ORDER",
  "ACK_TIMEOUT",
  "EPOCH_CHANGED",
  "PAYLOAD_TOO_LARGE",
  "TOO_MANY_TOPICS",
  "EXPIRED",
  "RETENTION",
  "QUEUE_FULL",
  "CONFLATED",
  "FILTERED",
  "RANKED_OUT",
  "NOT_YOURS",
  "MEMORY_BUDGET",
  "ATTEMPTS_EXHAUSTED",
  "NO_SUBSCRIBER",
  "CANCELLED",
] as const;

export const FrameType = {
  UNSPECIFIED: 0,
  HELLO: 1,
  WELCOME: 2,
  SUBSCRIBE: 3,
  SUBSCRIBED: 4,
  UNSUBSCRIBE: 5,
  UNSUBSCRIBED: 6,
  MESSAGE: 7,
  ACK: 8,
  NACK: 9,
  PING: 10,
  PONG: 11,
  PUBLISH: 12,
  PUBLISHED: 13,
  CLAIM: 14,
  CLAIM_STATE: 15,
  ERROR: 16,
  GO_AWAY: 17,
  REFRESH_TOKEN: 18,
  PROGRESS: 19,
  REFRESHED: 20,
  WATCH: 21,
  PRESENCE: 22,
  STATE: 23,
  STATED: 24,
} as const;

export const Start = {
  LIVE: 0,
  EARLIEST: 1,
  AFTER_SEQ: 2,
  LAST_N: 3,
  SESSION: 4,
} as const;

export const Overflow = {
  DEFAULT: 0,
  DROP_OLDEST: 1,
  CONFLATE: 2,
  DISCONNECT: 3,
} as const;

export const Claim_Op = {
  ACQUIRE: 0,
  RENEW: 1,
  RELEASE: 2,
  CHECK: 3,
  LEAVE: 4,
  WATCH: 5,
} as const;

export const ClaimState_State = {
  GRANTED: 0,
  QUEUED: 1,
  LOST: 2,
  RELEASED: 3,
  FREE: 4,
  HELD_BY_OTHER: 5,
} as const;

export interface Hello {
  version: number;
  clientId: string;
  token: string;
  session: string;
  heartbeatMs: number;
  traceparent: string;
  receiveWindow: number;
  agent: string;
  profile: Record<string, number>;
  sessionTtlS: number;
  features: string[];
  ticket: Uint8Array;
  profileVector: number[];
}

export const Hello: Schema<Hello> = [
  [1, "version", "u"],
  [2, "clientId", "s"],
  [3, "token", "s"],
  [4, "session", "s"],
  [5, "heartbeatMs", "u"],
  [6, "traceparent", "s"],
  [7, "receiveWindow", "u"],
  [8, "agent", "s"],
  [9, "profile", "d", "m"],
  [10, "sessionTtlS", "u"],
  [11, "features", "s", "r"],
  [12, "ticket", "y"],
  [13, "profileVector", "g", "r"],
];

export interface Welcome {
  connectionId: bigint;
  edge: string;
  heartbeatMs: number;
  maxFrame: number;
  user: string;
  resumed: boolean;
  clientId: string;
  features: string[];
  version: number;
  publishWindow: number;
}

export const Welcome: Schema<Welcome> = [
  [1, "connectionId", "F"],
  [2, "edge", "s"],
  [3, "heartbeatMs", "u"],
  [4, "maxFrame", "u"],
  [5, "user", "s"],
  [6, "resumed", "b"],
  [7, "clientId", "s"],
  [8, "features", "s", "r"],
  [9, "version", "u"],
  [10, "publishWindow", "u"],
];

export interface Position {
  topic: string;
  epoch: number;
  seq: number;
}

export const Position: Schema<Position> = [
  [1, "topic", "s"],
  [2, "epoch", "f"],
  [3, "seq", "n"],
];

export interface Subscribe {
  id: number;
  filter: string;
  ack: boolean;
  start: number;
  seq: number;
  epoch: number;
  group: string;
  overflow: number;
  rankTopK: number;
  where: string;
  positions: Position[];
  receiveWindow: number;
  noEcho: boolean;
  groupKey: string;
  skipLast: boolean;
}

export const Subscribe: Schema<Subscribe> = [
  [1, "id", "u"],
  [2, "filter", "s"],
  [3, "ack", "b"],
  [4, "start", "e"],
  [5, "seq", "n"],
  [6, "epoch", "f"],
  [7, "group", "s"],
  [8, "overflow", "e"],
  [9, "rankTopK", "u"],
  [10, "where", "s"],
  [11, "positions", Position, "r"],
  [12, "receiveWindow", "u"],
  [13, "noEcho", "b"],
  [14, "groupKey", "s"],
  [15, "skipLast", "b"],
];

export interface Subscribed_TopicPosition {
  topic: string;
  epoch: number;
  head: number;
  recovered: boolean;
  missed: number;
}

export const Subscribed_TopicPosition: Schema<Subscribed_TopicPosition> = [
  [1, "topic", "s"],
  [2, "epoch", "f"],
  [3, "head", "n"],
  [4, "recovered", "b"],
  [5, "missed", "n"],
];

export interface Subscribed {
  id: number;
  epoch: number;
  head: number;
  recovered: boolean;
  missed: number;
  positions: Subscribed_TopicPosition[];
}

export const Subscribed: Schema<Subscribed> = [
  [1, "id", "u"],
  [2, "epoch", "f"],
  [3, "head", "n"],
  [4, "recovered", "b"],
  [5, "missed", "n"],
  [6, "positions", Subscribed_TopicPosition, "r"],
];

export interface Unsubscribe {
  id: number;
}

export const Unsubscribe: Schema<Unsubscribe> = [
  [1, "id", "u"],
];

export interface Unsubscribed {
  id: number;
  code: number;
  reason: string;
}

export const Unsubscribed: Schema<Unsubscribed> = [
  [1, "id", "u"],
  [2, "code", "e"],
  [3, "reason", "s"],
];

export interface Message {
  topic: string;
  seq: number;
  payload: Uint8Array;
  publishedAt: number;
  id: Uint8Array;
  headers: Record<string, string>;
  attempt: number;
  priority: number;
  traceparent: string;
  score: number;
  subs: number[];
  from: string;
  mesh: Uint8Array;
  unranked: boolean;
}

export const Message: Schema<Message> = [
  [1, "topic", "s"],
  [2, "seq", "n"],
  [3, "payload", "y"],
  [4, "publishedAt", "f"],
  [5, "id", "y"],
  [6, "headers", "s", "m"],
  [7, "attempt", "u"],
  [8, "priority", "u"],
  [9, "traceparent", "s"],
  [10, "score", "d"],
  [11, "subs", "u", "r"],
  [13, "from", "s"],
  [14, "mesh", "y"],
  [15, "unranked", "b"],
];

export interface Ack_Entry {
  topic: string;
  seq: number;
  through: boolean;
  sub: number;
  epoch: number;
}

export const Ack_Entry: Schema<Ack_Entry> = [
  [1, "topic", "s"],
  [2, "seq", "n"],
  [3, "through", "b"],
  [4, "sub", "u"],
  [5, "epoch", "f"],
];

export interface Ack {
  entries: Ack_Entry[];
}

export const Ack: Schema<Ack> = [
  [1, "entries", Ack_Entry, "r"],
];

export interface Nack {
  topic: string;
  seq: number;
  delayMs: number;
  reason: string;
  sub: number;
}

export const Nack: Schema<Nack> = [
  [1, "topic", "s"],
  [2, "seq", "n"],
  [3, "delayMs", "u"],
  [4, "reason", "s"],
  [5, "sub", "u"],
];

export interface Ping {
  sentAt: bigint;
  lastRttUs: number;
}

export const Ping: Schema<Ping> = [
  [1, "sentAt", "F"],
  [2, "lastRttUs", "u"],
];

export interface Pong {
  sentAt: bigint;
}

export const Pong: Schema<Pong> = [
  [1, "sentAt", "F"],
];

export interface Publish {
  id: number;
  topic: string;
  payload: Uint8Array;
  headers: Record<string, string>;
  dedupeKey: string;
}

export const Publish: Schema<Publish> = [
  [1, "id", "u"],
  [2, "topic", "s"],
  [3, "payload", "y"],
  [4, "headers", "s", "m"],
  [5, "dedupeKey", "s"],
];

export interface Published {
  id: number;
  seq: number;
  messageId: Uint8Array;
  duplicate: boolean;
  epoch: number;
}

export const Published: Schema<Published> = [
  [1, "id", "u"],
  [2, "seq", "n"],
  [3, "messageId", "y"],
  [4, "duplicate", "b"],
  [5, "epoch", "f"],
];

export interface Claim {
  id: number;
  resource: string;
  op: number;
  ttlMs: number;
  token: bigint;
  priority: number;
  successor: string;
  waitMs: number;
  noWait: boolean;
}

export const Claim: Schema<Claim> = [
  [1, "id", "u"],
  [2, "resource", "s"],
  [3, "op", "e"],
  [4, "ttlMs", "u"],
  [5, "token", "N"],
  [6, "priority", "u"],
  [7, "successor", "s"],
  [8, "waitMs", "u"],
  [9, "noWait", "b"],
];

export interface ClaimState {
  id: number;
  resource: string;
  state: number;
  token: bigint;
  position: number;
  expiresAt: number;
  holder: string;
  pollAfterMs: number;
  expiresInMs: number;
  code: number;
  holding: number;
  waiting: number;
}

export const ClaimState: Schema<ClaimState> = [
  [1, "id", "u"],
  [2, "resource", "s"],
  [3, "state", "e"],
  [4, "token", "N"],
  [5, "position", "u"],
  [6, "expiresAt", "f"],
  [7, "holder", "s"],
  [8, "pollAfterMs", "u"],
  [9, "expiresInMs", "u"],
  [10, "code", "e"],
  [11, "holding", "u"],
  [12, "waiting", "u"],
];

export interface Error {
  code: number;
  message: string;
  ref: number;
  retryAfterMs: number;
}

export const Error: Schema<Error> = [
  [1, "code", "e"],
  [2, "message", "s"],
  [3, "ref", "u"],
  [4, "retryAfterMs", "u"],
];

export interface GoAway {
  code: number;
  reason: string;
  reconnectAfterMs: number;
  addresses: string[];
}

export const GoAway: Schema<GoAway> = [
  [1, "code", "e"],
  [2, "reason", "s"],
  [3, "reconnectAfterMs", "u"],
  [4, "addresses", "s", "r"],
];

export interface RefreshToken {
  id: number;
  token: string;
}

export const RefreshToken: Schema<RefreshToken> = [
  [1, "id", "u"],
  [2, "token", "s"],
];

export interface Refreshed {
  id: number;
  expiresAt: number;
}

export const Refreshed: Schema<Refreshed> = [
  [1, "id", "u"],
  [2, "expiresAt", "f"],
];

export interface Progress {
  topic: string;
  epoch: number;
  from: number;
  to: number;
  code: number;
  subs: number[];
}

export const Progress: Schema<Progress> = [
  [1, "topic", "s"],
  [2, "epoch", "f"],
  [3, "from", "n"],
  [4, "to", "n"],
  [5, "code", "e"],
  [6, "subs", "u", "r"],
];

export interface Watch {
  id: number;
  topic: string;
}

export const Watch: Schema<Watch> = [
  [1, "id", "u"],
  [2, "topic", "s"],
];

export interface Presence_Member {
  user: string;
  state: Uint8Array;
}

export const Presence_Member: Schema<Presence_Member> = [
  [1, "user", "s"],
  [2, "state", "y"],
];

export interface Presence {
  topic: string;
  snapshot: boolean;
  members: Presence_Member[];
  left: string[];
  count: number;
  countsOnly: boolean;
}

export const Presence: Schema<Presence> = [
  [1, "topic", "s"],
  [2, "snapshot", "b"],
  [3, "members", Presence_Member, "r"],
  [4, "left", "s", "r"],
  [5, "count", "n"],
  [6, "countsOnly", "b"],
];

export interface State {
  id: number;
  topic: string;
  state: Uint8Array;
}

export const State: Schema<State> = [
  [1, "id", "u"],
  [2, "topic", "s"],
  [3, "state", "y"],
];

export interface Stated {
  id: number;
}

export const Stated: Schema<Stated> = [
  [1, "id", "u"],
];
