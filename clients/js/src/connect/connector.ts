import { MeshError, asError, closedError, reasonOf } from "../error.js";
import { call, type Hub } from "../hub.js";
import type { Connection, State } from "../options.js";
import { frame } from "../wire/frames.js";
import { FrameType, Hello, type Welcome } from "../wire/schema.js";
import { GoAway, goAwayOf, refusalOf } from "./goaway.js";
import { Unanswered, open, type Link } from "./link.js";
import { Route, siblingOf } from "./route.js";
import { webSocketOf } from "./websocket.js";

/** How long a connection must have lived for the pauses to begin anew. */
const STEADY_MS = 2000;

/** How long after a Hello was left unanswered the loss of the session may be that Hello's doing. */
const GHOST_MS = 60_000;

const MOST_HELLO = 12288;

const connectionOf = (w: Welcome, url: string): Connection => ({ id: String(w.connectionId), url, edge: w.edge, clientId: w.clientId, user: w.user, resumed: w.resumed, features: w.features });

/** Connects, and does so again whenever a connection ends, until it is stopped or refused for good. */
export class Connector {
  state: State = "connecting";
  connection: Connection | undefined;
  private readonly stopping = new AbortController();
  private readonly WebSocket;
  private readonly route: Route;
  private readonly backoff;
  private clientId: string;
  private wake: () => void = () => undefined;
  /** The pause that there is was named by an edge. */
  private named = false;
  /** When a Hello was left unanswered; 0: none was. */
  private ghostAt = 0;
  /** A Hello was refused for its token's time since the last Welcome. */
  private expired = false;

  constructor(private readonly hub: Hub) {
    const { options } = hub;
    this.WebSocket = webSocketOf(options.WebSocket);
    this.route = new Route(options.urls);
    this.backoff = hub.backoff();
    this.clientId = options.clientId;
  }

  /** Ends the attempt or the pause that there is, and the run with it. */
  stop(): void {
    this.stopping.abort(closedError());
    this.wake();
  }

  /** Asks the edge whether it is there; without one, tries at once, unless an edge has named the time. */
  nudge(): void {
    this.hub.link?.heartbeat.probe();
    if (!this.named) this.wake();
  }

  /** Ends with why the client is over. */
  async run(): Promise<MeshError> {
    while (!this.stopping.signal.aborted) {
      this.become("connecting");
      const [why, welcomed] = await this.one();
      if (this.stopping.signal.aborted) break;
      const refusal = this.final(why, welcomed);
      if (!welcomed && why instanceof Unanswered) this.ghostAt = this.hub.timers.now();
      if (why instanceof GoAway && this.hub.options.follow) this.route.detour(why.addresses.map((a) => siblingOf(this.hub.options.urls[0]!, a)));
      if (!welcomed && !refusal && !this.route.round() && !asked(why)) continue; // another edge may do at once
      if (refusal && !this.wasGhost(refusal)) return refusal;
      this.become("waiting");
      const pause = this.hub.timers.pause(this.pauseAfter(why));
      this.wake = pause.wake;
      this.named = why instanceof MeshError && why.retryAfterMs > 0;
      if (!this.stopping.signal.aborted) await pause.done;
      this.wake = () => undefined;
    }
    return closedError();
  }

  private become(state: State): void {
    if (this.state === state) return;
    this.state = state;
    this.hub.emit("state", state);
  }

  /** One connection, from dialling to its end: why it ended, and whether there was a Welcome. */
  private async one(): Promise<[why: Error, welcomed: boolean]> {
    let link: Link;
    try {
      link = await this.open(this.route.next());
    } catch (e) {
      const why = asError(e);
      if (!this.stopping.signal.aborted) this.hub.emit("failed", why);
      return [why, false];
    }
    if (this.stopping.signal.aborted) {
      link.close(closedError());
      return [closedError(), true];
    }
    this.expired = false;
    this.route.found();
    const began = this.hub.timers.now();
    const why = await this.serve(link);
    if (this.hub.timers.now() - began >= STEADY_MS) this.backoff.reset();
    if (!this.stopping.signal.aborted) this.hub.emit("disconnected", why);
    return [why, true];
  }

  private async open(url: string): Promise<Link> {
    const attempt = new AbortController();
    let ended: Error | undefined; // not every platform's signal says it
    const end = (why: Error) => {
      ended = why;
      attempt.abort(why);
    };
    const abort = () => end(closedError());
    const late = this.hub.timers.after(this.hub.options.attemptMs, () => end(new Error(`${url} has not answered in time`)));
    this.stopping.signal.addEventListener("abort", abort);
    try {
      return await open(this.WebSocket, url, await this.hello(attempt.signal), this.hub.timers, attempt.signal);
    } catch (e) {
      if (!ended) throw e;
      throw e instanceof Unanswered ? new Unanswered(ended.message) : ended;
    } finally {
      late();
      this.stopping.signal.removeEventListener("abort", abort);
    }
  }

