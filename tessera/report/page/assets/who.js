"use strict";
// Who does what: traces on the left, the GPUs that serve shares of them in the middle, and what goes
// from one to another on the right, by numbers that stand below. Letters keep their size.
T.who = (data) => {
  const width = Math.min(440, document.documentElement.clientWidth - 62), row = 26, gap = 18, head = 20;
  const left = width * 0.3, from = width * 0.46, to = width - 12 - 17 * data.moves.length, percent = (part) => T.value(part, "share").replace(".0%", "%");
  const svg = [], at = [], text = (x, y, words, more) => T.svg("text", { x, y, text: words, ...more });
  let y = 2;
  const boxes = data.boxes.map((box) => {
    const top = y, named = [box.policy && `for ${box.policy}`, box.copies > 1 && box.rows.length > 1 ? `${box.copies} copies` : box.copies > 1 ? `a copy on each of ${box.copies}` : ""].filter(Boolean).join(", ");
    if (named) { svg.push(text(from, y + 12, named)); y += head; }
    const start = y;
    for (const [name, color, busy] of box.rows) {
      at.push(y + row / 2);
      svg.push(T.svg("rect", { class: "device " + T.color(color), x: from, y, width: to - from, height: row - 3, rx: 4 }, T.svg("title", { text: `${name}: busy ${percent(busy)} of the time` })),
        T.svg("rect", { class: "load " + T.color(color), x: from, y, width: Math.max(4, (to - from) * Math.min(1, busy)), height: row - 3, rx: 4 }),
        text(from + 9, y + 16, T.short(name, Math.max(8, Math.floor((to - from - 54) / 7))), { class: "strong" }), text(to - 7, y + 16, percent(busy), { "text-anchor": "end" }));
      y += row;
    }
    if (box.rows.length > 1) svg.push(T.svg("path", { class: "axis", fill: "none", d: `M${from - 4} ${start} h-4 V${y - 3} h4` }));
    y += gap;
    return { box, middle: (start + y - gap - 3) / 2, top };
  });
  y += 4 - gap;
  const tall = Math.max(y, data.traces.length * 46), spots = data.traces.map((_, index) => ((index + 0.5) * (y - 4)) / data.traces.length + (y < tall ? (index - (data.traces.length - 1) / 2) * 20 : 0));
  data.traces.forEach(([name, share], index) => {
    svg.push(text(0, spots[index] - 2, T.short(name, Math.floor(left / 7.4)), { class: "strong" }), text(0, spots[index] + 13, `${percent(share)} of requests`));
    for (const { box, middle } of boxes) {
      const part = box.serves[index], bend = (left + from) / 2;
      if (!(part > 0)) continue;
      svg.push(T.svg("path", { class: "flow", "stroke-width": 1 + 7 * part, d: `M${left} ${spots[index]} C${bend} ${spots[index]} ${bend} ${middle} ${from - 12} ${middle}` }));
      if (part < 0.9995) svg.push(text(from - 16, middle - 5 + (index - (data.traces.length - 1) / 2) * 13, percent(part), { "text-anchor": "end", class: "strong" }));
    }
  });
  data.moves.forEach(([source, target], index) => {
    const x = to + 16 + 17 * index, arrow = at[target] > at[source] ? 1 : -1;
    svg.push(T.svg("path", { class: "move", d: `M${to + 2} ${at[source]} H${x} V${at[target] - 3 * arrow} H${to + 3} m5 -4 l-5 4 l5 4` }),
      T.svg("circle", { class: "spot", cx: x, cy: (at[source] + at[target]) / 2, r: 7 }), text(x, (at[source] + at[target]) / 2 + 4, index + 1, { "text-anchor": "middle", class: "strong" }));
  });
  const names = data.boxes.flatMap((box) => box.rows.map((own) => own[0]));
  const label = data.boxes.map((box) => `${box.rows.map((own) => own[0]).join(" and ")}: ${data.traces.map(([name], index) => `${percent(box.serves[index])} of ${name}`).join(", ")}`).join("; ");
  return [T.svg("svg", { class: "chart", viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": label }, ...svg),
    data.moves.length ? T.el("ol", { class: "notes" }, data.moves.map(([source, target, words]) => T.el("li", { text: `${names[source]} to ${names[target]}, ${words}` }))) : null,
    data.more ? T.el("p", { class: "small muted" }, T.el("a", { href: "#placement", text: `${data.more} smaller moves` })) : null,
    data.idle.length ? T.el("p", { class: "small muted", text: `Not used: ${data.idle.join(", ")}` }) : null,
    data.parts.length ? T.el("div", { class: "stacks" }, data.parts.map(([name, count, parts]) => T.stack(T.el("span", {}, T.kernel(name), count > 1 ? T.el("div", { class: "small muted", text: `${count} steps` }) : null),
      parts.map(([color, value, title]) => ({ value, color, title })), 1, parts.map((own) => T.el("div", { text: own[2] })), `${name}: ${parts.map((own) => own[2]).join(", ")}`))) : null];
};
