import type { Code } from "../error.js";
import { isWild } from "../position/filter.js";
import { Start, type Subscribed, type Subscribed_TopicPosition } from "../wire/schema.js";
import type { Subscription } from "./subscription.js";
import type { Topic, Place } from "./topic.js";

/** Where a topic stands, as the edge said in Subscribed. */
export interface Standing {
  /** 0: the topic is ephemeral. */
  epoch: number;
  /** What is at or below it is history, what is above it will come. */
  head: number;
  /** Everything that was asked for is still there. */
  recovered: boolean;
  /** How many messages can't be had any more. */
  missed: number;
}

/** Takes the edge's word of where a subscription stands. */
export function stand(sub: Subscription, m: Subscribed, topicOf: (name: string) => Topic): void {
  const resumed = sub.active;
  sub.standings.clear();
  if (!isWild(sub.filter)) standAt(sub, { ...m, topic: sub.filter }, resumed, topicOf);
  else if (m.positions.length === 0 && m.missed > 0) sub.gap({ missed: m.missed, code: "RETENTION" });
  for (const p of m.positions) standAt(sub, p, resumed, topicOf);
}

function standAt(sub: Subscription, at: Subscribed_TopicPosition, resumed: boolean, topicOf: (name: string) => Topic): void {
  const { topic, epoch, head, recovered, missed } = at;
  sub.standings.set(topic, { epoch, head, recovered, missed });
  const place = topicOf(topic).of(sub);
  if (!place) return;
  const lost = asked(sub, resumed) && !recovered;
  const code: Code = epoch === 0 && !resumed ? "UNSUPPORTED" : "RETENTION";
  if (sub.shared || (epoch === 0 && !lost)) {
    // an ephemeral topic has neither epoch nor positions
    if (code === "UNSUPPORTED" && wantsLog(sub)) sub.gap({ topic, code });
    return;
  }
  const nothing = place.epoch === 0 && place.high === 0;
  if (epoch === 0 && resumed && nothing) return; // it was told that there is no log
  if (nothing) {
    place.restart(...startAt(sub, topic, head));
    if (sub.request.start === Start.SESSION) place.forgetDone(); // what the session lacks may lie anywhere
  }
  if (epoch !== 0 && place.epoch !== 0 && place.epoch !== epoch) {
    startOver(sub, place, epoch, missed, "EPOCH_CHANGED");
  } else if (lost && place.high > head) {
    // The log has not come as far as the position: what it will have under these numbers is not what was had.
    startOver(sub, place, epoch, missed, code);
  } else {
    place.epoch = epoch;
    if (sub.ranked && resumed) standAgain(sub, place, head);
    else if (lost || missed > 0) sub.gap({ topic, epoch, missed, code });
  }
  place.heard = Math.max(place.heard, place.high);
}

/** Gives up what was known of a topic, whose positions are void. */
function startOver(sub: Subscription, place: Place, epoch: number, missed: number, code: Code): void {
  place.restart(epoch, 0);
  place.void = true;
  place.heard = 0;
  sub.gap({ topic: place.topic.name, epoch, missed, code });
}

/** Notes what a ranked subscription without a session has missed: it goes on with what is live. */
function standAgain(sub: Subscription, place: Place, head: number): void {
  if (sub.request.start === Start.SESSION) return;
  const { count, first } = place.done.lacks(head);
  if (count > 0) sub.gap({ topic: place.topic.name, epoch: place.epoch, from: first, to: head, missed: count, code: "RETENTION" });
  place.restart(place.epoch, head);
}

/** Whether it asks for what only durable topics have. A position that was not recovered is told anyway. */
function wantsLog(sub: Subscription): boolean {
  const { start, ack } = sub.request;
  return start === Start.EARLIEST || start === Start.LAST_N || start === Start.SESSION || (ack && !sub.shared);
}

/** Whether what was just answered named a position, so that recovered: false is a loss. */
function asked(sub: Subscription, resumed: boolean): boolean {
  const { start, positions } = sub.request;
  if (start === Start.SESSION) return false; // missed says it all
  return resumed || start === Start.AFTER_SEQ || positions.length > 0;
}

/** The position before the first message that was asked for first, and its epoch where one was named. */
function startAt({ request }: Subscription, topic: string, head: number): [epoch: number, seq: number] {
  const named = request.positions.find((p) => p.topic === topic);
  if (named) return [named.epoch, named.seq];
  switch (request.start) {
    case Start.EARLIEST:
    case Start.SESSION:
      return [0, 0];
    case Start.AFTER_SEQ:
      return [request.epoch, request.seq];
    case Start.LAST_N:
      return [0, Math.max(head - request.seq, 0)];
  }
  return [0, head];
}
