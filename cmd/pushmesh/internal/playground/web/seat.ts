// One seat, which one client has at a time; the others wait in line. Whoever does not renew loses it.
import { claim, watchClaim, type Claim, type ClaimInfo, type Client } from "@pushmesh/client";
import { clientOf, cutter, face, statusOf, type Scene, type Stage } from "./client.js";
import { count, h, say } from "./dom.js";
import { SEAT } from "./mesh.js";
import { nameOf, type Person } from "./people.js";
import type { Wire } from "./wire.js";

/** How long a hold lasts that is not renewed. */
const TTL_MS = 10_000;

export function seat({ people, frames }: Stage): Scene {
  const chair = new Chair();
  const panes = people.map((person) => new Pane(person, clientOf(person, frames)));
  // Somebody who only looks: what it is told holds for all tabs.
  const looker = clientOf({ name: "page", clientId: `${people[0].clientId}-page` }, frames);
  const watch = watchClaim(looker.client, SEAT, (info) => chair.show(info));
  return {
    element: h("div", { class: "seats" }, chair.element, h("div", { class: "panes" }, ...panes.map((p) => p.element))),
    stop: () => {
      watch.stop();
      void looker.client.close();
      panes.forEach((p) => p.stop());
    },
  };
}

/** Who has the seat, whichever tab it is in. */
class Chair {
  private readonly holder = h("p", { class: "holder" }, "…");
  private readonly line = h("p", { class: "line" });
  readonly element = h("section", { class: "chair card", "aria-label": "The seat" }, h("p", { class: "label" }, "The seat"), this.holder, this.line);
  private last = "";

  show({ state, holder, waiting }: ClaimInfo): void {
    const name = state === "FREE" || holder === "" ? "" : nameOf(holder);
    this.element.dataset["holder"] = name;
    this.holder.replaceChildren(...(name ? [face(name), `${name} has it`] : ["Free"]));
    this.line.textContent = waiting > 0 ? `${count(waiting, "client")} in line` : "Nobody waits";
    if (name !== this.last) say(name ? `${name} has the seat` : "The seat is free");
    this.last = name;
  }
}

/** One person, who may have the seat, wait for it, or neither. */
class Pane {
  readonly element: HTMLElement;
  private readonly client: Client;
  private readonly wire: Wire;
  private readonly state = h("p", { class: "seat-state" });
  private readonly detail = h("p", { class: "hint" });
  private readonly bar = h("progress", { max: TTL_MS, value: 0, "aria-label": "Time that the hold lasts without being renewed" });
  private readonly button: HTMLButtonElement;
  private claim: Claim | undefined;
  private asking = false;
  private until = 0;
  private readonly clock: ReturnType<typeof setInterval>;

  constructor(
    { name }: Person,
    { client, wire }: { client: Client; wire: Wire },
  ) {
    this.client = client;
    this.wire = wire;
    this.button = h("button", { type: "button", class: "main", onclick: () => void this.press() }, "Ask for the seat");
    this.element = h(
      "section",
      { class: "pane card", "aria-label": name, "data-person": name },
      h("div", { class: "pane-head" }, face(name), h("h2", {}, name), statusOf(client, wire)),
      this.state,
      this.bar,
      this.detail,
      h("div", { class: "pane-foot row" }, this.button, cutter(() => this.wire, () => this.show())),
    );
    wire.onHeld = (ms) => {
      this.until = performance.now() + ms;
    };
    this.clock = setInterval(() => this.tick(), 100);
    this.show();
  }

  stop(): void {
    clearInterval(this.clock);
    this.wire.stop();
    void this.claim?.release().catch(() => undefined).finally(() => this.client.close());
    if (!this.claim) void this.client.close();
  }

  private async press(): Promise<void> {
    if (this.asking) return;
    if (this.claim) {
      const given = this.claim;
      this.claim = undefined;
      this.show();
      await given.release().catch(() => undefined); // it was lost meanwhile
      return;
    }
    this.asking = true;
    this.show();
    try {
      const made = await claim(this.client, SEAT, { ttlMs: TTL_MS, onPosition: () => this.show() });
      this.claim = made;
      void made.granted.then(() => this.show(), () => undefined);
      void made.lost.then((why) => {
        if (this.claim !== made) return;
        this.claim = undefined;
        this.show(why ? `Lost it: ${why.message}.` : "");
      });
      this.asking = false;
      this.show();
    } catch (e) {
      this.asking = false;
      this.show(`Refused: ${(e as Error).message}.`);
    }
  }

  private show(why = ""): void {
    const { claim: mine } = this;
    const is = mine?.held ? "holds" : mine ? "waits" : this.asking ? "asks" : "idle";
    this.element.dataset["seat"] = is;
    this.state.textContent = { holds: "Has the seat", waits: `Number ${mine?.position ?? 0} in the line`, asks: "Asks …", idle: "Does not want it" }[is];
    this.button.textContent = { holds: "Give it up", waits: "Leave the line", asks: "Asks …", idle: "Ask for the seat" }[is];
    this.detail.textContent = {
      holds: `Fencing token ${mine?.token}. The hold lasts for ten seconds, and the client renews it in time.`,
      waits: "It gets the seat when its turn comes, without asking again.",
      asks: "",
      idle: why || "One client has it at a time, in whichever tab.",
    }[is];
    this.tick();
  }

  private tick(): void {
    const held = this.claim?.held ?? false;
    this.bar.value = held ? Math.max(0, this.until - performance.now()) : 0;
    if (held !== (this.element.dataset["seat"] === "holds")) this.show();
  }
}
