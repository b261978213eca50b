/** How long to wait between tries: it doubles from low to high, with jitter. */
export class Backoff {
  private tries = 0;

  constructor(
    readonly low: number,
    private readonly high: number,
    private readonly random: () => number = Math.random,
  ) {}

  /** Begins anew with low. */
  reset(): void {
    this.tries = 0;
  }

  /**
   * Half to all of the doubled wait; or what the other side asked for, and up to a quarter more,
   * where that is longer.
   */
  next(asked = 0): number {
    const d = Math.min(this.low * 2 ** Math.min(this.tries, 20), this.high);
    this.tries++;
    return Math.max(d / 2 + (this.random() * d) / 2, asked * (1 + this.random() / 4));
  }
}
