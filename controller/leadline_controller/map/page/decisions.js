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
  store.past || store.now?.recorded ? "No earlier decision is kept." : "None yet. A new one appears here by itself.";

// What Kubernetes appends to the name of a workload: the hash of a template or the time of a job, and
// five characters or a number. Its random characters are without vowels, 0, 1 and 3.
const APPENDED = /-(([bcdfghjklmnpqrstvwxz2456789]{6,10}|\d{8})-)?([bcdfghjklmnpqrstvwxz2456789]{5}|\d+)$/;
const MOST_NAMED = 4;

/** One row for all decisions about a workload with one reason, whatever its numbers. */
function grouped(decisions) {
  const groups = new Map();
  for (const decision of decisions) {
    const workload = decision.id.replace(APPENDED, "");
    const key = JSON.stringify([workload, (decision.why ?? "").replace(/\d+(\.\d+)?/g, "#")]);
    if (!groups.has(key)) groups.set(key, { key, workload, newest: decision, of: [] });
    groups.get(key).of.push(decision);
  }
  return [...groups.values()];
}

/** The list beside the map, grouped; it keeps its items, so that the focus stays on one. */
export function drawList(store) {
  const list = byId("decision-list");
  const groups = grouped(store.newest).slice(0, BESIDE_THE_MAP);
  if (!groups.length) {
    list.replaceChildren(el("li", { className: "quiet" }, noneOf(store)));
    return;
  }
  const items = new Map([...list.children].map((item) => [item.group, item]));
  const wanted = groups.map(({ key, newest: decision, of }) => {
    let item = items.get(key);
    if (!item) {
      item = el("li", {}, el("a"), el("p"), el("p", { className: "quiet" }));
      item.group = key;
    }
    const [link, why, about] = item.children;
    link.href = format.decisionHref(decision.id);
    setText(link, `${decision.id} → ${target(decision)}`);
    setText(why, decision.why ?? "");
    const parts = [format.clock(decision.unix_s), decision.strategy, decision.outcome];
    if (decision.times > 1) parts.push(`${decision.times} times`);
    if (of.length > 1) parts.push(`the last of ${of.length}`);
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

/** The values that are most frequent, with their numbers: "attic-2 ×3, attic-4". */
function counted(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  const most = [...counts].sort(([, a], [, b]) => b - a);
  const named = most.slice(0, MOST_NAMED).map(([value, n]) => (n > 1 ? `${value} ×${n}` : value));
  if (most.length > MOST_NAMED) named.push(`${most.length - MOST_NAMED} more`);
  return named.join(", ");
}

export function drawTable(store) {
  if (!byId("decisions-each").checked) {
    fillTable(
      byId("decision-table"),
      "Decisions by workload and reason, the newest first",
      [
        {
          title: "Workload",
          cell: ({ workload, newest }) => ({ text: workload, href: format.decisionHref(newest.id) }),
        },
        {
          title: "Decisions",
          cell: ({ of }) => format.count(of.length, "decision"),
          by: ({ of }) => of.length,
          number: true,
        },
        { title: "Boards", wide: true, cell: ({ of }) => counted(of.map(target)) },
        {
          title: "Outcome",
          wide: true,
          cell: ({ of }) => ({
            text: counted(of.map(({ outcome }) => outcome)),
            tone: of.map(tone).find(Boolean),
          }),
        },
        {
          title: "Last",
          cell: ({ newest }) => format.clock(newest.unix_s),
          by: ({ newest }) => newest.unix_s,
        },
        { title: "Why", wide: true, cell: ({ newest }) => newest.why },
      ],
      grouped(store.newest),
      noneOf(store),
    );
    return;
  }
  fillTable(
    byId("decision-table"),
    "Decisions, the newest first",
    [
      { title: "Pod", cell: (d) => ({ text: d.id, href: format.decisionHref(d.id) }) },
      {
        title: "Board",
        cell: (d) =>
          d.node === null ? { text: "no board", tone: "warn" } : format.boardCell(d.node),
      },
      { title: "Outcome", wide: true, cell: (d) => ({ text: d.outcome, tone: tone(d) }) },
      { title: "Time", cell: (d) => format.clock(d.unix_s), by: (d) => d.unix_s },
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

/** Whether it is known how it was decided. */
const isKept = ({ scores, rejected, scored_nodes: scored, rejected_nodes: ruledOut }) =>
  (scored ?? scores.length) + (ruledOut ?? rejected.length) > 0;

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
      ...(isKept(decision)
        ? [
            ["Boards scored", String(decision.scored_nodes ?? decision.scores.length)],
            ["Boards ruled out", String(decision.rejected_nodes ?? decision.rejected.length)],
          ]
        : []),
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
          cell: ({ node }) =>
            format.boardCell(node, node === decision.node ? `${node} (chosen)` : node),
        },
        {
          title: "Total",
          cell: ({ total }) => ({ text: score(total), bar: span > 0 ? (total - low) / span : 0 }),
          by: ({ total }) => total,
          number: true,
        },
        ...names.map((name) => ({
          title: capital(name.replaceAll("_", " ")),
          cell: ({ parts }) => score(parts?.[name]),
          by: ({ parts }) => parts?.[name],
          number: true,
        })),
        {
          title: "Age of values",
          wide: true,
          by: (row) => row.report_age_s,
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
      isKept(decision) ? "No board was scored" : "Not kept",
    );
    fillTable(
      byId("decision-rejected"),
      "Boards that filters ruled out, with the reasons",
      [
        { title: "Board", cell: ({ node }) => format.boardCell(node) },
        { title: "Reasons", wide: true, cell: ({ reasons }) => reasons.join("; ") },
      ],
      decision.rejected,
      isKept(decision) ? "None" : "Not kept",
    );
  }
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const score = (value) =>
  typeof value === "number" ? String(Number(value.toPrecision(4))) : format.UNKNOWN;

