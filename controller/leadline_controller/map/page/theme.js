// Dark or light: as the system says, until the switch is used. Canvases read the same colours as
// the style sheet.

import { byId, setText } from "./dom.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const KEY = "leadline-theme";
const listeners = [];

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage may be forbidden
  }
}

let chosen = stored();
const isDark = () => (chosen ?? (system.matches ? "dark" : "light")) === "dark";

function show() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  setText(byId("theme"), isDark() ? "Light" : "Dark");
  byId("theme").setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  for (const listener of listeners) listener();
}

export function startTheme() {
  byId("theme").addEventListener("click", () => {
    chosen = isDark() ? "light" : "dark";
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
      // lasts as long as the page
    }
    show();
  });
  system.addEventListener("change", show);
  show();
}

export const onTheme = (listener) => listeners.push(listener);

let palette = null;
listeners.push(() => (palette = null));

/** The style sheet's colours, read once a theme. */
export function colours() {
  if (!palette) {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    palette = {
      text: read("text"),
      quiet: read("quiet"),
      line: read("line"),
      card: read("card"),
      accent: read("accent"),
      warn: read("warn"),
      bad: read("bad"),
      unknown: read("unknown"),
      pod: read("pod"),
      otherPod: read("other-pod"),
      levels: [0, 1, 2, 3, 4].map((level) => read(`level-${level}`)),
      heat: [0, 1, 2, 3, 4].map((step) => read(`heat-${step}`)),
      sources: [0, 1, 2, 3, 4, 5, 6].map((source) => read(`source-${source}`)),
    };
  }
  return palette;
}
