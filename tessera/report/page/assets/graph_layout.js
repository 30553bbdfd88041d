"use strict";
// Which rows a graph has when some folds are open, and which edges go from row to row. No drawing.
T.Layout = class {
  constructor(data) {
    this.data = data;
    this.count = data.steps.name.length;
    this.open = new Set();
    this.order = false;
    this.replica = 0;
    this.names = data.steps.name.map((number) => data.names[number]);
    this.lower = data.names.map((name) => name.toLowerCase());
    this.bufferLower = data.buffers.name.map((name) => name.toLowerCase());
    this.incident = this.makeIncident();
    if (this.count <= 60) this.openAll(true);
    this.update();
  }

  // Edges by step, so that a click need not look at all of them.
  makeIncident() {
    const { source, target } = this.data.edges;
    const start = new Int32Array(this.count + 1);
    for (let i = 0; i < source.length; i++) { start[source[i] + 1]++; start[target[i] + 1]++; }
    for (let i = 0; i < this.count; i++) start[i + 1] += start[i];
    const list = new Int32Array(2 * source.length), at = start.slice();
    for (let i = 0; i < source.length; i++) { list[at[source[i]]++] = i; list[at[target[i]]++] = i; }
    return { start, list };
  }
  edgesOf(step) { return this.incident.list.subarray(this.incident.start[step], this.incident.start[step + 1]); }

  openAll(yes) {
    this.open.clear();
    const visit = (folds) => folds.forEach((fold) => { this.open.add(fold); visit(fold[3]); });
    if (yes) visit(this.data.folds);
  }

  // Open what a step is in, so that it has a row of its own.
  reveal(step) {
    let folds = this.data.folds, changed = false;
    for (;;) {
      const inside = folds.find((fold) => fold[0] <= step && step < fold[1]);
      if (!inside) break;
      if (!this.open.has(inside)) { this.open.add(inside); changed = true; }
      folds = inside[3];
    }
    if (changed) this.update();
  }

  update() {
    const rows = [];
    const add = (first, end, folds, depth) => {
      let at = first;
      for (const fold of folds) {
        for (; at < fold[0]; at++) rows.push({ first: at, end: at + 1, depth, fold: null });
        if (this.open.has(fold)) { rows.push({ first: fold[0], end: fold[0], depth, fold, open: true }); add(fold[0], fold[1], fold[3], depth + 1); }
        else rows.push({ first: fold[0], end: fold[1], depth, fold });
        at = fold[1];
      }
      for (; at < end; at++) rows.push({ first: at, end: at + 1, depth, fold: null });
    };
    add(0, this.count, this.data.folds, 0);
    this.rows = rows;
    this.rowOf = new Int32Array(this.count);
    rows.forEach((row, index) => { for (let step = row.first; step < row.end; step++) this.rowOf[step] = index; });
    this.updateEdges();
  }

  updateEdges() {
    const { source, target, kind, bytes } = this.data.edges;
    const found = new Map(), wide = this.rows.length;
    for (let i = 0; i < source.length; i++) {
      const carried = (kind[i] & 8) !== 0, order = (kind[i] & 4) !== 0;
      if ((order || carried) && !this.order) continue;
      const from = this.rowOf[source[i]], to = this.rowOf[target[i]];
      if (from === to) continue;
      const key = (from * wide + to) * 4 + (carried ? 2 : 0) + (order ? 1 : 0);
      const known = found.get(key);
      if (known) { known.bytes += bytes[i]; known.edges++; }
      else found.set(key, { from, to, low: Math.min(from, to), high: Math.max(from, to), carried, order, bytes: bytes[i], edges: 1 });
    }
    this.edges = [...found.values()].sort((a, b) => b.bytes - a.bytes);
  }

  // Lanes are those of the devices that the replica uses.
  lanes() {
    const own = this.data.replicas && this.data.replicas[this.replica];
    return own ? [...new Set(own.device)].sort((a, b) => a - b) : [];
  }
  device(step) { const own = this.data.replicas && this.data.replicas[this.replica]; return own ? own.device[step] : -1; }
  ns(step) { const own = this.data.replicas && this.data.replicas[this.replica]; return own ? own.ns[step] : -1; }

  // Time (or, without a plan, number) of the steps of a row by device.
  shares(row) {
    const sums = new Map();
    for (let step = row.first; step < row.end; step++) {
      const device = this.device(step), ns = this.ns(step);
      sums.set(device, (sums.get(device) || 0) + (ns >= 0 ? ns : 1));
    }
    return [...sums].sort((a, b) => a[0] - b[0]);
  }

  search(text) {
    const wanted = text.trim().toLowerCase(), found = [];
    if (!wanted) return found;
    const number = /^[k#]?(\d+)$/.exec(wanted);
    if (number) return Number(number[1]) < this.count ? [Number(number[1])] : [];
    const named = this.lower.map((name) => name.includes(wanted));
    const buffers = new Set();
    this.bufferLower.forEach((name, index) => name.includes(wanted) && buffers.add(index));
    for (let step = 0; step < this.count; step++) {
      if (named[this.data.steps.name[step]]) { found.push(step); continue; }
      const own = this.data.accesses.of[step];
      for (let i = 0; i < own.length; i += 2) if (buffers.has(own[i])) { found.push(step); break; }
    }
    return found;
  }
};
