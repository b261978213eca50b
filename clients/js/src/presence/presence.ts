import type { Client } from "../client.js";
import type { Backoff } from "../connect/backoff.js";
import type { Link } from "../connect/link.js";
import { MeshError, checkSignal, endOnAbort, orAborted } from "../error.js";
import { call, type Hub, type Part, type Request } from "../hub.js";
import { FrameType, Presence as PresenceFrame, State, Stated, Unsubscribe, Watch } from "../wire/schema.js";
import { bytesOf, type Payload } from "../publish.js";
import { Crowd, type Member, type PresenceChange } from "./crowd.js";

/** An edge that does not know presence would end the connection. */
const offers = (link: Link) => link.welcome.features.includes("presence");

const unsupported = () => new MeshError("UNSUPPORTED", "this edge has no presence for clients");

/** What a connection watches of a topic, for all who watch it. */
class Watched implements Request {
  readonly watches = new Set<PresenceWatch>();
  readonly crowd: Crowd;
  /** Of the request on this connection; 0: none. */
  id = 0;
  /** It was answered: what comes before is of an earlier one. */
  private begun = false;
  private readonly backoff: Backoff;

  constructor(
    private readonly presence: Presence,
    readonly topic: string,
  ) {
    this.crowd = new Crowd(topic);
    this.backoff = presence.hub.backoff();
  }

  ask(link: Link): void {
    if (!offers(link)) {
      if (!this.crowd.known) this.end(unsupported());
      return;
    }
    this.begun = false;
    this.id = this.presence.hub.id(this);
    const bad = link.send(FrameType.WATCH, Watch, { id: this.id, topic: this.topic });
    if (bad) this.end(bad);
  }

  refused(why: MeshError): void {
    const { hub } = this.presence;
    this.forgetId();
    if (!why.retryable) return this.end(why);
    const { link } = hub;
    hub.timers.after(this.backoff.next(why.retryAfterMs), () => {
      if (link && hub.link === link && this.id === 0 && this.watches.size > 0) this.ask(link);
    });
  }

  forgetId(): void {
    this.presence.hub.requests.delete(this.id);
    this.id = 0;
  }

  take(m: PresenceFrame): void {
    if (this.id === 0 || (!this.begun && !m.snapshot)) return;
    this.begun = true;
    this.backoff.reset();
    const change = this.crowd.take(m);
    for (const watch of [...this.watches]) {
      if (!this.watches.has(watch)) continue; // stopped by what another was told
      if (!watch.begun) watch.tell(this.crowd.whole());
      else if (change) watch.tell(change);
    }
  }

  end(why: MeshError | undefined): void {
    this.presence.watched.delete(this.topic);
    this.forgetId();
    for (const watch of [...this.watches]) watch.end(why);
  }

  drop(watch: PresenceWatch): void {
    this.watches.delete(watch);
    if (this.watches.size > 0 || this.presence.watched.get(this.topic) !== this) return;
    const { id } = this;
    this.presence.watched.delete(this.topic);
    if (id !== 0) this.presence.hub.link?.send(FrameType.UNSUBSCRIBE, Unsubscribe, { id });
    this.forgetId();
  }
}

/** Tells who is in a topic. It outlives connections. */
export class PresenceWatch {
  /** Resolves at the first word; is rejected where it is refused. */
  readonly ready: Promise<void>;
  /** Resolves once nothing more is told; with why, unless it was stopped. */
  readonly ended: Promise<MeshError | undefined>;
  /** @internal */ begun = false;
  private settle!: { ready: () => void; failed: (e: unknown) => void; ended: (e?: MeshError) => void };

  /** @internal */
  constructor(
    private readonly watched: Watched,
    private readonly f: (change: PresenceChange) => void,
  ) {
    const settle: Partial<PresenceWatch["settle"]> = {};
    this.ready = new Promise((resolve, reject) => Object.assign(settle, { ready: resolve, failed: reject }));
    this.ready.catch(() => undefined); // who does not wait for it asks ended
    this.ended = new Promise((resolve) => (settle.ended = resolve));
    this.settle = settle as PresenceWatch["settle"];
    watched.watches.add(this);
  }

  /** Those who are there, by name, as told last; none where countsOnly was told. */
  get members(): Member[] {
    return this.watched.crowd.members;
  }

  /** How many users there are, as told last. */
  get count(): number {
    return this.watched.crowd.count;
  }

  /** Ends the watch. */
  stop(): void {
    this.watched.drop(this);
    this.end(undefined);
  }

  /** @internal */
  abort(why: unknown): void {
    this.settle.failed(why);
    this.stop();
  }

  /** @internal */
  tell(change: PresenceChange): void {
    this.begun = true;
    this.settle.ready();
    call(this.f, change);
  }

  /** @internal It may come often. */
  end(why: MeshError | undefined): void {
    this.watched.watches.delete(this);
    this.settle.failed(why ?? new MeshError("CANCELLED", "the watch was stopped"));
    this.settle.ended(why);
  }
}

