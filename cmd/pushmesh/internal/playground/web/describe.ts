import { codeOf } from "../../../../../clients/js/src/error.js";
import { isWild } from "../../../../../clients/js/src/position/filter.js";
import { decode } from "../../../../../clients/js/src/wire/codec.js";
import * as schema from "../../../../../clients/js/src/wire/schema.js";
import { count, milliseconds } from "./dom.js";
import { nameOf } from "./people.js";

/** A frame, or a note between frames, as the list shows it. */
export interface Row {
  direction: "in" | "out" | "note";
  /** Milliseconds since 1970. */
  at: number;
  who: string;
  kind: string;
  topic: string;
  /** 0: none. */
  seq: number;
  epoch: number;
  size: number;
  /** Milliseconds: of a message since it was published, of an answer since it was asked for. */
  latency: number | undefined;
  detail: string;
  /** A note of messages that will not come. */
  gap?: boolean;
}

const HEADER = 4;

const titles = Object.entries(schema.FrameType).reduce<string[]>((all, [name, number]) => {
  all[number] = name.split("_").map((w) => w.charAt(0) + w.slice(1).toLowerCase()).join("");
  return all;
}, []);

const nameIn = (of: Record<string, number>, value: number) => Object.keys(of)[value] ?? String(value);

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

/** Now, in milliseconds since 1970 and finer than Date.now. */
export const now = () => performance.timeOrigin + performance.now();

/** The requests of a connection that have no answer yet: when they were sent, and for which topic. */
export class Asked {
  readonly times = new Map<string, number>();
  readonly topics = new Map<number, string>();
}

