// A chat room: two people here, and whoever else comes. Either of them can be cut off, and gets what was said meanwhile.
import { MeshError, setState, watchPresence, type Client, type Message, type PresenceWatch } from "@pushmesh/client";
import { CUT_MS, clientOf, face, statusOf, type Scene, type Stage } from "./client.js";
import { count, h, milliseconds, say } from "./dom.js";
import { now } from "./describe.js";
import { gapText } from "./gaps.js";
import { CHAT } from "./mesh.js";
import { nameOf, type Person } from "./people.js";
import type { Wire } from "./wire.js";

/** How many messages a pane keeps. */
const MOST_SHOWN = 200;

/** How many messages the other one says while somebody is cut off, and how often. */
const COUNTED = 5;
const COUNT_EVERY_MS = 1500;

/** When to publish again what was refused for now, where the mesh does not say. */
const AGAIN_MS = 500;

export function chat({ people, frames }: Stage): Scene {
  const [left, right] = people;
  const first = new Pane(left, clientOf(left, frames), "The page remembers how far it is, and asks for what comes behind it.", false);
  const second = new Pane(right, clientOf(right, frames, { session: "playground" }), "A durable session: the mesh remembers how far it is, also when this tab is closed.", true);
  first.other = second;
  second.other = first;
  return {
    element: h("div", { class: "panes" }, first.element, second.element),
    stop: () => {
      first.stop();
      second.stop();
    },
  };
}

/** One person's view of the room. */
class Pane {
  readonly element: HTMLElement;
  other: Pane | undefined;
  private readonly client: Client;
  private readonly wire: Wire;
  private readonly list = h("ol");
  private readonly log: HTMLElement;
  private readonly here = h("p", { class: "here" });
  private readonly input: HTMLInputElement;
  private readonly cutButton: HTMLButtonElement;
  private readonly watch: PresenceWatch;
  private readonly seen = new Set<number>();
  private readonly timers = new Set<ReturnType<typeof setInterval>>();
  private epoch = 0;
  private last = 0;
  private typing = false;
  /** Since when it was cut off, and until when. 0: it was not. */
  private cutAt = 0;
  private backAt = 0;
  private late: number[] = [];
  private twice = 0;
  private behindAtCut = 0;
  /** Where the topic stood when the edge said so last, and what is to come before it is clear what became of the cut. */
  private head = 0;
  private awaited: number | undefined;

  constructor(
    private readonly person: Person,
    { client, wire }: { client: Client; wire: Wire },
    place: string,
    private readonly sessioned: boolean,
  ) {
    this.client = client;
    this.wire = wire;
    const { name } = person;
    // Screen readers are told of each message once, and not by both panes.
    this.log = h("div", { class: "messages", tabindex: 0, role: "log", "aria-live": "off", "aria-label": `What ${name} has received` }, this.list);
    this.input = h("input", { type: "text", autocomplete: "off", maxlength: 400, placeholder: "Say something", "aria-label": `Message of ${name}`, oninput: () => this.types() });
    this.cutButton = h("button", { type: "button", class: "ghost cut", onclick: () => this.cut() }, "Cut the wire for 10 s");
    this.element = h(
      "section",
      { class: "pane card", "aria-label": name, "data-person": name },
      h("div", { class: "pane-head" }, face(name), h("h2", {}, name), statusOf(client, wire)),
      this.here,
      this.log,
      h("form", { class: "say", onsubmit: (e: Event) => this.submit(e) }, this.input, h("button", { type: "submit" }, "Send")),
      h("div", { class: "pane-foot" }, this.cutButton, h("p", { class: "hint" }, place)),
    );
    this.note("Nothing was said yet. Say something.", "first");
    this.watch = watchPresence(client, CHAT, () => this.present());
    client.subscribe(CHAT, (m) => this.take(m), { ack: true, from: sessioned ? "session" : { last: 20 }, onGap: (gap) => this.note(gapText(gap), "gap") });
    client.on("connected", (connection) => {
      if (this.sessioned && this.cutAt === 0) this.note(connection.resumed ? "The session goes on: what was handled before does not come again." : "A new session begins.", "quiet");
      if (this.cutAt > 0) this.backAt = now();
    });
    wire.onSubscribed = (head) => this.back(head);
  }

  stop(): void {
    for (const timer of this.timers) clearInterval(timer);
    this.watch.stop();
    this.wire.stop();
    void this.client.close();
  }

  /** Publishes a text. It waits for a connection where there is none, and is published once whatever breaks. */
  say(text: string): void {
    const waits = this.client.state === "connected" ? undefined : this.note(`“${text}” waits for the wire.`, "quiet");
    void this.publish(text, crypto.randomUUID())
      .catch((why: Error) => this.element.isConnected && this.note(`“${text}” was not published: ${why.message}`, "gap"))
      .finally(() => waits?.remove());
  }

  /** Publishes, and again where the mesh says that later it can be: with the same key that is once. */
  private async publish(text: string, dedupeKey: string): Promise<void> {
    for (;;) {
      try {
        await this.client.publish(CHAT, text, { dedupeKey });
        return;
      } catch (why) {
        if (!(why instanceof MeshError) || !why.retryable || !this.element.isConnected) throw why;
        await new Promise((again) => setTimeout(again, why.retryAfterMs || AGAIN_MS));
      }
    }
  }

