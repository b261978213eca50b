import type { WebSocketConstructor, WebSocketLike } from "@pushmesh/client";
import { decode } from "../../../../../clients/js/src/wire/codec.js";
import { ClaimState, ClaimState_State, FrameType } from "../../../../../clients/js/src/wire/schema.js";
import { cut } from "../../../../../clients/js/src/wire/frames.js";
import { Asked, describe, type Row } from "./describe.js";

const NOT_OPEN = 3;

/**
 * What one client's connections go through: it shows each frame, and can be cut. Its WebSocket is
 * what the client is given for the browser's.
 */
export class Wire {
  readonly WebSocket: WebSocketConstructor;
  isCut = false;
  /** How often messages were lost. */
  gaps = 0;
  /** Told when one more was. */
  onGap: (() => void) | undefined;
  /** Told where a topic stands, when the edge says so. */
  onSubscribed: ((head: number) => void) | undefined;
  /** Told how long a resource is held for sure. */
  onHeld: ((ms: number) => void) | undefined;
  private readonly sockets = new Set<Tapped>();
  private asked = new Asked();
  private mending: ReturnType<typeof setTimeout> | undefined;
  private mended: (() => void) | undefined;

  constructor(
    readonly who: string,
    private readonly show: (row: Row) => void,
  ) {
    const wire = this;
    this.WebSocket = class extends Tapped {
      constructor(url: string, protocols: string[]) {
        super(wire, url, protocols);
      }
    };
  }

  /** Ends the connection that there is, and lets none be made for a while. */
  cut(ms: number, mended: () => void): void {
    if (this.isCut) return;
    this.isCut = true;
    this.note("the wire is cut");
    for (const socket of [...this.sockets]) socket.break();
    this.mended = mended;
    this.mending = setTimeout(() => {
      this.isCut = false;
      this.note("the wire is whole again");
      mended();
      // The client would try again within half a second; like this it does at once, as when a network comes back.
      dispatchEvent(new Event("online"));
    }, ms);
  }

  /** Forgets that it is cut. */
  stop(): void {
    clearTimeout(this.mending);
    if (!this.isCut) return;
    this.isCut = false;
    this.mended?.();
  }

  /** Takes note of messages that will not come. */
  gap(text: string): void {
    this.gaps++;
    this.note(text, true);
    this.onGap?.();
  }

  note(text: string, gap = false): void {
    this.show({ direction: "note", at: Date.now(), who: this.who, kind: text, topic: "", seq: 0, epoch: 0, size: 0, latency: undefined, detail: "", gap });
  }

  /** @internal */
  opened(socket: Tapped): void {
    this.sockets.add(socket);
    this.asked = new Asked(); // answers come over the connection that was asked
  }

  /** @internal */
  closed(socket: Tapped): void {
    this.sockets.delete(socket);
  }

  /** @internal */
  passed(direction: "in" | "out", data: Uint8Array): void {
    try {
      for (const [type, body] of cut(data)) {
        const row = describe(this.who, direction, type, body, this.asked);
        this.show(row);
        if (type === FrameType.SUBSCRIBED) this.onSubscribed?.(row.seq);
        if (type !== FrameType.CLAIM_STATE) continue;
        const { state, expiresInMs } = decode(ClaimState, body);
        if (state === ClaimState_State.GRANTED) this.onHeld?.(expiresInMs);
      }
    } catch {
      this.note("bytes that are no frame"); // the client says more, and hangs up
    }
  }
}

class Tapped implements WebSocketLike {
  binaryType = "arraybuffer";
  onopen: WebSocketLike["onopen"] = null;
  onmessage: WebSocketLike["onmessage"] = null;
  onerror: WebSocketLike["onerror"] = null;
  onclose: WebSocketLike["onclose"] = null;
  private readonly real: WebSocket | undefined;

  constructor(
    private readonly wire: Wire,
    url: string,
    protocols: string[],
  ) {
    if (wire.isCut) {
      queueMicrotask(() => this.onerror?.({ message: "the wire is cut" }));
      return;
    }
    const real = new WebSocket(url, protocols);
    this.real = real;
    real.binaryType = "arraybuffer";
    wire.opened(this);
    real.onopen = (e) => this.onopen?.(e);
    real.onerror = (e) => this.onerror?.(e);
    real.onclose = (e) => {
      wire.closed(this);
      this.onclose?.(e);
    };
    real.onmessage = (e: MessageEvent<ArrayBuffer>) => {
      wire.passed("in", new Uint8Array(e.data));
      this.onmessage?.(e);
    };
  }

  get protocol(): string {
    return this.real?.protocol ?? "";
  }

  get readyState(): number {
    return this.real?.readyState ?? NOT_OPEN;
  }

  get bufferedAmount(): number {
    return this.real?.bufferedAmount ?? 0;
  }

  send(data: Uint8Array<ArrayBuffer>): void {
    this.wire.passed("out", data);
    this.real?.send(data);
  }

  close(code?: number, reason?: string): void {
    this.real?.close(code, reason);
  }

  /** Ends it as a network does that is gone: nothing is heard of it any more. */
  break(): void {
    const { real } = this;
    if (!real) return;
    this.wire.closed(this);
    real.onopen = real.onmessage = real.onclose = real.onerror = null;
    real.close();
    this.onclose?.({ code: 1006, reason: "the wire was cut" });
  }
}
