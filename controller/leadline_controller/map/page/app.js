// The page: views by the address after #, drawn when something changed, and not more often than
// a person can follow.

import { BoardView } from "./board.js";
import { chartCount, timed } from "./charts.js";
import { Choice } from "./choice.js";
import { Announcer, DecisionView, drawList, drawTable } from "./decisions.js";
import { byId, fillTable, naturally, setText } from "./dom.js";
import * as format from "./format.js";
import { Live } from "./live.js";
import { MapView } from "./map.js";
import { PairsView } from "./pairs.js";
import { ageNow, Store } from "./store.js";
import { startTheme } from "./theme.js";
import { TimeSlider } from "./time.js";
import { LAYER, Traffic } from "./traffic.js";

const DRAW_MS = 400;
const MOST_DRAW_MS = 2000;
const AGES_MS = 5000;

startTheme();
const store = new Store();
const map = new MapView((name) => (location.hash = format.boardHref(name)));
const choice = new Choice(() => draw());
const traffic = new Traffic(store, () => drawSoon());
const pairs = new PairsView(store);
const board = new BoardView(store);
const decision = new DecisionView();
const announcer = new Announcer();
const slider = new TimeSlider(store, (problem) => tell("time", problem));
let view = { name: "" };

const problems = new Map();
function tell(about, problem) {
  if (problem) problems.set(about, problem);
  else problems.delete(about);
  setText(byId("problem"), [...problems.values()].join(" "));
  byId("problem").hidden = !problems.size;
}

// ---- views ----
const LEAVE = { pairs: () => pairs.hide(), board: () => board.hide(), decision: () => decision.hide() };
const ENTER = {
  map: () => {
    draw();
    traffic.follow();
  },
  pairs: () => pairs.show(),
  decisions: () => draw(),
  board: (name) => board.show(name),
  decision: (id) => decision.show(id),
};
const TITLES = { map: "Map", pairs: "Pairs", decisions: "Decisions" };

function route() {
  const [, first = "", second] = location.hash.split("/");
  let argument;
  try {
    argument = second === undefined ? undefined : decodeURIComponent(second);
  } catch {
    argument = second; // not an address that this page made
  }
  if (first === "boards" && argument) return { name: "board", argument };
  if (first === "decisions") return argument ? { name: "decision", argument } : { name: "decisions" };
  return { name: first === "pairs" ? "pairs" : "map" };
}

