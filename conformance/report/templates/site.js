"use strict";
// Filters, search, buttons that copy. All can be read without it.
const root = document.body.dataset.root;
const make = (tag, fields) => Object.assign(document.createElement(tag), fields);
const every = (selector) => [...document.querySelectorAll(selector)];
every(".no-script").forEach((each) => (each.hidden = true));
const fields = () => new URLSearchParams(location.hash.slice(1));

// The verdicts that a row shows, each with its columns, from one up to another.
const spans = (row) => {
  let to = 0;
  return [...row.querySelectorAll("tr:first-child > td")].map((cell) => (
    { verdict: cell.classList[0], expected: !!cell.querySelector("abbr"), from: to, to: (to += cell.colSpan) }
  )).filter(({ verdict }) => verdict !== "none");
};
const deviates = ({ verdict }) => verdict !== "pass" && verdict !== "unsupported";
const KINDS = {
  dev: (seen) => seen.some(deviates),
  open: (seen) => seen.some((each) => deviates(each) && !each.expected),
  loud: (seen) => seen.some(({ verdict }) => ["raises", "crash", "timeout"].includes(verdict)),
  vary: (seen) => new Set(seen.map(({ verdict }) => verdict)).size > 1,
};
const verdict = (name) => (seen) => seen.some(({ verdict }) => !name || verdict === name);

