"use strict";
// The answer (or an overview), figures, bars, tables and texts.
T.figures = (figures) => T.el("div", { class: "figures" }, figures.map((figure) => {
  const [value, unit] = T.parts(figure.value, figure.unit);
  const range = figure.range ? T.between(figure.range, figure.unit) : null;
  return T.el("div", { class: "figure" }, T.el("span", { class: "label", text: figure.label }),
    T.el("span", { class: "value" }, value, unit ? T.el("span", { class: "unit", text: " " + unit }) : null),
    range ? T.el("span", { class: "range num", text: range }) : null);
}));
T.kinds.answer = T.kinds.overview = (data) => [
  T.el("div", { class: "stack" }, T.el("p", { class: "answer" }, T.words(data.headline)), T.el("p", { class: "muted" }, T.words(data.detail))),
  T.figures(data.figures),
  T.el("div", { class: "grid" }, data.charts.map((chart) => T.el("div", { class: "card" }, T.bars(chart)))),
  T.notes(data.notes),
];
T.kinds.figures = (data) => [T.figures(data.figures)];
T.kinds.bars = (data) => [T.el("div", { class: "grid" }, data.charts.map((chart) => T.el("div", { class: "card" }, T.bars(chart))))];
T.kinds.text = (data) => [T.el("div", { class: "card stack" }, data.paragraphs.map((text) => T.el("p", {}, T.words(text))))];
// Columns are {title, unit, right}; a cell is a text, or a number in the unit of its column.
T.cells = (columns) => columns.map((column, index) => ({
  title: column.title, right: column.right, key: (row) => row[index],
  of: (row) => (typeof row[index] === "number" ? T.value(row[index], column.unit) : T.words(String(row[index] ?? ""))),
}));
T.kinds.table = (data) => [T.el("div", { class: "card" }, T.table(T.cells(data.columns), data.rows, { size: data.size || 20, caption: data.caption }))];
T.kinds.made = (data) => [
  T.el("div", { class: "card stack" },
    T.table([{ title: "", of: (row) => row[0] }, { title: "", of: (row) => T.el("code", { text: row[1] }) }], data.facts, { size: 20, caption: "Versions and digests" })),
  T.el("div", { class: "card stack" }, T.table([
    { title: "File", of: (row) => row.name, key: (row) => row.name },
    { title: "Holds", of: (row) => T.words(row.holds), key: (row) => row.holds },
    { title: "Size", right: true, of: (row) => T.bytes(row.bytes), key: (row) => row.bytes },
    { title: "SHA-256", of: (row) => T.el("code", { text: row.sha256 }) }], data.files, { size: 12, caption: "Files" })),
];
