import type { Link } from "../connect/link.js";
import { MeshError, checkSignal, codeOf, endOnAbort, type Code } from "../error.js";
import { Hub, type Part } from "../hub.js";
import type { Passed } from "../position/cursor.js";
import { isWild, matches } from "../position/filter.js";
import { soon, wireMs } from "../time.js";
import { FrameType, Message as MessageFrame, Nack, Progress, Subscribed, Unsubscribed } from "../wire/schema.js";
import { Acks, type AckRun } from "./acks.js";
import { Delivery, type Entry } from "./delivery.js";
import type { Refusal } from "./message.js";
import type { Handler, Position, SubscribeOptions } from "./options.js";
import { stand } from "./standing.js";
import { Subscription, Unsubscribing } from "./subscription.js";
import { Topic, type Place } from "./topic.js";

/** How many topics a client keeps places of; beyond, those of some topic are forgotten, which a resume reports. */
const MOST_TOPICS = 65536;

/** What may wait for handlers. A WebSocket can't be made to wait, as TCP can. */
const MOST_WAITING = 65536;
const MOST_WAITING_BYTES = 64 * 2 ** 20;

/** Reasons that are no loss: the message was not wanted, or had its time. */
const noLoss: readonly Code[] = ["OK", "EPOCH_CHANGED", "FILTERED", "NOT_YOURS", "CONFLATED", "RANKED_OUT", "EXPIRED"];

/** Whether b goes on where a ends, for the same reason, and neither is a loss. */
const follows = (a: Passed, b: Passed) => a.epoch === b.epoch && a.code === b.code && b.from > 0 && b.from === a.to + 1 && b.code !== "EPOCH_CHANGED" && noLoss.includes(b.code);

/** The subscriptions of a client, and the messages on their way to them. */
export class Subscriptions implements Part {
  closing = false;
  private readonly subs = new Set<Subscription>();
  /** Those of one topic, by the topic, and those with wildcards. */
  private readonly exact = new Map<string, Set<Subscription>>();
  private readonly wild = new Set<Subscription>();
  private readonly topics = new Map<string, Topic>();
  private readonly acks = new Acks();
  /** Not asked for on this connection yet: a handler has a message of theirs. */
  private readonly resuming = new Set<Subscription>();
  /** Those that nobody reads, of which more waits than there is room for: they are asked for again once somebody does. */
  private readonly stalled = new Set<Subscription>();
  private readonly unsubscribing = new Map<number, Unsubscribing>();
  private waiting = 0;
  private waitingBytes = 0;
  private flushing = false;
  private onIdle: (() => void) | undefined;

  constructor(readonly hub: Hub) {
    hub.takes(FrameType.PROGRESS, Progress, (m) => this.progress(m));
    hub.answers(FrameType.SUBSCRIBED, Subscribed, Subscription, (sub, m) => {
      stand(sub, m, (name) => this.topic(name));
      sub.subscribed();
    });
    hub.takes(FrameType.UNSUBSCRIBED, Unsubscribed, (m) => hub.refused(Hub.reason(m.code, m.reason), m.id));
    hub.takesBytes(FrameType.MESSAGE, MessageFrame, (m, size) => this.message(m, size));
  }

  add(filter: string, options: SubscribeOptions, handler: Handler | undefined): Subscription {
    this.hub.check();
    checkSignal(options.signal);
    const sub = new Subscription(this, filter, options, handler);
    this.subs.add(sub);
    if (isWild(filter)) this.wild.add(sub);
    else this.exact.set(filter, (this.exact.get(filter) ?? new Set()).add(sub));
    for (const topic of this.topicsOf(sub)) topic.add(sub);
    if (this.hub.link) sub.send(this.hub.link);
    endOnAbort(options.signal, sub);
    return sub;
  }

  /** The topics that are known and that a subscription is for. */
  private topicsOf({ filter }: Subscription): Topic[] {
    if (isWild(filter)) return [...this.topics.values()].filter((topic) => matches(filter, topic.name));
    const topic = this.topics.get(filter);
    return topic ? [topic] : [];
  }

  unsubscribe(sub: Subscription): Promise<void> {
    const { link } = this.hub;
    const asked = sub.sent && sub.state !== "ended";
    sub.end(undefined);
    if (!asked || !link) return this.unsubscribing.get(sub.id)?.done ?? Promise.resolve();
    this.flush(); // what was ACKed is ACKed: behind this the edge does not know the subscription
    const request = new Unsubscribing(sub.id, link);
    this.unsubscribing.set(sub.id, request);
    this.hub.requests.set(sub.id, request);
    void request.done.then(() => {
      this.unsubscribing.delete(sub.id);
      this.hub.requests.delete(sub.id);
    });
    return request.done;
  }

