// Joins the SDK to the line protocol of test/sdk: it does what the lines that it reads say, and
// tells what the SDK tells.
import { createInterface } from "node:readline";
import { MeshError, claim, connect, setState, watchPresence, type Claim, type Client, type From, type Gap, type Member, type Message, type Position, type PresenceWatch, type SubscribeOptions, type Subscription } from "../src/index.js";

interface Order {
  do: string;
  name: string;
  [member: string]: any;
}

const tell = (told: string, members: object = {}) => process.stdout.write(`${JSON.stringify({ told, ...members }, (_, v: unknown) => (typeof v === "bigint" ? String(v) : v))}\n`);

const codeOf = (e: unknown) => (e instanceof MeshError ? e.code : "INTERNAL");

/** Calls that may be cancelled. */
const stops = new Map<string, AbortController>();

function stoppable(name: string): AbortSignal {
  const stop = new AbortController();
  stops.set(name, stop);
  return stop.signal;
}

const wasStopped = (e: unknown) => e instanceof DOMException && e.name === "AbortError";

const fail = (name: string, e: unknown) => wasStopped(e) ? tell("cancelled", { name }) : tell("failed", { name, code: codeOf(e), unknown: e instanceof MeshError && e.unknown, message: String(e) });

/** The class of ws, unless PUSHMESH_JS_WEBSOCKET says that the platform's own is to be looked at. */
const WebSocket = process.env["PUSHMESH_JS_WEBSOCKET"] === "own" ? undefined : (await import("ws")).WebSocket;

let client: Client;
const subs = new Map<string, Subscription>();
const claims = new Map<string, Claim>();
const watches = new Map<string, PresenceWatch>();
const held = new Map<string, { message: Message; done: () => void }>();
const key = (name: string, topic: string, seq: unknown) => `${name} ${topic} ${seq}`;

/** What becomes of a call. */
const later = (name: string, told: string, call: Promise<unknown>) => call.then(() => tell(told, { name }), (e: unknown) => fail(name, e));

function start(o: Order) {
  const tokens: (string | null | { fails: string })[] = o["tokens"] ?? [];
  client = connect({
    url: o["addresses"].map((a: string) => `ws://${a}`),
    clientId: o["client_id"],
    session: o["session"],
    heartbeatMs: o["heartbeat_ms"],
    window: o["window"],
    profile: o["profile"],
    minBackoffMs: o["backoff_ms"][0],
    maxBackoffMs: o["backoff_ms"][1],
    attemptMs: o["attempt_ms"] || undefined,
    getToken: tokens.length === 0 ? undefined : () => token(tokens),
    WebSocket,
  });
  client.on("connected", (c) => tell("connected", { edge: c.edge, client_id: c.clientId, user: c.user, resumed: c.resumed }));
  client.on("disconnected", (e) => tell("disconnected", { code: codeOf(e), message: e.message }));
  client.on("failed", (e) => tell("connect failed", { code: codeOf(e), message: e.message }));
  client.on("handlerFailed", () => undefined);
  client.on("ended", (e) => e.code !== "CANCELLED" && tell("ended", { code: e.code, message: e.message }));
}

function token(tokens: (string | null | { fails: string })[]): string | null {
  const next = tokens.length > 1 ? tokens.shift()! : tokens[0]!;
  if (next !== null && typeof next === "object") throw new Error(next.fails);
  return next;
}

function fromOf(o: Order): From {
  const positions: Position[] = (o["positions"] ?? []).map((p: Position) => ({ topic: p.topic, epoch: Number(p.epoch ?? 0), seq: Number(p.seq ?? 0) }));
  if (positions.length > 0) return { positions };
  if (o["start"] === "after") return { seq: Number(o["seq"] ?? 0), epoch: Number(o["epoch"] ?? 0) };
  if (o["start"] === "last") return { last: Number(o["n"]) };
  return o["start"] || "live";
}

