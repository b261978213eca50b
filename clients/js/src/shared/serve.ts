import type { Client } from "../client.js";
import { MeshError, asError, invalid } from "../error.js";
import { setState, watchPresence, type PresenceWatch } from "../presence/presence.js";
import type { Message } from "../subscribe/message.js";
import type { Subscription } from "../subscribe/subscription.js";
import { faultOf, workerLock, type FromTab, type Plain, type ToTab } from "./protocol.js";

const plainOf = (m: Message): Plain => ({
  topic: m.topic, seq: m.seq, epoch: m.epoch, payload: m.payload.slice(), id: m.id, headers: { ...m.headers }, attempt: m.attempt, priority: m.priority,
  from: m.from, score: m.score, unranked: m.unranked, traceparent: m.traceparent, publishedAt: m.publishedAt,
});

const errorOf = (e: unknown): MeshError => (e instanceof MeshError ? e : invalid(asError(e).message));

/** A tab's side of the client: all of it ends with the tab. */
export class Tab {
  private readonly subs = new Map<number, Subscription>();
  private readonly watches = new Map<number, PresenceWatch>();
  private readonly held = new Map<string, { message: Message; done: () => void }>();
  private readonly publishing = new Map<number, AbortController>();
  private readonly undo: (() => void)[] = [];
  private messages = 0;
  private gone = false;
  private free!: () => void;
  private readonly freed = new Promise<void>((resolve) => (this.free = resolve));

  constructor(
    private readonly client: Client,
    private readonly port: MessagePort,
  ) {
    port.onmessage = ({ data }: MessageEvent<FromTab>) => this.take(data);
    const state = () => this.tell({ told: "state", state: client.state, connection: client.connection });
    this.undo.push(
      client.on("state", state),
      client.on("disconnected", (e) => this.tell({ told: "disconnected", message: e.message })),
      client.on("failed", (e) => this.tell({ told: "failed", message: e.message })),
    );
    state();
    // Also where it has ended before this tab came.
    void client.ended.then((e) => this.gone || this.tell({ told: "over", fault: faultOf(errorOf(e)) }));
  }

  /** How many messages the tab has not answered. */
  get holds(): number {
    return this.held.size;
  }

  private tell(line: ToTab): void {
    this.port.postMessage(line);
  }

  private take(line: FromTab): void {
    try {
      this.carryOut(line);
    } catch (e) {
      if ("n" in line) this.tell({ told: line.do === "subscribe" || line.do === "watch" ? "ended" : "failed call", n: line.n, fault: faultOf(errorOf(e)) });
    }
  }

  private carryOut(line: FromTab): void {
    switch (line.do) {
      case "hello":
        // The lock is the tab's as long as it lives, however it ends.
        globalThis.navigator?.locks?.request(line.lock, () => this.end()).catch(() => undefined);
        // And this one is the worker's.
        globalThis.navigator?.locks?.request(workerLock(line.lock), () => (this.tell({ told: "hello" }), this.freed)).catch(() => undefined);
        return;
      case "subscribe":
        return this.subscribe(line.n, line.filter, line.options);
      case "unsubscribe":
        return this.finish(line.n, this.subs.get(line.n)?.unsubscribe());
      case "answer":
        return this.answer(`${line.n} ${line.m}`, line.refusal);
      case "publish":
        return this.publish(line);
      case "cancel":
        return this.publishing.get(line.n)?.abort();
      case "watch":
        return this.watch(line.n, line.topic);
      case "unwatch":
        return this.watches.get(line.n)?.stop();
      case "state":
        return this.finish(line.n, setState(this.client, line.topic, line.state));
      case "bye":
        return this.end();
      default: // a page of another version than the worker, which lives as long as any tab
        throw new MeshError("UNSUPPORTED", `the worker does not know ${JSON.stringify((line as { do: unknown }).do)}: it is of another version than the page`);
    }
  }

  private finish(n: number, call: Promise<unknown> | undefined): void {
    Promise.resolve(call).then(
      (value) => this.tell({ told: "done", n, value }),
      (e: unknown) => this.tell({ told: "failed call", n, fault: faultOf(errorOf(e)) }),
    );
  }

  private publish({ n, topic, payload, options }: Extract<FromTab, { do: "publish" }>): void {
    const stop = new AbortController();
    this.publishing.set(n, stop);
    const over = () => void this.publishing.delete(n);
    const published = this.client.publish(topic, payload, { ...options, signal: stop.signal });
    published.then(over, over);
    this.finish(n, published);
  }

  private subscribe(n: number, filter: string, options: Extract<FromTab, { do: "subscribe" }>["options"]): void {
    const handler = (message: Message) =>
      new Promise<void>((done) => {
        const m = ++this.messages;
        this.held.set(`${n} ${m}`, { message, done });
        this.tell({ told: "message", n, m, message: plainOf(message) });
      });
    const sub = this.client.subscribe(filter, handler, { ...options, onGap: (gap) => this.tell({ told: "gap", n, gap }) });
    this.subs.set(n, sub);
    sub.ready.then(() => this.tell({ told: "ready", n }), () => undefined);
    void sub.ended.then(() => {
      this.subs.delete(n);
      for (const key of [...this.held.keys()].filter((k) => k.startsWith(`${n} `))) this.answer(key, { afterMs: 0, reason: "the subscription has ended" });
      this.tell({ told: "ended", n, fault: sub.error && faultOf(sub.error) });
    });
  }

  private answer(key: string, refusal: { afterMs: number; reason: string } | undefined): void {
    const held = this.held.get(key);
    this.held.delete(key);
    if (refusal) held?.message.nack(refusal.afterMs, refusal.reason);
    held?.done();
  }

  private watch(n: number, topic: string): void {
    const watch = watchPresence(this.client, topic, (change) => this.tell({ told: "presence", n, change }));
    this.watches.set(n, watch);
    void watch.ended.then((why) => {
      this.watches.delete(n);
      this.tell({ told: "ended", n, fault: why && faultOf(why) });
    });
  }

  /** The tab is gone: what it was handed and did not answer comes to another. */
  end(): void {
    this.gone = true;
    this.free();
    this.undo.splice(0).forEach((f) => f());
    this.port.onmessage = null;
    for (const sub of this.subs.values()) void sub.unsubscribe();
    for (const watch of this.watches.values()) watch.stop();
    for (const { message, done } of this.held.values()) {
      message.nack(0, "the tab is gone");
      done();
    }
    this.held.clear();
    this.port.close();
  }
}

/**
 * In a SharedWorker's program: has every tab that connects to the worker use this client. Call it
 * while the program is loaded, and not behind an await: a tab that connects before is not heard.
 */
export function serveTabs(client: Client): void {
  (globalThis as unknown as { onconnect: (e: MessageEvent) => void }).onconnect = ({ ports }) => new Tab(client, ports[0]!);
}
