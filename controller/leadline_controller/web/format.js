// Values as text. What is unknown is a dash and never 0.

export const UNKNOWN = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);

export function number(value, unit = "", digits) {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return unit ? `0 ${unit}` : "0";
  const size = Math.abs(value);
  const places = digits ?? (size >= 100 ? 0 : size >= 10 ? 1 : 2);
  const text = size >= 1e6 ? value.toExponential(1) : value.toFixed(places);
  return unit ? `${text} ${unit}` : text;
}

export function age(seconds) {
  if (!known(seconds)) return UNKNOWN;
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  return value >= 1e9 ? number(value / 1e9, "GB") : number(value / 1e6, "MB");
}

export function clock(unixS) {
  if (!known(unixS)) return UNKNOWN;
  const time = new Date(unixS * 1000);
  const today = new Date().toDateString() === time.toDateString();
  return time.toLocaleString(
    undefined,
    today
      ? { hour: "2-digit", minute: "2-digit", second: "2-digit" }
      : { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" },
  );
}

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

/** The upper limits of the colours for bandwidth, in Mbit/s. */
export const LIMITS_MBPS = [10, 50, 150, 500, Infinity];

const LEAST_BOUND_MBPS = 50;

/**
 * The colour's number: 0 is the slowest, 4 the fastest, -1 unknown. A short test finds a low bound
 * on a fast link too, so what is only a low bound, or limited by a busy board, counts as unknown.
 */
export function bandwidthLevel(mbps, kind) {
  if (!known(mbps) || (kind !== "exact" && mbps < LEAST_BOUND_MBPS)) return -1;
  return LIMITS_MBPS.findIndex((limit) => mbps < limit);
}

export const LEVEL_NAMES = ["below 10", "10 to 50", "50 to 150", "150 to 500", "500 and more"];

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

export const boardHref = (name) => `#/boards/${encodeURIComponent(name)}`;
export const decisionHref = (id) => `#/decisions/${encodeURIComponent(id)}`;
