import type { Client } from "../client.js";
import type { Backoff } from "../connect/backoff.js";
import { MeshError, checkSignal, codeOf, endOnAbort, type Code } from "../error.js";
import { call } from "../hub.js";
import { ClaimState_State, Claim_Op, type ClaimState } from "../wire/schema.js";
import { Asks } from "./asks.js";

/** What is so at a resource, for this client where it has a place there. */
export interface ClaimInfo {
  resource: string;
  state: keyof typeof ClaimState_State;
  /** Of this client's hold. */
  token: bigint;
  /** In the line, 1 is next. */
  position: number;
  /** What was left of the hold when it was told; of HELD_BY_OTHER, of the one that ends first. */
  expiresInMs: number;
  /** Who holds it longest: "client:" and a client id, or a backend's owner. */
  holder: string;
  holding: number;
  waiting: number;
  /** Why it was LOST. */
  code: Code;
}

const stateNames = Object.keys(ClaimState_State) as ClaimInfo["state"][];

const infoOf = (s: ClaimState): ClaimInfo => ({
  resource: s.resource,
  state: stateNames[s.state] ?? "FREE",
  token: s.token,
  position: s.position,
  expiresInMs: s.expiresInMs,
  holder: s.holder,
  holding: s.holding,
  waiting: s.waiting,
  code: codeOf(s.code),
});

/** Asks what is so at a resource. */
export async function checkClaim(client: Client, resource: string, { signal }: { signal?: AbortSignal } = {}): Promise<ClaimInfo> {
  return infoOf((await client.hub.part(Asks).call({ resource, op: Claim_Op.CHECK }, signal)).state);
}

/** Tells of a resource. It outlives connections. */
export class ClaimWatch {
  /** Resolves at the first word; is rejected where it is refused. */
  readonly ready: Promise<void>;
  /** Resolves once nothing more is told; with why, unless it was stopped. */
  readonly ended: Promise<MeshError | undefined>;
  private settle!: { ready: () => void; failed: (e: unknown) => void; ended: (e?: MeshError) => void };
  private readonly backoff: Backoff;
  private asking = false;
  private tied = false;
  private active = false;
  private over = false;

  /** @internal */
  constructor(
    private readonly asks: Asks,
    readonly resource: string,
    private readonly f: (info: ClaimInfo) => void,
  ) {
    const settle: Partial<ClaimWatch["settle"]> = {};
    this.ready = new Promise((resolve, reject) => Object.assign(settle, { ready: resolve, failed: reject }));
    this.ready.catch(() => undefined); // who does not wait for it asks ended
    this.ended = new Promise((resolve) => (settle.ended = resolve));
    this.settle = settle as ClaimWatch["settle"];
    this.backoff = asks.hub.backoff();
    asks.watches.set(resource, this);
    asks.unwatched.delete(resource);
    this.pump();
  }

  /** Ends the watch. A claim on the resource stays. */
  stop(): void {
    if (this.over) return;
    this.end(undefined);
    // LEAVE would take the claim's place; the claim does that at its end.
    if (this.asks.claims.has(this.resource)) this.asks.unwatched.add(this.resource);
    else this.asks.say({ resource: this.resource, op: Claim_Op.LEAVE });
  }

  /** @internal */
  abort(why: unknown): void {
    this.settle.failed(why);
    this.stop();
  }

  private pump(): void {
    if (this.over || this.asking || this.tied || !this.asks.hub.link) return;
    this.asking = true;
    this.asks.ask({ resource: this.resource, op: Claim_Op.WATCH }, (_, state, why) => {
      this.asking = false;
      if (this.over) return;
      if (state) {
        this.tied = this.active = true;
        this.backoff.reset();
        this.settle.ready();
      } else if (!why!.retryable) {
        this.end(why);
      } else if (!why!.unknown) {
        const { hub } = this.asks;
        const { link } = hub;
        hub.timers.after(this.backoff.next(why!.retryAfterMs), () => hub.link === link && this.pump()); // another connection has asked at once
      }
    });
  }

  /** @internal */
  connected(): void {
    this.tied = false;
    this.pump();
  }

  /** @internal */
  told(state: ClaimState): void {
    if (this.active && !this.over) call(this.f, infoOf(state));
  }

  /** @internal */
  end(why: MeshError | undefined): void {
    if (this.over) return;
    this.over = true;
    this.asks.watches.delete(this.resource);
    this.settle.failed(why ?? new MeshError("CANCELLED", "the watch was stopped"));
    this.settle.ended(why);
  }
}

/**
 * Has f told of a resource and of every change: while this client has a place there, of that;
 * otherwise who holds it, at most ten times a second. There is one watch of a resource. A signal that
 * aborts stops it.
 */
export function watchClaim(client: Client, resource: string, f: (info: ClaimInfo) => void, { signal }: { signal?: AbortSignal } = {}): ClaimWatch {
  client.hub.check();
  checkSignal(signal);
  const asks = client.hub.part(Asks);
  if (asks.watches.has(resource)) throw new MeshError("ALREADY_EXISTS", `this client watches ${JSON.stringify(resource)} already`);
  const watch = new ClaimWatch(asks, resource, f);
  endOnAbort(signal, watch);
  return watch;
}
