"use strict";
// Roofline per device, predicted against measured, and trade-offs.
T.dots = (device) => device.kernels.filter((row) => row[4] > 0 && row[5] > 0 && row[2] > 0).map((row) => ({ row, x: row[4] / row[5], y: (row[4] / row[2]) * 1e9 }));
// `all` are the devices of the page: their axes are the same.
T.roofline = (device, index, all) => {
  const points = T.dots(device), every = all.flatMap(T.dots), peak = (own) => Math.max(...own.roofs.map((roof) => roof[1]));
  if (!points.length || !device.roofs.length) return null;
  const shown = all.filter((own) => own.roofs.length), top = peak(device), bottom = Math.min(...every.map((point) => point.y)) / 3;
  const low = Math.min(...every.map((point) => point.x)) / 2, high = Math.max(...every.map((point) => point.x), ...shown.map((own) => (peak(own) / own.bandwidth) * 2)) * 2;
  const frame = T.plot({ label: `Roofline of ${device.name}: ${points.length} kernels`, x: { low, high, log: true, title: "operations per byte" }, y: { low: bottom, high: Math.max(...shown.map(peak)) * 3, log: true, unit: "flops", title: "operations per second" } });
  const { x, y } = frame, start = Math.max(low, bottom / device.bandwidth);
  const line = (...ends) => frame.svg.append(T.svg("path", { class: "roof", d: "M" + ends.map(([at, speed]) => `${x(at)} ${y(speed)}`).join(" L") }));
  const say = (at, up, text, more) => frame.svg.append(T.svg("text", { class: "strong", x: at, y: up, text, ...more }));
  line([start, start * device.bandwidth], [top / device.bandwidth, top]);
  const slope = (Math.atan2(y(10) - y(1), x(10) - x(1)) * 180) / Math.PI, at = Math.sqrt((start * top) / device.bandwidth);
  say(0, -7, "memory " + T.value(device.bandwidth, "speed"), { "text-anchor": "middle", transform: `translate(${x(at)} ${y(at * device.bandwidth)}) rotate(${slope})` });
  let above = Infinity;
  for (const [unit, flops] of device.roofs.slice().sort((one, two) => one[1] - two[1])) {
    line([flops / device.bandwidth, flops], [high, flops]);
    above = Math.min(y(flops) - 6, above - 14);
    say(frame.right - 2, above, `${unit} ${T.value(flops, "flops")}`, { "text-anchor": "end" });
  }
  const most = Math.max(...points.map((point) => point.row[2]));
  for (const { row, x, y } of points) frame.svg.append(T.dot(frame, x, y, { class: T.color(index), r: 3 + 7 * Math.sqrt(row[2] / most), title: `${row[0]}${row[8] ? ` of ${row[8]}` : ""}: ${T.time(row[2])}, ${T.value(Math.min(1, row[3] / row[2]), "share")} of the speed of light` }));
  return frame.svg;
};
T.kinds.roofline = (data) => {
  const color = (device) => device.color ?? data.devices.indexOf(device);
  const rows = data.devices.flatMap((device) => device.kernels.map((row) => ({ device, row }))).sort((one, two) => two.row[2] - one.row[2]);
  const drawn = data.devices.map((device) => [device, T.roofline(device, color(device), data.devices)]).filter(([, chart]) => chart);
  const apart = rows.filter(({ row }) => !(row[4] > 0 && row[5] > 0)).length, left = data.devices.reduce((sum, device) => sum + device.left_out, 0);
  const columns = [
    { title: "Kernel", of: ({ row }) => T.kernel(row[0]), key: ({ row }) => row[0] }, { title: "Trace", of: ({ row }) => row[8] || "", key: ({ row }) => row[8] || "" },
    { title: "On", of: ({ device }) => T.el("span", { class: "chips" }, T.swatch(color(device)), device.name), key: ({ device }) => device.name },
    { title: "Steps", right: true, of: ({ row }) => T.count(row[1]), key: ({ row }) => row[1] }, { title: "Time", right: true, of: ({ row }) => T.time(row[2]), key: ({ row }) => row[2] },
    { title: "Speed of light", right: true, of: ({ row }) => (row[2] > 0 ? T.value(Math.min(1, row[3] / row[2]), "share") : ""), key: ({ row }) => row[3] / row[2] },
    { title: "Limit", of: ({ row }) => row[6], key: ({ row }) => row[6] }];
  if (!rows.some(({ row }) => row[8])) columns.splice(1, 1);
  const parts = [T.el("p", { class: "muted" }, T.words(data.headline)), T.el("div", { class: "grid" }, drawn.map(([device, chart]) =>
    T.el("div", { class: "card stack" }, T.el("h3", { class: "chips" }, T.swatch(color(device)), `${device.name}: ${device.gpu}${device.sms ? `, ${device.sms} SMs` : ""}`), chart))),
  T.el("div", { class: "card" }, T.table(columns, rows, { size: 12, caption: "Kernels and their limits" }))];
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
  parts.push(T.notes(["A dot is a kernel, the larger the more time it takes. The roofs are those of the data sheet; the speed of light is a kernel on its roof: each byte that it touches once from memory, each operation at the peak of its unit.",
    apart && `${T.count(apart)} rows have no arithmetic that could be counted: they are in the table only.`, left && `${T.count(left)} more kernels take less time each.`].filter(Boolean)));
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
        { title: "Unbeaten", of: (row) => (row.front ? "yes" : ""), key: (row) => (row.front ? 1 : 0) }], data.points, { size: 12, caption: "Throughput, latency and cost of all plans" }))));
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
