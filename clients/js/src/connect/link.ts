import { MeshError, asError, reasonOf } from "../error.js";
import type { Timers } from "../time.js";
import { decode, type Schema } from "../wire/codec.js";
import { SUBPROTOCOL, cut, frame } from "../wire/frames.js";
import { FrameType, Welcome } from "../wire/schema.js";
import { goAwayOf, refusalOf } from "./goaway.js";
import { Heartbeat } from "./heartbeat.js";
import type { WebSocketConstructor, WebSocketLike } from "./websocket.js";

/** A socket with more bytes than this that sends none of them for so long is given up. */
const MOST_QUEUED = 4 * 2 ** 20;
const STUCK_MS = 30_000;

/** Why a connection was not made although Hello was sent. */
export class Unanswered extends Error {}

/** One connection to an edge, from its Welcome on. Its end is told once. */
export class Link {
  readonly heartbeat: Heartbeat;
  private out: Uint8Array[] = [];
  private queued = 0;
  /** How many bytes the socket was given, how many of them it has sent, and when that was more than before. */
  private given = 0;
  private gone = 0;
  private movedAt: number;
  private over = false;
  private tell: ((type: number, body: Uint8Array) => void) | undefined;
  private early: [number, Uint8Array][] = [];
  private ended!: (why: Error) => void;
  /** Resolves when the connection is over, with the reason. */
  readonly end = new Promise<Error>((resolve) => (this.ended = resolve));

  constructor(
    private readonly socket: WebSocketLike,
    readonly url: string,
    readonly welcome: Welcome,
    readonly timers: Timers,
  ) {
    this.movedAt = timers.now();
    this.heartbeat = new Heartbeat(this, welcome.heartbeatMs);
  }

  /** Has f called with every frame, beginning with those that came already. */
  read(f: (type: number, body: Uint8Array) => void): void {
    this.tell = f;
    const early = this.early;
    this.early = [];
    for (const [type, body] of early) this.take(type, body);
  }

  /** Takes a message of the socket. */
  heard(data: unknown): void {
    if (this.over) return;
    this.heartbeat.heard();
    try {
      if (!(data instanceof ArrayBuffer)) throw new TypeError("a text message");
      for (const [type, body] of cut(new Uint8Array(data))) {
        if (this.over) return;
        this.take(type, body);
      }
    } catch (e) {
      this.close(new Error(`the edge sent what can't be read: ${asError(e).message}`));
    }
    this.timers.poke();
  }

  /** Takes a frame. */
  take(type: number, body: Uint8Array): void {
    if (this.heartbeat.take(type, body)) return;
    if (this.tell) this.tell(type, body);
    else this.early.push([type, body]);
  }

  /** Sends a frame, together with what else is sent now. One that is too large is refused alone. */
  send<T extends object>(type: number, schema: Schema<T>, message: Partial<T>): MeshError | undefined {
    const bytes = frame(type, schema, message);
    const most = this.welcome.maxFrame;
    if (most > 0 && bytes.length - 4 > most) return new MeshError("FRAME_TOO_LARGE", `it has ${bytes.length - 4} bytes as a frame, and the edge takes ${most}`);
    this.append(bytes);
    return undefined;
  }

  append(bytes: Uint8Array): void {
    if (this.over) return;
    if (this.out.length === 0) queueMicrotask(() => this.flush());
    this.out.push(bytes);
    this.queued += bytes.length;
  }

  flush(): void {
    if (this.over || this.out.length === 0) return;
    const all = new Uint8Array(this.queued);
    let at = 0;
    for (const bytes of this.out) {
      all.set(bytes, at);
      at += bytes.length;
    }
    this.out = [];
    this.queued = 0;
    if (this.stuck()) return this.close(new Error("the edge takes no bytes"));
    this.given += all.length;
    try {
      this.socket.send(all);
    } catch (e) {
      this.close(asError(e));
    }
  }

  /** Whether the socket has much to send, and has sent none of it for long. A slow link is not stuck. */
  private stuck(): boolean {
    const waits = this.socket.bufferedAmount || 0; // React Native does not say
    const now = this.timers.now();
    const moved = waits <= MOST_QUEUED || this.given - waits > this.gone;
    this.gone = this.given - waits;
    if (moved) this.movedAt = now;
    return now - this.movedAt > STUCK_MS;
  }

  /** Ends the connection, after what was to be sent. It may be called often; the first reason counts. */
  close(why: Error): void {
    if (this.over) return;
    this.flush();
    if (this.over) return;
    this.over = true;
    this.heartbeat.stop();
    const { socket } = this;
    letGo(socket);
    this.ended(why);
  }
}

/** Closes a socket, of which nothing is to be heard any more. */
function letGo(socket: WebSocketLike): void {
  socket.onopen = socket.onmessage = socket.onclose = null;
  socket.onerror = () => undefined; // that it was closed while connecting
  socket.close(1000);
}

/** Connects, says Hello and waits for Welcome. A signal that aborts ends the attempt. */
export function open(WebSocket: WebSocketConstructor, url: string, hello: Uint8Array, timers: Timers, signal: AbortSignal): Promise<Link> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, [SUBPROTOCOL]);
    socket.binaryType = "arraybuffer";
    let greeted = false;
    let link: Link | undefined;
    const fail = (why: Error) => {
      signal.removeEventListener("abort", aborted);
      if (link) return link.close(why);
      letGo(socket);
      reject(greeted && !(why instanceof MeshError) ? new Unanswered(why.message) : why);
    };
    const aborted = () => fail(asError(reasonOf(signal)));
    if (signal.aborted) return aborted();
    signal.addEventListener("abort", aborted);
    socket.onopen = () => {
      greeted = true;
      socket.send(new Uint8Array(hello));
    };
    socket.onerror = (event: { message?: string }) => fail(new Error(`no connection to ${url}${event.message ? `: ${event.message}` : ""}`));
    socket.onclose = (event: { code: number; reason: string }) => {
      const code = event.code ? ` (${event.code}${event.reason ? ` ${event.reason}` : ""})` : "";
      fail(new Error(greeted ? `${url} ended the connection${code}` : `no connection to ${url}${code}`));
    };
    socket.onmessage = ({ data }: { data: unknown }) => {
      if (link) return link.heard(data);
      try {
        if (!(data instanceof ArrayBuffer)) throw new TypeError("a text message");
        for (const [type, body] of cut(new Uint8Array(data))) {
          if (link) link.take(type, body);
          else if (type === FrameType.WELCOME) link = new Link(socket, url, decode(Welcome, body), timers);
          else if (type === FrameType.ERROR) return fail(refusalOf(body)[0]);
          else if (type === FrameType.GO_AWAY) return fail(goAwayOf(body, timers.now()));
          else throw new TypeError(`a frame of type ${type} before Welcome`);
        }
      } catch (e) {
        return fail(new Error(`${url} sent what can't be read: ${asError(e).message}`));
      }
      if (!link) return;
      signal.removeEventListener("abort", aborted);
      resolve(link);
    };
  });
}
