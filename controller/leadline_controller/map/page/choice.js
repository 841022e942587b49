// Which boards a person looks for: those of a count that was clicked, and of the text in Find.

import { byId, el, setText } from "./dom.js";
import * as format from "./format.js";

/** The counts above the map: their boards, and the words after the number. */
const COUNTS = {
  away: {
    has: (node) => node.online === false,
    words: ({ live }) => (live ? "offline or silent" : "silent"),
  },
  unheard: { has: (node) => node.online === null, words: () => "not heard" },
  warned: { has: (node) => node.notes?.length > 0, words: () => "with a warning" },
  closed: { has: (node) => node.schedulable === false, words: () => "taking no pods" },
  worst: {
    has: (node, { levels }) => levels.get(node.name) === 0,
    words: ({ measure }) => measure.worst,
  },
};

export class Choice {
  #pressed = null;
  #buttons = new Map();

  /** changed: is called after another choice. */
  constructor(changed) {
    for (const key of Object.keys(COUNTS)) {
      const button = el("button", { id: `count-${key}`, type: "button", className: "count" });
      button.addEventListener("click", () => {
        this.#pressed = this.#pressed === key ? null : key;
        changed();
      });
      this.#buttons.set(key, button);
    }
    byId("counts").append(...this.#buttons.values());
    byId("find").addEventListener("input", changed);
  }

  /** Show the counts of {nodes, links, live, measure, levels}. Returns the names, or null for all. */
  update(shown) {
    const nodes = [...shown.nodes.values()];
    const pods = nodes.reduce((sum, node) => sum + format.podsOf(node), 0);
    const all = [format.count(nodes.length, "board"), format.count(pods, "pod"), `${format.count(shown.links.size, "link")} shown`];
    const none = "no board yet; those of the cluster and those that report appear here by themselves";
    setText(byId("map-summary"), nodes.length || !shown.live ? all.join(", ") : none);
    let chosen = nodes;
    for (const [key, { has, words }] of Object.entries(COUNTS)) {
      const own = nodes.filter((node) => has(node, shown));
      const button = this.#buttons.get(key);
      const isPressed = key === this.#pressed;
      if (isPressed) chosen = own;
      setText(button, `${own.length} ${words(shown)}`);
      button.hidden = !own.length && !isPressed;
      button.setAttribute("aria-pressed", isPressed);
    }
    const text = byId("find").value.trim().toLowerCase();
    if (text) {
      const said = (node) => `${node.name} ${format.boardState(node, shown.live)[0]}`.toLowerCase();
      chosen = chosen.filter((node) => said(node).includes(text));
    }
    const some = this.#pressed !== null || text !== "";
    setText(byId("boards-count"), some ? `${chosen.length} of ${nodes.length}` : "");
    return some ? new Set(chosen.map((node) => node.name)) : null;
  }
}
