// The page: one demo at a time, its program beside it, and all frames of its clients below.
import { chat } from "./chat.js";
import type { Scene, Stage } from "./client.js";
import { codeOf, type Demo } from "./code.js";
import { byId, h } from "./dom.js";
import { Frames } from "./frames.js";
import { people } from "./people.js";
import { prices } from "./prices.js";
import { seat } from "./seat.js";
import { tabs } from "./tabs.js";
import { followTheme } from "./theme.js";
import { topic } from "./topic.js";

const demos: { id: Demo; title: string; line: string; make: (stage: Stage) => Scene }[] = [
  { id: "chat", title: "A chat room", line: "Who is there, and nothing lost", make: chat },
  { id: "prices", title: "Live prices", line: "Ranked for each reader", make: prices },
  { id: "seat", title: "A seat", line: "One has it, the others wait", make: seat },
  { id: "topic", title: "Any topic", line: "Subscribe and publish", make: topic },
];

const named = (hash: string) => demos.find((d) => `#${d.id}` === hash) ?? demos[0]!;

async function start(): Promise<void> {
  followTheme();
  const stage: Stage = { people: await people(), frames: new Frames() };
  const place = byId("stage");
  const another = byId("another");
  let scene: Scene | undefined;
  let shown: Demo | undefined;
  const show = (id: string) => {
    const demo = named(`#${id}`);
    if (demo.id === shown) return;
    shown = demo.id;
    scene?.stop();
    scene = demo.make(stage);
    place.replaceChildren(h("div", { class: "scene" }, scene.element), codeOf(demo.id));
    place.setAttribute("aria-labelledby", `tab-${demo.id}`);
    another.setAttribute("href", `/#${demo.id}`);
    if (location.hash !== `#${demo.id}`) history.replaceState(null, "", `#${demo.id}`);
  };
  const list = document.querySelector<HTMLElement>(".demos")!;
  const first = named(location.hash).id;
  const mark = tabs(list, demos, "stage", first, show);
  addEventListener("hashchange", () => {
    const { id } = named(location.hash);
    mark(id);
    show(id);
  });
  show(first);
}

void start();
