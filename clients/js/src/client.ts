import { Connector, watchPlatform } from "./connect/connector.js";
import { checkSignal, closedError, orAborted } from "./error.js";
import { Hub } from "./hub.js";
import { complete, type ConnectOptions, type Connection, type Events, type State } from "./options.js";
import { Publisher, type Payload, type PublishOptions, type Published } from "./publish.js";
import { Refresher } from "./refresh.js";
import type { Handler, SubscribeOptions } from "./subscribe/options.js";
import type { Subscription } from "./subscribe/subscription.js";
import { Subscriptions } from "./subscribe/subscriptions.js";

/** One client of the mesh: a connection that is made again whenever it breaks, and what is done over it. */
export class Client {
  /** @internal */ readonly hub: Hub;
  private readonly connector: Connector;
  private readonly subscriptions: Subscriptions;
  private readonly run: Promise<void>;
  private closing: Promise<void> | undefined;

  /** Connects in the background; see connect. */
  constructor(options: ConnectOptions) {
    this.hub = new Hub(complete(options));
    this.subscriptions = this.hub.part(Subscriptions);
    this.connector = new Connector(this.hub);
    const unwatch = watchPlatform(this.connector);
    // Behind the program's first calls, so that it hears of the first connection.
    this.run = Promise.resolve()
      .then(() => this.connector.run())
      .then((why) => {
        unwatch();
        this.hub.finish(why);
        this.connector.state = "closed";
        this.hub.emit("state", "closed");
        this.hub.emit("ended", why);
      });
  }

  get state(): State {
    return this.connector.state;
  }

  /** What the edge said at the begin of the connection that there is. */
  get connection(): Connection | undefined {
    return this.connector.connection;
  }

  /** Round trip of the last Ping, in milliseconds; 0: none was answered on this connection. */
  get roundTripMs(): number {
    return this.hub.link?.heartbeat.roundTripMs ?? 0;
  }

  /** Resolves with why, once the client is over; its code is CANCELLED after close. */
  get ended(): Promise<Error> {
    return this.run.then(() => this.hub.over!);
  }

  /** Has f told of something; what it returns ends that. */
  on<K extends keyof Events>(event: K, f: (value: Events[K]) => void): () => void {
    return this.hub.on(event, f);
  }

  /** Subscribes to a topic, or to a filter with + and #. Without a handler the messages are read in a loop. */
  subscribe(filter: string, handler: Handler, options?: SubscribeOptions): Subscription;
  subscribe(filter: string, options?: SubscribeOptions): Subscription;
  subscribe(filter: string, first?: Handler | SubscribeOptions, second?: SubscribeOptions): Subscription {
    return typeof first === "function" ? this.subscriptions.add(filter, second ?? {}, first) : this.subscriptions.add(filter, first ?? {}, undefined);
  }

  /** Publishes where the topic's namespace lets clients, and waits for the answer. */
  publish(topic: string, payload: Payload, options: PublishOptions = {}): Promise<Published> {
    return this.hub.part(Publisher).publish(topic, payload, options);
  }

  /** Hands a new token of the same user to the connection that there is, and says until when it lasts. A signal ends the wait for that. */
  async refreshToken(token: string, { signal }: { signal?: AbortSignal } = {}): Promise<Date> {
    checkSignal(signal);
    return orAborted(this.hub.part(Refresher).refresh(token), signal);
  }

  /**
   * Lets handlers that run finish, for closeMs at most, sends their ACKs and hangs up. What waited for
   * a handler is left un-ACKed. A handler, or the body of a loop, must not wait for it: it waits for them.
   */
  close(): Promise<void> {
    this.closing ??= this.shut();
    return this.closing;
  }

  private async shut(): Promise<void> {
    if (this.hub.over) return;
    const late = this.hub.timers.pause(this.hub.options.closeMs);
    await Promise.race([this.subscriptions.close(), late.done]);
    late.wake();
    this.hub.finish(closedError());
    this.hub.link?.close(closedError());
    this.connector.stop();
    await this.run;
  }
}

/** Makes a client that connects in the background, and goes on until it is closed or refused for good. */
export function connect(options: ConnectOptions): Client {
  return new Client(options);
}
