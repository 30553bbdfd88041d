"use strict";
// Where steps and bytes went: work per device, memory per card, load per link.
T.stack = (name, parts, capacity, said, label) => {
  const bar = T.el("div", { class: "stackbar", role: "img", "aria-label": label }, parts.filter((part) => part.value > 0).map((part) =>
    T.el("span", { class: T.color(part.color), title: part.title, style: { width: Math.max(0.15, (100 * part.value) / capacity) + "%" } })));
  return T.el("div", { class: "stackrow" }, T.el("span", {}, name), bar, T.el("span", { class: "num small muted" }, said));
};
T.kinds.placement = (data) => {
  const most = Math.max(1, ...data.devices.map((device) => device.share));
  const work = data.devices.map((device, index) => T.stack(
    T.el("span", { class: "chips" }, T.swatch(index), " " + device.name), [{ value: Math.min(device.share, most), color: index, title: T.time(device.busy_ns) }], most,
    `${T.value(device.share, "share")} busy, ${T.count(device.steps)} steps`, `${device.name}: ${T.time(device.busy_ns)} of work per request`));
  const memory = data.cards.map((card) => {
    const used = card.bytes.reduce((sum, own) => sum + own, 0);
    const parts = card.bytes.map((value, index) => ({ value, color: [0, 4, 2, 7][index], title: `${data.parts[index]}: ${T.bytes(value)}` }));
    // A sliver in a large card tells nothing: below a hundredth the parts are drawn by themselves.
    const tiny = used > 0 && used < card.capacity / 100;
    return T.stack(T.el("span", {}, card.name, T.el("div", { class: "small muted", text: card.gpu })), parts, tiny ? used : card.capacity,
      T.el("span", {}, `${T.bytes(used)} of ${T.bytes(card.capacity)}`, tiny ? T.el("div", { text: "parts of what is used" }) : null),
      `${card.name}: ` + card.bytes.map((value, index) => `${data.parts[index]} ${T.bytes(value)}`).join(", ") + ` of ${T.bytes(card.capacity)}`);
  });
  const links = data.links.length ? T.table([
    { title: "Link", of: (row) => row.name, key: (row) => row.name },
    { title: "Bytes per request", right: true, of: (row) => T.bytes(row.bytes), key: (row) => row.bytes },
    { title: "Speed", right: true, of: (row) => (row.speed > 0 && row.speed < 1e15 ? T.value(row.speed, "speed") : ""), key: (row) => row.speed },
    { title: "Time per request", right: true, of: (row) => (row.ns > 0 ? T.time(row.ns) : ""), key: (row) => row.ns },
    { title: "Busy", right: true, of: (row) => T.value(row.share, "share"), key: (row) => row.share },
    { title: "", of: (row) => T.el("div", { class: "track", "aria-hidden": "true", style: { width: "120px" } }, T.el("div", { class: "bar colored d2", style: { width: 100 * Math.min(1, row.share) + "%" } })) }],
    data.links, { size: 10, caption: "Links and their load" }) : T.el("p", { class: "muted small", text: "Nothing goes over a link." });
  const replicas = data.replicas.length > 1 || data.replicas[0][0] ? T.el("div", { class: "card stack" }, T.el("h3", { text: "Replicas" }), T.table([
    { title: "Replica", of: (row) => String(data.replicas.indexOf(row)) },
    { title: "Policy", of: (row) => row[0] || "all" }, { title: "Requests", right: true, of: (row) => T.value(row[1], "share"), key: (row) => row[1] },
    { title: "Slots", right: true, of: (row) => row[2], key: (row) => row[2] }, { title: "Sequences", right: true, of: (row) => row[3], key: (row) => row[3] },
    { title: "Devices", of: (row) => row[4].join(", ") }], data.replicas, { size: 8, caption: "Replicas" })) : null;
  return [T.el("p", { class: "muted" }, T.words(data.headline)),
    T.el("div", { class: "card stack" }, T.el("h3", { text: "Work per device, of one period" }), T.el("div", { class: "stacks" }, work)),
    T.el("div", { class: "card stack" }, T.el("h3", { text: "Memory per GPU, against its capacity" }), T.el("div", { class: "stacks" }, memory),
      T.el("div", { class: "legend" }, data.parts.map((name, index) => T.el("span", {}, T.swatch([0, 4, 2, 7][index]), name)))),
    replicas,
    T.el("div", { class: "card stack" }, T.el("h3", {}, "Links", data.joined ? T.el("span", { class: "muted small", text: "  joined by " + data.joined }) : null), links)];
};
