import type { Link } from "./connect/link.js";
import { MeshError, asError, closedError, codeOf } from "./error.js";
import type { ClientOptions, Events } from "./options.js";
import { Timers } from "./time.js";
import { decode, type Schema } from "./wire/codec.js";
import { Backoff } from "./connect/backoff.js";

/** Who waits for the answer to a request. */
export interface Request {
  refused(why: MeshError): void;
}

/** What a client does beside being connected: subscriptions, publishing, claims, presence. */
export interface Part {
  /** A new connection is there: everything that holds is said again. */
  connected(link: Link): void;
  /** The connection is gone. */
  broken(): void;
  /** There will be none any more. */
  ended(why: MeshError): void;
}

type Listener<K extends keyof Events> = (event: Events[K]) => void;

/** What the parts of a client share: its connection, its requests and its listeners. */
export class Hub {
  readonly requests = new Map<number, Request>();
  link: Link | undefined;
  /** Why the client is over. */
  over: MeshError | undefined;
  private readonly parts: Part[] = [];
  private readonly takers = new Map<number, (body: Uint8Array) => void>();
  private readonly listeners = new Map<keyof Events, Set<Listener<never>>>();
  private lastId = 0;

  constructor(
    readonly options: ClientOptions,
    readonly timers: Timers = new Timers(),
    private readonly random: () => number = Math.random,
  ) {}

  /** The part of that kind, made at its first use, so that a bundle has those alone that a program uses. */
  part<P extends Part>(kind: new (hub: Hub) => P): P {
    const found = this.parts.find((p) => p instanceof kind);
    if (found) return found as P;
    const made = new kind(this);
    this.parts.push(made);
    return made;
  }

  /** Has frames of a type decoded and taken. */
  takes<T extends object>(type: number, schema: Schema<T>, take: (m: T) => void): void {
    this.takers.set(type, (body) => take(decode(schema, body)));
  }

  /** The same, with how many bytes a frame had. */
  takesBytes<T extends object>(type: number, schema: Schema<T>, take: (m: T, size: number) => void): void {
    this.takers.set(type, (body) => take(decode(schema, body), body.length));
  }

  /** The answer to a request, for whoever waits for one of that kind. */
  answers<T extends { id: number }, R extends Request>(type: number, schema: Schema<T>, kind: new (...args: never[]) => R, take: (r: R, m: T) => void): void {
    this.takes(type, schema, (m) => {
      const request = this.requests.get(m.id);
      if (request instanceof kind) take(request, m);
    });
  }

  /** Unknown frames are passed over. */
  take(type: number, body: Uint8Array): void {
    this.takers.get(type)?.(body);
  }

  refused(why: MeshError, ref: number): void {
    this.requests.get(ref)?.refused(why);
  }

  /** An id for a request, which is its until it is taken out of requests. */
  id(request: Request): number {
    do {
      this.lastId = (this.lastId % 0xffffffff) + 1;
    } while (this.requests.has(this.lastId));
    this.requests.set(this.lastId, request);
    return this.lastId;
  }

  connected(link: Link): void {
    this.link = link;
    for (const part of this.parts) part.connected(link);
  }

  broken(): void {
    this.link = undefined;
    for (const part of this.parts) part.broken();
  }

  /** Ends everything; the first reason counts. */
  finish(why: MeshError): void {
    if (this.over) return;
    this.over = why;
    for (const part of this.parts) part.ended(why);
    this.requests.clear();
    this.timers.hurry();
  }

  /** Throws where the client is over. */
  check(): void {
    if (this.over) throw this.over.code === "CANCELLED" ? closedError() : this.over;
  }

  backoff(): Backoff {
    return new Backoff(this.options.minBackoffMs, this.options.maxBackoffMs, this.random);
  }

  on<K extends keyof Events>(event: K, f: Listener<K>): () => void {
    const all = this.listeners.get(event) ?? new Set();
    this.listeners.set(event, all);
    all.add(f as Listener<never>);
    return () => void all.delete(f as Listener<never>);
  }

  emit<K extends keyof Events>(event: K, value: Events[K]): void {
    const all = this.listeners.get(event);
    for (const f of [...(all ?? [])]) if (all!.has(f)) call(f as Listener<K>, value);
  }

  handlerFailed(e: unknown): void {
    if (this.listeners.get("handlerFailed")?.size) this.emit("handlerFailed", e);
    else console.error("a handler has failed:", e);
  }

  /** What the edge says at the end of a subscription or watch. */
  static reason(code: number, reason: string): MeshError {
    return new MeshError(codeOf(code), reason);
  }
}

/** Calls a program's function. What it throws is the program's fault, and must not break the client. */
export function call<T>(f: ((value: T) => unknown) | undefined, value: T): void {
  try {
    f?.(value);
  } catch (e) {
    report(e);
  }
}

/** Says an error as an uncaught one. */
export function report(e: unknown): void {
  setTimeout(() => {
    throw asError(e);
  }, 0);
}
