import { byId } from "./dom.js";

const KEY = "theme";

function kept(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // the browser keeps nothing
  }
}

/** Dark or light as the system says, until somebody presses the switch. */
export function followTheme(): void {
  let own = kept();
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = byId("theme");
  const theme = () => own ?? (system.matches ? "dark" : "light");
  const show = () => {
    document.documentElement.dataset["theme"] = theme();
    button.setAttribute("aria-pressed", String(theme() === "dark"));
  };
  button.addEventListener("click", () => {
    own = theme() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, own);
    } catch {
      // it holds until the page is loaded again
    }
    show();
  });
  system.addEventListener("change", show);
  show();
}
