// A small edge in this process, for what the scenes of test/sdk don't show.
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { WebSocket, WebSocketServer } from "ws";
import { connect, type Client, type ConnectOptions } from "../src/index.js";
import { decode, type Schema } from "../src/wire/codec.js";
import { cut, frame } from "../src/wire/frames.js";
import * as schema from "../src/wire/schema.js";

const { FrameType } = schema;

/** Something to wait for: what was put in comes out in order. */
export class Inbox<T> {
  private readonly items: T[] = [];
  private readonly readers: ((item: T) => void)[] = [];

  put(item: T): void {
    const reader = this.readers.shift();
    if (reader) reader(item);
    else this.items.push(item);
  }

  get size(): number {
    return this.items.length;
  }

  async next(): Promise<T> {
    if (this.items.length > 0) return this.items.shift()!;
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("nothing came for 10 s")), 10_000);
      this.readers.push((item) => {
        clearTimeout(late);
        resolve(item);
      });
    });
  }
}

/** One connection, as the edge has it. */
export class Peer {
  readonly frames = new Inbox<[type: number, body: Uint8Array]>();
  readonly ended: Promise<unknown>;
  acks: schema.Ack_Entry[] = [];

  constructor(
    readonly socket: WebSocket,
    readonly path: string,
  ) {
    socket.on("message", (data: Buffer) => {
      for (const [type, body] of cut(new Uint8Array(data))) {
        if (type === FrameType.ACK) this.acks.push(...decode(schema.Ack, body).entries);
        this.frames.put([type, body]);
      }
    });
    this.ended = once(socket, "close");
  }

  /** The next frame of a type; others are passed over. */
  async get<T extends object>(type: number, of: Schema<T>): Promise<T> {
    for (;;) {
      const [got, body] = await this.frames.next();
      if (got === type) return decode(of, body);
    }
  }

  send<T extends object>(type: number, of: Schema<T>, message: Partial<T>): void {
    this.socket.send(frame(type, of, message));
  }

  async welcome(of: Partial<schema.Welcome> = {}): Promise<schema.Hello> {
    const hello = await this.get(FrameType.HELLO, schema.Hello);
    this.send(FrameType.WELCOME, schema.Welcome, { connectionId: 7n, edge: "edge", heartbeatMs: 30_000, maxFrame: 2 ** 20, clientId: hello.clientId || "made-up", version: 1, publishWindow: 64, features: ["presence"], ...of });
    return hello;
  }

  /** Answers a Subscribe. */
  async subscribed(of: Partial<schema.Subscribed> = {}): Promise<schema.Subscribe> {
    const subscribe = await this.get(FrameType.SUBSCRIBE, schema.Subscribe);
    this.send(FrameType.SUBSCRIBED, schema.Subscribed, { id: subscribe.id, epoch: 100, recovered: true, ...of });
    return subscribe;
  }

  message(of: Partial<schema.Message>): void {
    this.send(FrameType.MESSAGE, schema.Message, { topic: "a/b", ...of });
  }

  /** Waits until a seq of a/b is ACKed. */
  async acked(seq: number): Promise<void> {
    while (!this.acks.some((a) => a.seq === seq || (a.through && a.seq > seq))) await this.frames.next();
  }
}

/** An edge on a port of its own. */
export class Edge {
  readonly peers = new Inbox<Peer>();

  private constructor(
    private readonly http: Server,
    private readonly server: WebSocketServer,
  ) {
    server.on("connection", (socket, request) => this.peers.put(new Peer(socket, request.url ?? "")));
  }

  static async start(): Promise<Edge> {
    const http = createServer();
    const edge = new Edge(http, new WebSocketServer({ server: http }));
    http.listen(0, "127.0.0.1");
    await once(http, "listening");
    return edge;
  }

  get address(): string {
    return `127.0.0.1:${(this.http.address() as AddressInfo).port}`;
  }

  connect(options: Partial<ConnectOptions> = {}): Client {
    return connect({ url: `ws://${this.address}`, clientId: "ann", minBackoffMs: 10, maxBackoffMs: 20, WebSocket, ...options });
  }

  stop(): void {
    for (const client of this.server.clients) client.terminate();
    this.server.close();
    this.http.close();
  }
}
