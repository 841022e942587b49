// Values as text. What is unknown is a dash and never 0.

import { ageNow } from "./store.js";

export const UNKNOWN = "–";
export const known = (value) => typeof value === "number" && Number.isFinite(value);

export function number(value, unit = "", digits) {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return unit ? `0 ${unit}` : "0";
  const size = Math.abs(value);
  const places = digits ?? (size >= 100 ? 0 : size >= 10 ? 1 : 2);
  const text = size >= 1e6 ? value.toExponential(1) : value.toFixed(places);
  return unit ? `${text} ${unit}` : text;
}

export const count = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;

export function age(seconds) {
  if (!known(seconds)) return UNKNOWN;
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function ago(seconds) {
  return known(seconds) ? `${age(seconds)} ago` : UNKNOWN;
}

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  return value >= 1e9 ? number(value / 1e9, "GB") : number(value / 1e6, "MB");
}

export function clock(unixS) {
  if (!known(unixS)) return UNKNOWN;
  const time = new Date(unixS * 1000);
  const now = new Date();
  const today = now.toDateString() === time.toDateString();
  const year = now.getFullYear() === time.getFullYear() ? undefined : "numeric";
  return time.toLocaleString(
    undefined,
    today
      ? { hour: "2-digit", minute: "2-digit", second: "2-digit" }
      : { year, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" },
  );
}

/** With its day, whenever it is. */
export const moment = (unixS) =>
  new Date(unixS * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

export function bandwidth(mbps, kind) {
  if (!known(mbps)) return UNKNOWN;
  const text = `${kind === "at-least" ? "≥ " : ""}${number(mbps, "Mbit/s")}`;
  return kind === "suspect" || kind === "host-limited" ? `${text} (${kind})` : text;
}

export const ROUND_TRIP_MARKS = { estimated: "~ ", triangulated: "~ ", bounded: "≤ " };

export function roundTrip(link) {
  if (link.source === "unreachable") return "no answer";
  if (!known(link.rtt_ms)) return UNKNOWN;
  const guessed = link.source === "estimated" || link.source === "triangulated";
  const error = guessed && known(link.error_ms) ? ` ± ${number(link.error_ms)}` : "";
  return `${ROUND_TRIP_MARKS[link.source] ?? ""}${number(link.rtt_ms)}${error} ms`;
}

export const percent = (share) => number(known(share) ? share * 100 : null, "%");

/** A board's state in words: [text, tone], tone "", "warn" or "bad". */
export function boardState(node, live) {
  const words = [!live && node.agent === "online" ? "reported" : node.agent];
  let tone = node.online === false ? "bad" : "";
  if (node.ready === false) words.push("not ready");
  if (node.in_cluster === false) words.push("not in the cluster");
  if (node.schedulable === false) words.push("takes no pods");
  const notes = node.notes ?? [];
  if (notes.length && !tone) tone = "warn";
  return [[...new Set([...words, ...notes])].join(", "), tone];
}

const LEAST_BOUND_MBPS = 50;

/** A short test finds a low bound on a fast link too: a low bound, or one of a busy board, tells nothing. */
const sure = (mbps, kind) => (kind !== "exact" && mbps < LEAST_BOUND_MBPS ? null : mbps);

export const podsOf = (node) => node.pods_total ?? node.pods.length;

/** The largest share of a link that traffic takes at each board. */
function busiest({ links }) {
  const found = new Map();
  for (const { a, b, share } of links.values()) {
    for (const name of [a, b]) if (known(share)) found.set(name, Math.max(found.get(name) ?? 0, share));
  }
  return (node) => 100 * found.get(node.name); // unknown is no number
}

/** The middle of the round trips of each board's links that are shown. */
function middles(links) {
  const found = new Map();
  for (const { a, b, rtt_ms: rtt } of links.values()) {
    if (!known(rtt)) continue;
    for (const name of [a, b]) found.set(name, [...(found.get(name) ?? []), rtt]);
  }
  for (const [name, all] of found) found.set(name, all.sort((x, y) => x - y)[all.length >> 1]);
  return (node) => found.get(node.name);
}

/**
 * What the map's colours can show. limits: between five colours, of which the first is the one to look
 * at: the least bandwidth, else the most. worst: those of that colour, in words. of: ({nodes, links},
 * live) returns the function from a board to its value; link: (link, nodes) to that of a link; width: from
 * a link to its width in pixels, in place of that by its bandwidth.
 */
export const MEASURES = {
  bandwidth: {
    title: "Bandwidth, Mbit/s",
    limits: [10, 50, 150, 500],
    worst: "below 10 Mbit/s",
    unknown: "unknown, or a bound under 50",
    of: () => (node) => sure(node.bandwidth_mbps, node.bandwidth_kind),
    link(link, nodes) {
      const { mbps, kind } = linkBandwidth(link, nodes);
      return sure(mbps, kind);
    },
  },
  rtt: {
    title: "Round trip, ms",
    limits: [1, 5, 20, 100],
    worst: "with 100 ms or more",
    of: ({ links }) => middles(links),
    link: ({ rtt_ms: rtt }) => rtt,
  },
  traffic: {
    title: "Traffic, % of a link",
    limits: [5, 20, 50, 80],
    worst: "with 80 % of a link taken",
    unknown: "none, or only declared",
    of: busiest,
    link: ({ share }) => (known(share) ? 100 * share : null),
    width: ({ mbps }) => 1.2 + 1.6 * Math.log10(1 + mbps),
  },
  cpu: {
    title: "CPU, %",
    limits: [20, 40, 60, 80],
    worst: "with 80 % CPU or more",
    of: () => (node) => node.cpu_percent,
  },
  temperature: {
    title: "Temperature, °C",
    limits: [50, 60, 70, 80],
    worst: "at 80 °C or more",
    of: () => (node) => node.temperature_c,
  },
  pods: {
    title: "Pods",
    limits: [1, 5, 10, 30],
    worst: "with 30 pods or more",
    of: () => podsOf,
  },
  age: {
    title: "Age of the last report",
    limits: [15, 60, 300, 3600],
    worst: "not heard for an hour",
    text: age,
    of: (_, live) => (node) => ageNow(node, "age_s", live),
  },
};

/** The colour's number: 0 is the one to look at, 4 the best, -1 unknown. */
export function level(measure, value) {
  if (!known(value)) return -1;
  const passed = measure.limits.filter((limit) => value >= limit).length;
  return measure === MEASURES.bandwidth ? passed : measure.limits.length - passed;
}

/** The colour's number of each board of {nodes, links}, by name. */
export function boardLevels(measure, overview) {
  const value = measure.of(overview, overview.live !== false);
  const { nodes } = overview;
  return new Map([...nodes.values()].map((node) => [node.name, level(measure, value(node))]));
}

/** The colours' numbers and what they say, in the order of the values. */
export function levelNames(measure) {
  const { limits, text = String } = measure;
  return [...limits, Infinity].map((limit, i) => {
    const name = i ? `${text(limits[i - 1])} to ${text(limit)}` : `below ${text(limit)}`;
    const shown = limit === Infinity ? `${text(limits.at(-1))} and more` : name;
    return [level(measure, i ? limits[i - 1] : 0), shown];
  });
}

/** A link's bandwidth, or that of its slower board if only the boards' are known. */
export function linkBandwidth(link, nodes) {
  if (known(link.bandwidth_mbps)) {
    return { mbps: link.bandwidth_mbps, kind: link.bandwidth_kind, ofBoards: false };
  }
  const ends = [nodes.get(link.a), nodes.get(link.b)];
  if (!ends.every((end) => end && known(end.bandwidth_mbps))) return { mbps: null };
  const slower = ends[0].bandwidth_mbps <= ends[1].bandwidth_mbps ? ends[0] : ends[1];
  return { mbps: slower.bandwidth_mbps, kind: slower.bandwidth_kind, ofBoards: true };
}

export function linkBandwidthText(link, nodes) {
  const { mbps, kind, ofBoards } = linkBandwidth(link, nodes);
  return `${bandwidth(mbps, kind)}${ofBoards ? " (slower board)" : ""}`;
}

/** The level of a link's bandwidth. */
export const speed = (link, nodes) =>
  level(MEASURES.bandwidth, MEASURES.bandwidth.link(link, nodes));

export const boardHref = (name) => `#/boards/${encodeURIComponent(name)}`;
/** A table's cell with a board's name, which leads to the board. */
export const boardCell = (name, text = name) => ({ text, href: boardHref(name) });
export const decisionHref = (id) => `#/decisions/${encodeURIComponent(id)}`;

export const bandwidthColumn = (nodes) => ({
  title: "Bandwidth",
  cell: (link) => linkBandwidthText(link, nodes),
  by: (link) => linkBandwidth(link, nodes).mbps,
  number: true,
});

/** The columns that tables of links share. */
export const linkColumns = (nodes, live) => [
  { title: "Round trip", cell: roundTrip, by: (link) => link.rtt_ms, number: true },
  { title: "Source", cell: (link) => (link.flapping ? `${link.source}, flapping` : link.source) },
  {
    title: "Loss",
    cell: (link) => number(link.loss == null ? null : link.loss * 100, "%"),
    by: (link) => link.loss,
    number: true,
  },
  bandwidthColumn(nodes),
  {
    title: "Age",
    cell: (link) => age(ageNow(link, "age_s", live)),
    by: (link) => ageNow(link, "age_s", live),
    number: true,
  },
];