/** A State that is not answered yet. */
class Saying implements Request {
  id = 0;

  constructor(
    private readonly presence: Presence,
    readonly topic: string,
    readonly value: Uint8Array,
    readonly resolve: () => void,
    readonly reject: (why: Error) => void,
  ) {}

  refused(why: MeshError): void {
    this.presence.unsaid(this, why);
  }
}

/** What a client watches of topics, and says of itself there. */
class Presence implements Part {
  readonly watched = new Map<string, Watched>();
  /** What holds of this client, by topic, until it is said again. */
  private readonly states = new Map<string, Uint8Array>();
  private readonly saying = new Set<Saying>();
  private readonly backoff: Backoff;

  constructor(readonly hub: Hub) {
    this.backoff = hub.backoff();
    hub.takes(FrameType.PRESENCE, PresenceFrame, (m) => this.watched.get(m.topic)?.take(m));
    hub.answers(FrameType.STATED, Stated, Saying, (s) => {
      this.over(s);
      this.backoff.reset();
      if (s.value.length === 0 && this.states.get(s.topic) === s.value) this.states.delete(s.topic);
      s.resolve();
    });
  }

  watch(topic: string, f: (change: PresenceChange) => void): PresenceWatch {
    let watched = this.watched.get(topic);
    const { link } = this.hub;
    if (!watched) {
      watched = new Watched(this, topic);
      this.watched.set(topic, watched);
    }
    const watch = new PresenceWatch(watched, f);
    if (watched.id === 0 && link) watched.ask(link);
    const known = watched.crowd;
    if (known.known) queueMicrotask(() => !watch.begun && known.known && watched.watches.has(watch) && watch.tell(known.whole()));
    return watch;
  }

  say(topic: string, value: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      const before = this.states.get(topic);
      this.states.set(topic, value);
      const { link } = this.hub;
      if (!link) return resolve(); // it is said once there is a connection
      const failed = (why: Error) => {
        // What was said before holds at the edge.
        if (this.states.get(topic) === value) {
          if (before) this.states.set(topic, before);
          else this.states.delete(topic);
        }
        reject(why);
      };
      this.send(link, new Saying(this, topic, value, resolve, failed));
    });
  }

  private send(link: Link, s: Saying): void {
    if (!offers(link)) return s.reject(unsupported());
    s.id = this.hub.id(s);
    this.saying.add(s);
    const bad = link.send(FrameType.STATE, State, { id: s.id, topic: s.topic, state: s.value });
    if (!bad) return;
    this.over(s);
    s.reject(bad);
  }

  private over(s: Saying): void {
    this.hub.requests.delete(s.id);
    this.saying.delete(s);
  }

  /** What is refused for now is said again. */
  unsaid(s: Saying, why: MeshError): void {
    this.over(s);
    if (!why.retryable) return s.reject(why);
    const { link } = this.hub;
    this.hub.timers.after(this.backoff.next(why.retryAfterMs), () => {
      if (this.hub.over) s.reject(this.hub.over);
      else if (link && this.hub.link === link && this.states.get(s.topic) === s.value) this.send(link, s);
      else s.resolve(); // it is said on the next connection, or something else was
    });
  }

  connected(link: Link): void {
    if (offers(link)) {
      for (const [topic, value] of this.states) {
        const drop = () => void (this.states.get(topic) === value && this.states.delete(topic));
        this.send(link, new Saying(this, topic, value, () => undefined, drop));
      }
    }
    for (const watched of [...this.watched.values()]) watched.ask(link);
  }

  broken(): void {
    for (const s of [...this.saying]) {
      this.over(s);
      s.resolve(); // it is said on the next one
    }
    for (const watched of this.watched.values()) watched.forgetId();
  }

  ended(why: MeshError): void {
    for (const s of [...this.saying]) {
      this.over(s);
      s.reject(why);
    }
    for (const watched of [...this.watched.values()]) watched.end(why);
  }
}

/**
 * Has f told who is in a topic, and of whoever comes and goes. The first change names all; after a
 * reconnect it is told what is different since. It needs a namespace that lets clients see who is in
 * its topics, and a client that may subscribe to the topic; it need not have. A signal that aborts
 * stops it.
 */
export function watchPresence(client: Client, topic: string, f: (change: PresenceChange) => void, { signal }: { signal?: AbortSignal } = {}): PresenceWatch {
  client.hub.check();
  checkSignal(signal);
  const watch = client.hub.part(Presence).watch(topic, f);
  endOnAbort(signal, watch);
  return watch;
}

/**
 * Says what others see of this client in a topic, 1 KiB at most; "": nothing. It holds on later
 * connections, too, until it is set again. A signal ends the wait for the answer; what was said holds.
 */
export async function setState(client: Client, topic: string, state: Payload, { signal }: { signal?: AbortSignal } = {}): Promise<void> {
  client.hub.check();
  checkSignal(signal);
  return orAborted(client.hub.part(Presence).say(topic, bytesOf(state)), signal);
}
