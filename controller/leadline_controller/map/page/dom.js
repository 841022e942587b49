// Elements without HTML strings: names come from boards and pods and are only ever text.

const MOST_ROWS = 1000; // of a table

export const byId = (id) => document.getElementById(id);

/** An element with properties and children; a child that is no node becomes text. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setCell(cell, value) {
  const { text, href, bar, tone } =
    value !== null && typeof value === "object" ? value : { text: value };
  const shown = String(text ?? "–");
  if (href) {
    let link = cell.firstElementChild;
    if (!link) cell.replaceChildren((link = el("a")));
    setText(link, shown);
    if (link.getAttribute("href") !== href) link.setAttribute("href", href);
  } else {
    setText(cell, shown);
  }
  cell.classList.toggle("bar", bar !== undefined);
  if (bar !== undefined) cell.style.setProperty("--part", `${(bar * 100).toFixed(1)}%`);
  if (cell.dataset.tone !== tone) {
    if (tone) cell.dataset.tone = tone;
    else delete cell.dataset.tone;
  }
}

const collator = new Intl.Collator(undefined, { numeric: true });
/** Compares names as people do: n2 is before n10. */
export const naturally = (a, b) => collator.compare(a, b);

function compare(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : naturally(String(a), String(b));
}

/** Sort by a column: first its largest numbers, or the first names; then the reverse; then as before. */
function sortBy(table, at, column) {
  const largestFirst = Boolean(column.number);
  const { column: before, down } = table.order ?? {};
  if (before !== at) table.order = { column: at, down: largestFirst };
  else table.order = down === largestFirst ? { column: at, down: !down } : null;
  table.show();
}

/**
 * Show rows in a table, sorted by the column whose title was clicked, and only those with the text of
 * its filter, the input with data-filters=ID. It changes cells in place, so that the focus stays.
 * columns: [{title, cell: (row) => text or {text, href, bar: 0 to 1, tone}, by: (row) => what sorts it
 * instead of the text, number: bool, wide: bool}]; the first is the row's header.
 */
export function fillTable(table, caption, columns, rows, empty = "None") {
  if (!table.caption) {
    table.append(el("caption", { className: "hidden" }));
    table.append(el("thead"), el("tbody"));
    table.filter = document.querySelector(`[data-filters="${table.id}"]`);
    table.filter?.addEventListener("input", () => table.show());
  }
  table.show = () => fillTable(table, caption, columns, rows, empty);
  setText(table.caption, caption);
  const titles = columns.map((column) => column.title).join("\n");
  if (table.titles !== titles) {
    table.titles = titles;
    table.order = null;
    const headers = columns.map((column, at) => {
      const button = el("button", { type: "button" }, column.title);
      button.addEventListener("click", () => sortBy(table, at, column));
      return el("th", { scope: "col", className: column.number ? "number" : "" }, button);
    });
    table.tHead.replaceChildren(el("tr", {}, ...headers));
    table.tBodies[0].replaceChildren();
  }
  const { column: sorted, down } = table.order ?? {};
  [...table.tHead.rows[0].cells].forEach((header, at) => {
    const way = down ? "descending" : "ascending";
    header.setAttribute("aria-sort", at === sorted ? way : "none");
  });
  let shown = rows.map((row) => ({ row, cells: columns.map((column) => column.cell(row)) }));
  const wanted = table.filter?.value.trim().toLowerCase();
  if (wanted) {
    const text = (cell) => String(cell?.text ?? cell ?? "").toLowerCase();
    shown = shown.filter(({ cells }) => cells.some((cell) => text(cell).includes(wanted)));
  }
  if (sorted !== undefined) {
    const { by } = columns[sorted];
    const key = ({ row, cells }) => (by ? by(row) : (cells[sorted]?.text ?? cells[sorted]));
    const isKnown = (value) => value !== null && value !== undefined && !Number.isNaN(value);
    const keyed = shown.map((each) => [key(each), each]);
    // What is unknown is last in both directions.
    const [known, unknown] = [true, false].map((is) => keyed.filter(([value]) => isKnown(value) === is));
    known.sort(([a], [b]) => (down ? compare(b, a) : compare(a, b)));
    shown = [...known, ...unknown].map(([, each]) => each);
  }
  table.tFoot?.remove();
  const body = table.tBodies[0];
  if (!shown.length) {
    const none = wanted && rows.length ? "No row has this text" : empty;
    body.replaceChildren(el("tr", {}, el("td", { colSpan: columns.length, className: "quiet" }, none)));
    return;
  }
  if (shown.length > MOST_ROWS) {
    const text = `and ${shown.length - MOST_ROWS} more: filter the table`;
    table.createTFoot().append(el("tr", {}, el("td", { colSpan: columns.length }, text)));
    shown.length = MOST_ROWS;
  }
  if (body.rows[0]?.cells.length !== columns.length) body.replaceChildren();
  while (body.rows.length > shown.length) body.lastElementChild.remove();
  const made = document.createDocumentFragment();
  for (let i = body.rows.length; i < shown.length; i++) {
    const cells = columns.map((column, j) => {
      const className = column.number ? "number" : column.wide ? "wide" : "";
      const cell = el(j ? "td" : "th", { className });
      if (!j) cell.scope = "row";
      return cell;
    });
    made.append(el("tr", {}, ...cells));
  }
  body.append(made);
  shown.forEach(({ cells }, i) => {
    cells.forEach((cell, j) => setCell(body.rows[i].cells[j], cell));
  });
}

/** Show [term, text] pairs in a description list. */
export function fillFacts(list, facts) {
  list.replaceChildren(
    ...facts.map(([term, text]) => el("div", {}, el("dt", {}, term), el("dd", {}, text))),
  );
}
