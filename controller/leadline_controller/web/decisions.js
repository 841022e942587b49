// Decisions: the live list beside the map, all that are kept, and one with every board's score.

import { byId, el, fillFacts, fillTable, setText } from "./dom.js";
import * as format from "./format.js";
import { getJson } from "./live.js";

const BESIDE_THE_MAP = 40;
const ANNOUNCE_MS = 5000;

const target = (decision) => decision.node ?? "no board";
const tone = ({ outcome = "", node }) =>
  outcome.startsWith("failed") ? "bad" : node === null ? "warn" : undefined;

const noneOf = (store) =>
  store.past ? "No earlier decision is kept." : "None yet. A new one appears here by itself.";

/** The list beside the map; it keeps its items, so that the focus stays on a decision. */
export function drawList(store) {
  const list = byId("decision-list");
  const decisions = store.newest.slice(0, BESIDE_THE_MAP);
  if (!decisions.length) {
    list.replaceChildren(el("li", { className: "quiet" }, noneOf(store)));
    return;
  }
  const items = new Map([...list.children].map((item) => [item.decision, item]));
  const wanted = decisions.map((decision) => {
    let item = items.get(decision.id);
    if (!item) {
      const link = el("a", { href: format.decisionHref(decision.id) });
      item = el("li", {}, link, el("p"), el("p", { className: "quiet" }));
      item.decision = decision.id;
    }
    const [link, why, about] = item.children;
    setText(link, `${decision.id} → ${target(decision)}`);
    setText(why, decision.why ?? "");
    const parts = [format.clock(decision.unix_s), decision.strategy, decision.outcome];
    if (decision.times > 1) parts.push(`${decision.times} times`);
    setText(about, parts.filter(Boolean).join(" · "));
    item.dataset.tone = tone(decision) ?? "";
    return item;
  });
  if (wanted.length !== list.children.length || wanted.some((item, i) => item !== list.children[i])) {
    const focused = list.contains(document.activeElement) ? document.activeElement : null;
    list.replaceChildren(...wanted);
    if (focused?.isConnected) focused.focus({ preventScroll: true });
  }
}

export function drawTable(store) {
  fillTable(
    byId("decision-table"),
    "Decisions, the newest first",
    [
      { title: "Pod", cell: (d) => ({ text: d.id, href: format.decisionHref(d.id) }) },
      {
        title: "Board",
        cell: (d) =>
          d.node === null
            ? { text: "no board", tone: "warn" }
            : { text: d.node, href: format.boardHref(d.node) },
      },
      { title: "Outcome", wide: true, cell: (d) => ({ text: d.outcome, tone: tone(d) }) },
      { title: "Time", cell: (d) => format.clock(d.unix_s) },
      { title: "Why", wide: true, cell: (d) => d.why },
      { title: "Strategy", cell: (d) => d.strategy },
    ],
    store.newest,
    noneOf(store),
  );
}

/** Say new decisions to screen readers, at most one sentence in some seconds. */
export class Announcer {
  #waiting = [];
  #timer = 0;

  add(decision) {
    this.#waiting.push(`${decision.id} to ${target(decision)}`);
    if (this.#waiting.length > 100) this.#waiting.shift();
    this.#timer ||= setTimeout(() => this.#say(), this.#waiting.length > 1 ? ANNOUNCE_MS : 300);
  }

  #say() {
    const count = this.#waiting.length;
    const last = this.#waiting[count - 1];
    setText(byId("announce"), count === 1 ? `Decision: ${last}` : `${count} decisions, the last: ${last}`);
    this.#waiting = [];
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      if (this.#waiting.length) this.#say();
    }, ANNOUNCE_MS);
  }
}

export class DecisionView {
  #id = null;
  #request = null;

  async show(id) {
    this.hide();
    if (id !== this.#id) {
      setText(byId("decision-why"), "Loading");
      setText(byId("decision-better"), "");
      fillFacts(byId("decision-facts"), []);
      this.#tables({ scores: [], rejected: [] });
    }
    this.#id = id;
    setText(byId("decision-title"), id);
    const request = (this.#request = new AbortController());
    try {
      const decision = await getJson(`/api/decisions/${encodeURIComponent(id)}`, request.signal);
      if (!request.signal.aborted) this.#draw(decision);
    } catch (error) {
      if (!request.signal.aborted) setText(byId("decision-why"), error.message);
    }
  }

  hide() {
    this.#request?.abort();
  }

  /** Load again if the decision that is shown changed. */
  changed(id) {
    if (id === this.#id) this.show(id);
  }

  #draw(decision) {
    setText(byId("decision-why"), decision.why ?? "");
    const options = Object.entries(decision.options ?? {}).map(([name, value]) => `${name} ${value}`);
    fillFacts(byId("decision-facts"), [
      ["Board", decision.node ?? "none fits"],
      ["Outcome", decision.outcome],
      ["Time", format.clock(decision.unix_s)],
      ["Strategy", decision.strategy],
      ["Options", options.join(", ") || format.UNKNOWN],
      ["Boards scored", String(decision.scored_nodes ?? decision.scores.length)],
      ["Boards ruled out", String(decision.rejected_nodes ?? decision.rejected.length)],
    ]);
    const kept = decision.scores.length;
    const note = kept < decision.scored_nodes ? ` The best ${kept} of ${decision.scored_nodes} are kept.` : "";
    setText(byId("decision-better"), kept ? `The ${decision.better} total is better.${note}` : "");
    this.#tables(decision);
  }

  #tables(decision) {
    const names = [...new Set(decision.scores.flatMap(({ parts }) => Object.keys(parts ?? {})))];
    const totals = decision.scores.map(({ total }) => total);
    const low = Math.min(0, ...totals);
    const span = Math.max(...totals) - low;
    fillTable(
      byId("decision-scores"),
      "Score of every board, the best first",
      [
        {
          title: "Board",
          cell: ({ node }) => ({
            text: node === decision.node ? `${node} (chosen)` : node,
            href: format.boardHref(node),
          }),
        },
        {
          title: "Total",
          cell: ({ total }) => ({ text: score(total), bar: span > 0 ? (total - low) / span : 0 }),
          number: true,
        },
        ...names.map((name) => ({
          title: capital(name.replaceAll("_", " ")),
          cell: ({ parts }) => score(parts?.[name]),
          number: true,
        })),
        {
          title: "Age of values",
          wide: true,
          cell: (row) => {
            const ages = [
              ["report", row.report_age_s],
              ["bandwidth", row.bandwidth_age_s],
              ["round trips", row.rtt_age_s],
            ].filter(([, seconds]) => typeof seconds === "number");
            return ages.map(([name, seconds]) => `${name} ${format.age(seconds)}`).join(", ") || format.UNKNOWN;
          },
        },
      ],
      decision.scores,
      "No board was scored",
    );
    fillTable(
      byId("decision-rejected"),
      "Boards that filters ruled out, with the reasons",
      [
        { title: "Board", cell: ({ node }) => ({ text: node, href: format.boardHref(node) }) },
        { title: "Reasons", wide: true, cell: ({ reasons }) => reasons.join("; ") },
      ],
      decision.rejected,
      "None",
    );
  }
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const score = (value) =>
  typeof value === "number" ? String(Number(value.toPrecision(4))) : format.UNKNOWN;