// A filter of the page's rows; it lies in the address, to be sent and gone back to.
for (const form of every(".filter")) {
  const { q, rows: kind, at, on } = form.elements;
  const all = [q, kind, at, on].filter(Boolean);
  const heads = at ? every(".cases thead th[data-at]") : [];
  const rows = every(".cases tbody,#kinds>.kind").map((row) => [row, row.textContent.toLowerCase(), at && spans(row)]);
  const parts = every(".parts:first-of-type > *").length;
  const address = () => new URLSearchParams(all.map((each) => [each.name, each.value.trim()]).filter(([, value]) => value)).toString();
  const apply = () => {
    const words = q.value.toLowerCase().split(/\s+/).filter(Boolean);
    const asked = at?.value || on?.value;
    const chosen = heads.map(({ dataset }) => asked && (!at.value || dataset.at === at.value) && (!on?.value || dataset.on === on.value));
    heads.forEach((head, column) => head.classList.toggle("chosen", !!chosen[column]));
    const is = KINDS[kind.value] || verdict(kind.value);
    let shown = 0;
    for (const [row, text, seen] of rows) {
      const there = asked ? seen.filter(({ from, to }) => chosen.slice(from, to).some(Boolean)) : seen;
      const fits = words.every((word) => text.includes(word)) && (seen ? is(there) : !kind.value || row.classList.contains(kind.value));
      row.hidden = !fits;
      shown += fits;
    }
    let total = shown;
    for (const link of every(".parts a")) {
      const there = !words[0] && JSON.parse(link.dataset.seen || "{}")[[kind.value, at?.value, on?.value].join("@")];
      link.hash = address();
      link.dataset.n = there || "";
      total += there || 0;
    }
    const where = parts ? `, on this page of ${parts}${total > shown ? `; ${total} on all` : ""}` : "";
    form.querySelector("output").textContent = address() ? `${shown} of ${rows.length}${where}` : "";
    const first = document.querySelector("th.chosen");
    if (first) first.closest(".scroll").scrollLeft = first.offsetLeft - document.querySelector(".corner").offsetWidth;
  };
  const read = () => {
    if (location.hash && !location.hash.includes("=")) return;
    for (const each of all) each.value = fields().get(each.name) || "";
    apply();
  };
  const keep = () => {
    if (fields().toString() !== address()) location.hash = address();
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("change", keep);
  form.addEventListener("submit", (event) => (event.preventDefault(), keep()));
  addEventListener("hashchange", read);
  read();
}

// Search: words by two letters, entries in blocks; a file is loaded once, when needed.
const loaded = {};
window.conformanceSearch = (kind, key, value) => (loaded[`${kind}-${key}`] = value);
const load = (name) =>
  (load[name] ??= new Promise((resolve) => {
    const done = () => resolve(loaded[name]);
    document.head.append(make("script", { src: `${root}search/${name}.js`, onload: done, onerror: done }));
  }));
const BLOCK = 250, SHOWN = 40;
// Entries, most words whole first; and the words that none has beside the others.
const lookUp = async (text) => {
  const there = await load("prefixes-all"), missing = [];
  let hits = new Map();
  for (const word of text.toLowerCase().match(/\d+(?:\.\d+)+|[a-z0-9]{2,}/g) || []) {
    const prefix = word.slice(0, 2), begun = word.slice(0, 24), first = !hits.size;
    const shard = (there?.includes(prefix) && (await load(`words-${prefix}`))) || {};
    const longer = /\.\d+$/.test(begun) ? /^\D/ : /./; // 2.1 is no beginning of 2.10
    const both = new Map();
    for (const [known, numbers] of Object.entries(shard)) {
      const same = known === begun;
      if (!same && !(known.startsWith(begun) && longer.test(known.slice(begun.length)))) continue;
      for (const each of numbers) if (first || hits.has(each)) both.set(each, Math.max(both.get(each) || 0, (hits.get(each) || 0) + same));
    }
    both.size ? (hits = both) : missing.push(word);
  }
  return [[...hits].sort(([a, whole], [b, other]) => other - whole || a - b).map(([number]) => number), missing.join(", ")];
};
const show = async (text, panel, limit, still) => {
  const [hits, missing] = await lookUp(text);
  const entries = [];
  for (const number of hits.slice(0, limit)) {
    const block = await load(`entries-${Math.floor(number / BLOCK)}`);
    if (block) entries.push(block[number % BLOCK]);
  }
  if (!still()) return;
  const list = make("ol");
  for (const [kind, name, about, address, answer] of entries) {
    const item = make("li"), told = make("span", { className: "at" });
    about.split("`").forEach((part, place) => told.append(place % 2 ? make("code", { textContent: part }) : part));
    item.append(make("b", { textContent: kind }), " ", make("a", { href: root + address, textContent: name }), " ", told);
    if (answer) item.append(make("span", { className: "answer", textContent: answer }));
    list.append(item);
  }
  const many = hits.length > limit;
  const without = missing && `Nothing has all of it; without ${missing}: `;
  const textContent = hits.length ? `${without}${hits.length} found${many ? `, the first ${limit} shown` : ""}` : "Nothing found.";
  panel.replaceChildren(make("p", { textContent }), list);
  if (many) {
    const more = make("button", { type: "button", textContent: "Show all" });
    more.addEventListener("click", () => show(text, panel, Infinity, still));
    panel.append(more);
  }
  panel.hidden = false;
};
for (const form of every(".search")) {
  const { q } = form.elements;
  const panel = document.getElementById("found");
  const run = () => {
    const text = q.value.trim();
    return text.length < 2 ? panel.replaceChildren() : show(text, panel, SHOWN, () => q.value.trim() === text);
  };
  form.hidden = false;
  q.addEventListener("input", run);
  if (form.classList.contains("all")) {
    const read = () => ((q.value = new URLSearchParams(location.search).get("q") || ""), run());
    addEventListener("pageshow", read);
  } else {
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") panel.hidden = true;
    });
  }
}

for (const box of every(".copy")) {
  const button = make("button", { type: "button", textContent: "Copy" });
  button.addEventListener("click", async () => {
    const pre = box.querySelector("pre");
    getSelection().selectAllChildren(pre);
    const done = await navigator.clipboard.writeText(pre.textContent).then(() => true, () => document.execCommand("copy"));
    button.textContent = done ? "Copied" : "Press Ctrl+C";
  });
  box.append(button);
}