  private submit(e: Event): void {
    e.preventDefault();
    const text = this.input.value.trim();
    if (text === "") return;
    this.input.value = "";
    this.types();
    this.say(text);
  }

  private types(): void {
    const typing = this.input.value !== "";
    if (typing === this.typing) return;
    this.typing = typing;
    setState(this.client, CHAT, typing ? "typing" : "").catch(() => undefined); // the client is over
  }

  private present(): void {
    const members = this.watch.members.map(({ user, state }) => {
      const typing = state.length > 0;
      const name = nameOf(user);
      return h("span", { class: typing ? "member typing" : "member" }, name, typing && " …");
    });
    this.here.replaceChildren(h("span", { class: "label" }, `${count(this.watch.count, "person").replace("persons", "people")} here`), ...members);
  }

  private take(m: Message): void {
    if (m.epoch !== this.epoch && this.epoch !== 0) this.seen.clear();
    this.epoch = m.epoch || this.epoch;
    if (this.seen.has(m.seq)) this.twice++;
    this.seen.add(m.seq);
    this.last = Math.max(this.last, m.seq);
    const published = m.publishedAt.getTime();
    const missed = this.cutAt > 0 && published >= this.cutAt - 50 && published < (this.backAt || now());
    if (missed) this.late.push(m.seq);
    const name = nameOf(m.from);
    const mine = m.from === `client:${this.person.clientId}`;
    const latency = Math.max(0, now() - published);
    const old = latency > 3000 && !missed;
    const item = h(
      "li",
      { class: `message${mine ? " mine" : ""}${missed ? " missed" : ""}`, "data-seq": m.seq },
      !mine && h("span", { class: "from" }, name),
      h("span", { class: "text" }, m.text()),
      h("span", { class: "meta" }, missed ? h("span", { class: "badge" }, "came late") : false, `seq ${m.seq}`, " · ", old ? m.publishedAt.toTimeString().slice(0, 5) : milliseconds(latency)),
    );
    this.add(item);
    if (!mine && !old) say(`${name}: ${m.text()}`);
    this.settle();
  }

  private add(item: HTMLElement): void {
    this.list.querySelector(".first")?.remove();
    const { log } = this;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    this.list.append(item);
    while (this.list.childElementCount > MOST_SHOWN) this.list.firstElementChild!.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  private note(text: string, kind: string): HTMLElement {
    const item = h("li", { class: `note ${kind}` }, text);
    this.add(item);
    return item;
  }

  /** Cuts this one off, while the other one counts. */
  private cut(): void {
    if (this.wire.isCut || this.cutAt > 0) return;
    const { name } = this.person;
    this.cutAt = now();
    this.backAt = 0;
    this.late = [];
    this.twice = 0;
    this.behindAtCut = Math.max(this.last, this.head);
    this.note(`${name} is cut off for 10 s. Meanwhile ${this.other!.person.name} counts to five.`, "cut");
    say(`${name} is cut off for 10 seconds.`);
    this.cutButton.setAttribute("aria-disabled", "true");
    const until = this.cutAt + CUT_MS;
    const clock = this.every(250, () => (this.cutButton.textContent = `Whole again in ${Math.max(0, Math.ceil((until - now()) / 1000))} s`));
    let n = 0;
    const counting = this.every(COUNT_EVERY_MS, () => {
      this.other!.say(`${++n}`);
      if (n === COUNTED) this.end(counting);
    });
    this.wire.cut(CUT_MS, () => {
      this.end(clock);
      this.cutButton.textContent = "Coming back";
    });
  }

  private every(ms: number, f: () => void): ReturnType<typeof setInterval> {
    const timer = setInterval(f, ms);
    this.timers.add(timer);
    return timer;
  }

  private end(timer: ReturnType<typeof setInterval>): void {
    clearInterval(timer);
    this.timers.delete(timer);
  }

  /** The edge has said up to where there is something to catch up with. */
  private back(head: number): void {
    this.head = head;
    if (this.cutAt === 0 || this.backAt === 0) return;
    this.awaited = head;
    this.settle();
  }

  /** Says what became of the cut once everything of its time is there. */
  private settle(): void {
    if (this.awaited === undefined || (this.last < this.awaited && this.awaited > this.behindAtCut)) return;
    const [from, to] = [this.behindAtCut + 1, this.awaited];
    const inOrder = this.late.every((seq, i) => i === 0 || seq > this.late[i - 1]!);
    let missing = 0;
    for (let seq = from; seq <= to; seq++) if (!this.seen.has(seq)) missing++;
    const away = milliseconds(this.backAt - this.cutAt);
    const came = this.late.length === 0 ? "Nothing was said meanwhile." : `${count(this.late.length, "message")} came late${inOrder ? ", in order" : ", out of order"}: seq ${this.late[0]} to ${this.late.at(-1)}.`;
    const text = `Back after ${away}. ${came} ${missing === 0 ? "None is missing" : `${missing} are missing`}, ${this.twice === 0 ? "none came twice" : `${this.twice} came twice`}.`;
    this.awaited = undefined;
    this.cutAt = this.backAt = 0;
    this.note(text, "back");
    say(`${this.person.name} is back. ${text}`);
    this.cutButton.removeAttribute("aria-disabled");
    this.cutButton.textContent = "Cut the wire for 10 s";
  }
}
