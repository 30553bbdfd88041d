"use strict";
// What is known of one step: kernel, place and why, time per GPU, bytes, PTX lines, neighbours.
T.GraphDetail = class {
  constructor(view) {
    this.view = view;
    this.data = view.data;
    this.element = T.el("div", { class: "detail", tabindex: "0", role: "region", "aria-label": "The chosen step" });
    this.showNothing();
  }
  put(...parts) { this.element.replaceChildren(...parts.flat().filter(Boolean)); this.element.scrollTop = 0; }
  block(title, ...parts) { const kept = parts.flat().filter(Boolean); return kept.length ? T.el("div", {}, T.el("h4", { text: title }), kept) : null; }

  showNothing() {
    this.put(T.el("h3", { text: "Choose a step" }),
      T.el("p", { class: "muted" }, "Click a step to see its kernel, where it runs and why, what it takes on each GPU, the bytes it touches and the PTX lines that touch them. A click on a layer opens it."),
      T.el("p", { class: "muted" }, "Drag or scroll to move. ", T.el("kbd", { text: "Ctrl" }), " and the wheel zoom."));
  }
  showFold(row) {
    const fold = row.fold, layout = this.view.layout, names = new Map();
    for (let step = fold[0]; step < fold[1]; step++) names.set(layout.names[step], (names.get(layout.names[step]) || 0) + 1);
    const shares = layout.shares({ first: fold[0], end: fold[1] }).filter((share) => share[0] >= 0);
    const most = [...names].sort((a, b) => b[1] - a[1]).slice(0, 12);
    this.put(T.el("h3", { text: fold[2] }), T.el("p", { class: "muted", text: `Steps #${fold[0]} to #${fold[1] - 1}, ${names.size} kernels.` }),
      shares.length ? T.bars({ unit: "ns", rows: shares.map(([device, ns]) => ({ name: this.data.devices[device], value: ns, device })) }) : null,
      this.block("Kernels", T.el("ul", {}, most.map(([name, count]) => T.el("li", {}, `${count} \u00d7 `, T.el("span", { text: name }))))));
  }
  spoken(step) {
    const device = this.view.layout.device(step), ns = this.view.layout.ns(step);
    return `step ${step}, ${this.view.layout.names[step]}${device >= 0 ? `, on ${this.data.devices[device]}, ${T.time(ns)}` : ""}`;
  }

  show(step) {
    const data = this.data, layout = this.view.layout, device = layout.device(step), kind = data.steps.class[step];
    const pins = data.pins[step] || [], needs = data.needs[step] || [];
    this.put(
      T.el("h3", { text: layout.names[step] }),
      T.el("div", { class: "chips" }, T.el("span", { class: "chip", text: `#${step}` }),
        device >= 0 ? T.el("span", { class: "chip" }, T.swatch(device), data.devices[device]) : null,
        T.el("span", { class: "chip", text: ["direct addresses", "addresses depend on data", "addresses from memory", "pinned"][kind] })),
      this.launch(step),
      this.block("Why it is there", this.why(step, pins).map((text) => T.el("p", {}, T.words(text)))),
      this.times(step),
      this.block("Pinned", pins.map((text) => T.el("p", { text }))),
      this.block("Asks of the machine", needs.map((text) => T.el("p", { text }))),
      this.block("Bytes by buffer", this.buffers(step)),
      this.block("Needs", this.neighbours(step, true)), this.block("Feeds", this.neighbours(step, false)),
      this.accesses(step));
  }
  launch(step) {
    const launches = this.data.launches;
    const shape = launches.length && launches[1][step] !== null ? launches[0][launches[1][step]] : null;
    if (!shape) return null;
    const triple = (from) => shape.slice(from, from + 3).join(" \u00d7 ");
    return T.el("p", { class: "muted num", text: `${triple(0)} blocks of ${triple(3)} threads${shape[6] ? `, ${T.bytes(shape[6])} shared` : ""}` });
  }

  // Times on all devices; what a profile measured wins in the note beside it.
  timeRows(step) {
    const data = this.data, replica = data.replicas && data.replicas[this.view.layout.replica];
    const chosen = this.view.layout.device(step);
    const rows = [];
    if (data.times) {
      const row = data.time_rows[data.times[step]];
      data.timed_devices.forEach((name, index) => {
        const [ns, error, source] = row.slice(3 * index, 3 * index + 3), device = data.devices.indexOf(name);
        if (device === chosen) return;
        rows.push(ns < 0 ? { name, device, barred: data.barred[error] } : { name, device, ns, error, source: data.time_sources[source] });
      });
    }
    if (replica) rows.unshift({ name: data.devices[chosen], device: chosen, ns: replica.ns[step], error: replica.error[step], source: replica.sources[replica.source[step]] });
    return rows;
  }
  times(step) {
    const rows = this.timeRows(step), data = this.data;
    const known = rows.filter((row) => row.ns !== undefined);
    const measured = (data.measured || []).filter((row) => row[0] === step).map((row) => ({ name: `measured, ${row[1]}`, value: row[3], range: [row[3] * Math.max(0, 1 - row[4]), row[3] * (1 + row[4])], role: "measured" }));
    if (!known.length && !measured.length) return null;
    const chart = { unit: "ns", rows: known.map((row) => ({ name: row.name, value: row.ns, device: row.device, range: [row.ns * Math.max(0, 1 - row.error), row.ns * (1 + row.error)] })).concat(measured) };
    const sources = [...new Set(known.map((row) => row.source))].join(", ");
    return this.block("Time on each GPU", T.bars(chart), sources ? T.el("p", { class: "small muted", text: `From: ${sources}.` }) : null,
      rows.filter((row) => row.barred).map((row) => T.el("p", { class: "small", text: `${row.name} cannot run it: ${row.barred}` })));
  }
  why(step, pins) {
    const data = this.data, layout = this.view.layout, chosen = layout.device(step);
    if (chosen < 0) return [];
    const replica = data.replicas[layout.replica], name = data.devices[chosen], said = [];
    const used = [...new Set(replica.device)];
    if (pins.length) said.push("It may touch anything, so it stays with everything it may touch.");
    if (used.length === 1) { said.push(`This copy of the model is on \`${name}\` alone: no request is split.`); }
    const rows = this.timeRows(step), here = rows[0];
    const others = rows.slice(1).filter((row) => row.ns !== undefined && used.includes(row.device));
    const barred = rows.slice(1).filter((row) => row.barred && used.includes(row.device));
    if (used.length > 1 && !others.length && barred.length) said.push(`Only \`${name}\` can run it.`);
    const best = others.sort((a, b) => a.ns - b.ns)[0];
    if (best && here.ns <= best.ns) said.push(`\`${name}\` is the fastest for it: ${T.time(here.ns)} against ${T.time(best.ns)} on \`${best.name}\`.`);
    else if (best) said.push(`For this step alone \`${best.name}\` would be ${T.time(here.ns - best.ns)} faster.`);
    if (best) said.push(this.moved(here, best, replica.share));
    let near = 0, away = 0;
    for (const edge of layout.edgesOf(step)) {
      if (data.edges.kind[edge] & 4) continue;
      const other = data.edges.source[edge] === step ? data.edges.target[edge] : data.edges.source[edge];
      if (layout.device(other) === chosen) near += data.edges.bytes[edge]; else away += data.edges.bytes[edge];
    }
    if (used.length > 1 && near + away > 0) said.push(away ? `It exchanges ${T.bytes(near)} with steps on the same device and ${T.bytes(away)} with others.` : `All ${T.bytes(near)} that it exchanges with other steps stay on this device.`);
    return said;
  }
  // What the busiest device would have to do if the step were elsewhere.
  moved(here, there, share) {
    const loads = this.data.busy_ns.slice(), before = Math.max(...loads);
    loads[here.device] -= here.ns * share;
    loads[there.device] += there.ns * share;
    const after = Math.max(...loads), off = after - before;
    const words = Math.abs(off) < before * 0.0005 ? "as much work per request as now" : `${T.time(after)} of work per request instead of ${T.time(before)}`;
    return `On \`${there.name}\` the busiest device would have ${words}, transfers not counted.`;
  }
  buffers(step) {
    const own = this.data.accesses.touched[step], rows = [];
    for (let i = 0; i < own.length; i += 3) rows.push([own[i], own[i + 1], own[i + 2]]);
    if (!rows.length) return null;
    const names = this.data.buffers;
    return T.table([
      { title: "Buffer", of: (row) => T.el("span", { title: names.role[row[0]] + ", " + T.bytes(names.bytes[row[0]]), text: names.name[row[0]] }), key: (row) => names.name[row[0]] },
      { title: "Reads", right: true, of: (row) => (row[1] ? T.bytes(row[1]) : ""), key: (row) => row[1] },
      { title: "Writes", right: true, of: (row) => (row[2] ? T.bytes(row[2]) : ""), key: (row) => row[2] }], rows, { size: 8, caption: "Bytes by buffer" });
  }
  neighbours(step, before) {
    const data = this.data, layout = this.view.layout, found = new Map();
    for (const edge of layout.edgesOf(step)) {
      if ((before ? data.edges.target : data.edges.source)[edge] !== step || data.edges.kind[edge] & 4) continue;
      const other = (before ? data.edges.source : data.edges.target)[edge], next = data.edges.kind[edge] & 8;
      const key = other * 2 + (next ? 1 : 0), known = found.get(key) || { other, next, bytes: 0, names: [] };
      known.bytes += data.edges.bytes[edge];
      known.names.push(data.buffers.name[data.edges.buffer[edge]]);
      found.set(key, known);
    }
    const rows = [...found.values()].sort((a, b) => b.bytes - a.bytes);
    if (!rows.length) return null;
    const items = rows.slice(0, 8).map((row) => T.el("li", {}, `${T.bytes(row.bytes)} of ${T.short(row.names.join(", "), 60)} ${before ? "from" : "to"} `,
      T.el("button", { class: "link", type: "button", text: `#${row.other} ${T.short(layout.names[row.other], 40)}`, on: { click: () => this.view.goTo(row.other) } }),
      row.next ? (before ? " of the request before" : " of the next request") : ""));
    return T.el("ul", {}, items, rows.length > 8 ? T.el("li", { class: "muted", text: `and ${rows.length - 8} more` }) : null);
  }
  accesses(step) {
    const { of, rows, lines, regions } = this.data.accesses, own = of[step], items = [];
    for (let i = 0; i < own.length; i += 2) items.push([own[i], rows[own[i + 1]]]);
    if (!items.length) return null;
    const words = (buffer, row) => `${["reads", "writes", "updates"][row[0]]} ${row[1] ? "all of" : "within"} ${regions[row[3]]} of `;
    const list = T.el("div");
    const draw = (most) => list.replaceChildren(...items.slice(0, most).map(([buffer, row]) => T.el("div", { class: "access" },
      T.el("code", { text: (row[4] ? `${row[4]}: ` : "") + (lines[row[5]] || "an unknown access") }),
      T.el("span", { class: "muted" }, words(buffer, row), T.el("b", { text: this.data.buffers.name[buffer] }), row[2] ? `, ${["", "index from memory", "pointer from memory"][row[2]]}` : ""))),
      items.length > most ? T.button(`${items.length - most} more`, () => draw(Math.min(items.length, 200))) : "");
    draw(8);
    return this.block("PTX lines and regions", list);
  }

  // The same as a table, for those who would rather read.
  table() {
    const data = this.data, layout = this.view.layout, holder = T.el("div", { class: "card" });
    const sum = (step, offset) => { const own = data.accesses.touched[step]; let total = 0; for (let i = 0; i < own.length; i += 3) total += own[i + offset]; return total; };
    const columns = [
      { title: "Step", right: true, of: (step) => `#${step}`, key: (step) => step },
      { title: "Kernel", of: (step) => T.el("button", { class: "link", type: "button", text: layout.names[step], on: { click: () => { this.view.goTo(step); this.view.element.scrollIntoView({ block: "nearest" }); } } }), key: (step) => layout.names[step] },
      data.replicas && data.replicas.length ? { title: "Device", of: (step) => data.devices[layout.device(step)], key: (step) => layout.device(step) } : null,
      data.replicas && data.replicas.length ? { title: "Time", right: true, of: (step) => T.time(layout.ns(step)), key: (step) => layout.ns(step) } : null,
      { title: "Reads", right: true, of: (step) => T.bytes(sum(step, 1)), key: (step) => sum(step, 1) },
      { title: "Writes", right: true, of: (step) => T.bytes(sum(step, 2)), key: (step) => sum(step, 2) }].filter(Boolean);
    const opened = (event) => { if (event.target.open && !holder.childElementCount) holder.append(T.table(columns, [...Array(layout.count).keys()], { size: 15, caption: "All steps" })); };
    return T.el("details", { on: { toggle: opened } }, T.el("summary", { text: "All steps as a table" }), holder);
  }
};
