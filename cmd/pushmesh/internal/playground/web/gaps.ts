import type { Gap } from "@pushmesh/client";
import { count } from "./dom.js";

/** What a client was told of messages that will not come, in words. */
export function gapText({ filter, topic, from, to, missed, code }: Gap): string {
  const where = topic || filter;
  if (code === "UNSUPPORTED") return `${where} has no history to begin with: only what is published from now on comes.`;
  if (code === "EPOCH_CHANGED") return `The log of ${where} has begun anew: what was before can't be had any more.`;
  const which = from > 0 && to >= from ? ` (seq ${from === to ? from : `${from} to ${to}`})` : "";
  return `${missed > 0 ? count(missed, "message") : "Some messages"}${which} of ${where} can't be had any more: ${code}.`;
}
