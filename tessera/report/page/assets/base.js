"use strict";
// What all scripts share: elements made from text (never from markup), and numbers as people read
// them. Sections register how they are drawn in `T.kinds`.
const T = { kinds: {}, redraw: [] };

T.fill = (node, attributes, children) => {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "on") for (const [name, act] of Object.entries(value)) node.addEventListener(name, act);
    else if (key === "text") node.textContent = value;
    else if (key === "style") for (const [name, own] of Object.entries(value)) node.style.setProperty(name, own);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== "") node.append(child);
  return node;
};
T.el = (tag, attributes, ...children) => T.fill(document.createElement(tag), attributes, children);
T.svg = (tag, attributes, ...children) =>
  T.fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
T.button = (text, act, more) => T.el("button", { class: "button", type: "button", text, on: { click: act }, ...more });

T.count = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");
T.digits = (value) => {
  const size = Math.abs(value);
  if (size >= 1000) return T.count(value);
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  if (size === 0) return "0";
  return size >= 1 ? value.toFixed(2) : value.toPrecision(3);
};
T.scaled = (value, units) => {
  for (const [unit, size] of units) if (Math.abs(value) >= size) return [T.digits(value / size), unit];
  const [unit, size] = units[units.length - 1];
  return [T.digits(value / size), unit];
};
T.units = {
  ns: [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]],
  bytes: [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["KB", 1e3], ["B", 1]],
  flops: [["PF/s", 1e15], ["TF/s", 1e12], ["GF/s", 1e9], ["MF/s", 1e6], ["F/s", 1]],
  speed: [["TB/s", 1e12], ["GB/s", 1e9], ["MB/s", 1e6], ["KB/s", 1e3], ["B/s", 1]],
};
T.parts = (value, unit) => {
  if (T.units[unit]) return T.scaled(value, T.units[unit]);
  if (unit === "usd") return ["$" + T.digits(value), ""];
  if (unit === "share") return [value > 0 && value < 0.001 ? "<0.1" : (value * 100).toFixed(1), "%"];
  return [Number.isInteger(value) ? T.count(value) : T.digits(value), unit || ""];
};
T.value = (value, unit) => T.parts(value, unit).filter((part) => part !== "").join(unit === "share" ? "" : " ");
// A unit that never changes is said once.
T.between = ([low, high], unit) => `${T.value(low, T.units[unit] || unit === "usd" || unit === "share" ? unit : "")} to ${T.value(high, unit)}`;
T.percent = (change) => (Math.abs(change) < 0.0005 ? "" : `${change > 0 ? "+" : "\u2212"}${Math.abs(change * 100).toFixed(1)} %`);
T.time = (ns) => T.value(ns, "ns");
T.bytes = (count) => T.value(count, "bytes");
T.color = (index) => "d" + (((index % 8) + 8) % 8);
T.swatch = (index) => T.el("span", { class: "swatch " + T.color(index), "aria-hidden": "true" });
T.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
T.short = (text, most) => {
  if (text.length <= most) return text;
  const tail = Math.min(8, Math.floor(most / 3));
  return text.slice(0, most - tail - 1) + "\u2026" + text.slice(text.length - tail);
};
T.notes = (texts) => (texts && texts.length ? T.el("ul", { class: "notes" }, texts.map((text) => T.el("li", {}, T.words(text)))) : null);
// Text in which `names` stand in backticks, as elements.
T.words = (text) => text.split("`").map((part, index) => (index % 2 ? T.el("code", { text: part }) : part));
T.legend = (names) => T.el("div", { class: "legend" }, names.map((name, index) => T.el("span", {}, T.swatch(index), name)));
