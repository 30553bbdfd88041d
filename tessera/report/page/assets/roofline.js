"use strict";
// Roofline per device, predicted against measured, and trade-offs.
T.roofline = (device, index) => {
  const points = device.kernels.filter((row) => row[4] > 0 && row[5] > 0 && row[2] > 0).map((row) => ({ row, x: row[4] / row[5], y: (row[4] / row[2]) * 1e9 }));
  if (!points.length || !device.roofs.length) return null;
  const top = Math.max(...device.roofs.map((roof) => roof[1]));
  const low = Math.min(...points.map((point) => point.x)) / 2, high = Math.max(...points.map((point) => point.x), (top / device.bandwidth) * 2) * 2;
  const frame = T.plot({ label: `Roofline of ${device.name}: ${points.length} kernels`, x: { low, high, log: true, title: "operations per byte" }, y: { low: Math.min(...points.map((p) => p.y)) / 3, high: top * 2, log: true, unit: "flops" } });
  const memory = (x) => x * device.bandwidth;
  for (const [unit, flops] of device.roofs) {
    const knee = flops / device.bandwidth, start = Math.max(low, Math.min(...points.map((p) => p.y)) / 3 / device.bandwidth);
    frame.svg.append(T.svg("path", { class: "roof", d: `M${frame.x(start)} ${frame.y(memory(start))} L${frame.x(Math.max(start, knee))} ${frame.y(memory(Math.max(start, knee)))} L${frame.x(high)} ${frame.y(flops)}` }),
      T.svg("text", { x: frame.right - 2, y: frame.y(flops) - 5, "text-anchor": "end", text: `${unit} ${T.value(flops, "flops")}` }));
  }
  const most = Math.max(...points.map((point) => point.row[2]));
  for (const { row, x, y } of points) frame.svg.append(T.dot(frame, x, y, { class: T.color(index), r: 3 + 7 * Math.sqrt(row[2] / most), title: `${row[0]}: ${T.time(row[2])}, ${T.value(Math.min(1, row[3] / row[2]), "share")} of the speed of light` }));
  return frame.svg;
};
T.kinds.roofline = (data, section, page) => {
  const graph = page.sections.find((own) => own.kind === "graph" && own.data.devices);
  const cards = data.devices.map((device, place) => {
    const known = graph ? graph.data.devices.indexOf(device.name) : place, index = known < 0 ? place : known;
    const drawn = T.roofline(device, index);
    return T.el("div", { class: "card stack" }, T.el("h3", { class: "chips" }, T.swatch(index), `${device.name}: ${device.gpu}${device.sms ? `, ${device.sms} SMs` : ""}`),
      drawn || T.el("p", { class: "muted small", text: "No kernel here has both arithmetic and bytes that could be counted." }),
      T.table([
        { title: "Kernel", of: (row) => T.kernel(row[0]), key: (row) => row[0] },
        { title: "Steps", right: true, of: (row) => T.count(row[1]), key: (row) => row[1] },
        { title: "Time", right: true, of: (row) => T.time(row[2]) , key: (row) => row[2] },
        { title: "Speed of light", right: true, of: (row) => (row[2] > 0 ? T.value(Math.min(1, row[3] / row[2]), "share") : ""), key: (row) => row[3] / row[2] },
        { title: "Limit", of: (row) => row[6], key: (row) => row[6] }], device.kernels, { size: 8, caption: `Kernels on ${device.name}` }),
      device.left_out ? T.el("p", { class: "small muted", text: `${T.count(device.left_out)} more kernels take less time each.` }) : null);
  });
  const parts = [T.el("p", { class: "muted" }, T.words(data.headline)), T.el("div", { class: "grid" }, cards)];
  if (data.differences.length) {
    const times = data.differences.flatMap((row) => [row[2], row[3]]).filter((ns) => ns > 0), low = Math.min(...times) / 1.5, high = Math.max(...times) * 1.5;
    const frame = T.plot({ label: "Measured time against predicted time", x: { low, high, log: true, unit: "ns", title: "predicted" }, y: { low, high, log: true, unit: "ns" } });
    frame.svg.append(T.svg("line", { class: "ideal", x1: frame.x(low), y1: frame.y(low), x2: frame.x(high), y2: frame.y(high) }));
    for (const row of data.differences.slice(0, 300)) frame.svg.append(T.dot(frame, row[2], row[3], { title: `${row[0]} on ${row[1]}: predicted ${T.time(row[2])}, measured ${T.time(row[3])}` }));
    parts.push(T.el("div", { class: "card stack" }, T.el("h3", { text: "Predicted and measured" }), frame.svg, T.table([
      { title: "Kernel", of: (row) => T.kernel(row[0]), key: (row) => row[0] }, { title: "GPU", of: (row) => row[1], key: (row) => row[1] },
      { title: "Predicted", right: true, of: (row) => T.time(row[2]), key: (row) => row[2] }, { title: "Measured", right: true, of: (row) => T.time(row[3]), key: (row) => row[3] },
      { title: "Factor", right: true, of: (row) => T.digits(row[3] / row[2]), key: (row) => row[3] / row[2] },
      { title: "Within its error bar", of: (row) => (Math.abs(row[3] - row[2]) <= row[4] * row[2] ? "yes" : "no"), key: (row) => row[4] }], data.differences, { size: 10, caption: "Predicted and measured times" })));
  }
  parts.push(T.notes(["The speed of light is what the data sheet allows: each byte that a step touches once from memory, each operation at the peak of its unit."]));
  return parts;
};
T.kinds.tradeoffs = (data) => {
  const points = data.points.filter((point) => point.rate > 0 && point.latency_ns > 0);
  const parts = [T.el("p", { class: "muted", text: data.headline })];
  if (points.length > 1) {
    const rates = points.map((point) => point.rate), times = points.map((point) => point.latency_ns);
    const frame = T.plot({ label: "Throughput against latency", height: 320, x: { low: Math.min(...times) * 0.85, high: Math.max(...times) * 1.15, unit: "ns", title: "latency of a request alone" }, y: { low: 0, high: Math.max(...rates) * 1.12, unit: "" } });
    const front = points.filter((point) => point.front).sort((a, b) => a.latency_ns - b.latency_ns);
    if (front.length > 1) frame.svg.append(T.svg("path", { class: "front", d: front.map((point, index) => `${index ? "L" : "M"}${frame.x(point.latency_ns)} ${frame.y(point.rate)}`).join(" ") }));
    const placed = [];
    for (const point of points) {
      const x = frame.x(point.latency_ns), y = frame.y(point.rate), late = x > frame.width * 0.68;
      let at = y + 4;
      while (placed.some((other) => Math.abs(other[0] - x) < 130 && Math.abs(other[1] - at) < 13)) at += 13;
      placed.push([x, at]);
      frame.svg.append(T.dot(frame, point.latency_ns, point.rate, { class: point.role === "plan" ? "plan" : point.front ? "d0" : "d7", r: point.role === "plan" ? 6.5 : 5, title: `${point.name}: ${T.value(point.rate, "requests/s")}, ${T.time(point.latency_ns)}, ${T.value(point.usd, "usd")} per million` }),
        points.length <= 12 ? T.svg("text", { class: point.role === "plan" ? "strong" : "", x: late ? x - 10 : x + 10, y: at, "text-anchor": late ? "end" : "start", text: T.short(point.name, 28) }) : "");
    }
    parts.push(T.el("div", { class: "grid" }, T.el("div", { class: "card stack" }, T.el("h3", { text: "Throughput (requests/s) and latency" }), frame.svg, T.el("p", { class: "small muted", text: "The dashed line joins plans that none beats in throughput, latency and cost." })),
      T.el("div", { class: "card stack" }, T.el("h3", { text: "All plans" }), T.table([
        { title: "Plan", of: (row) => (row.role === "plan" ? T.el("b", { text: row.name }) : row.name), key: (row) => row.name }, { title: "Requests/s", right: true, of: (row) => T.digits(row.rate), key: (row) => row.rate },
        { title: "Latency", right: true, of: (row) => T.time(row.latency_ns), key: (row) => row.latency_ns }, { title: "Per million", right: true, of: (row) => (row.usd > 0 ? T.value(row.usd, "usd") : ""), key: (row) => row.usd },
        { title: "Beaten by none", of: (row) => (row.front ? "yes" : ""), key: (row) => (row.front ? 1 : 0) }], data.points, { size: 12, caption: "Throughput, latency and cost of all plans" }))));
  }
  const change = (value, from) => (from > 0 ? T.percent(value / from - 1) : "");
  if (data.what_ifs.length || data.helpers.length) parts.push(T.el("div", { class: "card stack" }, T.el("h3", { text: "What if" }),
    data.what_ifs.length ? T.table([
      { title: "Change", of: (row) => T.el("span", {}, T.words(row[0])), key: (row) => row[0] }, { title: "Requests/s", right: true, of: (row) => T.digits(row[1]), key: (row) => row[1] },
      { title: "", right: true, of: (row) => change(row[1], data.rate) }, { title: "Latency alone", right: true, of: (row) => T.time(row[2]), key: (row) => row[2] }, { title: "", right: true, of: (row) => change(row[2], data.latency_ns) }],
      data.what_ifs, { size: 12, caption: "What a change of the machine would bring" }) : null,
    data.helpers.length ? T.notes(data.helpers) : null));
  if (data.limits.length) parts.push(T.el("div", { class: "card" }, T.bars({ title: "What limits the plan", better: "time per request", unit: "ns", rows: data.limits.slice(0, 12).map(([name, value]) => ({ name, value, range: null })) })));
  parts.push(T.notes(data.notes));
  return parts;
};
