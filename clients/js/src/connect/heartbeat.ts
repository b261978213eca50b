import { decode } from "../wire/codec.js";
import { FrameType, Ping, Pong } from "../wire/schema.js";
import type { Link } from "./link.js";

/** How long an edge has to show that it is there when this machine, and not the edge, was away. */
const PROBE_MS = 5000;

/** How often it gets that time. */
const MOST_PROBES = 2;

/**
 * Pings the edge each heartbeat, and gives the connection up after two and a half without a byte.
 * What is received counts more than timers: those of a hidden tab are late, and a laptop sleeps.
 */
export class Heartbeat {
  /** Round trip of the last Ping that was answered, in milliseconds; 0: none was. */
  roundTripMs = 0;
  private readonly beat: number;
  private heardAt: number;
  private pingAt: number;
  /** Until when something must have been heard; 0: the usual time. */
  private probeEnds = 0;
  private probes = 0;
  private unreported = 0;
  private cancel: () => void = () => undefined;

  constructor(
    private readonly link: Link,
    heartbeatMs: number,
  ) {
    this.beat = Math.max(heartbeatMs === 0 ? 30_000 : heartbeatMs, 1000);
    this.heardAt = link.timers.now();
    // A random part of the first, so that thousands of clients that come together don't ping so.
    this.pingAt = this.heardAt + Math.random() * this.beat;
    this.arm(this.heardAt);
  }

  heard(): void {
    this.heardAt = this.link.timers.now();
    this.probeEnds = this.probes = 0;
  }

  stop(): void {
    this.cancel();
    this.pingAt = Infinity;
  }

  /** Asks the edge whether it is there, as when a page is shown again or the network is back. */
  probe(): void {
    if (this.pingAt === Infinity) return;
    this.ask(this.link.timers.now());
  }

  private get deadAt(): number {
    return this.probeEnds || this.heardAt + 2.5 * this.beat;
  }

  private arm(now: number): void {
    if (this.pingAt === Infinity) return;
    const next = Math.min(this.pingAt, this.deadAt);
    this.cancel();
    this.cancel = this.link.timers.after(Math.max(next - now, 0), () => this.turn(next));
  }

  /** due is when it was to run. */
  private turn(due: number): void {
    const now = this.link.timers.now();
    if (now < this.deadAt) {
      if (now >= this.pingAt) this.ping(now);
      return this.arm(now);
    }
    // A timer that is late has slept with the machine, or in a hidden tab: what has come meanwhile
    // is read behind it, so the edge gets another chance.
    const late = now - due > this.beat / 2;
    if (late && this.probes < MOST_PROBES) return this.ask(now);
    this.link.close(new Error("nothing was heard of the edge for two and a half heartbeats"));
  }

  private ask(now: number): void {
    this.probes++;
    this.probeEnds = now + PROBE_MS;
    this.ping(now);
    this.arm(now);
  }

  private ping(now: number): void {
    this.pingAt = now + this.beat;
    this.link.send(FrameType.PING, Ping, { sentAt: BigInt(Math.ceil(now * 1000)), lastRttUs: this.unreported });
    this.unreported = 0;
  }

  /** Whether a frame was the heartbeat's. */
  take(type: number, body: Uint8Array): boolean {
    if (type === FrameType.PING) {
      this.link.send(FrameType.PONG, Pong, { sentAt: decode(Ping, body).sentAt });
      return true;
    }
    if (type !== FrameType.PONG) return false;
    const us = Math.ceil(this.link.timers.now() * 1000) - Number(decode(Pong, body).sentAt);
    if (us >= 0 && us < 3600e6) {
      this.unreported = Math.max(Math.round(us), 1);
      this.roundTripMs = us / 1000;
    }
    return true;
  }
}