function go(focus) {
  LEAVE[view.name]?.();
  view = route();
  for (const element of document.querySelectorAll(".view")) {
    element.hidden = element.id !== `view-${view.name}`;
  }
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view.argument ?? TITLES[view.name]} – Leadline`;
  if (focus) {
    byId("main").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  ENTER[view.name](view.argument);
  drawNote();
}

// ---- drawing ----
function drawBoards(wanted) {
  const { nodes, live } = store.shown;
  const rows = [...nodes.values()]
    .filter((node) => wanted?.has(node.name) ?? true)
    .sort((a, b) => naturally(a.name, b.name));
  fillTable(
    byId("boards"),
    "Boards",
    [
      { title: "Board", cell: (node) => format.boardCell(node.name) },
      {
        title: "State",
        wide: true,
        cell: (node) => {
          const [text, tone] = format.boardState(node, live);
          return { text, tone };
        },
      },
      {
        title: "Bandwidth",
        cell: (n) => format.bandwidth(n.bandwidth_mbps, n.bandwidth_kind),
        by: (node) => node.bandwidth_mbps,
        number: true,
      },
      ...[
        ["CPU", "cpu_percent", "%"],
        ["Memory", "memory_percent", "%"],
        ["Temp.", "temperature_c", "°C"],
      ].map(([title, field, unit]) => ({
        title,
        cell: (node) => format.number(node[field], unit, 0),
        by: (node) => node[field],
        number: true,
      })),
      { title: "Pods", cell: format.podsOf, number: true },
      {
        title: "Report",
        cell: (node) => format.age(ageNow(node, "age_s", live)),
        by: (node) => ageNow(node, "age_s", live),
        number: true,
      },
    ],
    rows,
    nodes.size ? "No board is like that" : "No board is known",
  );
}

function drawLinks() {
  if (!byId("links-details").open) return;
  const { links, nodes, live } = store.shown;
  fillTable(
    byId("links"),
    "Links of the map",
    [
      { title: "Board", cell: (link) => format.boardCell(link.a) },
      { title: "Board", cell: (link) => format.boardCell(link.b) },
      ...format.linkColumns(nodes, live),
    ],
    [...links.values()].sort((x, y) => naturally(x.a, y.a) || naturally(x.b, y.b)),
  );
}

function drawHeader() {
  const { cluster, strategy, leads, lease_holder: holder, recorded } = store.now;
  const role = leads ? "places pods" : `does not lead${holder ? `; ${holder} does` : ""}`;
  setText(byId("cluster"), `${cluster ?? ""} · ${strategy ?? ""} · ${recorded ? "a recording" : role}`);
  byId("recorded").hidden = !recorded;
  if (!recorded) return;
  const [from, to] = [recorded.from_unix_s, recorded.to_unix_s].map(format.moment);
  const missing = recorded.missing && ` Not shown: ${recorded.missing}.`;
  setText(byId("recorded"), `This is a recording, from ${from} to ${to}.${missing}`);
}

/** What a view does not show as it was at the time of the slider. now: "now", or the end of a recording. */
const OF_NOW = {
  map: (now) => `Of links only the round trips are kept. Boards are drawn where they are ${now}.`,
  pairs: (now) => `Pairs are shown as they are ${now}: their past is not kept.`,
  board: () => "Of links only the round trips are kept. What a board is, such as its hardware, is not.",
  decision: (now) => `This decision is shown as it is ${now}.`,
};

function drawNote() {
  const recorded = Boolean(store.now?.recorded);
  let note = store.past ? OF_NOW[view.name]?.(recorded ? "at the end of the recording" : "now") : undefined;
  if (recorded && view.name === "decision") note = "A recording says what was decided, and has no scores.";
  setText(byId("past-note"), note ?? "");
  byId("past-note").hidden = !note;
}

function draw() {
  if (!store.now || document.hidden) return;
  timed(view.name, drawView);
}

function drawView() {
  drawHeader();
  drawNote();
  slider.update();
  if (view.name === "map") {
    const layer = byId("map-colour").value;
    const measure = format.MEASURES[layer];
    const overview = layer === LAYER ? { ...store.shown, links: traffic.lines } : store.shown;
    const shown = { ...overview, measure, levels: format.boardLevels(measure, overview) };
    const wanted = choice.update(shown);
    map.draw({ ...shown, wanted });
    drawList(store);
    drawBoards(wanted);
    drawLinks();
    traffic.draw();
  } else if (view.name === "decisions") drawTable(store);
  else if (view.name === "board") board.draw();
}

let waiting = 0;
let lastDrawn = -Infinity;
let pause = DRAW_MS;
function drawSoon() {
  if (waiting) return;
  const delay = Math.max(0, pause - (performance.now() - lastDrawn));
  waiting = setTimeout(() => {
    requestAnimationFrame(() => {
      waiting = 0;
      const begin = performance.now();
      draw();
      // Leave most of the time to the person.
      lastDrawn = performance.now();
      pause = Math.min(MOST_DRAW_MS, Math.max(DRAW_MS, 4 * (lastDrawn - begin)));
    });
  }, delay);
}

// A hidden page gets no frames; what changed meanwhile is drawn when it is seen again.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  clearTimeout(waiting);
  waiting = 0;
  drawSoon();
});
store.addEventListener("change", drawSoon);
store.addEventListener("decisions", ({ detail }) => {
  drawSoon();
  if (!detail) return;
  announcer.add(detail);
  if (view.name === "decision") decision.changed(detail.id);
});
store.addEventListener("time", () => {
  if (view.name === "board") board.show(view.argument);
});
for (const id of ["map-colour", "decisions-each"]) byId(id).addEventListener("change", draw);
byId("links-details").addEventListener("toggle", drawSoon);
setInterval(drawSoon, AGES_MS);
addEventListener("hashchange", () => go(true));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # belongs to the views
  byId("main").focus();
});

go(false);
new Live(store, (said, problem) => {
  const state = said === "live" && store.now?.recorded ? "recording" : said;
  setText(byId("state"), state === "waiting" ? "connecting again" : state);
  byId("state").dataset.state = state;
  tell("connection", problem);
}).start();

// For measurements from outside, such as the tests': counts, no action.
globalThis.leadline = {
  counts: () => ({
    boards: store.now?.nodes.size ?? 0,
    links: store.now?.links.size ?? 0,
    decisions: store.decisions.size,
    charts: chartCount(),
    elements: document.getElementsByTagName("*").length,
  }),
};
