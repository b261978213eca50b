import type { Link } from "../connect/link.js";
import type { Passed } from "../position/cursor.js";
import type { Message as MessageFrame } from "../wire/schema.js";
import type { Refusal } from "./message.js";
import type { Place, Topic } from "./topic.js";

/** A message that came, until every subscription that it is for has dealt with it. */
export class Delivery {
  refusal: Refusal | undefined;
  /** The places whose handlers had it, with the epochs under which they had. */
  readonly handled = new Map<Place, number>();

  constructor(
    readonly frame: MessageFrame,
    readonly size: number,
    readonly topic: Topic,
    /** That it came over. */
    readonly link: Link,
    /** How many subscriptions have not dealt with it. */
    public waiting: number,
  ) {}

  get durable(): boolean {
    return this.frame.seq > 0;
  }

  /** Notes that a handler had it. */
  had(place: Place, epoch: number, refusal: Refusal | undefined): void {
    this.handled.set(place, epoch);
    this.refusal ??= refusal;
  }
}

/** What waits for a subscription's handler, in the order of arrival: a message, or word of seqs that won't come. */
export interface Entry {
  place: Place;
  delivery?: Delivery;
  passed?: Passed;
}
