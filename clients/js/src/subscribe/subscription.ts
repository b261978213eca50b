import type { Backoff } from "../connect/backoff.js";
import type { Link } from "../connect/link.js";
import { MeshError, asError, closedError } from "../error.js";
import { call, type Request } from "../hub.js";
import type { Gap } from "../options.js";
import { FrameType, Start, Subscribe, Unsubscribe } from "../wire/schema.js";
import type { Entry } from "./delivery.js";
import { MessageIterator } from "./iterator.js";
import { Message, type Refusal } from "./message.js";
import { MOST_POSITIONS, requestOf, type Handler, type Position, type SubscribeOptions } from "./options.js";
import type { Standing } from "./standing.js";
import type { Subscriptions } from "./subscriptions.js";

/** asked: Subscribed has not come on this connection; refused: for now, it is asked again. */
export type SubscriptionState = "asked" | "subscribed" | "refused" | "ended";

/** One filter and who deals with its messages. It outlives connections. */
export class Subscription implements AsyncIterable<Message> {
  /** @internal */ readonly id: number;
  /** @internal */ readonly request: Subscribe;
  /** @internal It asked for what is live: its messages name no subscription. */ plain = false;
  /** @internal Subscribed has come at least once. */ active = false;
  /** @internal Subscribe is on the present connection. */ sent = false;
  /** @internal */ readonly waiting: Entry[] = [];
  /** @internal */ readonly standings = new Map<string, Standing>();
  /** @internal Lets go of what a loop has not had yet. */ release: (() => void) | undefined;
  state: SubscriptionState = "asked";
  /** Why it ended; undefined while it goes on and after unsubscribe. */
  error: MeshError | undefined;
  /** Resolves at the mesh's promise: every message whose publish begins after it is delivered. */
  readonly ready: Promise<void>;
  /** Resolves once no more messages will come. */
  readonly ended: Promise<void>;
  /** @internal What its signal was aborted with. */ aborted: { why: unknown } | undefined;
  /** Where it stood at its end. */
  private last: Position[] | undefined;
  private settleReady!: { resolve: () => void; reject: (e: unknown) => void };
  private settleEnded!: () => void;
  private readonly running = new Set<Entry>();
  private readonly backoff: Backoff;
  private readonly concurrency: number;
  private readonly onGap: ((gap: Gap) => void) | undefined;

  /** @internal */
  constructor(
    private readonly owner: Subscriptions,
    filter: string,
    options: SubscribeOptions,
    private handler: Handler | undefined,
  ) {
    const request = requestOf(filter, options, owner.hub.options.session);
    this.id = owner.hub.id(this);
    this.request = { ...request, id: this.id };
    this.concurrency = options.concurrency ?? 1;
    this.onGap = options.onGap;
    this.backoff = owner.hub.backoff();
    this.ready = new Promise((resolve, reject) => (this.settleReady = { resolve, reject }));
    this.ready.catch(() => undefined); // who does not wait for it reads error
    this.ended = new Promise((resolve) => (this.settleEnded = resolve));
  }

  get filter(): string {
    return this.request.filter;
  }

  /** Places in the logs of the topics seen so far, good for from: { positions }. Groups and ranked subscriptions have none. */
  positions(): Position[] {
    return this.last ?? this.owner.positions(this);
  }

  /** What the edge said of each topic when it subscribed last. */
  get standing(): ReadonlyMap<string, Standing> {
    return this.standings;
  }

  /** Ends it, and waits until the edge has confirmed that. Nothing is handed over any more. */
  unsubscribe(): Promise<void> {
    return this.owner.unsubscribe(this);
  }

  /** @internal */
  abort(why: unknown): void {
    if (this.state === "ended") return;
    this.aborted = { why };
    this.settleReady.reject(why);
    void this.unsubscribe();
  }

  /** The messages, in a loop: one is handled when the loop asks for the next, and comes again where the loop is left. */
  [Symbol.asyncIterator](): AsyncIterableIterator<Message> {
    if (this.handler) throw new MeshError("ALREADY_EXISTS", `the subscription to ${this.filter} has a handler, or is read in a loop`);
    const messages = new MessageIterator(this);
    this.handler = messages.take;
    this.release = () => messages.release();
    this.owner.resume(this);
    this.pump();
    return messages;
  }

  /** @internal Its messages are those of a group, which keeps the positions. */
  get shared(): boolean {
    return this.request.group !== "";
  }

  /** @internal Its messages come in the order of their scores: the highest seq says nothing about what was had. */
  get ranked(): boolean {
    return this.request.rankTopK > 0;
  }

  /** @internal Messages for it name it. */
  get named(): boolean {
    return this.ranked || this.shared || this.request.where !== "" || this.request.noEcho;
  }

  /** @internal A handler has a message that a resume would ask for. */
  get busy(): boolean {
    return [...this.running].some((e) => e.delivery?.durable && !e.delivery.handled.has(e.place));
  }

  /** @internal There is a handler, or a loop. */
  get read(): boolean {
    return this.handler !== undefined;
  }

  /** @internal Something is with a handler. */
  get handling(): boolean {
    return this.running.size > 0;
  }

