import type { Link } from "./connect/link.js";
import { MeshError, checkSignal, closedError, onAbort } from "./error.js";
import type { Hub, Part, Request } from "./hub.js";
import { isWild, filterFault } from "./position/filter.js";
import { uuidOf } from "./subscribe/message.js";
import { FrameType, Publish, Published as PublishedFrame } from "./wire/schema.js";
import { toUTF8 } from "./wire/utf8.js";

/** What a message carries: bytes (an ArrayBuffer or a view), text, or anything else as JSON. */
export type Payload = Uint8Array | string | number | boolean | null | object;

export interface PublishOptions {
  headers?: Record<string, string>;
  /**
   * The same key again, within the time that the namespace says, answers with the first result. With
   * one a message is published again where the connection breaks before the answer. true: one is
   * made up. Durable topics alone have it.
   */
  dedupeKey?: string | true;
  /** Ends the wait for the answer. What was not sent is not published; what was sent may have been. */
  signal?: AbortSignal;
}

/** What became of a message. */
export interface Published {
  /** A UUID. */
  messageId: string;
  /** Place in the topic's log; 0: the topic is ephemeral. */
  seq: number;
  epoch: number;
  /** It had been published before; the rest is of that time. */
  duplicate: boolean;
}

const MOST_HEADERS = 64;
const MOST_HEADER_BYTES = 8192;
const MOST_PAYLOAD = 2 ** 20;
const MOST_KEY = 256;

/** How many may be unanswered where the edge did not say. */
const WINDOW = 16;

/** A publish that has no answer yet. */
class Publishing implements Request {
  id = 0;
  /** Nobody waits for it any more: it is not sent again. */
  withdrawn = false;

  constructor(
    private readonly publisher: Publisher,
    readonly message: Omit<Publish, "id">,
    readonly resolve: (published: Published) => void,
    readonly reject: (why: unknown) => void,
  ) {}

  refused(why: MeshError): void {
    this.publisher.settled(this);
    this.reject(why);
  }
}

/** Publishes over the connection that there is, in the order of the calls. */
export class Publisher implements Part {
  private readonly waiting: Publishing[] = [];
  private readonly sent = new Set<Publishing>();

  constructor(private readonly hub: Hub) {
    hub.answers(FrameType.PUBLISHED, PublishedFrame, Publishing, (p, m) => {
      this.settled(p);
      p.resolve({ messageId: uuidOf(m.messageId), seq: m.seq, epoch: m.epoch, duplicate: m.duplicate });
    });
  }

  async publish(topic: string, payload: Payload, o: PublishOptions): Promise<Published> {
    this.hub.check();
    checkSignal(o.signal);
    const message = { topic, payload: bytesOf(payload), headers: o.headers ?? {}, dedupeKey: o.dedupeKey === true ? randomKey() : (o.dedupeKey ?? "") };
    check(message);
    let forget = () => undefined as void;
    const answer = new Promise<Published>((resolve, reject) => {
      const p = new Publishing(this, message, resolve, reject);
      forget = onAbort(o.signal, (why) => this.withdraw(p, why));
      this.waiting.push(p);
      this.pump();
    });
    return answer.finally(() => forget());
  }

  private withdraw(p: Publishing, why: unknown): void {
    const i = this.waiting.indexOf(p);
    if (i >= 0) this.waiting.splice(i, 1);
    p.withdrawn = true;
    p.reject(why); // the answer of one that was sent comes to nobody
  }

  private pump(): void {
    const { link } = this.hub;
    while (link && this.waiting.length > 0 && this.sent.size < (link.welcome.publishWindow || WINDOW)) this.send(link, this.waiting.shift()!);
  }

  private send(link: Link, p: Publishing): void {
    p.id = this.hub.id(p);
    const bad = link.send(FrameType.PUBLISH, Publish, { ...p.message, id: p.id });
    if (!bad) {
      this.sent.add(p);
      return;
    }
    this.hub.requests.delete(p.id);
    p.reject(bad);
  }

  settled(p: Publishing): void {
    this.hub.requests.delete(p.id);
    this.sent.delete(p);
    this.pump();
  }

  connected(): void {
    this.pump();
  }

  broken(): void {
    const again: Publishing[] = [];
    for (const p of this.sent) {
      this.hub.requests.delete(p.id);
      if (p.withdrawn) continue;
      if (p.message.dedupeKey) again.push(p);
      else p.reject(new MeshError("UNAVAILABLE", "the connection broke before the answer", 0, true));
    }
    this.sent.clear();
    this.waiting.unshift(...again);
  }

  ended(why: MeshError): void {
    for (const p of this.sent) p.reject(new MeshError(why.code, why.reason, 0, true));
    for (const p of this.waiting.splice(0)) p.reject(why.code === "CANCELLED" ? closedError() : why);
    this.sent.clear();
  }
}

/** The payload's bytes: text as UTF-8, and what is neither bytes nor text as JSON. */
export function bytesOf(payload: Payload): Uint8Array {
  // A copy: it may wait for a connection, or be sent twice, and the program may use its buffer again.
  if (ArrayBuffer.isView(payload)) return new Uint8Array(payload.buffer, payload.byteOffset, payload.byteLength).slice();
  if (payload instanceof ArrayBuffer) return new Uint8Array(payload.slice(0));
  const text = typeof payload === "string" ? payload : JSON.stringify(payload);
  if (text === undefined) throw new MeshError("INVALID_ARGUMENT", "the payload can't be said in JSON");
  return toUTF8(text);
}

/** 16 random bytes in hex, also where the platform has no crypto, as React Native. */
function randomKey(): string {
  const { crypto } = globalThis as { crypto?: Crypto };
  const bytes = new Uint8Array(16);
  if (crypto) crypto.getRandomValues(bytes);
  else bytes.forEach((_, i) => (bytes[i] = Math.random() * 256));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

/** Refuses what no mesh takes. */
function check({ topic, payload, headers, dedupeKey }: Omit<Publish, "id">): void {
  const fault = filterFault(topic) || (isWild(topic) ? "a topic to publish to has no wildcard" : "");
  if (fault) throw new MeshError("BAD_TOPIC", `topic ${JSON.stringify(topic.slice(0, 40))}: ${fault}`);
  if (topic.startsWith("$")) throw new MeshError("FORBIDDEN", `topic ${JSON.stringify(topic.slice(0, 40))}: topics that begin with $ are the mesh's own`);
  if (payload.length > MOST_PAYLOAD) throw new MeshError("PAYLOAD_TOO_LARGE", `the payload has ${payload.length} bytes, ${MOST_PAYLOAD} at most`);
  if (toUTF8(dedupeKey).length > MOST_KEY) throw new MeshError("INVALID_ARGUMENT", `dedupeKey has ${toUTF8(dedupeKey).length} bytes, ${MOST_KEY} at most`);
  const names = Object.keys(headers);
  const size = names.reduce((n, name) => n + toUTF8(name).length + toUTF8(headers[name]!).length, 0);
  if (names.length > MOST_HEADERS || size > MOST_HEADER_BYTES || names.includes("")) {
    throw new MeshError("INVALID_ARGUMENT", `headers are ${names.length} with ${size} bytes; ${MOST_HEADERS} with ${MOST_HEADER_BYTES} are taken, each with a name`);
  }
}
