// One board: what is known of it now, and its history as charts with tables beside them.

import { chartOf, FONT, tooltip } from "./charts.js";
import { byId, el, fillFacts, fillTable, setText } from "./dom.js";
import * as format from "./format.js";
import { getJson } from "./live.js";
import { ageNow } from "./store.js";
import { colours } from "./theme.js";
import { fillTraffic, OF_A_RECORDING, reported } from "./traffic.js";

const RELOAD_MS = 20000;
const POINTS = 240;
const LONGEST_FIRST_S = 86400; // before a person chooses
const MOST_PEERS = 5;
const CHARTS = [
  { title: "Bandwidth", unit: "Mbit/s", names: { bandwidth_mbps: "free, measured", used_mbps: "used" } },
  { title: "Round trips", unit: "ms", names: { rtt_ms: "" } },
  { title: "CPU and memory", unit: "%", names: { cpu_percent: "CPU", memory_percent: "memory" }, max: 100 },
  { title: "Temperature", unit: "°C", names: { cpu_celsius: "CPU" } },
  {
    title: "Packets",
    unit: "/s",
    names: { packets_sent_per_s: "sent", packets_received_per_s: "received" },
  },
  { title: "Disk", unit: "B/s", names: { disk_bytes_per_s: "read and written" } },
];

export class BoardView {
  #name = null;
  #store;
  #detail = null;
  #history = null;
  #timer = 0;
  #request = null;
  #figures = new Map();
  #chosen = false; // the span, by the person

