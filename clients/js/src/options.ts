import type { WebSocketConstructor } from "./connect/websocket.js";
import { invalid, type Code, type MeshError } from "./error.js";
import { toUTF8 } from "./wire/utf8.js";

/** How to connect. Only url is required. */
export interface ConnectOptions {
  /** An edge, as wss://edge.example.com, or several: one is taken at random, the others when it fails. */
  url: string | readonly string[];
  /** At most 64 bytes. The edge makes one up where there is none, which then stays. */
  clientId?: string;
  /** Name of a durable session, for subscriptions with from: "session". It needs a clientId or getToken. */
  session?: string;
  /** How long the session outlives a connection; by default as the mesh says, a week. */
  sessionTtlSeconds?: number;
  /**
   * Proves who this is; asked before each connection, in the time of an attempt (attemptMs). null,
   * or nothing: there is no token any more, and the client ends with UNAUTHENTICATED. What it throws is an attempt that failed: it is tried again.
   */
  getToken?: (context: { signal: AbortSignal }) => string | null | Promise<string | null>;
  /** Most messages that may be un-ACKed on the connection; 256. */
  window?: number;
  /** How often to ping; by default as the edge says, 30 s. */
  heartbeatMs?: number;
  /** What messages are ranked for (rankTopK): 64 features at most. */
  profile?: Record<string, number>;
  /** The same for rankings by embeddings: 512 dimensions at most. */
  profileVector?: readonly number[];
  /** Name and version of the program, for the mesh's operators. */
  agent?: string;
  /** Bounds of the pause between rounds over the edges; 100 ms and 10 s. */
  minBackoffMs?: number;
  maxBackoffMs?: number;
  /** How long an attempt may take, from dialling to the edge's answer; 5 s. */
  attemptMs?: number;
  /** How long close waits for handlers; 5 s. */
  closeMs?: number;
  /** false: stay with url also where an edge that stops names others, as behind a proxy that ends TLS. */
  follow?: boolean;
  /** Where the platform has none: the class of the package ws, or undici's. */
  WebSocket?: WebSocketConstructor;
}

/** What an edge said at the begin of a connection. */
export interface Connection {
  /** Of the connection, in logs: a random number of 64 bits, in decimal. */
  id: string;
  url: string;
  edge: string;
  clientId: string;
  /** Who the token says this is; empty without one. */
  user: string;
  /** The session existed before. */
  resumed: boolean;
  features: readonly string[];
}

/** Messages of a subscription that will not come. */
export interface Gap {
  filter: string;
  /** Empty where a whole subscription with wildcards is concerned. */
  topic: string;
  /** The epoch that holds now. */
  epoch: number;
  /** Seqs, inclusive, where they are known; else 0. */
  from: number;
  to: number;
  /** How many can't be had any more, as far as it is known. */
  missed: number;
  /**
   * Why. UNSUPPORTED: the topic is ephemeral, so that there is nothing to begin with or to ACK; what
   * is published while the client is connected comes.
   */
  code: Code;
}

/** connecting: an edge is tried; waiting: a pause before the next try; closed: no more. */
export type State = "connecting" | "connected" | "waiting" | "closed";

/** What a client tells. */
export interface Events {
  state: State;
  connected: Connection;
  /** A connection has ended. */
  disconnected: Error;
  /** An attempt to connect has failed, and is tried again. */
  failed: Error;
  gap: Gap;
  /** A handler has thrown. Where nobody listens it is written to the console. */
  handlerFailed: unknown;
  /** The client is over: the mesh has refused it for good, or it was closed (CANCELLED). */
  ended: MeshError;
}

/** ConnectOptions with what they leave out. */
export type ClientOptions = Omit<ConnectOptions, "url"> & Required<Pick<ConnectOptions, "clientId" | "session" | "window" | "minBackoffMs" | "maxBackoffMs" | "attemptMs" | "closeMs" | "follow" | "agent">> & { urls: readonly string[] };

/** Refuses what can't work. */
export function complete(given: ConnectOptions): ClientOptions {
  const { url, ...rest } = given;
  const urls = typeof url === "string" ? [url] : [...url];
  if (urls.length === 0) throw invalid("url is empty: name an edge, like ws://127.0.0.1:7400");
  for (const one of urls) if (!/^wss?:\/\/[^/?#\s]+[^#\s]*$/.test(one)) throw invalid(`url ${JSON.stringify(one)} must begin with ws:// or wss://, like ws://127.0.0.1:7400, and have no # and no blanks`);
  const o: ClientOptions = { clientId: "", session: "", agent: "pushmesh-js", window: 256, minBackoffMs: 100, maxBackoffMs: 10_000, attemptMs: 5000, closeMs: 5000, follow: true, ...defined(rest), urls };
  o.maxBackoffMs = Math.max(o.maxBackoffMs, o.minBackoffMs);
  if (toUTF8(o.clientId).length > 64) throw invalid(`clientId has ${toUTF8(o.clientId).length} bytes, 64 at most`);
  if (o.session && !o.clientId && !o.getToken) throw invalid("session needs clientId or getToken: a session belongs to its client, and an edge makes up another clientId for every page");
  whole("window", o.window, 2 ** 20);
  for (const name of ["heartbeatMs", "sessionTtlSeconds"] as const) whole(name, Math.ceil(o[name] ?? 0), 2 ** 32 - 1);
  for (const name of ["minBackoffMs", "maxBackoffMs", "attemptMs"] as const) if (!(o[name] > 0)) throw invalid(`${name} is ${o[name]}, it must be above 0`);
  return o;
}

/** Refuses what is not a whole number from 0 to most: a frame can't say it. */
export function whole(name: string, n: number, most = Number.MAX_SAFE_INTEGER): void {
  if (!(Number.isInteger(n) && n >= 0 && n <= most)) throw invalid(`${name} is ${n}, it must be a whole number from 0 to ${most}`);
}

/** An object without its members that are undefined. */
export function defined<T extends object>(o: T): T {
  return Object.fromEntries(Object.entries(o).filter(([, v]) => v !== undefined)) as T;
}
