// Time, as pages have it: timers of hidden tabs are late by a minute, and machines sleep.

/** A clock in milliseconds that only goes forward, and goes on while the machine sleeps. */
export class Clock {
  private ticks = performance.now();
  private wall = Date.now();
  private slept = 0;

  now(): number {
    const ticks = performance.now();
    const wall = Date.now();
    // Some browsers' performance.now() stands still in sleep. A wall clock that was set forward
    // looks the same, and only makes things happen earlier.
    const lost = wall - this.wall - (ticks - this.ticks);
    if (lost > 1000) this.slept += lost;
    this.ticks = ticks;
    this.wall = wall;
    return ticks + this.slept;
  }
}

/** The longest time that setTimeout takes. */
const LONGEST = 2 ** 31 - 1;

interface Alarm {
  at: number;
  run: () => void;
  handle: ReturnType<typeof setTimeout> | undefined;
}

/**
 * Timers that also go off when something is received after their time (poke), because what is
 * received is handled at once in a hidden tab, and a timeout is not.
 */
export class Timers {
  private readonly alarms = new Set<Alarm>();

  constructor(readonly clock: { now(): number } = new Clock()) {}

  now(): number {
    return this.clock.now();
  }

  /** Has something run in so many milliseconds; what it returns calls that off. */
  after(ms: number, run: () => void): () => void {
    const alarm: Alarm = { at: this.now() + ms, run, handle: undefined };
    this.alarms.add(alarm);
    this.arm(alarm, ms);
    return () => this.drop(alarm);
  }

  private arm(alarm: Alarm, ms: number): void {
    alarm.handle = setTimeout(() => {
      const left = alarm.at - this.now();
      if (left >= 1) this.arm(alarm, left);
      else this.fire(alarm);
    }, Math.min(Math.max(Math.ceil(ms), 0), LONGEST));
  }

  private drop(alarm: Alarm): boolean {
    clearTimeout(alarm.handle);
    return this.alarms.delete(alarm);
  }

  private fire(alarm: Alarm): void {
    if (this.drop(alarm)) alarm.run();
  }

  /** Runs what is due. */
  poke(): void {
    if (this.alarms.size === 0) return;
    const now = this.now();
    for (const alarm of [...this.alarms]) if (alarm.at <= now) this.fire(alarm);
  }

  /** Runs everything now: nothing is waited for any more. */
  hurry(): void {
    for (const alarm of [...this.alarms]) this.fire(alarm);
  }

  /** Waits; wake ends the wait early. */
  pause(ms: number): { done: Promise<void>; wake: () => void } {
    let wake!: () => void;
    const done = new Promise<void>((resolve) => {
      const cancel = this.after(ms, resolve);
      wake = () => {
        cancel();
        resolve();
      };
    });
    return { done, wake };
  }
}

/** A time as frames say it, in whole milliseconds of 32 bits: what is longer is the longest. */
export const wireMs = (ms: number): number => Math.min(Math.max(Math.ceil(ms) || 0, 0), 2 ** 32 - 1);

/**
 * Runs something behind what is being handled now. In a page that is not a timeout, which would
 * take a second or more in a hidden tab.
 */
export function soon(run: () => void): void {
  if (typeof document === "undefined" || typeof MessageChannel === "undefined") {
    setTimeout(run, 0);
    return;
  }
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    port1.close();
    run();
  };
  port2.postMessage(0);
}
