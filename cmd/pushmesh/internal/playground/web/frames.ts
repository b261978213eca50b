import type { Row } from "./describe.js";
import { byId, count, h, milliseconds } from "./dom.js";

/** How many frames are shown at most. */
const MOST_ROWS = 120;

/** How long frames are gathered before they are drawn. */
const DRAW_MS = 50;

const clock = (at: number) => {
  const d = new Date(at);
  return `${d.toTimeString().slice(0, 8)}.${String(d.getMilliseconds()).padStart(3, "0")}`;
};

const arrows = { in: ["←", "received"], out: ["→", "sent"], note: ["", "note"] } as const;

/** The list of frames, the newest first. */
export class Frames {
  private readonly body = byId("frames");
  private readonly waiting: Row[] = [];
  private paused = false;
  private total = 0;
  private bytes = 0;
  private gaps = 0;

  constructor() {
    const pause = byId("pause");
    pause.addEventListener("click", () => {
      this.paused = !this.paused;
      pause.setAttribute("aria-pressed", String(this.paused));
      pause.textContent = this.paused ? "Go on" : "Pause";
      this.draw();
    });
    byId("clear").addEventListener("click", () => {
      this.waiting.length = 0;
      this.body.replaceChildren();
      this.total = this.bytes = this.gaps = 0;
      this.draw();
    });
  }

  readonly show = (row: Row): void => {
    if (row.direction !== "note") {
      this.total++;
      this.bytes += row.size;
    }
    if (row.gap) this.gaps++;
    if (this.waiting.push(row) > MOST_ROWS) this.waiting.shift();
    if (this.waiting.length === 1) setTimeout(() => this.draw(), DRAW_MS);
  };

  private draw(): void {
    byId("sums").textContent = this.total === 0 ? "" : `${count(this.total, "frame")}, ${count(this.bytes, "byte")}${this.gaps > 0 ? `, ${count(this.gaps, "gap")}` : ""}${this.paused ? ", the list stands still" : ""}`;
    if (this.paused) {
      if (this.waiting.length > 0) this.waiting.splice(0, this.waiting.length);
      return;
    }
    const rows = this.waiting.splice(0).map(rowOf).reverse();
    this.body.prepend(...rows);
    while (this.body.childElementCount > MOST_ROWS) this.body.lastElementChild!.remove();
    byId("no-frames").hidden = this.body.childElementCount > 0;
  }
}

function rowOf(row: Row): HTMLElement {
  const { direction, at, who, kind, topic, seq, epoch, size, latency, detail, gap } = row;
  const time = h("td", { class: "time" }, clock(at));
  if (direction === "note") return h("tr", { class: gap ? "note gap" : "note" }, time, h("td", {}, who), h("td", { colspan: 8 }, kind));
  const [arrow, word] = arrows[direction];
  return h(
    "tr",
    { class: direction },
    time,
    h("td", {}, who),
    h("td", { class: "arrow" }, h("span", { "aria-hidden": true }, arrow), h("span", { class: "hidden" }, word)),
    h("td", { class: "kind" }, kind),
    h("td", { class: "topic" }, topic),
    h("td", { class: "num" }, seq > 0 ? String(seq) : ""),
    h("td", { class: "num wide" }, epoch > 0 ? String(epoch) : ""),
    h("td", { class: "num" }, String(size)),
    h("td", { class: "num" }, latency === undefined ? "" : milliseconds(latency)),
    h("td", { class: "wide detail" }, detail),
  );
}
