"use strict";
// Puts the sections together. A section is drawn when it comes near the window (all are, before
// printing), so that a page of ten thousand steps is there at once.
(() => {
  const page = JSON.parse(document.getElementById("tessera-report").textContent);
  const root = document.documentElement;
  const wanted = new URLSearchParams(location.search).get("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const setTheme = (name) => { root.dataset.theme = name; T.redraw.forEach((draw) => draw()); };
  setTheme(wanted === "dark" || wanted === "light" ? wanted : dark.matches ? "dark" : "light");
  dark.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));

  const waiting = new Map();
  const draw = (host) => {
    const section = waiting.get(host);
    if (!section) return;
    waiting.delete(host);
    try { host.append(...T.kinds[section.kind](section.data, section, page).filter(Boolean)); }
    catch (problem) {
      host.append(T.el("p", { class: "card", role: "alert", text: "This section could not be drawn: " + problem.message }));
      throw problem;
    }
  };
  const links = new Map();
  const parts = page.sections.map((section) => {
    const host = T.el("section", { id: section.id, "data-kind": section.kind, "aria-labelledby": section.id + "-title" },
      T.el("div", { class: "head" }, T.el("h2", { id: section.id + "-title", text: section.title }),
        section.note ? T.el("p", { class: "muted small" }, T.words(section.note)) : null));
    waiting.set(host, section);
    links.set(host, T.el("a", { href: "#" + section.id, text: section.title }));
    return host;
  });
  const mark = T.svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" },
    ...[[1, 1, 0], [11, 1, 1], [1, 11, 2], [11, 11, 0]].map(([x, y, color]) => T.svg("rect", { x, y, width: 8, height: 8, rx: 2, class: T.color(color), fill: "var(--c)" })));
  const theme = T.button("Light or dark", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"), { class: "button theme" });
  document.getElementById("page").append(T.el("div", { class: "frame" },
    T.el("nav", { class: "side", "aria-label": "Sections" }, T.el("div", { class: "brand" }, mark, "Tessera"),
      T.el("ol", {}, parts.map((host) => T.el("li", {}, links.get(host))))),
    T.el("main", {}, T.el("div", { class: "top" }, T.el("h1", { text: page.title }), theme), parts)));

  // A link leads to a section that is drawn, and so are those above it: nothing moves afterwards.
  const drawUpTo = (id) => { for (const host of parts) { draw(host); if (host.id === id) break; } };
  addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest('a[href^="#"]');
    if (link) drawUpTo(link.getAttribute("href").slice(1));
  }, true);
  const near = new IntersectionObserver((seen) => seen.forEach((entry) => entry.isIntersecting && draw(entry.target)), { rootMargin: "600px" });
  // The line that a section must have passed moves down the window with the page: at its top the
  // first section is marked, at its end the last.
  const markNow = () => {
    const far = root.scrollHeight - innerHeight, line = Math.max(24, far > 0 ? (innerHeight * scrollY) / far : 0);
    const here = parts.filter((host) => host.getBoundingClientRect().top <= line).pop() || parts[0];
    links.forEach((link, host) => (host === here ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  };
  const grown = new ResizeObserver(markNow);
  parts.forEach((host) => { near.observe(host); grown.observe(host); });
  addEventListener("scroll", markNow, { passive: true });
  addEventListener("beforeprint", () => { setTheme("light"); parts.forEach(draw); });
  if (location.hash) { drawUpTo(location.hash.slice(1)); const target = document.getElementById(location.hash.slice(1)); if (target) target.scrollIntoView(); }
  T.page = page;
  T.drawAll = () => parts.forEach(draw);
})();