  /** Takes a subscription out of everything. What waited for it is not handled. */
  forget(sub: Subscription): void {
    this.subs.delete(sub);
    this.wild.delete(sub);
    const same = this.exact.get(sub.filter);
    same?.delete(sub);
    if (same?.size === 0) this.exact.delete(sub.filter);
    this.resuming.delete(sub);
    this.hub.requests.delete(sub.id);
    for (const topic of this.topicsOf(sub)) {
      topic.drop(sub);
      if (topic.places.length === 0) this.topics.delete(topic.name);
    }
    for (const entry of sub.waiting.splice(0)) this.drop(entry);
  }

  positions(sub: Subscription): Position[] {
    if (sub.shared || sub.ranked) return [];
    const all: Position[] = [];
    for (const topic of this.topicsOf(sub)) {
      const p = topic.of(sub);
      if (p && (p.epoch !== 0 || p.high > 0 || p.void)) all.push({ topic: topic.name, epoch: p.epoch, seq: p.position });
    }
    return all;
  }

  connected(link: Link): void {
    for (const sub of this.subs) {
      // What of durable topics waits for a handler comes again; the rest would be lost.
      for (const entry of sub.waiting.splice(0)) {
        entry.place.tail = undefined;
        if (entry.delivery && !entry.delivery.durable) sub.waiting.push(entry);
        else this.drop(entry);
      }
      if (sub.active && (sub.busy || (this.stalled.has(sub) && !sub.read))) this.resuming.add(sub);
      else sub.send(link);
    }
    this.stalled.clear();
    for (const topic of this.topics.values()) {
      topic.open = [];
      for (const place of topic.places) place.heard = place.high;
    }
  }

  /** Asks for what waited for its handler. */
  resume(sub: Subscription): void {
    if (!this.resuming.has(sub) || sub.busy) return;
    this.resuming.delete(sub);
    if (this.hub.link && !sub.sent) sub.send(this.hub.link);
  }

  broken(): void {
    this.resuming.clear();
    this.acks.clear();
    for (const sub of this.subs) {
      sub.sent = false;
      sub.state = "asked";
    }
    for (const request of this.unsubscribing.values()) request.finish();
  }

  ended(why: MeshError): void {
    for (const request of this.unsubscribing.values()) request.finish();
    for (const sub of [...this.subs]) sub.end(why.code === "CANCELLED" && sub.active ? undefined : why);
  }

  /** Hands nothing over any more, and resolves once no handler runs. */
  close(): Promise<void> {
    this.closing = true;
    for (const sub of this.subs) sub.release?.();
    return new Promise((resolve) => {
      this.onIdle = resolve;
      this.idle();
    });
  }

  /** A handler has ended. */
  idle(): void {
    if (!this.onIdle || [...this.subs].some((sub) => sub.handling)) return;
    this.flush();
    this.onIdle();
  }

  private topic(name: string): Topic {
    const known = this.topics.get(name);
    if (known) return known;
    const topic = new Topic(name);
    const subs = [...(this.exact.get(name) ?? []), ...[...this.wild].filter((sub) => matches(sub.filter, name))];
    for (const sub of subs.sort((a, b) => a.id - b.id)) topic.add(sub);
    if (topic.places.length === 0) return topic; // of a subscription that has ended meanwhile
    if (this.topics.size >= MOST_TOPICS) this.evict();
    this.topics.set(name, topic);
    return topic;
  }

  /** Forgets one topic, an ephemeral one if there is one among the first, or one of which all is settled. */
  private evict(): void {
    const some: Topic[] = [];
    for (const topic of this.topics.values()) if (some.push(topic) === 32) break;
    const victim = some.find((topic) => topic.ephemeral) ?? some.find((topic) => topic.open.length === 0) ?? some[0]!;
    this.topics.delete(victim.name);
  }

  private message(m: MessageFrame, size: number): void {
    const topic = this.topic(m.topic);
    const places = topic.wanted(m.seq, m.subs);
    if (places.length === 0 || this.closing) return;
    if (!this.room(size, places, m.seq > 0)) return;
    const delivery = new Delivery(m, size, topic, this.hub.link!, places.length);
    if (delivery.durable) topic.open.push(delivery);
    for (const place of places) {
      place.heard = Math.max(place.heard, m.seq);
      place.tail = { place, delivery };
      place.sub.waiting.push(place.tail);
      this.waiting++;
      this.waitingBytes += size;
    }
    for (const place of places) place.sub.pump();
  }

