import { Cursor } from "../position/cursor.js";
import { AckRun } from "./acks.js";
import type { Delivery, Entry } from "./delivery.js";
import type { Subscription } from "./subscription.js";

/** How far one subscription has come in one topic, and its ACKs there. */
export class Place extends Cursor {
  readonly acks: AckRun;
  /** The highest seq that has come, also where it waits for the handler. */
  heard = 0;
  /** Of what waits for the handler, the last; none where it is with the handler. */
  tail: Entry | undefined;

  constructor(
    readonly topic: Topic,
    readonly sub: Subscription,
  ) {
    super(sub.ranked);
    this.acks = new AckRun(topic.name, sub.id);
  }
}

/** What a client knows of one topic: a place of each subscription that matches. */
export class Topic {
  readonly places: Place[] = [];
  /** ACKs of messages that named no subscription. */
  readonly plain: AckRun;
  /** Messages that are not settled, in the order in which they came. */
  open: Delivery[] = [];

  constructor(readonly name: string) {
    this.plain = new AckRun(name, 0);
  }

  add(sub: Subscription): Place {
    const place = new Place(this, sub);
    this.places.push(place);
    return place;
  }

  drop(sub: Subscription): void {
    const i = this.places.findIndex((p) => p.sub === sub);
    if (i >= 0) this.places.splice(i, 1);
  }

  of(sub: Subscription): Place | undefined {
    return this.places.find((p) => p.sub === sub);
  }

  get anyPlain(): boolean {
    return this.places.some((p) => p.sub.plain);
  }

  /**
   * The places that a message is for. One that names no subscription is for the plain ones. Another
   * one gets messages of its own; it takes a plain one only where that comes next, so that it misses
   * nothing where an edge counts it as plain once it has caught up.
   */
  wanted(seq: number, subs: readonly number[]): Place[] {
    if (subs.length > 0) return this.places.filter((p) => subs.includes(p.sub.id));
    const plain = this.anyPlain;
    return this.places.filter((p) => p.sub.plain || (!p.sub.named && (!plain || (seq > 0 && seq === p.heard + 1))));
  }

  /** The places of which a Progress speaks. What doesn't come to the plain ones may come to others. */
  passed(subs: readonly number[]): Place[] {
    if (subs.length > 0) return this.places.filter((p) => subs.includes(p.sub.id));
    const plain = this.anyPlain;
    return this.places.filter((p) => p.sub.plain || !plain);
  }

  /** Names a plain subscription where there are others too: ACKs without a name would count for these. */
  get plainSub(): number {
    const plain = this.places.filter((p) => p.sub.plain);
    if (plain.length === this.places.length) return 0;
    return (plain.filter((p) => p.sub.request.ack).at(-1) ?? plain[0])?.sub.id ?? 0;
  }

  get ephemeral(): boolean {
    return this.places.every((p) => p.high === 0 && p.epoch === 0);
  }
}
