"use strict";
// The answer (or an overview), figures, bars, tables and texts.
T.figures = (figures) => T.el("div", { class: "figures" }, figures.map((figure) => {
  const [value, unit] = T.parts(figure.value, figure.unit);
  const range = figure.range ? T.between(figure.range, figure.unit) : null;
  return T.el("div", { class: "figure" }, T.el("span", { class: "label", text: figure.label }),
    T.el("span", { class: "value" }, value, unit ? T.el("span", { class: "unit", text: " " + unit }) : null),
    range ? T.el("span", { class: "range num", text: range }) : null);
}));
T.card = (title, ...parts) => T.el("div", { class: "card stack" }, title ? T.el("h3", {}, T.words(title)) : null, parts.flat());
T.charts = (charts) => (charts.length ? T.el("div", { class: "grid" }, charts.map((chart) => T.card("", T.bars(chart)))) : null);
T.kinds.overview = (data) => [
  T.el("div", { class: "stack" }, T.el("p", { class: "answer" }, T.words(data.headline)), T.el("p", { class: "muted" }, T.words(data.detail))),
  T.figures(data.figures), T.charts(data.charts), T.notes(data.notes),
];
// Three levels: what to do and instead, four figures, and a card for each question after that.
T.kinds.answer = (data) => {
  if (!data.sources) return T.kinds.overview(data); // of a page that an earlier version made
  const known = data.sources.map(([name, value, rank]) => ({ value, color: [1, 0, 6, 4, 2, 2, 7][rank], title: `${T.value(value, "share")} of the time by ${name}` }));
  const sources = T.el("div", { class: "stackbar", role: "img", "aria-label": known.map((own) => own.title).join(", ") }, known.map((own) => T.el("span", { class: T.color(own.color), title: own.title, style: { width: 100 * own.value + "%" } })));
  // Of the bars those of this plan and of the best others; all are among the trade-offs.
  const first = data.charts[0], better = first.better.startsWith("more") ? -1 : 1;
  const others = first.rows.filter((row) => !row.role).sort((one, two) => better * (one.value - two.value)), left = others.splice(5).length;
  const short = { ...first, title: "What it brings: " + first.title.toLowerCase(), rows: first.rows.filter((row) => row.role || others.includes(row)) };
  return [
    T.el("div", { class: "stack" }, T.el("p", { class: data.headline.length > 70 ? "answer long" : "answer" }, data.headline.split(" ").flatMap((word) => [T.el("span", { class: "word" }, T.words(word)), " "])),
      T.el("p", { class: "lead" }, T.words(data.detail)), data.instead.length ? T.el("div", { class: "instead" }, T.el("b", { text: "Instead" }), T.el("div", {}, data.instead.map((text) => T.el("p", {}, T.words(text))))) : null),
    T.figures(data.figures),
    T.el("div", { class: "grid" },
      T.el("div", { class: "stack" }, T.card("", T.bars(short), left ? T.el("p", { class: "small muted" }, T.el("a", { href: "#tradeoffs", text: `${left} more plans` })) : null),
        T.card("What it rests on", sources,
          T.el("div", { class: "legend" }, known.map((own) => T.el("span", {}, T.swatch(own.color), own.title))), T.notes(data.rests))),
      T.el("div", { class: "stack" }, data.who ? T.card("Who does what, and how busy", T.who(data.who)) : null,
        T.card("What would change it", T.table([{ title: "If", of: (row) => T.el("span", {}, T.words(row[0])) }, { title: data.objective, right: true, of: (row) => row[1] }], data.changes, { size: 8, caption: "Changes and their effect" })))),
    T.charts(data.charts.slice(1)),
  ];
};
T.kinds.figures = (data) => [T.figures(data.figures)];
T.kinds.bars = (data) => [T.charts(data.charts)];
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
