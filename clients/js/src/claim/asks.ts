import type { Link } from "../connect/link.js";
import { MeshError, checkSignal, orAborted } from "../error.js";
import type { Hub, Part, Request } from "../hub.js";
import { ClaimState_State, Claim as ClaimFrame, ClaimState, Claim_Op, FrameType } from "../wire/schema.js";

/** How many Claims an edge takes unanswered. */
const WINDOW = 16;

/** Who is told of a resource, and is to ask again on a new connection. */
export interface Place {
  connected(): void;
  told(state: ClaimState): void;
  end(why: MeshError | undefined): void;
}

type Done = (sent: number, state: ClaimState | undefined, why: MeshError | undefined) => void;

/** A Claim that is to be answered. */
class Ask implements Request {
  sent = 0;
  id = 0;

  constructor(
    private readonly asks: Asks,
    readonly message: Partial<ClaimFrame>,
    readonly done: Done,
  ) {}

  refused(why: MeshError): void {
    this.asks.answered(this, undefined, why);
  }
}

/** The Claims of a client: what it asks of resources, and who is told of them. */
export class Asks implements Part {
  readonly claims = new Map<string, Place>();
  readonly watches = new Map<string, Place>();
  /** Nobody watches them any more, but the edge does not know. */
  readonly unwatched = new Set<string>();
  private readonly queue: Ask[] = [];
  private readonly sent = new Set<Ask>();

  constructor(readonly hub: Hub) {
    hub.takes(FrameType.CLAIM_STATE, ClaimState, (state) => {
      const ask = hub.requests.get(state.id);
      if (ask instanceof Ask) this.answered(ask, state, undefined);
      this.claims.get(state.resource)?.told(state); // answers to others' requests tell of it, too
      this.watches.get(state.resource)?.told(state);
    });
  }

  /** Has a Claim sent as soon as there is a connection with room for it. Returns what takes it back while it waits. */
  ask(message: Partial<ClaimFrame>, done: Done): () => void {
    const ask = new Ask(this, message, done);
    this.queue.push(ask);
    this.pump();
    return () => {
      const i = this.queue.indexOf(ask);
      if (i >= 0) this.queue.splice(i, 1);
    };
  }

  /** The same, where nobody waits for the answer, and nothing is asked without a connection. */
  say(message: Partial<ClaimFrame>): void {
    if (this.hub.link) this.ask(message, () => undefined);
  }

  /** Leaves a line, also where the place has become a hold meanwhile. A watch of the resource goes on. */
  leave(resource: string): void {
    if (!this.hub.link) return; // the place ends with the grace
    this.ask({ resource, op: Claim_Op.LEAVE }, (_, state) => {
      if (state?.state === ClaimState_State.GRANTED) this.say({ resource, op: Claim_Op.RELEASE, token: state.token });
      if (state) this.watches.get(resource)?.connected(); // LEAVE has ended that, too
    });
  }

  private pump(): void {
    const { link } = this.hub;
    while (link && this.queue.length > 0 && this.sent.size < WINDOW) this.send(link, this.queue.shift()!);
  }

  private send(link: Link, ask: Ask): void {
    ask.id = this.hub.id(ask);
    ask.sent = this.hub.timers.now();
    this.sent.add(ask);
    const bad = link.send(FrameType.CLAIM, ClaimFrame, { ...ask.message, id: ask.id });
    if (bad) this.answered(ask, undefined, bad);
  }

  answered(ask: Ask, state: ClaimState | undefined, why: MeshError | undefined): void {
    this.hub.requests.delete(ask.id);
    this.sent.delete(ask);
    ask.done(ask.sent, state, why);
    this.pump();
  }

  /**
   * Asks, and asks again as long as that can help. again: an earlier one may have been done.
   */
  async call(message: Partial<ClaimFrame>, signal?: AbortSignal): Promise<{ state: ClaimState; again: boolean }> {
    checkSignal(signal);
    let withdraw = () => undefined as void;
    return orAborted(this.repeat(message, (f) => (withdraw = f), () => signal?.aborted ?? false), signal, () => withdraw());
  }

  private async repeat(message: Partial<ClaimFrame>, asked: (withdraw: () => void) => void, stopped: () => boolean): Promise<{ state: ClaimState; again: boolean }> {
    const backoff = this.hub.backoff();
    for (let again = false; ; ) {
      this.hub.check();
      const [state, why] = await new Promise<[ClaimState | undefined, MeshError | undefined]>((resolve) => asked(this.ask(message, (_, st, e) => resolve([st, e]))));
      if (state) return { state, again };
      if (!why!.retryable || stopped()) throw why!;
      again ||= why!.unknown || why!.code === "UNAVAILABLE";
      const pause = this.hub.timers.pause(why!.unknown ? 0 : backoff.next(why!.retryAfterMs));
      asked(pause.wake);
      await pause.done;
      if (stopped()) throw why!;
    }
  }

  connected(): void {
    for (const place of [...this.claims.values(), ...this.watches.values()]) place.connected();
    this.pump();
  }

  broken(): void {
    this.unwatched.clear();
    for (const ask of [...this.sent]) this.answered(ask, undefined, new MeshError("UNAVAILABLE", "the connection broke before the answer", 0, true));
  }

  ended(why: MeshError): void {
    for (const place of [...this.claims.values(), ...this.watches.values()]) place.end(why);
    for (const ask of [...this.sent, ...this.queue.splice(0)]) this.answered(ask, undefined, new MeshError(why.code, why.reason, 0, true));
  }
}
