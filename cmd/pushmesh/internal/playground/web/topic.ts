// Any topic: two people subscribe to what they like, publish where they may, and see what comes.
import { MeshError, type Client, type From, type Message, type Subscription } from "@pushmesh/client";
import { clientOf, cutter, face, statusOf, type Scene, type Stage } from "./client.js";
import { h, milliseconds, say } from "./dom.js";
import { now } from "./describe.js";
import { gapText } from "./gaps.js";
import { router } from "./mesh.js";
import { nameOf, type Person } from "./people.js";
import type { Wire } from "./wire.js";

/** How many entries a pane keeps. */
const MOST_SHOWN = 200;

/** From when on a message is of earlier: it has a time then, and no latency. */
const OLD_MS = 3000;

/** What everybody is subscribed to at first, and what is published to. */
const FILTER = "play/news/#";
const TOPIC = "play/news/today";

const starts: { id: string; title: string; from: From }[] = [
  { id: "live", title: "From now on", from: "live" },
  { id: "last", title: "The last 20", from: { last: 20 } },
  { id: "earliest", title: "All there is", from: "earliest" },
];

export function topic({ people, frames }: Stage): Scene {
  const panes = people.map((person) => new Pane(person, clientOf(person, frames)));
  return {
    element: h("div", { class: "panes" }, ...panes.map((p) => p.element)),
    stop: () => panes.forEach((p) => p.stop()),
  };
}

/** What one person is subscribed to, and what has come of it. */
class Pane {
  readonly element: HTMLElement;
  private readonly client: Client;
  private readonly wire: Wire;
  private readonly subscriptions = new Map<string, Subscription>();
  private readonly filters = h("ul", { class: "filters" });
  private readonly list = h("ol");
  private readonly log: HTMLElement;
  private readonly filter: HTMLInputElement;
  private readonly topic: HTMLInputElement;
  private readonly payload: HTMLInputElement;
  private from: From = "live";

  constructor(
    private readonly person: Person,
    { client, wire }: { client: Client; wire: Wire },
  ) {
    this.client = client;
    this.wire = wire;
    const { name } = person;
    const text = (label: string, value: string, placeholder: string) =>
      h("input", { type: "text", class: "code-input", autocomplete: "off", autocapitalize: "off", spellcheck: "false", maxlength: 255, required: true, value, placeholder, "aria-label": `${label} of ${name}` });
    this.filter = text("Filter", FILTER, "room/7/#");
    this.topic = text("Topic", TOPIC, "room/7/chat");
    this.payload = h("input", { type: "text", autocomplete: "off", maxlength: 400, required: true, placeholder: "Say something", "aria-label": `Payload of ${name}` });
    const choices = starts.map((start, i) => {
      const input = h("input", { type: "radio", name: `start-${name}`, value: start.id, checked: i === 0, onchange: () => (this.from = start.from) });
      return h("label", { class: "choice" }, input, h("span", {}, start.title));
    });
    this.filters.setAttribute("aria-label", `What ${name} is subscribed to`);
    // Screen readers are told of each message once, and not by both panes.
    this.log = h("div", { class: "messages entries", tabindex: 0, role: "log", "aria-live": "off", "aria-label": `What ${name} has received` }, this.list);
    this.element = h(
      "section",
      { class: "pane card", "aria-label": name, "data-person": name },
      h("div", { class: "pane-head" }, face(name), h("h2", {}, name), statusOf(client, wire)),
      h(
        "form",
        { class: "desk", onsubmit: (e: Event) => this.asks(e) },
        h("div", { class: "say" }, this.filter, h("button", { type: "submit" }, "Subscribe")),
        h("fieldset", { class: "choices" }, h("legend", { class: "hidden" }, `Where ${name} begins`), ...choices),
      ),
      this.filters,
      this.log,
      h("form", { class: "desk", onsubmit: (e: Event) => this.says(e) }, this.topic, h("div", { class: "say" }, this.payload, h("button", { type: "submit" }, "Publish"))),
      h("div", { class: "pane-foot" }, cutter(() => this.wire)),
    );
    this.note("Nothing has come yet. Publish something, or have a backend do it.", "first");
    this.subscribe(FILTER);
  }

