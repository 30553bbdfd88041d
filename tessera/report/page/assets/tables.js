"use strict";
// A kernel by a name that fits; the whole of it is its title.
T.kernel = (name) => T.el("span", { class: "kernel", title: name, text: T.short(name.replace(/^m\d+\./, ""), 40) });
// Tables that show a page at a time, so that a long one costs no more than a short one.
// A column: {title, right, of(row) -> text or element, key(row) -> what to sort by}.
T.table = (columns, rows, options) => {
  const size = (options && options.size) || 12;
  let page = 0, order = rows, sorted = null, down = false;
  const body = T.el("tbody"), said = T.el("span", { "aria-live": "polite" });
  const draw = () => {
    body.replaceChildren(...order.slice(page * size, (page + 1) * size).map((row) =>
      T.el("tr", {}, columns.map((column) => T.el("td", { class: column.right ? "right" : "" }, column.of(row))))));
    said.textContent = `${T.count(page * size + 1)} to ${T.count(Math.min(order.length, (page + 1) * size))} of ${T.count(order.length)}`;
    back.disabled = page === 0;
    next.disabled = (page + 1) * size >= order.length;
  };
  const go = (by) => () => { page += by; draw(); };
  const back = T.button("Back", go(-1)), next = T.button("Next", go(1));
  const sort = (column) => () => {
    down = sorted === column ? !down : Boolean(column.right);
    sorted = column;
    order = rows.slice().sort((a, b) => {
      const one = column.key(a), two = column.key(b);
      return (down ? -1 : 1) * (typeof one === "number" ? one - two : String(one).localeCompare(String(two)));
    });
    page = 0;
    draw();
  };
  const heads = columns.map((column) => !column.title ? T.el("td") : T.el("th", { scope: "col", class: column.right ? "right" : "" },
    column.key && rows.length > 2 ? T.el("button", { type: "button", text: column.title, title: "Sort", on: { click: sort(column) } }) : column.title));
  const table = T.el("table", { class: "data" },
    options && options.caption ? T.el("caption", { class: "spoken", text: options.caption }) : null,
    columns.some((column) => column.title) ? T.el("thead", {}, T.el("tr", {}, heads)) : null, body);
  draw();
  const scrolled = T.el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": (options && options.caption) || "table" }, table);
  return T.el("div", {}, scrolled, rows.length > size ? T.el("div", { class: "pager" }, back, next, said) : null);
};
