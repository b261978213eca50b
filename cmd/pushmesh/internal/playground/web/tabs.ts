import { h } from "./dom.js";

export interface Tab {
  id: string;
  title: string;
  /** Below the title, where there is room. */
  line?: string;
}

/**
 * Fills a list of tabs. The one that is chosen is reached by the Tab key, the others by arrows, as
 * the pattern of the ARIA practices has it.
 */
export function tabs(list: HTMLElement, all: readonly Tab[], panel: string, chosen: string, choose: (id: string) => void): (id: string) => void {
  const buttons = all.map((tab) =>
    h("button", { type: "button", role: "tab", id: `tab-${tab.id}`, "aria-controls": panel, onclick: () => go(tab.id) }, h("span", { class: "tab-title" }, tab.title), tab.line && h("span", { class: "tab-line" }, tab.line)),
  );
  const mark = (id: string) => {
    buttons.forEach((b, i) => {
      const is = all[i]!.id === id;
      b.setAttribute("aria-selected", String(is));
      b.tabIndex = is ? 0 : -1;
    });
  };
  const go = (id: string) => {
    mark(id);
    choose(id);
  };
  list.addEventListener("keydown", (e) => {
    const at = buttons.findIndex((b) => b === document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[e.key];
    if (at < 0 || to === undefined) return;
    e.preventDefault();
    const next = (to + buttons.length) % buttons.length;
    go(all[next]!.id);
    buttons[next]!.focus();
  });
  list.replaceChildren(...buttons);
  mark(chosen);
  return mark;
}
