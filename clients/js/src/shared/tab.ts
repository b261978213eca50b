import { MeshError, asError, checkSignal, endOnAbort, orAborted } from "../error.js";
import { call } from "../hub.js";
import type { Connection, State } from "../options.js";
import { bytesOf, type Payload, type PublishOptions, type Published } from "../publish.js";
import type { PresenceChange } from "../presence/crowd.js";
import type { SubscribeOptions } from "../subscribe/options.js";
import { fromUTF8 } from "../wire/utf8.js";
import { workerLock, type Fault, type FromTab, type Plain, type TabEvents, type ToTab } from "./protocol.js";

const errorOf = (f: Fault) => new MeshError(f.code, f.reason, f.retryAfterMs, f.unknown);

/** A message, as a handler in a tab gets it. */
export interface TabMessage extends Plain {
  text(): string;
  json<T = unknown>(): T;
  ack(): void;
  nack(afterMs?: number, reason?: string): void;
}

/** A subscription, or a watch, of a tab. */
export interface TabSubscription {
  /** Resolves at the mesh's promise; of a watch, at the first word. */
  readonly ready: Promise<void>;
  /** Resolves once nothing more comes; with why, unless the tab has ended it. */
  readonly ended: Promise<MeshError | undefined>;
  end(): void;
}

interface Open {
  told: (line: ToTab) => void;
  over: (why: MeshError | undefined) => void;
}

/** The client that a SharedWorker has, seen from a tab: one connection for all of them. */
export class TabClient {
  state: State = "connecting";
  connection: Connection | undefined;
  private readonly port: MessagePort;
  private readonly open = new Map<number, Open>();
  private readonly calls = new Map<number, { resolve: (value: any) => void; reject: (e: Error) => void }>();
  private readonly listeners = new Map<keyof TabEvents, Set<(value: never) => void>>();
  private readonly release: () => void;
  private readonly lock = `pushmesh-${Math.random().toString(36).slice(2)}`;
  private last = 0;
  private over: MeshError | undefined;

  constructor(port: MessagePort) {
    this.port = port;
    port.onmessage = ({ data }: MessageEvent<ToTab>) => this.take(data);
    // The worker gets this lock when the tab ends, however it does.
    const { lock } = this;
    let release = () => undefined as void;
    const held = new Promise<void>((resolve) => (release = resolve));
    this.release = release;
    const locks = globalThis.navigator?.locks;
    locks?.request(lock, () => (this.say({ do: "hello", lock }), held)).catch(() => undefined); // a frame without an origin has none
    globalThis.addEventListener?.("pagehide", (e) => !(e as PageTransitionEvent).persisted && this.close());
  }

  /** @internal The worker's program can't be loaded, or has thrown. */
  lost(): void {
    if (!this.over) this.emit("failed", new Error("the program of the SharedWorker has failed"));
  }

  private say(line: FromTab): void {
    this.port.postMessage(line);
  }

  on<K extends keyof TabEvents>(event: K, f: (value: TabEvents[K]) => void): () => void {
    const all = this.listeners.get(event) ?? new Set();
    this.listeners.set(event, all);
    all.add(f as (value: never) => void);
    return () => void all.delete(f as (value: never) => void);
  }

  private emit<K extends keyof TabEvents>(event: K, value: TabEvents[K]): void {
    for (const f of [...(this.listeners.get(event) ?? [])]) call(f as (value: TabEvents[K]) => void, value);
  }

  subscribe(filter: string, handler: (m: TabMessage) => unknown, options: SubscribeOptions = {}): TabSubscription {
    const { onGap, signal, ...rest } = options;
    const n = ++this.last;
    return this.begin({ do: "subscribe", n, filter, options: rest }, { do: "unsubscribe", n }, (line) => {
      if (line.told === "message") void this.hand(n, line.m, line.message, handler);
      if (line.told === "gap") call(onGap, line.gap);
    }, signal);
  }

  watchPresence(topic: string, f: (change: PresenceChange) => void, { signal }: { signal?: AbortSignal } = {}): TabSubscription {
    const n = ++this.last;
    return this.begin({ do: "watch", n, topic }, { do: "unwatch", n }, (line) => line.told === "presence" && call(f, line.change), signal);
  }

  publish(topic: string, payload: Payload, { signal, ...options }: PublishOptions = {}): Promise<Published> {
    return this.call((n) => ({ do: "publish", n, topic, payload: bytesOf(payload), options }), signal); // a clone would lose methods, as toJSON
  }

