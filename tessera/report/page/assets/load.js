"use strict";
// What ran, and load over time with percentiles and switches of policy.
T.percentiles = (rows) => (rows.length ? T.table([{ title: "", of: (row) => row[0] }, ...["p50", "p90", "p99", "max"].map((title, index) => ({ title, right: true, of: (row) => T.time(row[index + 1]) }))], rows, { caption: "Percentiles" }) : null);
T.kinds.run = (data) => [
  T.el("p", { class: "muted", text: data.headline }), T.figures(data.figures.filter((figure) => figure.value > 0)),
  data.charts.length || data.percentiles.length ? T.el("div", { class: "grid" }, data.percentiles.length ? T.el("div", { class: "card stack" }, T.el("h3", { text: "Times" }), T.percentiles(data.percentiles)) : null, data.charts.map((chart) => T.el("div", { class: "card" }, T.bars(chart)))) : null,
  data.errors.length ? T.el("div", { class: "card stack", role: "alert" }, T.el("h3", { text: "Errors" }), T.notes(data.errors)) : null,
  data.outputs.length ? T.el("details", {}, T.el("summary", { text: `Digests of what came out: ${T.count(data.outputs.length)}` }), T.el("div", { class: "card" }, T.table([
    { title: "Of", of: (row) => row[0], key: (row) => row[0] }, { title: "Buffer", of: (row) => row[1], key: (row) => row[1] }, { title: "SHA-256", of: (row) => T.el("code", { text: row[2] }) }], data.outputs, { size: 10, caption: "Digests" }))) : null,
  T.notes(data.notes)];
T.kinds.load = (data) => {
  const parts = [T.el("p", { class: "muted", text: data.headline })], windows = data.windows, cards = [];
  const marks = (frame, to) => data.switches.forEach(([at, name]) => at <= to && frame.svg.append(T.svg("line", { class: "mark-line", x1: frame.x(at), x2: frame.x(at), y1: frame.top, y2: frame.bottom }), T.svg("text", { x: frame.x(at) + 4, y: frame.top + 10, text: T.short(name, 24) })));
  if (windows.length) {
    const to = windows[windows.length - 1][1], x = { low: 0, high: to, unit: "ns", title: "time" };
    const rate = (row, column) => (row[column] / (row[1] - row[0])) * 1e9;
    const one = T.plot({ label: "Requests that came and ended over time", height: 240, x, y: { low: 0, high: Math.max(1e-9, ...windows.map((row) => Math.max(rate(row, 2), rate(row, 3)))) * 1.15, unit: "" } });
    for (const row of windows) one.svg.append(T.svg("rect", { class: "came", x: one.x(row[0]) + 1, width: Math.max(0, one.x(row[1]) - one.x(row[0]) - 2), y: one.y(rate(row, 2)), height: one.bottom - one.y(rate(row, 2)) }, T.svg("title", { text: `${row[2]} came, ${row[3]} ended` })));
    const line = (frame, column, map, color) => frame.svg.append(T.svg("path", { class: "line " + T.color(color), d: windows.map((row, index) => `${index ? "L" : "M"}${frame.x((row[0] + row[1]) / 2)} ${frame.y(map(row, column))}`).join(" ") }));
    line(one, 3, rate, 0);
    marks(one, to);
    const two = T.plot({ label: "Response times over time", height: 240, x, y: { low: 0, high: Math.max(1, ...windows.map((row) => row[5])) * 1.15, unit: "ns" } });
    const plain = (row, column) => row[column];
    line(two, 4, plain, 1); line(two, 5, plain, 3);
    marks(two, to);
    const three = T.plot({ label: "Requests that waited over time", height: 240, x, y: { low: 0, high: Math.max(1, ...windows.map((row) => row[7])) * 1.15, unit: "" } });
    line(three, 6, plain, 4); line(three, 7, plain, 7);
    marks(three, to);
    const card = (title, frame, names) => T.el("div", { class: "card stack" }, T.el("h3", { text: title }), frame.svg, T.el("div", { class: "legend" }, names.map(([name, color]) => T.el("span", {}, T.swatch(color), name))));
    cards.push(card("Requests per second", one, [["came (bars)", 7], ["ended", 0]]), card("Response", two, [["p50", 1], ["p99", 3]]), card("Waiting", three, [["mean", 4], ["most", 7]]));
  }
  if (data.percentiles.length) cards.push(T.el("div", { class: "card stack" }, T.el("h3", { text: "Percentiles" }), T.percentiles(data.percentiles)));
  parts.push(T.el("div", { class: "grid" }, cards), T.notes(data.notes));
  return parts;
};
