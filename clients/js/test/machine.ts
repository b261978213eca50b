// A machine whose time the test moves.
import { mock, test } from "node:test";
import { Timers } from "../src/time.js";

/** A machine whose time the test moves. */
export class Machine {
  time = 0;
  readonly timers = new Timers({ now: () => this.time });

  /** Time passes, and timers fire. */
  awake(ms: number): void {
    for (; ms > 0; ms -= 100) {
      this.time += Math.min(ms, 100);
      mock.timers.tick(Math.min(ms, 100));
    }
  }

  /** Time passes until something is there, and for so long at most; returns how many milliseconds. */
  until(is: () => boolean, most: number): number {
    const began = this.time;
    while (!is() && this.time - began < most) {
      this.time++;
      mock.timers.tick(1);
    }
    return this.time - began;
  }

  /** Time passes, and no timer fires. */
  asleep(ms: number): void {
    this.time += ms;
  }
}

/** A test whose time a machine has: it does not wait. */
export function timed(name: string, f: (machine: Machine) => void | Promise<void>): void {
  test(name, async () => {
    mock.timers.enable({ apis: ["setTimeout"] });
    try {
      await f(new Machine());
    } finally {
      mock.timers.reset();
    }
  });
}
