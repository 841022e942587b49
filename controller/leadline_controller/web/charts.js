// ECharts as this page uses it: one instance for each canvas, kept and reused.

import * as echarts from "./vendor/echarts.js";
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

/** A long name with its middle left out: of `garage-17` the number tells more than the rest. */
export function shorten(name, most) {
  if (name.length <= most) return name;
  const tail = Math.ceil((most - 1) * 0.45);
  return `${name.slice(0, most - 1 - tail)}…${name.slice(-tail)}`;
}
