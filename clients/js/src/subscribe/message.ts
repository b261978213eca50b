import type { Message as MessageFrame } from "../wire/schema.js";
import { fromUTF8 } from "../wire/utf8.js";

/** What became of a message: undefined that it was handled, or why it is to come again. */
export interface Refusal {
  afterMs: number;
  reason: string;
  /** The loop that had it was left: it is not handled, also where nothing is ACKed. */
  left?: boolean;
}

/** A message, as a handler gets it. */
export class Message {
  readonly topic: string;
  /** Counts 1, 2, 3, … in a durable topic, under its epoch; 0: the topic is ephemeral. */
  readonly seq: number;
  readonly payload: Uint8Array;
  /** A UUID; empty where the mesh gave none. */
  readonly id: string;
  readonly headers: Readonly<Record<string, string>>;
  /** 0 the first time. */
  readonly attempt: number;
  readonly priority: number;
  /** Who published it: a user, "client:" and a client id, or a backend, which is empty. */
  readonly from: string;
  /** Of a ranking (rankTopK); 0 where it was not ranked, or not among the best. */
  readonly score: number;
  /** It should have been ranked, and was not: ranking was slow, refused or gone. */
  readonly unranked: boolean;
  /** The publisher's W3C trace context, where it was sampled. */
  readonly traceparent: string;
  private readonly microseconds: number;

  /** @internal */
  constructor(
    m: MessageFrame,
    /** Of the topic; 0 where the edge has not named it. */
    readonly epoch: number,
    /** Of the subscription that has the message. */
    readonly filter: string,
    /** None once it was given: a program may keep messages, and nothing is to be kept with them. */
    private answer: ((refusal: Refusal | undefined) => void) | undefined,
  ) {
    this.topic = m.topic;
    this.seq = m.seq;
    this.payload = m.payload;
    this.id = uuidOf(m.id);
    this.headers = m.headers;
    this.attempt = m.attempt;
    this.priority = m.priority;
    this.from = m.from;
    this.score = m.score;
    this.unranked = m.unranked;
    this.traceparent = m.traceparent;
    this.microseconds = m.publishedAt;
  }

  /** When the mesh took it. */
  get publishedAt(): Date {
    return new Date(this.microseconds / 1000);
  }

  /** The payload as text. Throws where it is not UTF-8. */
  text(): string {
    return fromUTF8(this.payload);
  }

  /** The payload as JSON. Throws where it is none. */
  json<T = unknown>(): T {
    return JSON.parse(this.text()) as T;
  }

  /** Says that it is handled, before the handler has ended. The first word counts. */
  ack(): void {
    this.settle(undefined);
  }

  /** Has it come again, not before so many milliseconds. The first word counts. */
  nack(afterMs = 0, reason = ""): void {
    this.settle({ afterMs, reason: String(reason) });
  }

  /** @internal */
  settle(refusal: Refusal | undefined): void {
    const { answer } = this;
    this.answer = undefined;
    answer?.(refusal);
  }
}

/** 16 bytes as a UUID is written. */
export function uuidOf(bytes: Uint8Array): string {
  const hex = Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
  return hex.length === 32 ? hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-") : hex;
}