  private async token(signal: AbortSignal): Promise<string> {
    const { getToken } = this.hub.options;
    if (!getToken) return "";
    const aborted = new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(reasonOf(signal))));
    aborted.catch(() => undefined);
    let token: unknown;
    try {
      token = await Promise.race([getToken({ signal }), aborted]);
    } catch (e) {
      throw new Error(`getToken has failed: ${asError(e).message}`, { cause: e }); // whatever it is, it is no word of this mesh
    }
    if (token === null || token === undefined) throw new MeshError("UNAUTHENTICATED", "getToken says that there is no token any more");
    if (typeof token !== "string") throw new TypeError(`getToken gave ${typeof token}, and not text or null`);
    return token;
  }

  private async hello(signal: AbortSignal): Promise<Uint8Array> {
    const { options } = this.hub;
    const token = await this.token(signal);
    const hello = frame(FrameType.HELLO, Hello, {
      version: 1,
      clientId: this.clientId,
      token,
      session: options.session,
      heartbeatMs: Math.ceil(options.heartbeatMs ?? 0),
      receiveWindow: options.window,
      agent: options.agent,
      profile: options.profile ?? {},
      profileVector: [...(options.profileVector ?? [])],
      sessionTtlS: Math.ceil(options.sessionTtlSeconds ?? 0),
      features: ["ping"],
    });
    if (hello.length - 4 > MOST_HELLO) throw new MeshError("FRAME_TOO_LARGE", `Hello has ${hello.length - 4} bytes, ${MOST_HELLO} at most: a shorter token or profile helps`);
    return hello;
  }

  /** Reads a connection until it ends. */
  private async serve(link: Link): Promise<Error> {
    const { hub } = this;
    let away: GoAway | undefined;
    let cancel = () => undefined as void;
    this.clientId ||= link.welcome.clientId;
    this.connection = connectionOf(link.welcome, link.url);
    this.become("connected");
    hub.emit("connected", this.connection);
    hub.connected(link);
    link.read((type, body) => {
      if (type === FrameType.ERROR) {
        const [why, ref] = refusalOf(body);
        if (ref === 0) link.close(why);
        else hub.refused(why, ref);
      } else if (type === FrameType.GO_AWAY) {
        const told = (away = goAwayOf(body, hub.timers.now()));
        cancel();
        if (told.due === 0 || !told.retryable) link.close(told);
        else cancel = hub.timers.after(told.due - hub.timers.now(), () => link.close(told));
      } else {
        hub.take(type, body);
      }
    });
    const why = await link.end;
    cancel();
    this.connection = undefined;
    hub.broken();
    // A refusal for good in the time that is left counts: whose session was taken must not take it back.
    const final = why instanceof MeshError && !why.retryable && why.code !== "TOKEN_EXPIRED";
    return final ? why : (away ?? why);
  }

  /** The refusal that trying again can't help; none where it can, as it can with another token. */
  private final(why: Error, welcomed: boolean): MeshError | undefined {
    if (!(why instanceof MeshError) || why.retryable || why.code === "OK") return undefined;
    if (why.code !== "TOKEN_EXPIRED" || !this.hub.options.getToken) return why;
    if (welcomed) return undefined;
    const again = this.expired;
    this.expired = true;
    return again ? why : undefined;
  }

  /** Whether a Hello that was left unanswered may be why the session is gone; only once. */
  private wasGhost(why: MeshError): boolean {
    const may = why.code === "SESSION_TAKEN_OVER" && this.ghostAt > 0 && this.hub.timers.now() - this.ghostAt <= GHOST_MS;
    if (may) this.ghostAt = 0;
    return may;
  }

  private pauseAfter(why: Error): number {
    const pause = this.backoff.next(why instanceof MeshError ? why.retryAfterMs : 0);
    if (why instanceof GoAway && why.due > 0) return Math.max(why.due - this.hub.timers.now(), 0); // the edge has spread it
    return pause;
  }
}

/** Whether the mesh named a time to come back. What a busy edge names holds for that edge alone. */
const asked = (why: Error) => why instanceof MeshError && why.retryAfterMs > 0 && why.code !== "OVERLOADED";

/** Has the connector look when the network is back or the page is shown. Returns what undoes that. */
export function watchPlatform(connector: Connector): () => void {
  const target = globalThis as { addEventListener?: (type: string, f: () => void) => void; removeEventListener?: (type: string, f: () => void) => void };
  const look = () => {
    if (typeof document === "undefined" || document.visibilityState !== "hidden") call(() => connector.nudge(), undefined);
  };
  const page = typeof document === "undefined" ? undefined : document;
  target.addEventListener?.("online", look);
  page?.addEventListener("visibilitychange", look);
  return () => {
    target.removeEventListener?.("online", look);
    page?.removeEventListener("visibilitychange", look);
  };
}
