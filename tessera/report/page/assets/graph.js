"use strict";
// The graph: rows from top to bottom in the order of the steps, a lane for each device, edges behind
// them. Only what is in view is drawn, and at most what `budget` allows.
T.GraphView = class {
  constructor(data) {
    this.data = data;
    this.layout = new T.Layout(data);
    this.setLanes();
    this.high = 36;
    this.zoom = 1; this.left = 24; this.top = 44;
    this.chosen = null; this.found = new Set();
    this.detail = new T.GraphDetail(this);
    this.make();
  }

  make() {
    this.edgeLayer = T.svg("g"); this.nodeLayer = T.svg("g");
    this.scene = T.svg("g", {}, this.edgeLayer, this.nodeLayer);
    this.said = T.el("div", { class: "spoken", "aria-live": "polite" });
    this.svg = T.svg("svg", { class: "canvas", tabindex: "0", role: "application",
      "aria-label": "Graph of steps. Up and down move from step to step, Enter opens or closes a layer, plus and minus zoom, 0 shows the whole width." }, this.scene);
    this.map = T.el("canvas", { class: "map", "aria-hidden": "true" });
    this.heads = T.el("div", { class: "lanes", "aria-hidden": "true" });
    this.dropped = T.el("div", { class: "dropped" });
    this.view = T.el("div", { class: "view" }, this.svg, this.map, this.heads, this.dropped, this.said);
    const tall = Math.max(440, Math.min(640, this.layout.rows.length * this.high + 90)) + "px";
    this.element = T.el("div", { class: "graph", style: { "--tall": tall } }, this.view, this.detail.element);
    this.svg.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.onDown(event));
    this.svg.addEventListener("pointermove", (event) => this.onMove(event));
    this.svg.addEventListener("pointerup", (event) => this.onUp(event));
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    this.map.addEventListener("click", (event) => {
      const part = event.offsetY / this.map.clientHeight;
      this.top = this.view.clientHeight / 2 - part * this.layout.rows.length * this.high * this.zoom;
      this.draw();
    });
    new ResizeObserver(() => this.fit(true)).observe(this.view);
    T.redraw.push(() => this.draw());
  }

  setLanes() {
    this.used = this.layout.lanes();
    this.lanes = Math.max(1, this.used.length);
    this.laneOf = new Map(this.used.map((device, index) => [device, index]));
    this.box = this.lanes > 3 ? 150 : this.lanes > 1 ? 216 : 380;
    this.lane = this.box + 28;
  }
  width() { return this.lanes * this.lane + (this.lanes > 1 ? 40 : 90); }
  fit(first) {
    const wide = this.view.clientWidth - 27;
    if (wide < 50) return;
    if (!first || !this.fitted) { const all = (this.view.clientHeight - 60) / (this.layout.rows.length * this.high); this.zoom = Math.min(1, Math.max(0.45, wide / this.width()), all >= 0.8 ? all : 1); this.left = Math.max(12, (wide - this.width() * this.zoom) / 2); this.top = 44; }
    this.fitted = true;
    this.draw();
  }
  zoomBy(factor, x, y) {
    const zoom = Math.min(3, Math.max(3.4 / this.high, this.zoom * factor));
    const real = zoom / this.zoom;
    x = x ?? (this.view.clientWidth - 27) / 2; y = y ?? this.view.clientHeight / 2;
    this.left = x - (x - this.left) * real; this.top = y - (y - this.top) * real; this.zoom = zoom;
    this.draw();
  }
  onWheel(event) {
    const before = this.top;
    if (event.ctrlKey || event.metaKey) this.zoomBy(Math.exp(-event.deltaY * 0.0022), event.offsetX, event.offsetY);
    else { this.top -= event.deltaY; this.left -= event.deltaX; this.clamp(); if (this.top === before && !event.deltaX) return; this.draw(); }
    event.preventDefault();
  }
  onDown(event) { this.drag = { x: event.clientX, y: event.clientY, left: this.left, top: this.top, moved: false, target: event.target }; this.svg.setPointerCapture(event.pointerId); }
  onMove(event) {
    if (!this.drag) return;
    const x = event.clientX - this.drag.x, y = event.clientY - this.drag.y;
    if (Math.abs(x) + Math.abs(y) > 4) this.drag.moved = true;
    if (this.drag.moved) { this.left = this.drag.left + x; this.top = this.drag.top + y; this.clamp(); this.draw(); }
  }
  onUp() {
    const drag = this.drag;
    this.drag = null;
    if (!drag || drag.moved) return;
    const node = drag.target.closest && drag.target.closest(".node");
    if (!node) return this.choose(null);
    const row = this.layout.rows[Number(node.dataset.row)];
    if (row.fold) this.toggle(row); else this.choose(row.first);
  }
  onKey(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -1e9, End: 1e9 };
    if (event.key in moves) this.step(moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoomBy(1.25);
    else if (event.key === "-") this.zoomBy(0.8);
    else if (event.key === "0") this.fit();
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") { this.left += event.key === "ArrowLeft" ? 60 : -60; this.clamp(); this.draw(); }
    else if (event.key === "Enter" || event.key === " ") { const row = this.layout.rows[this.cursor ?? 0]; if (row && row.fold) this.toggle(row); else if (row) this.choose(row.first); }
    else if (event.key === "Escape") this.choose(null);
    else return;
    event.preventDefault();
  }
  step(by) {
    const rows = this.layout.rows;
    this.cursor = Math.max(0, Math.min(rows.length - 1, (this.cursor ?? -1) + by));
    const row = rows[this.cursor];
    if (row.fold) { this.chosen = null; this.detail.showFold(row); this.say(row); } else this.choose(row.first, true);
    this.show(this.cursor);
  }
  say(row) {
    const text = row.fold ? `${row.fold[2]}, ${row.fold[1] - row.fold[0]} steps, ${this.layout.open.has(row.fold) ? "open" : "folded"}` : this.detail.spoken(row.first);
    this.said.textContent = text;
  }
  toggle(row) {
    const fold = row.fold, place = this.layout.rows.indexOf(row) * this.high * this.zoom + this.top;
    if (this.layout.open.has(fold)) this.layout.open.delete(fold); else this.layout.open.add(fold);
    this.layout.update();
    this.cursor = this.layout.rows.findIndex((other) => other.fold === fold);
    this.top = place - this.cursor * this.high * this.zoom;
    this.detail.showFold(this.layout.rows[this.cursor]);
    this.chosen = null;
    this.clamp();
    this.draw();
    this.say(this.layout.rows[this.cursor]);
  }
  choose(step, quiet) {
    this.chosen = step;
    if (step === null) this.detail.showNothing();
    else { this.layout.reveal(step); this.cursor = this.layout.rowOf[step]; this.detail.show(step); this.say(this.layout.rows[this.cursor]); }
    if (!quiet) this.draw();
  }
  goTo(step) { this.choose(step, true); this.show(this.layout.rowOf[step]); }
  show(index) {
    const y = index * this.high * this.zoom + this.top, tall = this.view.clientHeight;
    if (y < 60 || y > tall - 60) this.top = tall / 2 - index * this.high * this.zoom;
    const row = this.layout.rows[index], x = this.x(row) * this.zoom + this.left;
    if (x < 0 || x + this.box * this.zoom > this.view.clientWidth - 27) this.left = 24 - Math.max(0, this.x(row) * this.zoom - 40);
    this.clamp();
    this.draw();
  }
  clamp() {
    const tall = this.layout.rows.length * this.high * this.zoom, wide = this.width() * this.zoom;
    this.top = Math.min(44, Math.max(this.top, Math.min(44, this.view.clientHeight - tall - 20)));
    this.left = Math.min(Math.max(this.left, this.view.clientWidth - 27 - wide - 12), Math.max(24, this.view.clientWidth - 27 - wide));
  }
  x(row) { return row.fold || this.lanes < 2 ? 0 : this.laneOf.get(this.layout.device(row.first)) * this.lane; }
  wide(row) { return row.fold ? (this.lanes - 1) * this.lane + this.box : this.box; }

  draw() {
    if (!this.view.clientHeight) return;
    const began = performance.now(), rows = this.layout.rows, tall = this.high * this.zoom;
    const first = Math.max(0, Math.floor(-this.top / tall) - 1);
    const last = Math.min(rows.length - 1, first + this.data.budget.rows - 1, Math.ceil((this.view.clientHeight - this.top) / tall));
    this.scene.setAttribute("transform", `translate(${this.left} ${this.top}) scale(${this.zoom})`);
    const nodes = [];
    for (let index = first; index <= last; index++) nodes.push(this.node(rows[index], index));
    this.nodeLayer.replaceChildren(...nodes);
    const mine = this.chosen === null ? -1 : this.layout.rowOf[this.chosen];
    const seen = [];
    let more = 0;
    for (const edge of this.layout.edges) {
      if (edge.high < first || edge.low > last) continue;
      if (seen.length < this.data.budget.edges || edge.from === mine || edge.to === mine) seen.push(edge); else more++;
    }
    if (seen.length > this.data.budget.edges + 100) seen.length = this.data.budget.edges + 100;
    this.edgeLayer.replaceChildren(...seen.map((edge) => this.edge(edge, mine)));
    this.scene.setAttribute("class", mine >= 0 ? "picked" : "");
    this.dropped.textContent = more ? `${T.count(more)} smaller edges are not drawn here` : "";
    this.dropped.classList.toggle("hidden", !more);
    this.drawHeads();
    this.drawMap(first, last);
    this.svg.dataset.ms = (performance.now() - began).toFixed(1);
  }

  node(row, index) {
    const x = this.x(row), y = index * this.high, wide = this.wide(row), fold = row.fold;
    const device = fold ? -1 : this.layout.device(row.first);
    const small = this.zoom < 0.3;
    const classes = ["node", fold ? "fold" : device >= 0 ? T.color(device) : "", !fold && row.first === this.chosen ? "chosen" : "", !fold && this.found.has(row.first) ? "found" : ""];
    const group = T.svg("g", { class: classes.filter(Boolean).join(" "), "data-row": index, "data-step": fold ? undefined : row.first });
    group.append(T.svg("rect", { class: "box", x, y, width: wide, height: 26, rx: 5 }));
    if (fold) {
      if (!row.open) this.segments(group, row, x, y + 21, wide);
      if (!small) group.append(
        T.svg("text", { x: x + 10, y: y + 16.5, text: `${row.open ? "\u25be" : "\u25b8"} ${fold[2]}` }),
        T.svg("text", { class: "time", x: x + wide - 10, y: y + 16.5, "text-anchor": "end", text: this.foldText(fold) }));
      return group;
    }
    group.append(T.svg("rect", { class: "tint", x, y, width: wide, height: 26, rx: 5 }));
    if (small) return group;
    const kind = this.data.steps.class[row.first], ns = this.layout.ns(row.first);
    const time = ns >= 0 ? T.time(ns) : "";
    const marked = kind ? 16 : 0;
    if (kind) group.append(T.svg("text", { class: kind === 3 ? "mark pin" : "mark", x: x + 9, y: y + 17, text: kind === 3 ? "P" : "\u25c7" },
      T.svg("title", { text: ["", "an address depends on loaded data", "an address is loaded from memory", "pinned: it may touch anything"][kind] })));
    const room = Math.floor((wide - 20 - marked - 7 * time.length) / 6.5);
    const name = this.layout.names[row.first].replace(/^m\d+\./, "");
    group.append(T.svg("text", { x: x + 9 + marked, y: y + 17, text: T.short(name, Math.max(6, room)) }, T.svg("title", { text: `#${row.first} ${this.layout.names[row.first]}` })));
    if (time) group.append(T.svg("text", { class: "time", x: x + wide - 8, y: y + 17, "text-anchor": "end", text: time }));
    return group;
  }
  foldText(fold) {
    const shares = this.layout.shares({ first: fold[0], end: fold[1] });
    const total = shares.reduce((sum, share) => sum + share[1], 0);
    const steps = `${T.count(fold[1] - fold[0])} steps`;
    return this.data.replicas && this.data.replicas.length ? `${steps}, ${T.time(total)}` : steps;
  }
  segments(group, row, x, y, wide) {
    if (!this.data.replicas || !this.data.replicas.length) return;
    const shares = this.layout.shares(row), total = shares.reduce((sum, share) => sum + share[1], 0) || 1;
    let at = x + 2;
    for (const [device, part] of shares) {
      const own = ((wide - 4) * part) / total;
      group.append(T.svg("rect", { class: "seg " + T.color(device), x: at, y, width: own, height: 3 }));
      at += own;
    }
  }

  edge(edge, mine) {
    const rows = this.layout.rows, a = rows[edge.from], b = rows[edge.to];
    const far = !a.fold && !b.fold && this.layout.device(a.first) !== this.layout.device(b.first);
    const wide = Math.min(5, Math.max(0.9, 0.9 + 0.55 * (Math.log10(edge.bytes + 1) - 3)));
    const classes = ["edge", far ? "far" : "", edge.order ? "order" : "", edge.carried ? "next" : "", edge.from === mine || edge.to === mine ? "mine" : ""];
    const ya = edge.from * this.high, yb = edge.to * this.high;
    let path;
    if (!edge.carried && (far || edge.to === edge.from + 1)) {
      const xa = this.x(a) + (a.fold ? this.x(b) + this.box / 2 : this.box / 2), xb = this.x(b) + (b.fold ? this.x(a) + this.box / 2 : this.box / 2);
      const bend = Math.max(8, Math.min(60, (yb - ya - 26) / 2));
      path = `M${xa} ${ya + 26} C${xa} ${ya + 26 + bend} ${xb} ${yb - bend} ${xb} ${yb}`;
    } else if (edge.carried) {
      const bulge = Math.min(40, 10 + 2 * Math.abs(edge.to - edge.from));
      path = `M${this.x(a)} ${ya + 13} C${this.x(a) - bulge} ${ya + 13} ${this.x(b) - bulge} ${yb + 13} ${this.x(b)} ${yb + 13}`;
    } else {
      const xa = this.x(a) + this.wide(a), xb = this.x(b) + this.wide(b), bulge = Math.min(this.lanes > 1 ? 34 : 84, 12 + 4 * (edge.to - edge.from));
      const x = Math.max(xa, xb) + bulge;
      path = `M${xa} ${ya + 13} C${x} ${ya + 13} ${x} ${yb + 13} ${xb} ${yb + 13}`;
    }
    return T.svg("path", { class: classes.filter(Boolean).join(" "), d: path, "stroke-width": wide.toFixed(1) });
  }

  drawHeads() {
    const names = this.data.devices;
    this.heads.classList.toggle("hidden", !names);
    if (!names) return;
    this.heads.replaceChildren(...this.used.map((device, index) => T.el("span", { style: { left: this.left + index * this.lane * this.zoom + "px" } },
      T.swatch(device), T.short(names[device], Math.max(5, Math.floor((this.lane * this.zoom) / 8) - 3)))));
  }
  drawMap(first, last) {
    const tall = this.map.clientHeight, ratio = devicePixelRatio || 1, rows = this.layout.rows;
    this.map.width = 26 * ratio; this.map.height = tall * ratio;
    const pen = this.map.getContext("2d");
    pen.scale(ratio, ratio);
    const colors = [...Array(8).keys()].map((index) => T.css("--d" + index)), plain = T.css("--strong");
    const each = Math.min(6, tall / rows.length), skip = Math.max(1, Math.floor(rows.length / (tall * 2)));
    for (let index = 0; index < rows.length; index += skip) {
      const row = rows[index];
      if (row.end === row.first) continue;
      const shares = this.layout.shares(row.end - row.first > 64 ? { first: row.first, end: row.first + 64 } : row);
      let at = 5;
      const total = shares.reduce((sum, share) => sum + share[1], 0) || 1;
      for (const [device, part] of shares) {
        pen.fillStyle = device < 0 ? plain : colors[device % 8];
        const wide = (16 * part) / total;
        pen.fillRect(at, (index / rows.length) * Math.min(tall, rows.length * 6), wide, Math.max(0.7, each - (each > 3 ? 1 : 0)));
        at += wide;
      }
    }
    const span = Math.min(tall, rows.length * 6);
    pen.strokeStyle = T.css("--accent"); pen.lineWidth = 1.5;
    pen.strokeRect(2, (first / rows.length) * span + 1, 22, Math.max(8, ((last - first + 1) / rows.length) * span - 2));
  }
};

