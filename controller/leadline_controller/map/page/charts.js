// ECharts as this page uses it: one instance for each canvas, kept and reused.

import * as echarts from "./vendor/echarts.js";
import { el } from "./dom.js";
import { colours, onTheme } from "./theme.js";

const drawn = new Map(); // container -> {chart, redraw}
export const chartCount = () => drawn.size;

/** The chart of a container; made at first. redraw: draws again after a change of size or theme. */
export function chartOf(container, redraw) {
  let entry = drawn.get(container);
  if (!entry) {
    entry = { chart: echarts.init(container, null, { renderer: "canvas" }), redraw };
    drawn.set(container, entry);
    let size = "";
    new ResizeObserver(() => {
      const now = `${container.clientWidth}x${container.clientHeight}`;
      if (now === size || !container.clientWidth) return;
      size = now;
      entry.chart.resize();
      entry.redraw();
    }).observe(container);
  }
  return entry.chart;
}

onTheme(() => {
  for (const [container, { redraw }] of drawn) if (container.clientWidth) redraw();
});

/** Draw, the canvases too, and tell the browser's timeline how long the view took. */
export function timed(view, draw) {
  const start = performance.now();
  draw();
  for (const { chart } of drawn.values()) chart.getZr().flush();
  performance.measure(view, { start });
  performance.clearMeasures(view); // observers have it, and a page stays open for weeks
}

export const FONT = "system-ui, sans-serif";

/** The tooltip's box. formatter returns an element, so that no name is read as HTML. */
export const tooltip = (formatter) => ({
  confine: true,
  backgroundColor: colours().card,
  borderColor: colours().line,
  textStyle: { color: colours().text, fontSize: 13, fontFamily: FONT },
  extraCssText: "max-width: 20rem; white-space: normal; overflow-wrap: anywhere;",
  formatter,
});

/** The tooltip's text: what it is of, and a line for each value. */
export const tip = (title, lines) =>
  el("div", {}, el("strong", {}, title), ...lines.map((line) => el("div", {}, line)));

const COARSE = matchMedia("(pointer: coarse)").matches;

/** Zooming of both axes by wheel and fingers. One finger scrolls the page. */
export const zoomInside = (how) =>
  ["xAxisIndex", "yAxisIndex"].map((name) => ({
    ...{ type: "inside", [name]: 0, filterMode: "none", preventDefaultMouseMove: !COARSE },
    ...how,
  }));

/** A long name with its middle left out: of `garage-17` the number tells more than the rest. */
export function shorten(name, most) {
  if (name.length <= most) return name;
  const tail = Math.ceil((most - 1) * 0.45);
  return `${name.slice(0, most - 1 - tail)}…${name.slice(-tail)}`;
}

/** A colour between these, at 0 to 1. */
export const between = (share, colours) => echarts.color.lerp(share, colours);

// Cells of a grid as one shape: one element for each of 90,000 would take a second.
echarts.graphic.registerShape(
  "cells",
  echarts.graphic.extendShape({
    shape: { cells: [], x: 0, y: 0, width: 0, height: 0, gap: 0 },
    buildPath(path, { cells, x, y, width, height, gap }) {
      for (const [column, row] of cells) {
        // Whole pixels, so that no line is seen between two cells.
        const [left, right] = [column, column + 1].map((at) => Math.round(x + at * width));
        const [top, bottom] = [row, row + 1].map((at) => Math.round(y + at * height));
        path.rect(left, top, right - left - gap, bottom - top - gap);
      }
    },
  }),
);
