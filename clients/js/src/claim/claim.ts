import type { Client } from "../client.js";
import type { Backoff } from "../connect/backoff.js";
import { MeshError, checkSignal, codeOf, onAbort } from "../error.js";
import { call } from "../hub.js";
import { whole } from "../options.js";
import { wireMs } from "../time.js";
import { ClaimState_State as Is, Claim_Op, type ClaimState } from "../wire/schema.js";
import { Asks } from "./asks.js";

export interface ClaimOptions {
  /** How long the hold lasts without being renewed, which the claim does; by default as the policy says. */
  ttlMs?: number;
  /** Of the line, 0 to 9: a higher one goes first. */
  priority?: number;
  /** Leave the line after so long. */
  waitMs?: number;
  /** Fail with CONFLICT where there would be a line to wait in. */
  noWait?: boolean;
  /** Told the place in the line, 1 is next, whenever it changes. */
  onPosition?: (position: number) => void;
  /** Ends the wait for the first answer, and with it the claim; of acquire, the wait until it is held. */
  signal?: AbortSignal;
}

/** How to release. */
export interface ReleaseOptions {
  /** Who has it next, before everybody who waits: "client:" and a client id, or a backend's owner. */
  successor?: string;
  /** Ends the wait for the mesh's word. The hold is over here all the same, and there with its TTL at the latest. */
  signal?: AbortSignal;
}

/** The shortest pause between renewals. */
const MIN_RENEWAL_MS = 50;

/** A place at a resource: in the line for it, or holding it. It outlives connections. */
export class Claim {
  /** Resolves once the resource is held; is rejected where the place is lost before. */
  readonly granted: Promise<void>;
  /** Resolves once the place is over: lost, released or left; with why, where it was lost. */
  readonly lost: Promise<MeshError | undefined>;
  /** @internal The first answer. */ readonly answered: Promise<void>;
  private settle!: { granted: () => void; failed: (e: Error) => void; lost: (e?: MeshError) => void; answered: () => void };
  private readonly backoff: Backoff;
  private over = false;
  private asking = false;
  /** The edge of this connection tells of it. */
  private tied = false;
  /** 0: it waits. */
  private fencing = 0n;
  private line = 0;
  /** Held for sure until then; 0: it is not held. */
  private deadline = 0;
  private renewAt = 0;
  private pausedTo = 0;
  private cancel: () => void = () => undefined;
  /** Takes back what was asked, while it was not sent. */
  private withdraw: () => void = () => undefined;

  /** @internal */
  constructor(
    private readonly asks: Asks,
    readonly resource: string,
    private readonly options: ClaimOptions,
  ) {
    const settle: Partial<Claim["settle"]> = {};
    this.granted = new Promise((resolve, reject) => Object.assign(settle, { granted: resolve, failed: reject }));
    this.granted.catch(() => undefined); // who does not wait for it asks lost
    this.lost = new Promise((resolve) => (settle.lost = resolve));
    this.answered = new Promise((resolve) => (settle.answered = resolve));
    this.settle = settle as Claim["settle"];
    this.backoff = asks.hub.backoff();
    asks.claims.set(resource, this);
    this.pump();
  }

  /** Whether the resource is held now, for sure as far as this machine's clock can tell. What must not be touched by a former holder checks the token. */
  get held(): boolean {
    return !this.over && this.now() < this.deadline;
  }

  /** The fencing token of the hold, greater than that of every hold before: 64 bits. 0n while it waits. */
  get token(): bigint {
    return this.deadline === 0 ? 0n : this.fencing; // an offer is no hold
  }

  /** Place in the line, 1 is next; 0 once it is held. */
  get position(): number {
    return this.line;
  }

  /** Ends the hold, which counts as lost from the call on, and waits until the mesh has confirmed it. A claim that waits leaves the line. */
  async release({ successor = "", signal }: ReleaseOptions = {}): Promise<void> {
    checkSignal(signal);
    const { over, fencing: token, resource, asks } = this;
    this.end(undefined);
    if (over) return;
    if (token === 0n) {
      const { state } = await asks.call({ resource, op: Claim_Op.LEAVE }, signal);
      if (state.state === Is.GRANTED) await asks.call({ resource, op: Claim_Op.RELEASE, token: state.token }, signal);
      asks.watches.get(resource)?.connected(); // LEAVE has ended the watch, too
      return;
    }
    const { state, again } = await asks.call({ resource, op: Claim_Op.RELEASE, token, successor }, signal);
    if (state.state !== Is.RELEASED && !again) throw new MeshError("NOT_HELD", "it was not held any more");
  }

  /** @internal Gives it up without waiting for that. */
  giveUp(): void {
    if (this.over) return;
    this.end(undefined);
    this.asks.leave(this.resource);
  }

  private now(): number {
    return this.asks.hub.timers.now();
  }

  /**
   * Asks what is to be asked now, and sets the timer for what is later: one request at a time. With
   * a token that is RENEW, which takes an offer up, lasts over reconnects and never joins a line;
   * without one, ACQUIRE on each connection.
   */
  private pump(): void {
    if (this.over) return;
    const now = this.now();
    if (this.deadline > 0 && now >= this.deadline) return this.end(new MeshError("UNAVAILABLE", "the hold could not be renewed in time", 0, true));
    const due = Math.max(this.pausedTo, this.fencing !== 0n && this.tied ? this.renewAt : 0);
    let next = this.deadline || Infinity;
    if (!this.asking && this.asks.hub.link && (this.fencing !== 0n || !this.tied)) {
      if (now >= due) this.request();
      else next = Math.min(next, due);
    }
    this.cancel();
    this.cancel = next === Infinity ? () => undefined : this.asks.hub.timers.after(next - now, () => this.pump());
  }

