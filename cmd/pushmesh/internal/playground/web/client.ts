import { connect, type Client, type ConnectOptions } from "@pushmesh/client";
import type { Frames } from "./frames.js";
import { count, h } from "./dom.js";
import { gapText } from "./gaps.js";
import { edge } from "./mesh.js";
import type { Person } from "./people.js";
import { Wire } from "./wire.js";

/** How long a wire is cut. */
export const CUT_MS = 10_000;

/** What a demo is made with, and what ends it. */
export interface Stage {
  people: [Person, Person];
  frames: Frames;
}

export interface Scene {
  element: HTMLElement;
  stop(): void;
}

/** A client of this page, on a wire that is looked at. */
export function clientOf(person: Person, frames: Frames, options: Partial<ConnectOptions> = {}): { client: Client; wire: Wire } {
  const wire = new Wire(person.name, frames.show);
  const client = connect({ url: `ws://${edge}`, clientId: person.clientId, agent: "playground", maxBackoffMs: 500, heartbeatMs: 5000, follow: false, WebSocket: wire.WebSocket, ...options });
  client.on("gap", (gap) => wire.gap(gapText(gap)));
  return { client, wire };
}

/** Says how a client's connection is. */
export function statusOf(client: Client, wire: Wire): HTMLElement {
  const text = h("span");
  const gaps = h("span", { class: "gaps" });
  const element = h("p", { class: "status" }, h("span", { class: "dot", "aria-hidden": true }), text, gaps);
  const show = () => {
    const connected = client.state === "connected";
    element.dataset["state"] = wire.isCut ? "cut" : client.state;
    text.textContent = wire.isCut ? "cut off" : connected ? "connected" : client.state === "closed" ? "over" : "connecting";
  };
  client.on("state", show);
  wire.onGap = () => (gaps.textContent = count(wire.gaps, "gap"));
  client.on("ended", (why) => {
    if (why.code === "CANCELLED") return;
    element.dataset["state"] = "over";
    text.textContent = why.code === "SESSION_TAKEN_OVER" ? "another tab has this client now: load this page again" : `over: ${why.message}`;
  });
  show();
  return element;
}

/** The round letter that stands for a person. */
export const face = (name: string) => h("span", { class: "face", "aria-hidden": true }, name.charAt(0));

/** A button that cuts the wire that there is for ten seconds. */
export function cutter(wire: () => Wire, changed: () => void = () => undefined): HTMLButtonElement {
  const text = "Cut the wire for 10 s";
  const cut = () => {
    if (wire().isCut) return;
    button.setAttribute("aria-disabled", "true");
    button.textContent = "Cut off";
    wire().cut(CUT_MS, () => {
      button.removeAttribute("aria-disabled");
      button.textContent = text;
    });
    changed();
  };
  const button = h("button", { type: "button", class: "ghost cut", onclick: cut }, text);
  return button;
}
