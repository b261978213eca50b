// Prices that everybody gets as they come, and two people who get the best five of each second, each by their own taste.
import type { Client, Message } from "@pushmesh/client";
import { clientOf, cutter, face, statusOf, type Scene, type Stage } from "./client.js";
import { h, say } from "./dom.js";
import type { Frames } from "./frames.js";
import { PRICES } from "./mesh.js";
import type { Person } from "./people.js";
import type { Wire } from "./wire.js";

/** How many of the twelve a person gets. */
const BEST = 5;

interface Price {
  symbol: string;
  name: string;
  sector: string;
  price: number;
  change: number;
  round: number;
}

/** What somebody may like; features.<name> and profile.<name> are multiplied in the rank policy. */
const tastes = [
  { id: "tech", title: "Technology", profile: { tech: 1, energy: 0.05, food: 0.05 } },
  { id: "energy", title: "Energy", profile: { tech: 0.05, energy: 1, food: 0.05 } },
  { id: "food", title: "Food", profile: { tech: 0.05, energy: 0.05, food: 1 } },
  { id: "all", title: "Whatever moves", profile: { tech: 1, energy: 1, food: 1 } },
] as const;

type Taste = (typeof tastes)[number];

export function prices({ people, frames }: Stage): Scene {
  const panes = [new Pane(people[0], frames, tastes[0]), new Pane(people[1], frames, tastes[1])];
  return {
    element: h("div", { class: "panes" }, ...panes.map((p) => p.element)),
    stop: () => panes.forEach((p) => p.stop()),
  };
}

/** What one person gets of the prices. */
class Pane {
  readonly element: HTMLElement;
  private readonly status = h("div", { class: "status-place" });
  private readonly rows = h("ol", { class: "prices" });
  private readonly round = h("p", { class: "here" }, "The first prices come in a second.");
  private readonly gap = h("p", { class: "gap", hidden: true });
  private connection!: { client: Client; wire: Wire };
  private shown = 0;
  private came = 0;
  private bestScore = 0;

  constructor(
    private readonly person: Person,
    private readonly frames: Frames,
    taste: Taste,
  ) {
    const { name } = person;
    const choices = tastes.map((t) => {
      const input = h("input", { type: "radio", name: `taste-${name}`, value: t.id, checked: t === taste, onchange: () => this.like(t) });
      return h("label", { class: "choice" }, input, h("span", {}, t.title));
    });
    this.element = h(
      "section",
      { class: "pane card", "aria-label": name, "data-person": name },
      h("div", { class: "pane-head" }, face(name), h("h2", {}, name), this.status),
      h("fieldset", { class: "choices" }, h("legend", {}, `What ${name} likes`), ...choices),
      this.round,
      this.gap,
      this.rows,
      h("div", { class: "pane-foot" }, cutter(() => this.connection.wire), h("p", { class: "hint" }, "Twelve prices are published each second. The compute tier ranks them for this profile, and the edge sends the best five.")),
    );
    this.connect(taste);
  }

  stop(): void {
    this.connection.wire.stop();
    void this.connection.client.close();
  }

  /** A profile is said when a client connects: another one is another connection. */
  private like(taste: Taste): void {
    this.stop();
    this.connect(taste);
  }

  private connect(taste: Taste): void {
    this.shown = 0;
    this.gap.hidden = true;
    this.connection = clientOf(this.person, this.frames, { profile: { ...taste.profile } });
    const { client, wire } = this.connection;
    this.status.replaceChildren(statusOf(client, wire));
    this.rows.setAttribute("aria-label", `The best for ${this.person.name}: ${taste.title}`);
    client.subscribe(PRICES, (m) => this.take(m), { rankTopK: BEST });
  }

  /** The best of a round come one by one, the best one first. */
  private take(m: Message): void {
    const price = m.json<Price>();
    if (price.round !== this.shown) {
      if (this.shown > 0 && price.round > this.shown + 1) this.missed(this.shown + 1, price.round - 1);
      this.shown = price.round;
      this.came = 0;
      this.bestScore = m.score;
    }
    if (this.came === BEST) return; // a round that was not ranked in time comes whole
    this.round.textContent = m.unranked ? "The compute tier was too slow for this second: these are as they came." : `Second ${price.round}: the best ${BEST} of 12`;
    const row = this.row(price, this.bestScore > 0 ? m.score / this.bestScore : 0);
    const old = this.rows.children[this.came++];
    if (old) old.replaceWith(row);
    else this.rows.append(row);
  }

  /** Seconds whose prices did not come. The topic has no seqs, so that the client can't know: the rounds tell. */
  private missed(from: number, to: number): void {
    const seconds = from === to ? `Second ${from} is` : `Seconds ${from} to ${to} are`;
    const text = `${seconds} gone: prices have no history, and only the newest counts.`;
    this.gap.textContent = text;
    this.gap.hidden = false;
    this.connection.wire.gap(text);
    say(`${this.person.name}: ${text}`);
  }

  private row({ symbol, name, sector, price, change }: Price, ofBest: number): HTMLElement {
    const up = change > 0 ? "up" : change < 0 ? "down" : "same";
    const score = h("span", { class: "score", "aria-hidden": true });
    score.style.setProperty("--of-best", ofBest.toFixed(3)); // the policy forbids style attributes
    return h(
      "li",
      { class: `price ${up}`, "data-sector": sector, "data-symbol": symbol },
      h("span", { class: "symbol" }, symbol),
      h("span", { class: "company" }, name, h("span", { class: "sector" }, sector)),
      h("span", { class: "amount" }, (price / 100).toFixed(2)),
      h("span", { class: "change" }, `${change > 0 ? "+" : change < 0 ? "−" : ""}${Math.abs(change / 100).toFixed(2)} %`),
      score,
    );
  }
}
