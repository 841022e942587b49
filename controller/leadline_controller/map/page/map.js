// The map: boards as a graph, links coloured by bandwidth and drawn by confidence, pods as dots
// around their boards. Pixels of the canvas are the coordinates, so that zooming keeps sizes.

import { chartOf, FONT, shorten, tip, tooltip, zoomInside } from "./charts.js";
import { byId, el, setText } from "./dom.js";
import * as format from "./format.js";
import { place } from "./layout.js";
import { ageNow } from "./store.js";
import { colours } from "./theme.js";

const LABEL_LENGTH = 14;
const MOST_DOTS = 16;
const FADED = 0.2; // of boards that are not those looked for
const LINES = {
  measured: { type: "solid", opacity: 0.9 },
  stale: { type: "solid", opacity: 0.3 },
  triangulated: { type: "dashed", opacity: 0.7 },
  bounded: { type: "dashed", opacity: 0.7 },
  estimated: { type: "dotted", opacity: 0.7 },
  unreachable: { type: [2, 6], opacity: 0.9 },
  // Traffic.
  counted: { type: "solid", opacity: 0.9 },
  declared: { type: "dotted", opacity: 0.7 },
};

function boardStyle(node, level, isFaded) {
  const paint = colours();
  const fill = level < 0 ? paint.unknown : paint.levels[level];
  const opacity = isFaded ? FADED : 1;
  if (node.online !== true) {
    const border = node.online === false ? paint.bad : paint.unknown;
    return { color: paint.card, borderColor: border, borderWidth: 2, borderType: "dashed", opacity };
  }
  if (node.schedulable === false) {
    return { color: paint.card, borderColor: fill, borderWidth: 3, opacity };
  }
  return { color: fill, borderColor: paint.card, borderWidth: 1, opacity };
}

function boardTip(node, live) {
  const pods = node.pods ?? [];
  const total = format.podsOf(node);
  const lines = [
    format.boardState(node, live)[0],
    `Bandwidth ${node.bandwidth_in_words || format.bandwidth(node.bandwidth_mbps, node.bandwidth_kind)}`,
    `CPU ${format.number(node.cpu_percent, "%", 0)}, memory ${format.number(node.memory_percent, "%", 0)}, ${format.number(node.temperature_c, "°C", 0)}`,
    format.count(total, "pod"),
    ...pods.slice(0, 6).map((pod) => `· ${shorten(`${pod.namespace}/${pod.name}`, 50)}`),
  ];
  if (total > 6 && pods.length) lines.push(`· and ${total - Math.min(6, pods.length)} more`);
  return tip(node.name, lines);
}

function linkTip(link, nodes, live) {
  const lines = [
    `Round trip ${format.roundTrip(link)} (${link.source || "unknown"})`,
    `Bandwidth ${format.linkBandwidthText(link, nodes)}`,
  ];
  if (link.loss) lines.push(`${format.number(link.loss * 100, "%")} lost`);
  if (link.flapping) lines.push("flapping");
  const age = ageNow(link, "age_s", live);
  if (typeof age === "number") lines.push(`measured ${format.age(age)} ago`);
  return tip(`${link.a} – ${link.b}`, lines);
}

function trafficTip(line) {
  const share = format.known(line.share) ? `, ${format.percent(line.share)} of the link` : "";
  const lines = [`${format.number(line.mbps, "Mbit/s")} ${line.source}${share}`];
  for (const [from, to] of line.edges) lines.push(`· ${shorten(from, 40)} → ${shorten(to, 40)}`);
  const more = line.edges_total - line.edges.length;
  if (more > 0) lines.push(`· and ${more} more`);
  return tip(`${line.a} – ${line.b}`, lines);
}

const isTraffic = (line) => line.source === "counted" || line.source === "declared";

export class MapView {
  #box = byId("map");
  #open;
  #shown = null;
  #spots = [];
  #placed = "";
  #drawn = "";
  #nodes = [];
  #links = [];
  #linkLevels = []; // the colours' numbers
  #measure = null;
  #labelSize = null;
  #labels = false;
  #chart = null;

