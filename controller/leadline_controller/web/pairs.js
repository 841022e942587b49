// All pairs as a heat map: round trips on a logarithmic scale, or how each is known.

import { chartOf, FONT, shorten, tooltip } from "./charts.js";
import { byId, el, fillTable, setText } from "./dom.js";
import * as format from "./format.js";
import { getJson } from "./live.js";
import { colours } from "./theme.js";

const MOST_VALUES = 12; // boards, with the number in each cell
const MOST_GAPS = 60; // boards, with a gap between cells
const RELOAD_MS = 30000;

export class PairsView {
  #box = byId("pairs");
  #answer = null;
  #timer = 0;
  #request = null;

  constructor() {
    byId("pairs-colour").addEventListener("change", () => this.#draw());
    byId("pairs-order").addEventListener("change", () => this.#draw());
    byId("pairs-board").addEventListener("change", () => this.#fillTable());
    byId("pairs-reload").addEventListener("click", () => this.show());
  }

  async show() {
    this.hide();
    const request = (this.#request = new AbortController());
    try {
      const answer = await getJson("/api/pairs", request.signal);
      if (request.signal.aborted) return;
      this.#answer = answer;
      this.#fillChoice();
      this.#draw();
      this.#fillTable();
    } catch (error) {
      if (request.signal.aborted) return;
      setText(byId("pairs-summary"), `Not loaded: ${error.message}`);
    }
    // Of many boards the picture takes a second: they are read again on demand.
    if (this.#answer?.nodes.length <= MOST_GAPS) {
      this.#timer = setTimeout(() => this.show(), RELOAD_MS);
    }
  }

  hide() {
    clearTimeout(this.#timer);
    this.#request?.abort();
  }

  #fillChoice() {
    const choice = byId("pairs-board");
    const names = this.#answer.nodes;
    const same =
      choice.options.length === names.length &&
      names.every((name, i) => choice.options[i].value === name);
    if (same) return;
    const before = choice.value;
    choice.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
    if (names.includes(before)) choice.value = before;
  }

  #order() {
    const { nodes, order } = this.#answer;
    if (byId("pairs-order").value === "near") return order ?? nodes.map((_, i) => i);
    return nodes.map((_, i) => i).sort((i, j) => (nodes[i] < nodes[j] ? -1 : 1));
  }

  #pair(i, j) {
    const { rtt_ms, source, sources } = this.#answer;
    return { rtt_ms: rtt_ms[i][j], source: sources[source[i][j]] ?? "unknown" };
  }

  #draw() {
    const answer = this.#answer;
    if (!answer || !this.#box.clientWidth) return;
    const paint = colours();
    const names = answer.nodes;
    const order = this.#order();
    const count = order.length;
    const bySource = byId("pairs-colour").value === "source";
    const cells = [];
    const seen = new Map();
    let low = Infinity;
    let high = 0;
    order.forEach((i, y) =>
      order.forEach((j, x) => {
        if (i === j) return;
        const rtt = answer.rtt_ms[i][j];
        const source = answer.source[i][j];
        seen.set(source, (seen.get(source) ?? 0) + 1);
        if (rtt !== null && rtt > 0) {
          low = Math.min(low, rtt);
          high = Math.max(high, rtt);
        }
        if (bySource) cells.push([x, y, source]);
        else if (rtt !== null) cells.push([x, y, Math.log10(Math.max(rtt, 1e-3))]);
      }),
    );
    if (!high) [low, high] = [0.1, 1];
    const [from, to] = [Math.log10(low), Math.log10(high) + 1e-6];
    const numbered = count <= MOST_VALUES && !bySource;
    // Half of the colours are dark in the light theme, and light in the dark theme.
    const labelled = (value) => ({
      value,
      label: { color: value[2] < (from + to) / 2 ? paint.text : paint.card },
    });
    const chart = chartOf(this.#box, () => this.#draw());
    const room = this.#box.clientWidth;
    const labelLength = room < 500 ? 8 : 14;
    const longest = Math.min(labelLength, Math.max(3, ...names.map((name) => name.length)));
    const named = count <= MOST_GAPS;
    const side = named ? longest * 6.8 + 12 : 12;
    const axis = (vertical) => ({
      type: "category",
      data: order.map((i) => names[i]),
      inverse: vertical,
      position: vertical ? "left" : "top",
      axisLine: { show: false },
      axisTick: { show: false },
      splitArea: { show: false },
      axisLabel: {
        show: named,
        color: paint.text,
        fontSize: 11,
        rotate: vertical ? 0 : count <= 6 && room > 500 ? 0 : 90,
        hideOverlap: true,
        formatter: (name) => shorten(name, labelLength),
      },
    });
    chart.setOption(
      {
        animation: false,
        textStyle: { fontFamily: FONT },
        grid: { left: side, right: 12, top: named ? side : 12, bottom: 12 },
        xAxis: axis(false),
        yAxis: axis(true),
        dataZoom: ["xAxisIndex", "yAxisIndex"].map((name) => ({
          type: "inside",
          [name]: 0,
          filterMode: "empty",
        })),
        tooltip: tooltip(({ value }) => {
          const [i, j] = [order[value[1]], order[value[0]]];
          const pair = this.#pair(i, j);
          return el(
            "div",
            {},
            el("strong", {}, `${names[i]} – ${names[j]}`),
            el("div", {}, `${format.roundTrip(pair)} (${pair.source})`),
          );
        }),
        visualMap: bySource
          ? {
              type: "piecewise",
              show: false,
              dimension: 2,
              pieces: answer.sources.map((_, i) => ({ value: i, color: paint.sources[i] })),
            }
          : {
              type: "continuous",
              show: false,
              dimension: 2,
              min: from,
              max: to,
              inRange: { color: paint.heat },
            },
        series: [
          {
            type: "heatmap",
            data: numbered ? cells.map(labelled) : cells,
            progressive: 10000,
            progressiveThreshold: 20000,
            itemStyle: named ? { borderColor: paint.card, borderWidth: Math.min(1.5, room / count / 10) } : {},
            emphasis: { itemStyle: { borderColor: paint.text, borderWidth: 1.5 } },
            label: {
              show: numbered,
              fontSize: 13,
              formatter: ({ value }) => {
                const { rtt_ms, source } = this.#pair(order[value[1]], order[value[0]]);
                return `${(format.ROUND_TRIP_MARKS[source] ?? "").trim()}${format.number(rtt_ms)}`;
              },
            },
          },
        ],
      },
      { replaceMerge: ["visualMap", "series"] },
    );
    this.#legend(bySource, seen, low, high);
  }

  #legend(bySource, seen, low, high) {
    const answer = this.#answer;
    const counts = answer.sources
      .map((name, i) => [name, (seen.get(i) ?? 0) / 2, i])
      .filter(([, pairs]) => pairs);
    const of = answer.sampled ? ` of ${answer.total}, spread evenly over the names` : "";
    const known = counts.map(([name, pairs]) => `${pairs} ${name}`).join(", ");
    const summary = `${answer.nodes.length} boards${of}; pairs: ${known || "none"}`;
    setText(byId("pairs-summary"), summary);
    this.#box.setAttribute(
      "aria-label",
      `Heat map of round trips. ${summary}. The table of one board's pairs has the same values.`,
    );
    if (bySource) {
      const entries = counts.map(([name, pairs, i]) => {
        const mark = el("i", { className: "patch" });
        mark.style.setProperty("--mark", `var(--source-${i})`);
        return el("li", {}, mark, `${name}: ${pairs} pairs`);
      });
      byId("pairs-legend").replaceChildren(el("ul", { className: "plain" }, ...entries));
      return;
    }
    byId("pairs-legend").replaceChildren(
      el(
        "p",
        { className: "scale" },
        el("span", {}, format.number(low, "ms")),
        el("i", { className: "heat" }),
        el("span", {}, format.number(high, "ms")),
        el("span", { className: "quiet" }, "round trip, logarithmic; empty: unknown; ~ not measured; ≤ a bound"),
      ),
    );
  }

  #fillTable() {
    const { nodes } = this.#answer ?? { nodes: [] };
    const own = nodes.indexOf(byId("pairs-board").value);
    if (own < 0) return;
    const others = nodes.map((name, i) => ({ name, ...this.#pair(own, i) }));
    others.splice(own, 1);
    others.sort((a, b) => (a.rtt_ms ?? Infinity) - (b.rtt_ms ?? Infinity));
    fillTable(
      byId("pairs-table"),
      `Round trips from ${nodes[own]}, the shortest first`,
      [
        { title: "Board", cell: ({ name }) => ({ text: name, href: format.boardHref(name) }) },
        { title: "Round trip", cell: format.roundTrip, number: true },
        { title: "Source", cell: ({ source }) => source },
      ],
      others,
    );
  }
}