  constructor(store) {
    this.#store = store;
    byId("board-span").addEventListener("change", () => {
      this.#chosen = true;
      this.#load();
    });
    const box = byId("board-charts");
    for (const chart of CHARTS) {
      const ariaLabel = `Line chart: ${chart.title}.`; // until its data are there
      const canvas = el("div", { className: "canvas small", role: "img", ariaLabel });
      const table = el("table");
      const details = el(
        "details",
        {},
        el("summary", {}, `${chart.title} as a table`),
        el(
          "div",
          { className: "scroll", role: "region", ariaLabel: `${chart.title}, table`, tabIndex: 0 },
          table,
        ),
      );
      details.addEventListener("toggle", () => this.#fillHistory(chart));
      const legend = el("ul", { className: "plain legend" });
      const caption = el("figcaption", {}, `${chart.title}, ${chart.unit}`, legend);
      const figure = el("figure", {}, caption, canvas, details);
      box.append(figure);
      this.#figures.set(chart, { figure, legend, canvas, details, table });
    }
  }

  show(name) {
    if (name !== this.#name) {
      this.#detail = null;
      this.#history = null;
      if (!this.#chosen) byId("board-span").value = LONGEST_FIRST_S;
    }
    this.#name = name;
    setText(byId("board-title"), name);
    this.draw();
    this.#load();
  }

  hide() {
    clearTimeout(this.#timer);
    this.#request?.abort();
  }

  async #load() {
    this.hide();
    const request = (this.#request = new AbortController());
    const span = Number(byId("board-span").value);
    const until = this.#store.past ? this.#store.past.at_unix_s : this.#store.now?.now_unix_s;
    const query = new URLSearchParams({ node: this.#name, step_s: Math.ceil(span / POINTS) });
    if (this.#store.past) {
      query.set("since_unix_s", until - span);
      query.set("until_unix_s", until);
    } else query.set("since_unix_s", -span);
    const results = await Promise.allSettled([
      getJson(`/api/nodes/${encodeURIComponent(this.#name)}`, request.signal),
      getJson(`/api/history?${query}`, request.signal),
    ]);
    if (request.signal.aborted) return;
    // What is there stays while the controller restarts; the past has only what belongs to it.
    const kept = ({ value, reason }, before) =>
      value ?? (this.#store.past || reason.status === 404 ? null : before);
    this.#detail = kept(results[0], this.#detail);
    this.#history = kept(results[1], this.#history);
    const { links = [], traffic } = results[0].value ?? {};
    for (const each of [...links, ...(traffic?.edges ?? [])]) each.at = performance.now();
    if (!this.#chosen && this.#shorten()) return;
    const problem = results.find((result) => result.reason)?.reason.message;
    this.draw(problem);
    for (const chart of CHARTS) this.#drawChart(chart);
    this.#timer = setTimeout(() => this.#load(), RELOAD_MS);
  }

  /** Load a shorter span, with finer steps, if all that is known fits into it. */
  #shorten() {
    if (!this.#history) return false;
    const { step_s: step, steps, series } = this.#history;
    const begins = series.map(({ mean }) => mean.findIndex((value) => value !== null));
    const known = (steps - 1 - Math.min(...begins.filter((at) => at >= 0))) * step;
    const choice = byId("board-span");
    const spans = [...choice.options].map(({ value }) => Number(value));
    const needed = Math.min(...spans.filter((span) => span >= known && known >= 0));
    if (!(needed < Number(choice.value))) return false;
    choice.value = needed;
    this.#load();
    return true;
  }

  draw(problem) {
    const latest = !this.#store.past;
    const live = latest && this.#store.now?.live !== false;
    const shown = this.#store.shown?.nodes.get(this.#name);
    const detail = this.#detail;
    const node = shown ?? (latest ? detail : null);
    if (!node) {
      fillFacts(byId("board-facts"), [["State", problem ?? "loading, or no such board"]]);
      byId("board-pods").replaceChildren();
      byId("board-notes").replaceChildren();
      return;
    }
    const [state] = format.boardState({ ...node, notes: [] }, live);
    const facts = [
      ["State", state],
      ["Tier", node.tier || format.UNKNOWN],
      ["Bandwidth", node.bandwidth_in_words || format.bandwidth(node.bandwidth_mbps, node.bandwidth_kind)],
      ["Bandwidth measured", latest ? format.ago(ageNow(node, "bandwidth_age_s", live)) : format.UNKNOWN],
      ["CPU", format.number(node.cpu_percent, "%")],
      ["Memory", format.number(node.memory_percent, "%")],
      ["Temperature", format.number(node.temperature_c, "°C")],
      ["Last report", latest ? format.ago(ageNow(node, "age_s", live)) : format.UNKNOWN],
    ];
    if (detail && latest) {
      const { allocatable: room, requested: asked } = detail;
      facts.push(
        ["Address", detail.address || format.UNKNOWN],
        ["Hardware", detail.hardware_model || format.UNKNOWN],
        ["Agent", detail.agent_version || format.UNKNOWN],
        ["Lost messages", String(detail.lost_messages ?? format.UNKNOWN)],
      );
      if (room && asked) {
        facts.push(
          ["CPU requested", `${asked.cpu_milli} of ${room.cpu_milli} m`],
          ["Memory requested", `${format.bytes(asked.memory_bytes)} of ${format.bytes(room.memory_bytes)}`],
        );
      }
    }
    fillFacts(byId("board-facts"), facts);
    byId("board-notes").replaceChildren(...(node.notes ?? []).map((note) => el("li", {}, note)));
    const pods = node.pods ?? [];
    const items = pods.map((pod) => {
      const id = `${pod.namespace}/${pod.name}`;
      return el("li", {}, pod.ours === false ? id : el("a", { href: format.decisionHref(id) }, id));
    });
    if (node.pods_total > pods.length) items.push(el("li", {}, `and ${node.pods_total - pods.length} more`));
    if (!items.length) items.push(el("li", { className: "quiet" }, "none"));
    byId("board-pods").replaceChildren(...items);
    this.#fillLinks(live, latest);
    this.#fillTraffic(live, latest);
  }

  #fillTraffic(live, latest) {
    const traffic = latest ? this.#detail?.traffic : null;
    let said = latest ? "loading" : "Its past is not kept.";
    if (traffic) said = reported(traffic);
    if (this.#store.now?.recorded) said = OF_A_RECORDING;
    setText(byId("board-traffic-said"), said);
    fillTraffic(byId("board-traffic"), `Traffic of ${this.#name}`, traffic?.edges ?? [], live);
  }

  #fillLinks(live, latest) {
    const own = (link) => link.a === this.#name || link.b === this.#name;
    const links =
      latest && this.#detail
        ? this.#detail.links
        : [...(this.#store.shown?.links.values() ?? [])].filter(own);
    const nodes = this.#store.shown?.nodes ?? new Map();
    const other = (link) => (link.a === this.#name ? link.b : link.a);
    fillTable(
      byId("board-links"),
      `Links of ${this.#name}`,
      [
        { title: "To", cell: (link) => format.boardCell(other(link)) },
        ...format.linkColumns(nodes, live),
      ],
      links,
    );
  }

  #seriesOf(chart) {
    const found = (this.#history?.series ?? []).filter((series) =>
      Object.hasOwn(chart.names, series.name),
    );
    if (!("rtt_ms" in chart.names)) return found.map((s) => ({ ...s, label: chart.names[s.name] }));
    // The peers with most values: lines of all would cover each other.
    const values = (series) => series.mean.filter((value) => value !== null).length;
    return found
      .sort((a, b) => values(b) - values(a))
      .slice(0, MOST_PEERS)
      .map((series) => ({ ...series, label: series.peer }));
  }

  #times() {
    const { from_unix_s: from, step_s: step, steps } = this.#history;
    return Array.from({ length: steps }, (_, i) => from + i * step);
  }

  #drawChart(chart) {
    const { figure, legend, canvas } = this.#figures.get(chart);
    const series = this.#history ? this.#seriesOf(chart) : [];
    figure.hidden = !series.length;
    if (!series.length || !canvas.clientWidth) return;
    const paint = colours();
    const times = this.#times();
    const colour = [paint.accent, paint.levels[1], paint.levels[2], paint.levels[4], paint.unknown];
    const kinds = ["solid", "dashed", "dotted", [8, 3, 2, 3], "solid"];
    // Beside the canvas: in it, a legend of several lines would cover the axis.
    legend.replaceChildren(
      ...(series.length > 1 ? series : []).map(({ label }, i) => {
        const line = Array.isArray(kinds[i]) ? "flapping" : kinds[i];
        const mark = el("i", { className: `stroke ${line}`, ariaHidden: "true" });
        mark.style.setProperty("--mark", colour[i]);
        return el("li", {}, mark, label);
      }),
    );
    const latest = series.map(({ label, mean }) => {
      const last = mean.findLast((value) => value !== null);
      return `${label}: ${format.number(last, chart.unit)}`;
    });
    canvas.setAttribute("aria-label", `Line chart: ${chart.title}. Last values: ${latest.join(", ")}.`);
    chartOf(canvas, () => this.#drawChart(chart)).setOption(
      {
        animation: false,
        textStyle: { fontFamily: FONT },
        grid: { left: 48, right: 12, top: 12, bottom: 28 },
        xAxis: {
          type: "time",
          axisLine: { lineStyle: { color: paint.line } },
          axisLabel: { color: paint.quiet, hideOverlap: true },
        },
        yAxis: {
          type: "value",
          max: chart.max,
          min: chart.max ? 0 : undefined,
          scale: !chart.max,
          splitNumber: 3,
          interval: chart.max ? chart.max / 4 : undefined,
          splitLine: { lineStyle: { color: paint.line } },
          axisLabel: { color: paint.quiet, formatter: (value) => compact(value) },
        },
        dataZoom: [{ type: "inside", zoomOnMouseWheel: "ctrl", filterMode: "none" }],
        tooltip: {
          ...tooltip((points) =>
            el(
              "div",
              {},
              el("div", { className: "quiet" }, format.clock(points[0].value[0] / 1000)),
              ...points.map(({ seriesName, value }) =>
                el("div", {}, `${seriesName}: ${format.number(value[1], chart.unit)}`),
              ),
            ),
          ),
          trigger: "axis",
        },
        series: series.map(({ label, mean }, i) => ({
          name: label,
          type: "line",
          showSymbol: mean.filter((value) => value !== null).length < 3,
          color: colour[i],
          lineStyle: { width: 1.8, type: kinds[i] },
          data: mean.map((value, step) => [times[step] * 1000, value]),
        })),
      },
      { replaceMerge: ["series"] },
    );
    this.#fillHistory(chart);
  }

  /** Only while it is open: a closed table costs nothing. */
  #fillHistory(chart) {
    const { details, table } = this.#figures.get(chart);
    if (!details.open || !this.#history) return;
    const series = this.#seriesOf(chart);
    const rows = this.#times()
      .map((time, i) => ({ time, values: series.map(({ mean }) => mean[i]) }))
      .filter(({ values }) => values.some((value) => value !== null))
      .reverse();
    fillTable(
      table,
      `${chart.title}, the newest first`,
      [
        { title: "Time", cell: ({ time }) => format.clock(time), by: ({ time }) => time },
        ...series.map(({ label }, i) => ({
          title: `${label}, ${chart.unit}`,
          cell: ({ values }) => format.number(values[i]),
          by: ({ values }) => values[i],
          number: true,
        })),
      ],
      rows,
    );
  }
}

function compact(value) {
  if (Math.abs(value) >= 1e6) return `${value / 1e6} M`;
  if (Math.abs(value) >= 1e3) return `${value / 1e3} k`;
  return String(Math.round(value * 1000) / 1000);
}
