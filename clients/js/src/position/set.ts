/** An inclusive range of seqs. */
export interface Span {
  lo: number;
  hi: number;
}

/** Bounds a SeqSet. At the bound the two lowest spans become one. */
const MOST = 1024;

/**
 * The same of what comes in the order of scores: of one ranking, 10,000 messages, every second one
 * may be missing, and the next one may have begun.
 */
export const MOST_RANKED = 16384;

/** A set of seqs, as ascending spans that neither overlap nor touch. */
export class SeqSet {
  private spans: Span[] = [];

  constructor(private readonly most = MOST) {}

  get empty(): boolean {
    return this.spans.length === 0;
  }

  /** The lowest member; 0 where there is none. */
  get min(): number {
    return this.spans[0]?.lo ?? 0;
  }

  /** The index of the first span that ends at or after seq. */
  private at(seq: number): number {
    let low = 0;
    let high = this.spans.length;
    if (high === 0 || this.spans[high - 1]!.hi < seq) return high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.spans[middle]!.hi >= seq) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  has(seq: number): boolean {
    const span = this.spans[this.at(seq)];
    return span !== undefined && span.lo <= seq;
  }

  /**
   * Puts lo..hi in. Beyond the bound the gap between the two lowest spans is filled: what lies
   * there is a member from then on.
   */
  add(lo: number, hi: number): void {
    if (hi < lo) return;
    const last = this.spans[this.spans.length - 1];
    if (last !== undefined && last.hi + 1 === lo) {
      last.hi = hi; // the usual case
      return;
    }
    const i = this.at(Math.max(lo - 1, 0));
    let j = i;
    for (; j < this.spans.length && this.spans[j]!.lo <= hi + 1; j++) {
      lo = Math.min(lo, this.spans[j]!.lo);
      hi = Math.max(hi, this.spans[j]!.hi);
    }
    this.spans.splice(i, j - i, { lo, hi });
    if (this.spans.length > this.most) this.spans.splice(0, 2, { lo: this.spans[0]!.lo, hi: this.spans[1]!.hi });
  }

  /** Takes lo..hi out. */
  remove(lo: number, hi: number): void {
    const i = this.at(lo);
    const left: Span[] = [];
    let j = i;
    for (; j < this.spans.length && this.spans[j]!.lo <= hi; j++) {
      const span = this.spans[j]!;
      if (span.lo < lo) left.push({ lo: span.lo, hi: lo - 1 });
      if (span.hi > hi) left.push({ lo: hi + 1, hi: span.hi });
    }
    this.spans.splice(i, j - i, ...left);
  }

  /** How many of 1 to hi are no members, and the lowest of them. */
  lacks(hi: number): { count: number; first: number } {
    let count = hi;
    let first = 1;
    for (const span of this.spans) {
      const lo = Math.max(span.lo, 1);
      const top = Math.min(span.hi, hi);
      if (lo > top) continue;
      count -= top - lo + 1;
      if (lo <= first) first = top + 1;
    }
    return { count, first };
  }
}