  /** open: (name) is told which board was clicked. */
  constructor(open) {
    this.#open = open;
    byId("map-reset").addEventListener("click", () => this.#zoom(0, 100, 0, 100));
    byId("map-in").addEventListener("click", () => this.#zoomBy(0.6));
    byId("map-out").addEventListener("click", () => this.#zoomBy(1 / 0.6));
  }

  /**
   * shown: {nodes, links, live}, and measure, one of MEASURES; levels: each board's colour; wanted: the
   * names of the boards to mark, null for none.
   */
  draw(shown) {
    this.#shown = shown;
    if (!this.#box.clientWidth) return;
    if (!this.#chart) {
      this.#chart = chartOf(this.#box, () => this.draw(this.#shown));
      this.#chart.on("click", ({ dataType, dataIndex, seriesIndex }) => {
        if (seriesIndex === 0 && dataType === "node") this.#open(this.#nodes[dataIndex].name);
      });
      this.#chart.on("datazoom", () => this.#showLabels());
    }
    const { nodes, links, live, measure } = shown;
    this.#nodes = [...nodes.values()];
    const numbers = new Map(this.#nodes.map((node, i) => [node.name, i]));
    this.#links = [...links.values()].filter(
      (link) => numbers.has(link.a) && numbers.has(link.b),
    );
    this.#layOut();
    this.#linkLevels = this.#links.map((link) => format.level(measure, measure.link?.(link, nodes)));
    if (measure !== this.#measure) drawLegend(byId("legend"), (this.#measure = measure));
    // Most changes are of numbers that only tooltips and tables show: the picture stays.
    const picture = this.#picture();
    if (picture === this.#drawn) return;
    this.#drawn = picture;
    const width = this.#box.clientWidth;
    const height = this.#box.clientHeight;
    const axis = { type: "value", min: 0, show: false };
    this.#chart.setOption({
      animation: false,
      textStyle: { fontFamily: FONT },
      grid: { left: 0, right: 0, top: 0, bottom: 0, containLabel: false },
      xAxis: { ...axis, max: width },
      yAxis: { ...axis, max: height, inverse: true },
      dataZoom: zoomInside({ minSpan: 4 }),
      tooltip: tooltip(({ dataType, dataIndex, seriesIndex }) => {
        if (seriesIndex !== 0) return "";
        if (dataType === "edge") {
          const link = this.#links[dataIndex];
          if (!link) return "";
          return isTraffic(link) ? trafficTip(link) : linkTip(link, nodes, live);
        }
        const node = this.#nodes[dataIndex];
        return node ? boardTip(node, live) : "";
      }),
      series: [this.#graph(numbers), this.#pods()],
    });
    this.#box.setAttribute(
      "aria-label",
      `Map. ${byId("map-summary").textContent}. The tables of boards and links have the same values.`,
    );
  }

  /** All that the picture depends on, as text. */
  #picture() {
    const { live, levels, wanted } = this.#shown;
    const board = (n) => [
      ...[levels.get(n.name), wanted?.has(n.name), n.online, n.schedulable, n.tier, (n.notes?.length ?? 0) > 0],
      n.pods.slice(0, MOST_DOTS).map((pod) => pod.ours === false),
    ];
    const link = (l, i) => [l.a, l.b, l.source, l.flapping, this.#linkLevels[i], this.#width(l).toFixed(1)];
    return JSON.stringify([
      this.#placed,
      colours().card,
      live,
      wanted === null,
      this.#nodes.map(board),
      this.#links.map(link),
    ]);
  }

  /** In pixels, of a link that is not drawn thin. */
  #width(link) {
    const { measure, nodes } = this.#shown;
    return measure.width?.(link) ?? 1.3 + 0.5 * Math.max(format.speed(link, nodes), 0);
  }

  #diameter() {
    const area = this.#box.clientWidth * this.#box.clientHeight;
    return Math.max(7, Math.min(24, Math.sqrt(area / Math.max(this.#nodes.length, 1)) / 4));
  }

  #layOut() {
    const width = this.#box.clientWidth;
    const height = this.#box.clientHeight;
    const key = JSON.stringify([width, height, this.#nodes.map((n) => [n.name, n.x, n.y])]);
    if (key === this.#placed) return;
    this.#placed = key;
    const count = this.#nodes.length;
    const longest = Math.max(4, ...this.#nodes.map((n) => Math.min(n.name.length, LABEL_LENGTH)));
    this.#labelSize = { width: longest * 6.6 + 10, height: this.#diameter() + 30 };
    const fits = count * this.#labelSize.width * this.#labelSize.height < 0.5 * width * height;
    const bare = this.#diameter() + (count > 100 ? 5 : 14);
    const size = fits ? this.#labelSize : { width: bare, height: bare };
    this.#spots = place(this.#nodes, width, height, size);
    this.#labels = fits;
  }

  #graph(numbers) {
    const paint = colours();
    const many = this.#nodes.length > 100;
    const diameter = this.#diameter();
    const { levels, wanted } = this.#shown;
    const area = this.#box.clientWidth * this.#box.clientHeight;
    const isNamed = wanted?.size * this.#labelSize.width * this.#labelSize.height < 0.2 * area;
    const isFaded = (...names) => wanted !== null && !names.some((name) => wanted.has(name));
    return {
      id: "boards",
      type: "graph",
      coordinateSystem: "cartesian2d",
      layout: "none",
      z: 3,
      cursor: "pointer",
      label: {
        show: this.#labels,
        position: "bottom",
        distance: 7,
        color: paint.text,
        fontSize: 12,
        textBorderColor: paint.card,
        textBorderWidth: 3,
        formatter: ({ dataIndex }) => shorten(this.#nodes[dataIndex]?.name ?? "", LABEL_LENGTH),
      },
      labelLayout: { hideOverlap: true },
      emphasis: {
        focus: "adjacency",
        scale: 1.2,
        label: { show: true, fontWeight: "bold" },
        lineStyle: { opacity: 1 },
      },
      blur: { itemStyle: { opacity: 0.25 }, lineStyle: { opacity: 0.06 } },
      data: this.#nodes.map((node, i) => ({
        id: String(i),
        name: node.name,
        value: [this.#spots[i].x, this.#spots[i].y],
        symbol: node.tier === "cloud" ? "roundRect" : "circle",
        symbolSize: diameter,
        itemStyle: boardStyle(node, levels.get(node.name), isFaded(node.name)),
        label: isNamed && wanted.has(node.name) ? { show: true } : undefined,
      })),
      links: this.#links.map((link, i) => {
        const level = this.#linkLevels[i];
        const unreachable = link.source === "unreachable";
        const line = LINES[link.source] ?? LINES.estimated;
        // Long links of many would hide what is near: they are drawn thin. Traffic is what is looked for.
        const [one, other] = [this.#spots[numbers.get(link.a)], this.#spots[numbers.get(link.b)]];
        const length = Math.hypot(one.x - other.x, one.y - other.y);
        const near = this.#nodes.length > 20 && !isTraffic(link) ? Math.min(1, Math.max(0.3, 130 / length)) : 1;
        // Of many links those that traffic hardly loads would cover the others.
        const idle = many && isTraffic(link) && (level < 0 || level > 2) ? 0.4 : 1;
        const colour = unreachable ? paint.bad : level < 0 ? paint.unknown : paint.levels[level];
        return {
          source: numbers.get(link.a),
          target: numbers.get(link.b),
          lineStyle: {
            color: colour,
            type: link.flapping ? [8, 3, 2, 3] : line.type,
            opacity: line.opacity * (many ? 0.8 : 1) * near * idle * (isFaded(link.a, link.b) ? FADED : 1),
            width: (many ? 0.6 : 1) * near * this.#width(link),
          },
        };
      }),
    };
  }

  #pods() {
    const paint = colours();
    const radius = this.#diameter() / 2;
    const dot = this.#nodes.length > 100 ? 1.4 : 2.6;
    const dots = this.#nodes.map((node) =>
      node.pods.slice(0, MOST_DOTS).map((pod) => (pod.ours === false ? paint.otherPod : paint.pod)),
    );
    const warned = this.#nodes.map((node) => (node.notes?.length ?? 0) > 0);
    const { wanted } = this.#shown;
    const isWanted = this.#nodes.map((node) => wanted?.has(node.name));
    const marked = this.#nodes
      .map((_, i) => i)
      .filter((i) => (wanted ? isWanted[i] : dots[i].length || warned[i]));
    const halo = (cx, cy) => ({
      type: "circle",
      shape: { cx, cy, r: radius + 2 * dot + 2 },
      style: { fill: "none", stroke: paint.accent, lineWidth: 2 },
    });
    const warning = (x, y) => {
      const size = Math.max(4, radius / 2);
      const [cx, cy] = [x - radius * 0.8, y + radius * 0.8];
      const style = { fill: paint.warn, stroke: paint.card, lineWidth: 1 };
      const font = `bold ${Math.round(size * 1.7)}px ${FONT}`;
      const text = { text: "!", x: cx, y: cy, fill: paint.card, font };
      return [
        { type: "circle", shape: { cx, cy, r: size }, style },
        { type: "text", style: { ...text, align: "center", verticalAlign: "middle" } },
      ];
    };
    return {
      id: "pods",
      type: "custom",
      coordinateSystem: "cartesian2d",
      z: 4,
      silent: true,
      tooltip: { show: false },
      renderItem: (_, api) => {
        const [x, y] = api.coord([api.value(0), api.value(1)]);
        const board = api.value(2);
        const around = (dots[board] ?? []).map((colour, i) => {
          const angle = -Math.PI / 2 + (i * 2 * Math.PI) / MOST_DOTS;
          const away = radius + dot + 1.5;
          return {
            type: "circle",
            shape: { cx: x + away * Math.cos(angle), cy: y + away * Math.sin(angle), r: dot },
            style: { fill: colour },
          };
        });
        const children = warned[board] ? [...around, ...warning(x, y)] : around;
        return { type: "group", children: isWanted[board] ? [halo(x, y), ...children] : children };
      },
      data: marked.map((i) => [this.#spots[i].x, this.#spots[i].y, i]),
    };
  }

  #zoomed() {
    const [x, y] = this.#chart.getOption().dataZoom;
    return [x.start, x.end, y.start, y.end];
  }

  #zoom(startX, endX, startY, endY) {
    this.#chart?.dispatchAction({
      type: "dataZoom",
      batch: [
        { dataZoomIndex: 0, start: startX, end: endX },
        { dataZoomIndex: 1, start: startY, end: endY },
      ],
    });
  }