function subscribe(o: Order) {
  const { name } = o;
  const options: SubscribeOptions = {
    ack: o["ack"],
    from: fromOf(o),
    group: o["group"],
    groupKey: o["group_key"]?.startsWith("header:") ? { header: o["group_key"].slice(7) } : o["group_key"],
    where: o["where"],
    rankTopK: o["rank_top_k"],
    noEcho: o["no_echo"],
    skipLast: o["skip_last"],
    window: o["window"],
    onGap: (g: Gap) => tell("gap", { ...g, name }),
    signal: stoppable(name),
  };
  const sub = client.subscribe(o["filter"], (m) => {
    tell("message", { name, topic: m.topic, seq: m.seq, epoch: m.epoch, payload: m.text(), headers: m.headers, attempt: m.attempt, from: m.from, score: m.score, unranked: m.unranked });
    if (!o["hold"]) return undefined;
    return new Promise<void>((done) => held.set(key(name, m.topic, m.seq), { message: m, done }));
  }, options);
  subs.set(name, sub);
  sub.ready.then(() => tell("subscribed", { name }), (e: unknown) => wasStopped(e) && fail(name, e));
  void sub.ended.then(() => sub.error && client.state !== "closed" && !client.hub.over && tell("ended", { name, code: sub.error.code }));
}

function answer(o: Order) {
  const { message, done } = held.get(key(o.name, o["topic"], o["seq"]))!;
  if (o["with"] === "nack") message.nack(o["after_ms"] ?? 0, o["reason"] ?? "");
  else message.ack(); // at once, as with "manual"
  done();
}

async function ask(o: Order) {
  const { name } = o;
  const c = await claim(client, o["resource"], { ttlMs: o["ttl_ms"], priority: o["priority"], noWait: o["no_wait"], signal: stoppable(name), onPosition: (position) => tell("queued", { name, position }) });
  claims.set(name, c);
  c.granted.then(() => tell("granted", { name, token: c.token }), () => undefined);
  const why = await c.lost;
  if (why && why.code !== "CANCELLED") tell("lost", { name, code: why.code });
}

function watch(o: Order) {
  const { name } = o;
  const text = (all: Member[]) => all.map((m) => ({ user: m.user, state: new TextDecoder().decode(m.state) }));
  const w = watchPresence(client, o["topic"], (c) => tell("presence", { ...c, name, joined: text(c.joined), changed: text(c.changed), counts_only: c.countsOnly }));
  watches.set(name, w);
  let refused = false;
  w.ready.catch((e: unknown) => {
    refused = true;
    if (codeOf(e) !== "CANCELLED") fail(name, e);
  });
  void w.ended.then((why) => why && !refused && !client.hub.over && tell("ended", { name, code: why.code }));
}

const orders: Record<string, (o: Order) => unknown> = {
  connect: start,
  subscribe,
  answer,
  unsubscribe: (o) => subs.get(o.name)!.unsubscribe(),
  positions: (o) => tell("positions", { name: o.name, positions: subs.get(o.name)!.positions() }),
  publish: (o) =>
    client.publish(o["topic"], o["payload"] ?? "", { headers: o["headers"], dedupeKey: o["dedupe_key"], signal: stoppable(o.name) }).then(
      (p) => tell("published", { ...p, name: o.name }),
      (e: unknown) => fail(o.name, e),
    ),
  claim: (o) => void ask(o).catch((e: unknown) => fail(o.name, e)),
  release: (o) => later(o.name, "released", claims.get(o.name)!.release()),
  watch,
  unwatch: (o) => watches.get(o.name)!.stop(),
  state: (o) => later(o.name, "stated", setState(client, o["topic"], o["state"] ?? "")),
  refresh: (o) => later(o.name, "refreshed", client.refreshToken(o["token"])),
  cancel: (o) => stops.get(o.name)!.abort(),
  close: () => client.close().then(() => tell("closed")),
};

tell("ready", { sdk: "pushmesh-js", transports: ["websocket"], without: ["bytes"] }); // a WebSocket shows a message when it is whole
createInterface({ input: process.stdin })
  .on("line", (line) => {
    const o = { name: "", ...JSON.parse(line) } as Order;
    try {
      orders[o.do]!(o);
    } catch (e) {
      fail(o.name, e);
    }
  })
  .on("close", () => process.exit(0));
