// All pairs as a heat map: round trips on a logarithmic scale, bandwidths, or how a round trip is known.

import { between, chartOf, FONT, shorten, timed, tip, tooltip, zoomInside } from "./charts.js";
import { byId, el, fillTable, naturally, setText } from "./dom.js";
import * as format from "./format.js";
import { getJson } from "./live.js";
import { colours } from "./theme.js";

const MOST_VALUES = 12; // boards, with the number in each cell
const MOST_GAPS = 60; // boards, with a gap between cells
const SHADES = 32;
const RELOAD_MS = 30000;

export class PairsView {
  #box = byId("pairs");
  #chart = null;
  #pointer = [0, 0]; // pixels in the box
  #store;
  #answer = null;
  #tested = new Map(); // "i,j" -> [Mbit/s, kind]
  #timer = 0;
  #request = null;

  constructor(store) {
    this.#store = store;
    for (const id of ["pairs-colour", "pairs-order"]) {
      byId(id).addEventListener("change", () => timed("pairs", () => this.#draw()));
    }
    byId("pairs-board").addEventListener("change", () => this.#fillTable());
    byId("pairs-reload").addEventListener("click", () => this.show());
  }

  async show() {
    this.hide();
    const request = (this.#request = new AbortController());
    try {
      const answer = await getJson("/api/pairs", request.signal);
      // The bandwidths of the boards come with it.
      if (!this.#store.now) await new Promise((done) => this.#store.addEventListener("change", done, { once: true }));
      if (request.signal.aborted) return;
      this.#answer = answer;
      const ends = ([i, j, mbps, kind]) => [i, j].map((at, k, both) => [`${at},${both[1 - k]}`, [mbps, kind]]);
      this.#tested = new Map((answer.tested ?? []).flatMap(ends));
      this.#fillChoice();
      timed("pairs", () => {
        this.#draw();
        this.#fillTable();
      });
    } catch (error) {
      if (request.signal.aborted) return;
      setText(byId("pairs-summary"), `Not loaded: ${error.message}`);
    }
    // Of many boards the answer is large: it is read again on demand.
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
    return nodes.map((_, i) => i).sort((i, j) => naturally(nodes[i], nodes[j]));
  }

  #pair(i, j) {
    const { nodes, rtt_ms, source, sources } = this.#answer;
    const [bandwidth_mbps, bandwidth_kind] = this.#tested.get(`${i},${j}`) ?? [];
    return {
      ...{ a: nodes[i], b: nodes[j], bandwidth_mbps, bandwidth_kind },
      ...{ rtt_ms: rtt_ms[i][j], source: sources[source[i][j]] ?? "unknown" },
    };
  }

  #draw() {
    const answer = this.#answer;
    if (!answer || !this.#box.clientWidth) return;
    const paint = colours();
    const names = answer.nodes;
    const order = this.#order();
    const count = order.length;
    const colour = byId("pairs-colour").value;
    const byRtt = colour === "rtt";
    const boards = this.#store.now.nodes;
    const seen = new Map(); // kind, or -1 -> pairs, each twice
    const rtts = order.flatMap((i) => order.map((j) => answer.rtt_ms[i][j])).filter((rtt) => rtt > 0);
    const low = rtts.length ? rtts.reduce((a, b) => Math.min(a, b)) : 0.1;
    const high = rtts.length ? rtts.reduce((a, b) => Math.max(a, b)) : 1;
    const shade = (rtt) =>
      Math.round(((SHADES - 1) * Math.log(Math.max(rtt, low) / low)) / Math.log(high / low + 1e-6));
    const cells = new Map(); // colour -> [column, row] of each cell
    order.forEach((i, y) =>
      order.forEach((j, x) => {
        if (i === j) return;
        const rtt = answer.rtt_ms[i][j];
        const source = answer.source[i][j];
        const kind = colour === "bandwidth" ? format.speed(this.#pair(i, j), boards) : source;
        seen.set(kind, (seen.get(kind) ?? 0) + 1);
        const shown = byRtt ? (rtt === null ? null : shade(rtt)) : kind;
        if (shown === null) return;
        if (!cells.has(shown)) cells.set(shown, []);
        cells.get(shown).push([x, y]);
      }),
    );
    const paintOf = (kind) => {
      if (byRtt) return between(kind / (SHADES - 1), paint.heat);
      return colour === "source" ? paint.sources[kind] : kind < 0 ? paint.unknown : paint.levels[kind];
    };
    const numbered = count <= MOST_VALUES && colour !== "source";
    const number = (x, y) => {
      const pair = this.#pair(order[y], order[x]);
      const { mbps, kind } = format.linkBandwidth(pair, boards);
      if (!byRtt) return `${kind === "at-least" ? "≥" : ""}${format.number(mbps)}`;
      const mark = (format.ROUND_TRIP_MARKS[pair.source] ?? "").trim();
      return `${mark}${format.number(pair.rtt_ms)}`;
    };
    // Half of the colours of round trips are dark in the light theme, and light in the dark theme.
    const ink = (kind) => (byRtt && kind < SHADES / 2 ? paint.text : paint.card);
    const renderItem = (_, api) => {
      const [x, y] = api.coord([0, 0]);
      const [width, height] = api.size([1, 1]);
      const at = { x: x - width / 2, y: y - height / 2, width, height, gap: named ? 1 : 0 };
      const all = { ...at, width: count * width, height: count * height };
      const texts = ([kind, own]) =>
        own.map(([column, row]) => ({
          type: "text",
          silent: true,
          style: {
            ...{ text: number(column, row), fill: ink(kind), font: `13px ${FONT}` },
            ...{ x: x + column * width, y: y + row * height, align: "center", verticalAlign: "middle" },
          },
        }));
      const children = [
        { type: "rect", shape: all, style: { fill: "transparent" } }, // where the pointer is seen
        ...[...cells].map(([kind, own]) => ({
          ...{ type: "cells", silent: true },
          ...{ shape: { ...at, cells: own }, style: { fill: paintOf(kind) } },
        })),
        ...(numbered ? [...cells].flatMap(texts) : []),
      ];
      return { type: "group", children };
    };
    const chart = chartOf(this.#box, () => this.#draw());
    if (!this.#chart) {
      chart.getZr().on("mousemove", ({ offsetX, offsetY }) => (this.#pointer = [offsetX, offsetY]));
      this.#chart = chart;
    }
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
        dataZoom: zoomInside(),
        tooltip: tooltip(() => {
          const [x, y] = chart.convertFromPixel({ xAxisIndex: 0, yAxisIndex: 0 }, this.#pointer);
          const [i, j] = [order[y], order[x]];
          if (i === undefined || j === undefined || i === j) return "";
          const pair = this.#pair(i, j);
          return tip(`${names[i]} – ${names[j]}`, [
            `${format.roundTrip(pair)} (${pair.source})`,
            format.linkBandwidthText(pair, boards),
          ]);
        }),
        series: [{ type: "custom", clip: true, data: [[0, 0]], renderItem }],
      },
      { replaceMerge: ["series"] },
    );
    this.#legend(colour, seen, low, high);
  }

  #legend(colour, seen, low, high) {
    const { nodes, sources, sampled, total } = this.#answer;
    const names =
      colour === "bandwidth"
        ? [...format.levelNames(format.MEASURES.bandwidth), [-1, format.MEASURES.bandwidth.unknown]]
        : sources.map((name, i) => [i, name]);
    const counts = names
      .map(([kind, name]) => [name, (seen.get(kind) ?? 0) / 2, kind])
      .filter(([, pairs]) => pairs);
    const part = `Only ${nodes.length} of the ${total} boards are shown, spread evenly over the names.`;
    setText(byId("pairs-part"), sampled ? part : "");
    const known = counts.map(([name, pairs]) => `${pairs} ${name}`).join(", ");
    const pairs = colour === "bandwidth" ? "" : `; pairs: ${known || "none"}`;
    const summary = `${nodes.length} boards${pairs}`;
    setText(byId("pairs-summary"), summary);
    this.#box.setAttribute(
      "aria-label",
      `Heat map of pairs. ${summary}. The table of one board's pairs has the same values.`,
    );
    if (colour !== "rtt") {
      const variable = colour === "source" ? "source" : "level";
      const entries = counts.map(([name, pairs, kind]) => {
        const mark = el("i", { className: "patch" });
        mark.style.setProperty("--mark", `var(--${kind < 0 ? "unknown" : `${variable}-${kind}`})`);
        return el("li", {}, mark, `${name}: ${format.count(pairs, "pair")}`);
      });
      const title = "Mbit/s, of a pair that was not tested those of its slower board:";
      byId("pairs-legend").replaceChildren(
        el("p", { className: "quiet" }, colour === "source" ? "" : title),
        el("ul", { className: "plain" }, ...entries),
      );
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
    const boards = this.#store.now.nodes;
    const others = nodes.map((name, i) => ({ name, ...this.#pair(own, i) }));
    others.splice(own, 1);
    others.sort((a, b) => (a.rtt_ms ?? Infinity) - (b.rtt_ms ?? Infinity));
    fillTable(
      byId("pairs-table"),
      `Pairs of ${nodes[own]}, the shortest round trip first`,
      [
        { title: "Board", cell: ({ name }) => format.boardCell(name) },
        { title: "Round trip", cell: format.roundTrip, by: (pair) => pair.rtt_ms, number: true },
        { title: "Source", cell: ({ source }) => source },
        format.bandwidthColumn(boards),
      ],
      others,
    );
  }
}
