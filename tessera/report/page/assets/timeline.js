"use strict";
// Timelines on a canvas: rows per device and queue, spans, gaps, and lines between a launch, the
// transfer of its bytes and the launch that takes them.
T.Timeline = class {
  constructor(data) {
    this.data = data;
    this.from = 0; this.to = data.end || 1;
    this.rowHigh = 22; this.head = 26; this.label = 150;
    this.rows = data.rows.map(([device, queue, row]) => ({ device, queue, row, spans: [] }));
    const spans = data.spans;
    for (let i = 0; i < spans.row.length; i++) this.rows[spans.row[i]].spans.push(i);
    this.joined = new Map();
    for (const [a, b] of data.joins) { (this.joined.get(a) || this.joined.set(a, []).get(a)).push(b); (this.joined.get(b) || this.joined.set(b, []).get(b)).push(a); }
    this.chosen = null;
    this.canvas = T.el("canvas", { tabindex: "0", role: "application", "aria-label": `Timeline. Left and right go from span to span, up and down from row to row, plus and minus zoom, 0 shows all.` });
    this.info = T.el("div", { class: "spaninfo", "aria-live": "polite" });
    this.element = T.el("div", { class: "timeline" }, this.canvas, this.info);
    this.say(null);
    this.canvas.addEventListener("wheel", (event) => { if (!event.ctrlKey && !event.metaKey && !event.deltaX) return; event.preventDefault(); if (event.deltaX && !event.ctrlKey) this.pan((event.deltaX / this.wide()) * (this.to - this.from)); else this.zoom(Math.exp(event.deltaY * 0.002), this.time(event.offsetX)); }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => { this.drag = { x: event.clientX, from: this.from, to: this.to, moved: false }; this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.drag) {
        if (Math.abs(event.clientX - this.drag.x) > 3) this.drag.moved = true;
        if (this.drag.moved) { const by = ((this.drag.x - event.clientX) / this.wide()) * (this.drag.to - this.drag.from); this.set(this.drag.from + by, this.drag.to + by); }
      } else this.hover(this.at(event.offsetX, event.offsetY), event);
    });
    this.canvas.addEventListener("pointerup", (event) => { if (this.drag && !this.drag.moved) { this.chosen = this.at(event.offsetX, event.offsetY); this.say(this.chosen); this.draw(); } this.drag = null; });
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
    T.redraw.push(() => this.draw());
  }
  wide() { return Math.max(10, this.canvas.clientWidth - this.label - 10); }
  x(time) { return this.label + ((time - this.from) / (this.to - this.from)) * this.wide(); }
  time(x) { return this.from + ((x - this.label) / this.wide()) * (this.to - this.from); }
  set(from, to) { const span = Math.min(to - from, this.data.end || 1); this.from = Math.max(0, Math.min(from, (this.data.end || 1) - span)); this.to = this.from + span; this.draw(); }
  zoom(factor, around) { around = around ?? (this.from + this.to) / 2; this.set(around - (around - this.from) * factor, around + (this.to - around) * factor); }
  pan(by) { this.set(this.from + by, this.to + by); }
  at(x, y) {
    const index = Math.floor((y - this.head) / this.rowHigh), row = this.rows[index];
    if (!row || x < this.label) return null;
    const time = this.time(x), slack = ((this.to - this.from) / this.wide()) * 2, spans = this.data.spans;
    let low = 0, high = row.spans.length;
    while (low < high) { const middle = (low + high) >> 1; if (spans.start[row.spans[middle]] <= time + slack) low = middle + 1; else high = middle; }
    for (let place = low - 1; place >= Math.max(0, low - 4); place--) { const span = row.spans[place]; if (spans.start[span] + spans.ns[span] >= time - slack) return { span }; }
    const gap = this.data.gaps.find((own) => own[0] === index && own[1] <= time && time <= own[2]);
    return gap ? { gap } : null;
  }
  hover(found) { if (this.chosen === null) this.say(found); }
  onKey(event) {
    const spans = this.data.spans;
    if (event.key === "+" || event.key === "=") this.zoom(0.7);
    else if (event.key === "-") this.zoom(1.4);
    else if (event.key === "0") this.set(0, this.data.end);
    else if (event.key === "Escape") { this.chosen = null; this.say(null); this.draw(); }
    else if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(event.key)) {
      let row = this.chosen && this.chosen.span !== undefined ? spans.row[this.chosen.span] : 0;
      let place = this.chosen && this.chosen.span !== undefined ? this.rows[row].spans.indexOf(this.chosen.span) : -1;
      if (event.key === "ArrowRight") place++; else if (event.key === "ArrowLeft") place--;
      else {
        const now = place >= 0 ? spans.start[this.rows[row].spans[place]] : this.from;
        do row += event.key === "ArrowDown" ? 1 : -1; while (this.rows[row] && !this.rows[row].spans.length);
        if (!this.rows[row]) { event.preventDefault(); return; }
        place = Math.max(0, this.rows[row].spans.findIndex((span) => spans.start[span] + spans.ns[span] >= now));
      }
      const own = this.rows[row].spans;
      if (own.length) {
        const span = own[Math.max(0, Math.min(own.length - 1, place))];
        this.chosen = { span };
        const start = spans.start[span], end = start + spans.ns[span];
        if (start < this.from || end > this.to) this.pan((start + end) / 2 - (this.from + this.to) / 2);
        this.say(this.chosen);
        this.draw();
      }
    } else return;
    event.preventDefault();
  }
  say(found) {
    const data = this.data, spans = data.spans;
    if (!found) { this.info.replaceChildren(T.el("span", { class: "muted", text: "Point at a span or a gap. Drag to move; Ctrl and the wheel, or + and -, zoom." })); return; }
    if (found.gap) { this.info.replaceChildren(T.el("b", { text: `Idle for ${T.time(found.gap[2] - found.gap[1])}: ` }), ...T.words(data.reasons[found.gap[3]])); return; }
    const i = found.span, row = this.rows[spans.row[i]], parts = [`${data.devices[row.device]}, ${row.queue}`, `${T.time(spans.ns[i])} from ${T.time(spans.start[i])}`];
    if (spans.request[i] >= 0) parts.push(`request ${spans.request[i]}`);
    if (spans.step[i] >= 0) parts.push(`step #${spans.step[i]}`);
    if (spans.bytes[i]) parts.push(T.bytes(spans.bytes[i]));
    const others = (this.joined.get(i) || []).map((other) => data.names[spans.name[other]]);
    this.info.replaceChildren(T.el("b", { text: data.names[spans.name[i]] }), T.el("div", { class: "muted", text: parts.join(" \u00b7 ") + (others.length ? " \u00b7 joined to " + T.short(others.join(", "), 160) : "") }));
  }
  draw() {
    const wide = this.element.clientWidth, tall = this.head + this.rows.length * this.rowHigh + 8;
    if (!wide) return;
    const began = performance.now(), ratio = devicePixelRatio || 1, canvas = this.canvas;
    this.label = wide < 640 ? 96 : 150;
    canvas.style.setProperty("height", tall + "px");
    canvas.width = wide * ratio; canvas.height = tall * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const css = Object.fromEntries(["text", "muted", "line", "sunk", "accent", "surface", "strong"].map((name) => [name, T.css("--" + name)]));
    const colors = [...Array(8).keys()].map((index) => T.css("--d" + index)), sans = T.css("--sans");
    pen.textBaseline = "middle";
    for (const tick of T.ticks(this.from, this.to)) {
      const x = this.x(tick);
      if (x < this.label || x > wide - 12) continue;
      pen.fillStyle = css.line; pen.fillRect(x, 18, 1, tall - 18);
      pen.fillStyle = css.muted; pen.font = `11px ${sans}`; pen.textAlign = "center"; pen.fillText(T.time(tick), Math.min(x, wide - 30), 10);
    }
    this.rows.forEach((row, index) => {
      const y = this.head + index * this.rowHigh;
      if (index && this.rows[index - 1].device !== row.device) { pen.fillStyle = css.strong; pen.fillRect(0, y - 1, wide, 1); }
      pen.fillStyle = colors[row.device % 8]; pen.fillRect(10, y + 6, 8, 8);
      pen.fillStyle = row.queue === "compute" && !row.row ? css.text : css.muted; pen.font = `12px ${sans}`; pen.textAlign = "left";
      const name = row.row ? `${row.queue} ${row.row + 1}` : row.queue;
      pen.fillText(row.queue === "compute" && !row.row ? T.short(this.data.devices[row.device], Math.floor((this.label - 24) / 7)) : "  " + name, 24, y + 10);
    });
    pen.save();
    pen.beginPath(); pen.rect(this.label, 0, wide - this.label, tall); pen.clip();
    for (const [row, start, end] of this.data.gaps) {
      if (end < this.from || start > this.to) continue;
      pen.fillStyle = css.sunk; pen.fillRect(this.x(start), this.head + row * this.rowHigh + 3, this.x(end) - this.x(start), this.rowHigh - 7);
    }
    this.drawSpans(pen, colors, css, sans);
    this.drawJoins(pen, css);
    pen.restore();
    canvas.dataset.ms = (performance.now() - began).toFixed(1);
  }
  drawSpans(pen, colors, css, sans) {
    const spans = this.data.spans, kinds = spans.kind || []; // pages of former versions have none
    pen.font = `11px ${sans}`; pen.textAlign = "left";
    this.rows.forEach((row, index) => {
      const y = this.head + index * this.rowHigh + 2, high = this.rowHigh - 5;
      let done = -1e9;
      pen.fillStyle = colors[row.device % 8];
      pen.globalAlpha = row.queue === "compute" ? 0.85 : 0.55;
      const texts = [];
      for (const span of row.spans) {
        const start = spans.start[span], end = start + spans.ns[span];
        if (end < this.from) continue;
        if (start > this.to) break;
        const x = this.x(start), right = this.x(end);
        if (right < done + 0.4) continue; // nothing new would be seen
        const wide = Math.max(0.8, right - x - (right - x > 3 ? 0.8 : 0));
        if (kinds[span] === 2) this.hatch(pen, x, y, wide, high);
        else pen.fillRect(x, y, wide, high);
        done = x + wide;
        if (wide > 44 && kinds[span] !== 2) texts.push([span, Math.max(x, this.label), x + wide]);
      }
      pen.globalAlpha = 1;
      pen.fillStyle = css.surface;
      for (const [span, x, right] of texts) {
        const room = Math.floor((right - x - 8) / 6);
        if (room > 4) pen.fillText(T.short(this.data.names[spans.name[span]].replace(/^m\d+\./, ""), room), x + 4, y + high / 2 + 0.5);
      }
    });
  }
  hatch(pen, x, y, wide, high) { // waiting: lines, nothing filled
    const from = Math.max(x, this.label), to = Math.min(x + wide, this.canvas.clientWidth);
    pen.save();
    pen.strokeStyle = pen.fillStyle; pen.lineWidth = 1;
    pen.beginPath(); pen.rect(from, y, to - from, high); pen.clip();
    pen.strokeRect(x + 0.5, y + 0.5, Math.max(0, wide - 1), high - 1);
    pen.beginPath();
    for (let at = from - high; at < to; at += 5) { pen.moveTo(at, y + high); pen.lineTo(at + high, y); }
    pen.stroke();
    pen.restore();
  }
  middle(span) { return [this.x(this.data.spans.start[span]), this.x(this.data.spans.start[span] + this.data.spans.ns[span]), this.head + this.data.spans.row[span] * this.rowHigh + this.rowHigh / 2]; }
  drawJoins(pen, css) {
    const mine = this.chosen && this.chosen.span !== undefined ? this.chosen.span : null;
    const shown = mine === null ? this.data.joins.filter(([a, b]) => this.data.spans.start[b] >= this.from && this.data.spans.start[a] <= this.to) : this.data.joins.filter(([a, b]) => a === mine || b === mine || (this.joined.get(mine) || []).some((o) => o === a || o === b));
    pen.strokeStyle = mine === null ? css.text : css.accent;
    pen.globalAlpha = mine === null ? 0.35 : 1;
    pen.lineWidth = mine === null ? 1 : 1.6;
    for (const [a, b] of shown.slice(0, 400)) {
      const [la, xa, ya] = this.middle(a), [xb, rb, yb] = this.middle(b);
      pen.beginPath();
      if (xb < xa - 1) { const x = (Math.max(la, xb) + Math.min(xa, rb)) / 2; pen.moveTo(x, ya); pen.lineTo(x, yb); } // at the same time
      else { const bend = Math.min(60, Math.max(3, (xb - xa) / 2)); pen.moveTo(xa, ya); pen.bezierCurveTo(xa + bend, ya, xb - bend, yb, xb, yb); }
      pen.stroke();
    }
    pen.globalAlpha = 1;
    if (mine !== null) { const [x, right, y] = this.middle(mine); pen.strokeStyle = css.text; pen.lineWidth = 2; pen.strokeRect(x - 1, y - this.rowHigh / 2 + 1, Math.max(3, right - x + 1), this.rowHigh - 3); }
  }
};
T.kinds.timeline = (data) => {
  const line = new T.Timeline(data);
  const idle = data.gaps.map((gap) => [data.devices[data.rows[gap[0]][0]], gap[1], gap[2] - gap[1], data.reasons[gap[3]]]);
  const tools = T.el("div", { class: "tools" }, T.button("+", () => line.zoom(0.6), { "aria-label": "Zoom in" }), T.button("\u2212", () => line.zoom(1.6), { "aria-label": "Zoom out" }), T.button("All", () => line.set(0, data.end)));
  const table = idle.length ? T.el("details", {}, T.el("summary", { text: `Why devices were idle: ${T.count(idle.length)} gaps` }), T.el("div", { class: "card" }, T.table([
    { title: "Device", of: (row) => row[0], key: (row) => row[0] }, { title: "From", right: true, of: (row) => T.time(row[1]), key: (row) => row[1] },
    { title: "For", right: true, of: (row) => T.time(row[2]), key: (row) => row[2] }, { title: "Why", of: (row) => T.words(row[3]), key: (row) => row[3] }], idle, { size: 10, caption: "Gaps" }))) : null;
  const legend = T.el("div", { class: "legend" }, ["computing", "moving", "waiting", "idle"].map((name) => T.el("span", {}, T.el("span", { class: "kind " + name, "aria-hidden": "true" }), name)));
  const share = (row, at) => `${T.time(row[at])} (${Math.round((100 * row[at]) / (data.end || 1))}%)`;
  const spent = data.spent && T.el("div", { class: "card" }, T.table([{ title: "Device", of: (row) => row[0], key: (row) => row[0] },
    ...["Computing", "Moving", "Waiting", "Idle"].map((title, at) => ({ title, right: true, of: (row) => share(row, at + 1), key: (row) => row[at + 1] }))], data.spent, { size: 10, caption: "Time of devices" }));
  return [T.el("p", { class: "muted", text: data.headline }), tools, line.element, ...(spent ? [legend, spent] : []),
    data.merged ? T.el("p", { class: "small muted", text: `${T.count(data.merged)} spans too short to be told apart are drawn as one with their neighbours.` }) : null, table];
};
