"use strict";
// Filters, search, and buttons that copy. Everything on the pages can be read without it.
{
  const root = document.body.dataset.root;
  document.querySelectorAll(".no-script").forEach((each) => (each.hidden = true));
  const fields = () => new URLSearchParams(location.hash.slice(1));

  // A filter over the rows of the page's table; it lies in the address, so that it can be sent and gone back to.
  for (const form of document.querySelectorAll(".filter")) {
    const rows = [...document.querySelectorAll(".cases tbody")].map((row) => [row, row.textContent.toLowerCase()]);
    const { q, rows: kind, at } = form.elements;
    const apply = () => {
      const words = q.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const [row, text] of rows) {
        const fits = words.every((word) => text.includes(word)) && (!kind.value || row.classList.contains(kind.value)) &&
          (!at?.value || (row.dataset.at || "").includes(` ${at.value} `));
        row.hidden = !fits;
        shown += fits;
      }
      form.querySelector("output").textContent = words.length || kind.value || at?.value ? `${shown} of ${rows.length}` : "";
    };
    const read = () => {
      const wanted = fields();
      if (location.hash && !location.hash.includes("=")) return;
      q.value = wanted.get("q") || "";
      kind.value = wanted.get("rows") || "";
      if (at) at.value = wanted.get("at") || "";
      apply();
    };
    const keep = () => {
      const wanted = new URLSearchParams(Object.entries({ q: q.value.trim(), rows: kind.value, at: at?.value }).filter(([, value]) => value));
      if (fields().toString() !== wanted.toString()) location.hash = wanted.toString();
    };
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("change", keep);
    form.addEventListener("submit", (event) => (event.preventDefault(), keep()));
    addEventListener("hashchange", read);
    read();
  }

  // Search: words by their first two letters, entries in blocks; each file is loaded once, when it is needed.
  const loaded = {};
  window.conformanceSearch = (kind, key, value) => (loaded[`${kind}-${key}`] = value);
  const load = (name) =>
    (load[name] ??= new Promise((resolve) => {
      const script = document.createElement("script");
      script.src = `${root}search/${name}.js`;
      script.onload = script.onerror = () => resolve(loaded[name]);
      document.head.append(script);
    }));
  const BLOCK = 250, SHOWN = 40;
  const lookUp = async (text) => {
    const words = text.toLowerCase().match(/[a-z0-9]+/g) || [];
    let hits = null;
    for (const word of words.filter((word) => word.length > 1)) {
      const shard = (await load(`words-${word.slice(0, 2)}`)) || {};
      const found = new Set(Object.keys(shard).filter((known) => known.startsWith(word.slice(0, 24))).flatMap((known) => shard[known]));
      hits = hits ? new Set([...hits].filter((each) => found.has(each))) : found;
    }
    return [...(hits || [])].sort((a, b) => a - b);
  };
  const show = async (text, panel, limit, still) => {
    const hits = await lookUp(text);
    const entries = [];
    for (const number of hits.slice(0, limit)) {
      const block = await load(`entries-${Math.floor(number / BLOCK)}`);
      if (block) entries.push(block[number % BLOCK]);
    }
    if (!still()) return;
    const list = document.createElement("ol");
    for (const [kind, name, about, address] of entries) {
      const link = Object.assign(document.createElement("a"), { href: root + address, textContent: name });
      const item = document.createElement("li");
      item.append(Object.assign(document.createElement("b"), { textContent: kind }), " ", link, " ");
      item.append(Object.assign(document.createElement("span"), { className: "at", textContent: about }));
      list.append(item);
    }
    const said = document.createElement("p");
    said.textContent = hits.length ? `${hits.length} found${hits.length > limit ? `, the first ${limit} shown` : ""}` : "Nothing found.";
    panel.replaceChildren(said, list);
    if (hits.length > limit) {
      const more = Object.assign(document.createElement("button"), { type: "button", textContent: "Show all" });
      more.addEventListener("click", () => show(text, panel, Infinity, still));
      panel.append(more);
    }
    panel.hidden = false;
  };
  for (const form of document.querySelectorAll(".search")) {
    const { q } = form.elements;
    const panel = document.getElementById("found");
    const whole = form.classList.contains("all");
    const run = () => {
      const text = q.value.trim();
      if (text.length < 2) return panel.replaceChildren();
      return show(text, panel, SHOWN, () => q.value.trim() === text);
    };
    form.hidden = false;
    q.addEventListener("input", run);
    if (whole) {
      const read = () => ((q.value = new URLSearchParams(location.search).get("q") || ""), run());
      addEventListener("pageshow", read);
    } else {
      form.addEventListener("keydown", (event) => {
        if (event.key === "Escape") panel.hidden = true;
      });
    }
  }

  for (const box of document.querySelectorAll(".copy")) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy" });
    button.addEventListener("click", async () => {
      const text = box.querySelector("pre").textContent;
      const range = document.createRange();
      range.selectNodeContents(box.querySelector("pre"));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      const done = await navigator.clipboard.writeText(text).then(() => true, () => document.execCommand("copy"));
      button.textContent = done ? "Copied" : "Press Ctrl+C";
    });
    box.append(button);
  }
}
