// Elements without HTML strings: names come from boards and pods and are only ever text.

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

/**
 * Show rows in a table. It changes cells in place, so that the focus stays where it is.
 * columns: [{title, cell: (row) => text or {text, href, bar: 0 to 1, tone}, number: bool, wide: bool}];
 * the first is the row's header.
 */
export function fillTable(table, caption, columns, rows, empty = "None") {
  if (!table.caption) {
    table.append(el("caption", { className: "hidden" }));
    table.append(el("thead"), el("tbody"));
  }
  setText(table.caption, caption);
  const titles = columns.map((column) => column.title).join("\n");
  if (table.titles !== titles) {
    table.titles = titles;
    const headers = columns.map((column) =>
      el("th", { scope: "col", className: column.number ? "number" : "" }, column.title),
    );
    table.tHead.replaceChildren(el("tr", {}, ...headers));
    table.tBodies[0].replaceChildren();
  }
  const body = table.tBodies[0];
  if (!rows.length) {
    body.replaceChildren(el("tr", {}, el("td", { colSpan: columns.length, className: "quiet" }, empty)));
    return;
  }
  if (body.rows[0]?.cells.length !== columns.length) body.replaceChildren();
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  const made = document.createDocumentFragment();
  for (let i = body.rows.length; i < rows.length; i++) {
    const cells = columns.map((column, j) => {
      const className = column.number ? "number" : column.wide ? "wide" : "";
      const cell = el(j ? "td" : "th", { className });
      if (!j) cell.scope = "row";
      return cell;
    });
    made.append(el("tr", {}, ...cells));
  }
  body.append(made);
  rows.forEach((row, i) => {
    const cells = body.rows[i].cells;
    columns.forEach((column, j) => setCell(cells[j], column.cell(row)));
  });
}

/** Show [term, text] pairs in a description list. */
export function fillFacts(list, facts) {
  list.replaceChildren(
    ...facts.map(([term, text]) => el("div", {}, el("dt", {}, term), el("dd", {}, text))),
  );
}