/** Reads a frame, for whose answers it takes note of requests. */
export function describe(who: string, direction: "in" | "out", type: number, body: Uint8Array, asked: Asked): Row {
  const at = now();
  const row: Row = { direction, at, who, kind: titles[type] ?? `type ${type}`, topic: "", seq: 0, epoch: 0, size: HEADER + body.length, latency: undefined, detail: "" };
  const F = schema.FrameType;
  const asks = (key: string | number) => void asked.times.set(String(key), at);
  const answers = (key: string | number) => {
    const since = asked.times.get(String(key));
    asked.times.delete(String(key));
    if (since !== undefined) row.latency = at - since;
  };
  switch (type) {
    case F.HELLO: {
      const m = decode(schema.Hello, body);
      const liked = Object.entries(m.profile).map(([name, value]) => `${name}=${value}`);
      row.detail = [`client ${m.clientId}`, m.session && `session ${m.session}`, liked.length > 0 && `profile ${liked.join(" ")}`].filter(Boolean).join(", ");
      asks("hello");
      break;
    }
    case F.WELCOME: {
      const m = decode(schema.Welcome, body);
      row.detail = `edge ${m.edge}${m.resumed ? ", the session goes on" : ""}`;
      answers("hello");
      break;
    }
    case F.SUBSCRIBE: {
      const m = decode(schema.Subscribe, body);
      const start = m.positions[0] ? `go on behind seq ${m.positions[0].seq}` : { LIVE: "from now on", EARLIEST: "from the beginning", AFTER_SEQ: `behind seq ${m.seq}`, LAST_N: `the last ${m.seq}`, SESSION: "where the session stands" }[nameIn(schema.Start, m.start)];
      Object.assign(row, { topic: m.filter, epoch: m.positions[0]?.epoch ?? 0, detail: [start, m.ack && "with ACKs", m.rankTopK > 0 && `the best ${m.rankTopK}`].filter(Boolean).join(", ") });
      asks(m.id);
      asked.topics.set(m.id, m.filter);
      break;
    }
    case F.SUBSCRIBED: {
      const m = decode(schema.Subscribed, body);
      const detail = isWild(asked.topics.get(m.id) ?? "") ? `${count(m.positions.length, "topic")} with a history` : m.epoch === 0 ? "a topic without history" : `head ${m.head}${m.missed > 0 ? `, ${count(m.missed, "message")} missed` : ""}`;
      Object.assign(row, { topic: asked.topics.get(m.id) ?? "", seq: m.head, epoch: m.epoch, detail });
      answers(m.id);
      break;
    }
    case F.MESSAGE: {
      const m = decode(schema.Message, body);
      const said = text(m.payload);
      const from = m.from ? `${nameOf(m.from)}: ` : "";
      const score = m.score > 0 ? `score ${m.score.toFixed(2)} ` : m.unranked ? "unranked " : "";
      Object.assign(row, { topic: m.topic, seq: m.seq, latency: Math.max(0, at - m.publishedAt / 1000), detail: `${score}${from}${said.slice(0, 60)}` });
      break;
    }
    case F.PUBLISH: {
      const m = decode(schema.Publish, body);
      Object.assign(row, { topic: m.topic, detail: text(m.payload).slice(0, 60) });
      asked.topics.set(m.id, m.topic);
      asks(m.id);
      break;
    }
    case F.PUBLISHED: {
      const m = decode(schema.Published, body);
      Object.assign(row, { topic: asked.topics.get(m.id) ?? "", seq: m.seq, epoch: m.epoch, detail: m.duplicate ? "it was on disk before" : "it is on disk" });
      answers(m.id);
      break;
    }
    case F.ACK: {
      const [entry] = decode(schema.Ack, body).entries;
      if (entry) Object.assign(row, { topic: entry.topic, seq: entry.seq, epoch: entry.epoch, detail: entry.through ? "everything up to it is handled" : "handled" });
      break;
    }
    case F.PROGRESS: {
      const m = decode(schema.Progress, body);
      const detail = codeOf(m.code) === "EPOCH_CHANGED" ? "a log begins" : `${m.from} to ${m.to} will not come: ${codeOf(m.code)}`;
      Object.assign(row, { topic: m.topic, seq: m.to, epoch: m.epoch, detail });
      break;
    }
    case F.CLAIM: {
      const m = decode(schema.Claim, body);
      Object.assign(row, { topic: m.resource, detail: nameIn(schema.Claim_Op, m.op).toLowerCase() });
      asks(m.id);
      break;
    }
    case F.CLAIM_STATE: {
      const m = decode(schema.ClaimState, body);
      const state = nameIn(schema.ClaimState_State, m.state);
      const more = { GRANTED: `${milliseconds(m.expiresInMs)} left`, QUEUED: `number ${m.position} in the line`, HELD_BY_OTHER: `${nameOf(m.holder)} has it` }[state] ?? "";
      Object.assign(row, { topic: m.resource, detail: [state.toLowerCase().replaceAll("_", " "), more].filter(Boolean).join(", ") });
      if (m.id !== 0) answers(m.id);
      break;
    }
    case F.PRESENCE: {
      const m = decode(schema.Presence, body);
      const names = m.members.map((x) => nameOf(x.user) + (x.state.length > 0 ? ` (${text(x.state)})` : ""));
      const left = m.left.map(nameOf);
      Object.assign(row, { topic: m.topic, detail: [m.snapshot ? `here: ${names.join(", ") || "nobody"}` : names.length > 0 && names.join(", "), left.length > 0 && `gone: ${left.join(", ")}`].filter(Boolean).join("; ") });
      break;
    }
    case F.WATCH: {
      const m = decode(schema.Watch, body);
      Object.assign(row, { topic: m.topic, detail: "who is there?" });
      break;
    }
    case F.STATE: {
      const m = decode(schema.State, body);
      Object.assign(row, { topic: m.topic, detail: text(m.state) || "nothing" });
      asks(m.id);
      break;
    }
    case F.STATED:
      answers(decode(schema.Stated, body).id);
      break;
    case F.PING:
      asks(`ping ${decode(schema.Ping, body).sentAt}`);
      break;
    case F.PONG:
      answers(`ping ${decode(schema.Pong, body).sentAt}`);
      break;
    case F.ERROR: {
      const m = decode(schema.Error, body);
      row.detail = `${codeOf(m.code)}: ${m.message}`;
      answers(m.ref);
      break;
    }
    case F.GO_AWAY:
      row.detail = decode(schema.GoAway, body).reason;
  }
  return row;
}