  setState(topic: string, state: Payload, { signal }: { signal?: AbortSignal } = {}): Promise<void> {
    return this.call((n) => ({ do: "state", n, topic, state: bytesOf(state) }), signal);
  }

  /** Ends what this tab has. The connection stays, for the others. */
  close(): void {
    if (this.over) return;
    this.say({ do: "bye" });
    this.finish(new MeshError("CANCELLED", "the tab's client is closed"));
  }

  private begin(first: FromTab & { n: number }, last: FromTab, told: (line: ToTab) => unknown, signal: AbortSignal | undefined): TabSubscription {
    if (this.over) throw this.over;
    checkSignal(signal);
    let ready!: () => void, failed!: (e: unknown) => void, over!: (why: MeshError | undefined) => void;
    const sub = {
      ready: new Promise<void>((resolve, reject) => ((ready = resolve), (failed = reject))),
      ended: new Promise<MeshError | undefined>((resolve) => (over = resolve)),
      end: () => {
        if (this.open.delete(first.n)) this.say(last);
        over(undefined);
        failed(new MeshError("CANCELLED", "it was ended"));
      },
    };
    endOnAbort(signal, {
      ended: sub.ended,
      abort: (why) => {
        failed(why);
        sub.end();
      },
    });
    sub.ready.catch(() => undefined); // who does not wait for it asks ended
    this.say(first);
    this.open.set(first.n, {
      told: (line) => {
        if (line.told === "ready" || line.told === "presence") ready();
        told(line);
      },
      over: (why) => {
        over(why);
        failed(why ?? new MeshError("CANCELLED", "it was ended"));
      },
    });
    return sub;
  }

  private async call<T>(line: (n: number) => FromTab, signal: AbortSignal | undefined): Promise<T> {
    if (this.over) throw this.over;
    checkSignal(signal);
    const n = ++this.last;
    this.say(line(n));
    return orAborted(new Promise((resolve, reject) => void this.calls.set(n, { resolve, reject })), signal, () => this.calls.delete(n) && this.say({ do: "cancel", n }));
  }

  private async hand(n: number, m: number, plain: Plain, handler: (m: TabMessage) => unknown): Promise<void> {
    let answered = false;
    const answer = (refusal?: { afterMs: number; reason: string }) => {
      if (answered) return;
      answered = true;
      this.say(refusal ? { do: "answer", n, m, refusal } : { do: "answer", n, m });
    };
    try {
      await handler({ ...plain, text: () => fromUTF8(plain.payload), json: () => JSON.parse(fromUTF8(plain.payload)), ack: () => answer(), nack: (afterMs = 0, reason = "") => answer({ afterMs, reason }) });
      answer();
    } catch (e) {
      answer({ afterMs: 0, reason: asError(e).message });
      console.error("a handler has failed:", e);
    }
  }

  private take(line: ToTab): void {
    switch (line.told) {
      case "hello":
        globalThis.navigator?.locks?.request(workerLock(this.lock), () => this.finish(new MeshError("UNAVAILABLE", "the SharedWorker is gone"))).catch(() => undefined);
        return;
      case "state":
        return this.become(line.state, line.connection);
      case "disconnected":
      case "failed":
        return this.emit(line.told, new Error(line.message));
      case "over":
        return this.finish(errorOf(line.fault));
      case "done":
        this.calls.get(line.n)?.resolve(line.value);
        return void this.calls.delete(line.n);
      case "failed call":
        this.calls.get(line.n)?.reject(errorOf(line.fault));
        return void this.calls.delete(line.n);
      case "ended":
        this.open.get(line.n)?.over(line.fault && errorOf(line.fault));
        return void this.open.delete(line.n);
    }
    this.open.get(line.n)?.told(line);
  }

  private become(state: State, connection: Connection | undefined): void {
    this.state = state;
    this.connection = connection;
    this.emit("state", state);
    if (state === "connected" && connection) this.emit("connected", connection);
  }

  private finish(why: MeshError): void {
    if (this.over) return;
    this.over = why;
    this.state = "closed";
    for (const { over } of this.open.values()) over(why);
    for (const { reject } of this.calls.values()) reject(why);
    this.open.clear();
    this.calls.clear();
    this.release();
    this.port.close();
    this.emit("state", "closed");
    this.emit("ended", why);
  }
}

/** In a tab: the client that the worker has. */
export function connectTab(worker: SharedWorker): TabClient {
  const client = new TabClient(worker.port);
  worker.addEventListener?.("error", () => client.lost());
  return client;
}