T.kinds.graph = (data) => {
  const view = new T.GraphView(data), layout = view.layout;
  let found = [], at = -1;
  const said = T.el("span", { class: "small muted num", role: "status" });
  const jump = (by) => {
    if (!found.length) return;
    at = (at + by + found.length) % found.length;
    view.goTo(found[at]);
    said.textContent = `${T.count(at + 1)} of ${T.count(found.length)}`;
  };
  const look = () => {
    found = layout.search(input.value);
    view.found = new Set(found);
    at = -1;
    said.textContent = input.value.trim() ? (found.length ? `${T.count(found.length)} found` : "nothing found") : "";
    if (found.length) jump(1); else view.draw();
  };
  const input = T.el("input", { type: "search", placeholder: "Find a kernel, buffer or number", "aria-label": "Find a step by kernel, buffer or number",
    on: { input: look, keydown: (event) => { if (event.key === "Enter") { jump(event.shiftKey ? -1 : 1); event.preventDefault(); } } } });
  const all = (yes) => () => { layout.openAll(yes); layout.update(); if (view.chosen !== null && !yes) view.choose(null); view.clamp(); view.draw(); };
  const replicas = data.replicas && data.replicas.length > 1 ? T.el("select", { "aria-label": "Replica", on: { change: (event) => { layout.replica = Number(event.target.value); layout.updateEdges(); view.setLanes(); view.fit(); if (view.chosen !== null) view.detail.show(view.chosen); view.draw(); } } },
    data.replicas.map((replica, index) => T.el("option", { value: index, text: `replica ${index}: ${T.value(replica.share, "share")}${replica.policy ? ", " + replica.policy : ""}` }))) : null;
  const order = T.el("input", { type: "checkbox", on: { change: (event) => { layout.order = event.target.checked; layout.updateEdges(); view.draw(); } } });
  const marks = T.el("div", { class: "legend" }, (data.devices || []).map((name, index) => T.el("span", {}, T.swatch(index), data.gpus[index] ? `${name} (${data.gpus[index]})` : name)),
    T.el("span", {}, T.svg("svg", { width: 30, height: 8, "aria-hidden": "true" }, T.svg("line", { class: "edge", x1: 0, x2: 12, y1: 4, y2: 4, "stroke-width": 1 }), T.svg("line", { class: "edge", x1: 14, x2: 30, y1: 4, y2: 4, "stroke-width": 4 })), "thicker edge: more bytes"),
    data.devices && data.devices.length > 1 ? T.el("span", {}, T.svg("svg", { width: 22, height: 8, "aria-hidden": "true" }, T.svg("line", { class: "edge far", x1: 0, x2: 22, y1: 4, y2: 4, "stroke-width": 2.5 })), "to another device") : null,
    data.steps.class.some((kind) => kind === 1 || kind === 2) ? T.el("span", {}, "\u25c7 address depends on data") : null,
    data.steps.class.includes(3) ? T.el("span", {}, "P pinned") : null);
  const tools = T.el("div", { class: "tools" }, input, T.button("Next", () => jump(1)), said, replicas,
    T.button("+", () => view.zoomBy(1.25), { "aria-label": "Zoom in" }), T.button("\u2212", () => view.zoomBy(0.8), { "aria-label": "Zoom out" }), T.button("Fit", () => view.fit()),
    data.folds.length ? T.button("Fold all", all(false)) : null, data.folds.length ? T.button("Unfold all", all(true)) : null,
    T.el("label", {}, order, "Order, and to the next request"));
  const left = data.edges_left_out ? T.el("p", { class: "small muted", text: `${T.count(data.edges_left_out)} edges that only order steps are not in this page.` }) : null;
  return [T.el("p", { class: "muted", text: data.headline }), tools, marks, view.element, left, view.detail.table()];
};
