// Who talks to whom: read while it is looked at, as lines for the map and as rows for tables.

import { byId, fillTable, setText } from "./dom.js";
import * as format from "./format.js";
import { getJson } from "./live.js";
import { ageNow } from "./store.js";

const RELOAD_MS = 15000;
export const OF_A_RECORDING = "A recording has no traffic.";
export const LAYER = "traffic"; // among the map's colours

export class Traffic {
  #store;
  #changed;
  #answer = null;
  #problem = "";
  #timer = 0;
  #request = null;

  /** changed: is called after each answer. */
  constructor(store, changed) {
    this.#store = store;
    this.#changed = changed;
    byId("map-colour").addEventListener("change", () => this.follow());
    byId("traffic-details").addEventListener("toggle", () => this.follow());
  }

  get #wanted() {
    const isLayer = byId("map-colour").value === LAYER;
    return !byId("view-map").hidden && (isLayer || byId("traffic-details").open);
  }

  /** Read it now and then, as long as it is shown. */
  async follow() {
    clearTimeout(this.#timer);
    this.#request?.abort();
    if (!this.#wanted) return;
    const request = (this.#request = new AbortController());
    try {
      const answer = await getJson("/api/traffic", request.signal);
      const now = performance.now();
      for (const edge of answer.edges) edge.at = now;
      this.#answer = answer;
      this.#problem = "";
    } catch (error) {
      if (request.signal.aborted) return;
      this.#problem = `Not loaded: ${error.message}.`;
    }
    if (request.signal.aborted) return;
    this.#timer = setTimeout(() => this.follow(), RELOAD_MS);
    this.#changed();
  }

  /**
   * What the map draws in place of the links, the widest on top: pair -> {a, b, mbps, share, source, edges,
   * edges_total}.
   */
  get lines() {
    const lines = [...(this.#answer?.lines ?? [])].reverse();
    return new Map(lines.map((line) => [JSON.stringify([line.a, line.b]), line]));
  }

  /** Show what there is to say about it, and the table while it is open. */
  draw() {
    const isLayer = byId("map-colour").value === LAYER;
    byId("traffic-note").hidden = !isLayer;
    setText(byId("traffic-note"), this.#said());
    if (!byId("traffic-details").open) return;
    setText(byId("traffic-said"), this.#said());
    fillTraffic(byId("traffic"), "Traffic", this.#answer?.edges ?? [], this.#store.shown.live);
  }

  #said() {
    if (this.#problem) return this.#problem;
    if (!this.#answer) return "loading";
    if (this.#store.now.recorded) return OF_A_RECORDING;
    const { edges, edges_total: total, lines, lines_total: links } = this.#answer;
    const words = [reported(this.#answer)];
    if (edges.length < total) words.push(`The ${edges.length} largest of ${total} pairs are shown.`);
    if (lines.length < links) words.push(`The ${lines.length} busiest of ${links} links are drawn.`);
    if (this.#store.past) words.push("Traffic is shown as it is now: its past is not kept.");
    return words.join(" ");
  }
}

/** Who counts, and what to do where nobody does, of an answer with `reporting`. */
export function reported({ reporting, report_age_s: age, edges }) {
  if (reporting.length) {
    const who = format.count(reporting.length, "board");
    const verb = reporting.length === 1 ? "counts its" : "count their";
    return `${who} ${verb} connections, last reported ${format.age(age)} ago.`;
  }
  const drawn = edges.length ? " What is shown is declared by pods." : "";
  return `No board counts its connections: set agent_flows in the inventory, see docs/traffic.md.${drawn}`;
}

/** Show edges in a table. */
export function fillTraffic(table, caption, edges, live) {
  fillTable(
    table,
    caption,
    [
      { title: "From", cell: (edge) => edge.source },
      { title: "To", cell: (edge) => edge.destination },
      { title: "Mbit/s", cell: speed, by: (edge) => edge.mbps ?? edge.declared_mbps, number: true },
      { title: "Requests/s", cell: requests, by: (edge) => edge.requests_per_s[1], number: true },
      {
        title: "Round trip",
        cell: (edge) => format.number(edge.rtt_ms, "ms"),
        by: (edge) => edge.rtt_ms,
        number: true,
      },
      { title: "Best", cell: best, by: (edge) => edge.best_rtt_ms },
      {
        title: "Of the link",
        cell: ({ share }) => (share === null ? format.UNKNOWN : { text: format.percent(share), bar: share }),
        by: (edge) => edge.share,
        number: true,
      },
      {
        title: "Age",
        cell: (edge) => format.age(ageNow(edge, "age_s", live)),
        by: (edge) => edge.age_s,
        number: true,
      },
    ],
    edges,
    "Nobody talks to anybody, as far as is counted or declared",
  );
}

function speed(edge) {
  if (edge.age_s === null) return `${format.number(edge.declared_mbps)} declared`;
  return format.number(edge.mbps) + (edge.one_sided ? ", by one end" : "");
}

function requests({ requests_per_s: [least, most] }) {
  const [low, high] = [least, most].map((value) => format.number(value));
  return low === high ? low : `${low} to ${high}`;
}

function best({ best_rtt_ms: rtt, best_node: node }) {
  return node === null ? format.UNKNOWN : format.boardCell(node, `${format.number(rtt, "ms")} on ${node}`);
}
