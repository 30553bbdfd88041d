"use strict";
// Charts without a library: bars are tables (so they are read aloud as such), the rest is plain SVG.
T.bars = (chart) => {
  // Error bars that would make all bars tiny are cut off; their ends are in the text.
  const longest = Math.max(...chart.rows.map((row) => row.value), 1e-300);
  const most = Math.min(2.2 * longest, Math.max(...chart.rows.map((row) => Math.max(row.value, row.range ? row.range[1] : 0)), 1e-300));
  const part = (value) => (100 * Math.max(0, value)) / most + "%";
  // A unit that never changes stands once, above the bars.
  const fixed = chart.unit && !T.units[chart.unit] && chart.unit !== "usd" && chart.unit !== "share" ? chart.unit : "";
  const amount = (value) => T.value(value, fixed ? "" : chart.unit);
  const rows = chart.rows.map((row) => {
    const range = row.range && row.range[1] > row.range[0] ? row.range : null;
    const said = range ? T.between(range, chart.unit) : "";
    const track = T.el("div", { class: "track", "aria-hidden": "true" },
      T.el("div", { class: "bar " + (row.device === undefined ? "" : "colored " + T.color(row.device)), style: { width: part(row.value) } }),
      range ? T.el("div", { class: range[1] > most ? "whisker cut" : "whisker", style: { left: part(range[0]), width: part(Math.min(range[1], most) - range[0]) } }) : null);
    return T.el("tr", { class: row.role || "", title: said ? `${row.name}: ${said}` : row.name },
      T.el("th", { scope: "row", text: row.words || row.name }), T.el("td", {}, track),
      T.el("td", { class: "amount" }, row.said || amount(row.value), said ? T.el("span", { class: "spoken", text: `, ${said}` }) : null));
  });
  return T.el("table", { class: "bars" },
    chart.title ? T.el("caption", {}, T.el("b", { text: chart.title }), fixed || chart.better ? T.el("span", { text: [fixed, chart.better].filter(Boolean).join(", ") }) : null) : null,
    T.el("tbody", {}, rows));
};

T.ticks = (low, high, log) => {
  const found = [];
  if (log) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const each = Math.max(1, Math.ceil((last - first) / 6));
    for (let power = first; power <= last; power += each) if (10 ** power >= low * 0.999 && 10 ** power <= high * 1.001) found.push(10 ** power);
    return found;
  }
  const rough = (high - low) / 5 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((size) => size * power).find((size) => size >= rough);
  for (let tick = Math.ceil(low / step) * step; tick <= high * 1.0001; tick += step) found.push(tick);
  return found;
};

// A frame with two axes; `x(value)` and `y(value)` give places in it.
T.plot = (options) => {
  // Drawn in the width of a telephone there: letters keep their size.
  const width = Math.min(460, document.documentElement.clientWidth - 62), height = options.height || 300, left = 62, right = 14, top = options.y.title ? 26 : 12, bottom = 42;
  const scale = (axis, from, to) => {
    const map = axis.log ? Math.log10 : (value) => value;
    const low = map(axis.low), wide = map(axis.high) - low || 1;
    return (value) => from + ((to - from) * (map(Math.max(value, axis.log ? 1e-30 : -Infinity)) - low)) / wide;
  };
  const x = scale(options.x, left, width - right), y = scale(options.y, height - bottom, top);
  const svg = T.svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label });
  for (const tick of T.ticks(options.x.low, options.x.high, options.x.log)) svg.append(
    T.svg("line", { class: "grid-line", x1: x(tick), x2: x(tick), y1: top, y2: height - bottom }),
    T.svg("text", { x: x(tick), y: height - bottom + 16, "text-anchor": "middle", text: T.value(tick, options.x.unit) }));
  for (const tick of T.ticks(options.y.low, options.y.high, options.y.log)) svg.append(
    T.svg("line", { class: "grid-line", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
    T.svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end", text: T.value(tick, options.y.unit) }));
  svg.append(
    T.svg("text", { class: "strong", x: 0, y: 12, text: options.y.title || "" }),
    T.svg("text", { class: "strong", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle", text: options.x.title }),
    T.svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
    T.svg("line", { class: "axis", x1: left, x2: left, y1: top, y2: height - bottom }));
  return { svg, x, y, left, right: width - right, top, bottom: height - bottom, width, height };
};
T.dot = (frame, x, y, options) =>
  T.svg("circle", { cx: frame.x(x), cy: frame.y(y), r: options.r || 4.5, class: options.class || "" }, T.svg("title", { text: options.title || "" }));
