import programs from "programs";
import { h, say } from "./dom.js";
import { edge, router } from "./mesh.js";
import { tabs } from "./tabs.js";

export type Demo = keyof typeof programs;
type Language = keyof (typeof programs)["chat"];

const languages: { id: Language; title: string; start: string }[] = [
  { id: "ts", title: "TypeScript", start: "npm install @pushmesh/client" },
  { id: "go", title: "Go", start: "go get github.com/pushmesh/pushmesh" },
  { id: "py", title: "Python", start: "pip install pushmesh" },
  { id: "sh", title: "Shell", start: "pushmesh is the command that runs this mesh" },
];

let chosen: Language = "ts";

/** The program with this mesh's addresses. */
const programOf = (demo: Demo, language: Language) => programs[demo][language].trim().replaceAll("127.0.0.1:7400", edge).replaceAll("127.0.0.1:7401", router);

/** The code of a demo, in four languages. */
export function codeOf(demo: Demo): HTMLElement {
  const list = h("div", { role: "tablist", "aria-label": "Languages", class: "languages" });
  const code = h("code");
  const start = h("p", { class: "start" });
  const show = (id: string) => {
    const language = languages.find((l) => l.id === id)!;
    chosen = language.id;
    code.replaceChildren(...coloured(programOf(demo, chosen)));
    start.textContent = language.start;
    code.parentElement?.setAttribute("aria-label", `The program in ${language.title}`);
    panel.setAttribute("aria-labelledby", `tab-${id}`);
  };
  const copy = h("button", { type: "button", class: "ghost copy", onclick: () => void copied(programOf(demo, chosen), copy) }, "Copy");
  const panel = h("div", { role: "tabpanel", id: "code-panel" }, h("pre", { tabindex: 0, role: "region" }, code), start);
  tabs(list, languages, "code-panel", chosen, show);
  show(chosen);
  return h("section", { class: "code card", "aria-label": "The same as a program" }, h("div", { class: "code-head" }, list, copy), panel);
}

async function copied(text: string, button: HTMLElement): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    say("The program is copied.");
  } catch {
    button.textContent = "Not allowed";
    say("The browser does not let this page copy.");
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

const parts = /(?<comment>(?<=^|\s)#(?!!)[^\n]*|\/\/[^\n]*)|(?<text>`[^`]*`|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?<word>\b(?:import|from|package|func|return|if|for|range|const|let|async|await|def|with|as|go|defer|type|new|export|class|in|not|else|while|switch|case|select)\b)/g;

/** Text with its comments, strings and keywords marked; that is enough to read it. */
function coloured(program: string): Node[] {
  const nodes: Node[] = [];
  let at = 0;
  for (const match of program.matchAll(parts)) {
    nodes.push(document.createTextNode(program.slice(at, match.index)));
    const kind = Object.entries(match.groups!).find(([, found]) => found !== undefined)![0];
    nodes.push(h("span", { class: `c-${kind}` }, match[0]));
    at = match.index + match[0].length;
  }
  nodes.push(document.createTextNode(program.slice(at)));
  return nodes;
}
