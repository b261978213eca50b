import type { Code } from "../error.js";
import { MOST_RANKED, SeqSet, type Span } from "./set.js";

/**
 * How far behind the highest seq a message may stay un-handled before it is given up: the mesh
 * itself keeps no more.
 */
const MOST_OWED = 65536;

/** What Progress says of a topic, with its reason by name. */
export interface Passed {
  epoch: number;
  from: number;
  to: number;
  code: Code;
}

/** How far one subscription has come in one topic's log. */
export class Cursor {
  epoch = 0;
  /** The highest seq that was handed over, or that will not come: where to resume. */
  high = 0;
  /** Handed over with success, or will not come. */
  done: SeqSet;
  /** Handed over and refused by the handler: a resume must not skip it. */
  owed = new SeqSet();
  /** What was had is of a log that is gone: the next resume asks for the topic from its beginning. */
  void = false;

  constructor(private readonly ranked: boolean) {
    this.done = this.nothing();
  }

  private nothing(): SeqSet {
    return new SeqSet(this.ranked ? MOST_RANKED : undefined);
  }

  /** Has nothing count as done. */
  forgetDone(): void {
    this.done = this.nothing();
  }

  /** Whether nothing of the topic was had yet. */
  get fresh(): boolean {
    return this.high === 0 && this.done.empty && this.owed.empty;
  }

  /** The seq to resume after. */
  get position(): number {
    const low = this.owed.min;
    return low > 0 && low <= this.high ? low - 1 : this.high;
  }

  /** Begins at seq of an epoch, forgetting everything. */
  restart(epoch: number, seq: number): void {
    this.epoch = epoch;
    this.high = seq;
    this.owed = new SeqSet();
    this.forgetDone();
    if (seq > 0) this.done.add(0, seq);
  }

  succeeded(seq: number): void {
    this.high = Math.max(this.high, seq);
    this.done.add(seq, seq);
    if (!this.owed.empty) this.owed.remove(seq, seq);
  }

  /** Notes that the handler refused seq, and returns what is given up for good. */
  failed(seq: number): Span | undefined {
    this.high = Math.max(this.high, seq);
    this.owed.add(seq, seq);
    if (this.high - this.owed.min <= MOST_OWED) return undefined;
    const given = { lo: this.owed.min, hi: this.high - MOST_OWED - 1 };
    this.owed.remove(given.lo, given.hi);
    this.done.add(given.lo, given.hi);
    return given;
  }

  /** Notes that from..to will not come. Returns whether the log began anew. */
  passed({ epoch, from, to, code }: Passed): boolean {
    if (epoch !== 0 && epoch !== this.epoch) {
      if (epoch < this.epoch) return false; // greater is newer: late word of a log that is gone
      // Whether from..to are of the old log or the new one makes no difference: resuming too early
      // costs a repetition that is dropped, too late would lose messages.
      const known = this.epoch !== 0 || (code === "EPOCH_CHANGED" && !this.fresh);
      if (known) {
        this.restart(epoch, 0);
        return true;
      }
      this.epoch = epoch;
    }
    if (to > 0) {
      this.high = Math.max(this.high, to);
      this.done.add(Math.max(from, 1), to);
      this.owed.remove(from, to);
    }
    return false;
  }
}