  #zoomBy(factor) {
    if (!this.#chart) return;
    const [startX, endX, startY, endY] = this.#zoomed();
    const around = (start, end) => {
      const half = Math.min(50, Math.max(2, ((end - start) / 2) * factor));
      const middle = Math.min(100 - half, Math.max(half, (start + end) / 2));
      return [middle - half, middle + half];
    };
    this.#zoom(...around(startX, endX), ...around(startY, endY));
  }

  /** Labels where there is room for them: in small clusters, and after zooming in. */
  #showLabels() {
    const [startX, endX, startY, endY] = this.#zoomed();
    const part = ((endX - startX) * (endY - startY)) / 1e4;
    const needed = this.#nodes.length * part * this.#labelSize.width * this.#labelSize.height;
    const room = this.#box.clientWidth * this.#box.clientHeight;
    const show = needed < 0.5 * room;
    if (show === this.#labels) return;
    this.#labels = show;
    this.#chart.setOption({ series: [{ id: "boards", label: { show: this.#labels } }] });
  }
}

/** What colours and lines mean, in words. */
function drawLegend(box, measure) {
  const entry = ([name, variable, text]) => {
    const mark = el("i", { className: name, ariaHidden: "true" }, name === "warning" ? "!" : "");
    mark.style.setProperty("--mark", `var(--${variable})`);
    return el("li", {}, mark, text);
  };
  const group = (title, ...entries) =>
    el("div", {}, el("h3", {}, title), el("ul", { className: "plain" }, ...entries.map(entry)));
  box.replaceChildren(
    group(
      measure.title,
      ...format.levelNames(measure).map(([level, name]) => ["patch", `level-${level}`, name]),
      ["patch", "unknown", measure.unknown ?? "unknown"],
    ),
    measure === format.MEASURES.traffic
      ? group(
          "Traffic between boards",
          ["stroke", "text", "counted: the wider, the more Mbit/s"],
          ["stroke dotted", "text", "only declared"],
        )
      : group(
          "Round trip of a link",
          ["stroke", "text", "measured"],
          ["stroke faded", "text", "stale"],
          ["stroke dashed", "text", "bounded by others"],
          ["stroke dotted", "text", "estimated"],
          ["stroke flapping", "text", "flapping"],
          ["stroke dotted", "bad", "no answer"],
        ),
    group(
      "Boards and pods",
      ["ring", "level-2", "takes no pods"],
      ["warning", "warn", "has a warning"],
      ["ring dashed", "bad", "offline or silent"],
      ["ring dashed", "unknown", "not heard"],
      ["square", "level-2", "cloud"],
      ["dot", "pod", "pod placed by Leadline"],
      ["dot", "other-pod", "other pod"],
    ),
  );
}