  /** @internal Sends the first request, or one that resumes. */
  send(link: Link): void {
    const request = this.frame();
    if (this.state === "ended") return; // by what it was told
    this.sent = true;
    this.state = "asked";
    this.plain = request.start === Start.LIVE && request.positions.length === 0 && !this.named;
    const bad = link.send(FrameType.SUBSCRIBE, Subscribe, request);
    if (bad) this.end(bad);
  }

  private frame(): Subscribe {
    if (!this.active || this.shared || this.request.start === Start.SESSION) return this.request;
    const positions = this.positions();
    if (positions.length === 0 && !this.ranked) return this.request;
    const again = { ...this.request, start: Start.LIVE, seq: 0, epoch: 0, positions };
    if (positions.length <= MOST_POSITIONS) return again;
    this.gap({ code: "TOO_MANY_TOPICS" });
    return { ...again, positions: [] };
  }

  /** @internal The edge has promised. */
  subscribed(): void {
    if (this.state === "ended") return; // by what it was told
    this.state = "subscribed";
    this.active = true;
    this.backoff.reset();
    this.settleReady.resolve();
  }

  /** @internal An Error that names it, or Unsubscribed: it tries again where that can help. */
  refused(why: MeshError): void {
    this.sent = false;
    if (!why.retryable) return this.end(why);
    this.state = "refused";
    const { hub } = this.owner;
    const { link } = hub;
    hub.timers.after(this.backoff.next(why.retryAfterMs), () => {
      if (link && hub.link === link && this.state === "refused") this.send(link);
    });
  }

  /** @internal It may come often. */
  end(why: MeshError | undefined): void {
    if (this.state === "ended") return;
    this.state = "ended";
    this.error = why;
    this.last = this.owner.positions(this);
    this.owner.forget(this);
    if (!this.active) this.settleReady.reject(why ?? closedError());
    this.settleEnded();
  }

  /** @internal */
  gap(gap: Partial<Gap> & Pick<Gap, "code">): void {
    if (this.state === "ended") return;
    const whole: Gap = { filter: this.filter, topic: "", epoch: 0, from: 0, to: 0, missed: 0, ...gap };
    call(this.onGap, whole);
    this.owner.hub.emit("gap", whole);
  }

  /** @internal Hands over what waits, as far as there is room. */
  pump(): void {
    while (this.state !== "ended" && this.running.size < this.concurrency) {
      const busy = new Set([...this.running].map((e) => e.place));
      const i = this.waiting.findIndex((e) => !busy.has(e.place));
      const entry = this.waiting[i];
      if (!entry || (entry.delivery && (!this.handler || this.owner.closing))) return;
      this.waiting.splice(i, 1);
      if (entry.place.tail === entry) entry.place.tail = undefined;
      this.run(entry);
    }
  }

  private run(entry: Entry): void {
    const { place, delivery } = entry;
    if (!delivery) {
      this.owner.passed(place, entry.passed!);
      return;
    }
    this.owner.handedOver(delivery);
    const { seq } = delivery.frame;
    const { epoch } = place;
    if (seq > 0 && !this.shared && place.done.has(seq) && !place.owed.has(seq)) {
      delivery.had(place, epoch, undefined);
      return this.owner.done(delivery);
    }
    this.running.add(entry);
    const message = new Message(delivery.frame, epoch, this.filter, (refusal) => this.answered(entry, epoch, refusal));
    const ended = (error?: unknown, failed = false) => {
      if (failed) this.owner.hub.handlerFailed(error);
      message.settle(failed ? { afterMs: 0, reason: asError(error).message } : undefined);
      this.running.delete(entry);
      this.owner.resume(this);
      this.owner.idle();
    };
    try {
      const result = this.handler!(message);
      if (!isThenable(result)) return ended();
      Promise.resolve(result).then(
        () => ended(),
        (e: unknown) => ended(e, true),
      ).then(() => this.pump());
    } catch (e) {
      ended(e, true);
    }
  }

  private answered({ place, delivery }: Entry, epoch: number, refusal: Refusal | undefined): void {
    const { seq } = delivery!.frame;
    const wanted = this.request.ack ? refusal : undefined;
    const unhandled = wanted !== undefined || refusal?.left;
    if (seq > 0 && place.epoch === epoch && !this.shared) {
      if (unhandled) {
        const given = place.failed(seq);
        if (given) this.gap({ topic: place.topic.name, epoch, from: given.lo, to: given.hi, missed: given.hi - given.lo + 1, code: "ATTEMPTS_EXHAUSTED" });
      } else {
        place.succeeded(seq);
      }
    }
    delivery!.had(place, epoch, wanted);
    this.owner.done(delivery!);
  }
}

const isThenable = (value: unknown): value is PromiseLike<unknown> => typeof (value as PromiseLike<unknown> | undefined)?.then === "function";

/** A request that waits for Unsubscribed. */
export class Unsubscribing implements Request {
  readonly done: Promise<void>;
  finish!: () => void;

  constructor(id: number, link: Link) {
    this.done = new Promise((resolve) => (this.finish = resolve));
    link.send(FrameType.UNSUBSCRIBE, Unsubscribe, { id });
  }

  refused(): void {
    this.finish();
  }
}