  /** Makes room for a message; false: there is none for it. */
  private room(size: number, places: readonly Place[], durable: boolean): boolean {
    const full = () => this.waiting > 0 && (this.waiting >= MOST_WAITING || this.waitingBytes + size > MOST_WAITING_BYTES);
    if (!full()) return true;
    if (durable) {
      // It comes again on another connection, behind what handlers have by then.
      for (const { sub } of places) if (!sub.read) this.stalled.add(sub);
      this.hub.link?.close(new MeshError("SLOW_CONSUMER", "more than 65,536 messages or 64 MiB wait for handlers"));
      return false;
    }
    for (const { sub } of places) {
      while (full()) {
        const i = sub.waiting.findIndex((e) => e.delivery && !e.delivery.durable);
        if (i < 0) break;
        const [oldest] = sub.waiting.splice(i, 1);
        this.drop(oldest!);
        sub.gap({ topic: oldest!.place.topic.name, missed: 1, code: "QUEUE_FULL" });
      }
    }
    return !full();
  }

  /** Lets go of what a handler will not have. */
  private drop({ delivery }: Entry): void {
    if (!delivery) return;
    this.handedOver(delivery);
    this.done(delivery);
  }

  handedOver(delivery: Delivery): void {
    this.waiting--;
    this.waitingBytes -= delivery.size;
  }

  private progress(m: Progress): void {
    const topic = this.topic(m.topic);
    const passed: Passed = { epoch: m.epoch, from: m.from, to: m.to, code: codeOf(m.code) };
    for (const place of topic.passed(m.subs)) {
      place.heard = passed.code === "EPOCH_CHANGED" ? 0 : Math.max(place.heard, m.to);
      const before = place.tail?.passed;
      if (before && follows(before, passed)) {
        before.to = passed.to; // word of each single message must not pile up behind a handler
        continue;
      }
      place.tail = { place, passed: { ...passed } };
      place.sub.waiting.push(place.tail);
    }
    for (const place of [...topic.places]) place.sub.pump();
  }

  /** Takes note of seqs that will not come. */
  passed(place: Place, passed: Passed): void {
    const { epoch, from, to, code } = passed;
    if (epoch !== 0 && epoch < place.epoch) return; // late word of a log that is gone
    const restarted = place.passed(passed);
    if (!restarted && noLoss.includes(code)) return;
    const missed = to === 0 || to < from ? 0 : to - Math.max(from, 1) + 1;
    place.sub.gap({ topic: place.topic.name, epoch: place.epoch, from, to, missed, code });
  }

  /** One more subscription has dealt with a message. Once all have, it is ACKed, or asked for again. */
  done(delivery: Delivery): void {
    if (--delivery.waiting > 0 || !delivery.durable) return;
    const { topic, frame, link } = delivery;
    const i = topic.open.indexOf(delivery);
    if (i >= 0) topic.open.splice(i, 1);
    if (link !== this.hub.link) return; // what came over another connection comes again
    const places = [...delivery.handled].filter(([place, epoch]) => place.epoch === epoch && place.sub.request.ack).map(([place]) => place);
    if (places.length === 0) return;
    if (delivery.refusal) return this.nack(link, topic, frame, delivery.refusal);
    const inOrder = i === 0;
    if (frame.subs.length === 0) {
      topic.plain.sub = topic.plainSub;
      this.ack(topic.plain, places[0]!.epoch, frame.seq, inOrder && places.every((p) => p.owed.empty));
      return;
    }
    for (const place of places) {
      this.ack(place.acks, place.epoch, frame.seq, inOrder && place.owed.empty && !place.sub.shared && !place.sub.ranked);
    }
  }

  private nack(link: Link, topic: Topic, frame: MessageFrame, { afterMs, reason }: Refusal): void {
    this.flush(); // the ACKs before it go first
    const sub = frame.subs[0] ?? topic.plainSub;
    link.send(FrameType.NACK, Nack, { topic: topic.name, seq: frame.seq, delayMs: wireMs(afterMs), reason: reason.slice(0, 80), sub });
  }

  private ack(run: AckRun, epoch: number, seq: number, through: boolean): void {
    if (run.epoch !== epoch) {
      if (run.waits) this.flush(); // of the epoch before
      run.epoch = epoch;
    }
    if (!this.acks.add(run, seq, through)) return;
    if (run.full) return this.flush();
    if (this.flushing) return;
    this.flushing = true;
    soon(() => this.flush());
  }

  private flush(): void {
    this.flushing = false;
    for (const bytes of this.acks.take()) this.hub.link?.append(bytes);
  }
}