  stop(): void {
    this.wire.stop();
    void this.client.close();
  }

  private asks(e: Event): void {
    e.preventDefault();
    this.subscribe(this.filter.value.trim());
  }

  private subscribe(filter: string): void {
    if (this.subscriptions.has(filter)) {
      this.note(`${this.person.name} is subscribed to ${filter} already.`, "quiet");
      return;
    }
    let sub: Subscription;
    try {
      sub = this.client.subscribe(filter, (m) => this.take(m), { from: this.from, onGap: (gap) => this.bad(gapText(gap)) });
    } catch (why) {
      this.bad(`Not subscribed: ${(why as Error).message}`);
      return;
    }
    this.subscriptions.set(filter, sub);
    const end = h("button", { type: "button", "aria-label": `Unsubscribe ${this.person.name} from ${filter}`, onclick: () => void sub.unsubscribe() }, h("span", { "aria-hidden": true }, "×"));
    const item = h("li", { "data-filter": filter, "data-state": "asked" }, h("code", {}, filter), end);
    this.filters.append(item);
    sub.ready.then(() => (item.dataset["state"] = "subscribed"), () => undefined);
    void sub.ended.then(() => {
      this.subscriptions.delete(filter);
      const focused = item.contains(document.activeElement);
      item.remove();
      if (focused) this.filter.focus();
      if (sub.error) this.bad(`Not subscribed to ${filter}: ${sub.error.message}`);
    });
  }

  private says(e: Event): void {
    e.preventDefault();
    const topic = this.topic.value.trim();
    const text = this.payload.value;
    this.payload.value = "";
    void this.publish(topic, text);
  }

  private async publish(topic: string, text: string): Promise<void> {
    const waits = this.client.state === "connected" ? undefined : this.note(`“${text}” waits for the wire.`, "quiet");
    try {
      const asked = now();
      const { seq } = await this.client.publish(topic, text);
      const took = milliseconds(now() - asked);
      this.note(seq > 0 ? `Published: on disk as seq ${seq} of ${topic}, after ${took}.` : `Published to ${topic}, which has no history, after ${took}.`, "quiet");
    } catch (why) {
      if (!this.element.isConnected) return;
      this.bad(`“${text}” was not published: ${(why as Error).message}`);
      if (why instanceof MeshError && why.code === "FORBIDDEN" && !topic.startsWith("$")) this.note("Here a backend can: ", "quiet", `pushmesh pub ${topic} hello --router ${router}`);
    } finally {
      waits?.remove();
    }
  }

  private take(m: Message): void {
    const published = m.publishedAt.getTime();
    const latency = Math.max(0, now() - published);
    const name = nameOf(m.from);
    const at = latency > OLD_MS ? m.publishedAt.toTimeString().slice(0, 8) : milliseconds(latency);
    this.add(
      h(
        "li",
        { class: "entry", "data-seq": m.seq, "data-topic": m.topic },
        h("code", { class: "entry-topic" }, m.topic),
        h("span", { class: "meta" }, m.seq > 0 ? `seq ${m.seq}` : "no seq", " · ", at),
        h("span", { class: "entry-text" }, h("span", { class: "from" }, `${name}: `), m.text()),
      ),
    );
    if (latency <= OLD_MS && m.from !== `client:${this.person.clientId}`) say(`${name} in ${m.topic}: ${m.text()}`);
  }

  private add(item: HTMLElement): void {
    this.list.querySelector(".first")?.remove();
    const { log } = this;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    this.list.append(item);
    while (this.list.childElementCount > MOST_SHOWN) this.list.firstElementChild!.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  private note(text: string, kind: string, command = ""): HTMLElement {
    const item = h("li", { class: `note ${kind}` }, text, command && h("code", {}, ...command.split(" ").flatMap((word) => [h("span", {}, word), " "])));
    this.add(item);
    return item;
  }

  /** What was refused or lost, also for who does not see it. */
  private bad(text: string): void {
    this.note(text, "gap");
    say(`${this.person.name}: ${text}`);
  }
}