  private request(): void {
    this.asking = true;
    const { ttlMs = 0, priority = 0, waitMs = 0, noWait = false } = this.options;
    const op = this.fencing === 0n ? Claim_Op.ACQUIRE : Claim_Op.RENEW;
    const rest = op === Claim_Op.RENEW ? { token: this.fencing } : { priority, waitMs: wireMs(waitMs), noWait };
    this.withdraw = this.asks.ask({ resource: this.resource, op, ttlMs: wireMs(ttlMs), ...rest }, (sent, state, why) => this.answer(op, sent, state, why));
  }

  private answer(op: number, sent: number, state: ClaimState | undefined, why: MeshError | undefined): void {
    this.asking = false;
    if (this.over) return;
    if (!state) {
      if (!why!.retryable) return this.end(why);
      this.tied = false;
      this.pausedTo = why!.unknown ? 0 : this.now() + this.pauseAfter(why!); // another connection is the pause
      return this.pump();
    }
    this.backoff.reset();
    this.pausedTo = 0;
    this.tied = true;
    if (state.state === Is.GRANTED) this.hold(sent, state);
    else if (op === Claim_Op.ACQUIRE && state.state === Is.QUEUED) this.queued(state.position);
    else if (this.options.noWait) return this.end(new MeshError("CONFLICT", "the resource is held by another"));
    else return this.end(new MeshError("NOT_HELD", "the place is gone"));
    this.settle.answered();
    this.pump();
  }

  /**
   * How long to wait after a refusal for now: of what is held a third of what is left at most, so that
   * it is asked again in time, but never less than the mesh asked for.
   */
  private pauseAfter({ retryAfterMs }: MeshError): number {
    const pause = this.backoff.next(retryAfterMs);
    const third = (this.deadline - this.now()) / 3;
    return this.deadline > 0 && pause > third ? Math.max(retryAfterMs, third, this.backoff.low) : pause;
  }

  /** It is held for as long as the answer said, counted from before it was asked. */
  private hold(sent: number, { expiresInMs, token }: ClaimState): void {
    this.fencing = token;
    this.line = 0;
    this.deadline = sent + expiresInMs;
    this.renewAt = sent + Math.max(expiresInMs / 3, MIN_RENEWAL_MS);
    this.settle.granted();
  }

  private queued(position: number): void {
    if (position === this.line) return;
    this.line = position;
    call(this.options.onPosition, position);
  }

  /** @internal */
  connected(): void {
    this.tied = false;
    this.pump();
  }

  /** @internal Takes a state, also one that was not asked for. */
  told(state: ClaimState): void {
    if (this.over || !this.tied) return; // of a place before this one
    const { token } = state;
    switch (state.state) {
      case Is.QUEUED:
        if (this.fencing === 0n) this.queued(state.position);
        return;
      case Is.GRANTED:
        if (this.fencing === 0n) {
          // How long ago it was granted is not known: it is held once RENEW was answered.
          this.fencing = token;
          this.renewAt = 0;
          this.pump();
        } else if (this.fencing !== token) {
          this.end(new MeshError("NOT_HELD", "another process of this client has the place now"));
        }
        return;
      case Is.LOST:
      case Is.RELEASED:
        if (this.fencing !== 0n && token !== 0n && token !== this.fencing) return;
        this.end(state.state === Is.LOST ? new MeshError(codeOf(state.code), "the place was lost") : new MeshError("NOT_HELD", "the place was given up elsewhere"));
    }
  }

  /** @internal It may come often. */
  end(why: MeshError | undefined): void {
    if (this.over) return;
    this.over = true;
    this.deadline = 0;
    this.cancel();
    this.withdraw();
    this.asks.claims.delete(this.resource);
    if (this.asks.unwatched.delete(this.resource)) this.asks.say({ resource: this.resource, op: Claim_Op.LEAVE });
    this.settle.lost(why);
    this.settle.failed(why ?? new MeshError("NOT_HELD", "it was released"));
    this.settle.answered();
  }
}

/**
 * Asks for a resource, and resolves with the first answer: it is held, or waits in the line from
 * then on; see Claim.granted. The owner of the place is the client: two with one clientId have one
 * place. There is one claim of a resource.
 */
export async function claim(client: Client, resource: string, options: ClaimOptions = {}): Promise<Claim> {
  client.hub.check();
  whole("priority", options.priority ?? 0, 9);
  checkSignal(options.signal);
  const asks = client.hub.part(Asks);
  if (asks.claims.has(resource)) throw new MeshError("ALREADY_EXISTS", `this client has a claim on ${JSON.stringify(resource)}`);
  const made = new Claim(asks, resource, options);
  const forget = onAbort(options.signal, () => made.giveUp());
  await made.answered;
  forget();
  checkSignal(options.signal);
  if (made.token === 0n && made.position === 0) await made.granted; // it is over already
  return made;
}

/** claim, and waits until it is held. Where that fails, or signal aborts, it leaves the line. */
export async function acquire(client: Client, resource: string, options: ClaimOptions = {}): Promise<Claim> {
  const made = await claim(client, resource, options);
  const forget = onAbort(options.signal, () => made.giveUp());
  try {
    checkSignal(options.signal); // it may have aborted since claim was over
    await made.granted;
  } catch (e) {
    made.giveUp();
    checkSignal(options.signal);
    throw e;
  } finally {
    forget();
  }
  return made;
}
