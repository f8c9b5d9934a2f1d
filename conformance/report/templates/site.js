"use strict";
// Filters, search, and buttons that copy. Everything on the pages can be read without it.
{
  const root = document.body.dataset.root;
  document.querySelectorAll(".no-script").forEach((each) => (each.hidden = true));
  const fields = () => new URLSearchParams(location.hash.slice(1));

  // What a table shows, read from the table: for each row its verdicts with the columns, from one up to another, that they stand in.
  const LOUD = ["raises", "crash", "timeout"];
  const DEVIATES = ["wrong", ...LOUD, "unexercised", "error", "missing"];
  const spans = (row) => {
    let to = 0;
    return [...row.querySelectorAll("tr:first-child > td")].map((cell) => {
      const from = to;
      to += cell.colSpan;
      return { verdict: cell.classList[0], expected: !!cell.querySelector("abbr"), from, to };
    }).filter(({ verdict }) => verdict !== "none");
  };
  const KINDS = {
    "": (seen) => seen.length > 0,
    dev: (seen) => seen.some(({ verdict }) => DEVIATES.includes(verdict)),
    open: (seen) => seen.some(({ verdict, expected }) => DEVIATES.includes(verdict) && !expected),
    loud: (seen) => seen.some(({ verdict }) => LOUD.includes(verdict)),
    vary: (seen) => new Set(seen.map(({ verdict }) => verdict)).size > 1,
  };

  // A filter over the rows of the page's table; it lies in the address, so that it can be sent and gone back to.
  for (const form of document.querySelectorAll(".filter")) {
    const { q, rows: kind, at, on } = form.elements;
    const heads = at ? [...document.querySelectorAll(".cases thead th[data-at]")] : [];
    const rows = [...document.querySelectorAll(".cases tbody")].map((row) => [row, row.textContent.toLowerCase(), at && spans(row)]);
    const is = (seen) => (KINDS[kind.value] || ((all) => all.some(({ verdict }) => verdict === kind.value)))(seen);
    const address = () => {
      const set = [q, kind, at, on].filter((field) => field?.value.trim());
      return new URLSearchParams(set.map((field) => [field.name, field.value.trim()])).toString();
    };
    const apply = () => {
      const words = q.value.toLowerCase().split(/\s+/).filter(Boolean);
      const asked = at?.value || on?.value;
      const chosen = heads.map((head) => (!at.value || head.dataset.at === at.value) && (!on?.value || head.dataset.on === on.value));
      heads.forEach((head, column) => head.classList.toggle("chosen", !!asked && chosen[column]));
      let shown = 0;
      for (const [row, text, seen] of rows) {
        const there = asked ? seen.filter(({ from, to }) => chosen.slice(from, to).includes(true)) : seen;
        const fits = words.every((word) => text.includes(word)) && (seen ? is(there) : !kind.value || row.classList.contains(kind.value));
        row.hidden = !fits;
        shown += fits;
      }
      const parts = document.querySelectorAll(".parts:first-of-type > *").length;
      const where = parts ? `, on this page of ${parts}` : "";
      form.querySelector("output").textContent = words.length || kind.value || asked ? `${shown} of ${rows.length}${where}` : "";
      for (const link of document.querySelectorAll(".parts a")) link.hash = address();
      const first = asked && document.querySelector(".cases .chosen");
      if (first) first.closest(".scroll").scrollLeft = first.offsetLeft - document.querySelector(".cases .corner").offsetWidth;
    };
    const read = () => {
      const wanted = fields();
      if (location.hash && !location.hash.includes("=")) return;
      for (const field of [q, kind, at, on]) if (field) field.value = wanted.get(field.name) || "";
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
    const words = text.toLowerCase().match(/\d+(?:\.\d+)+|[a-z0-9]+/g) || [];
    let hits = null; // entry -> how many of the words it holds whole, and not as a beginning alone
    for (const word of words.filter((word) => word.length > 1)) {
      const shard = (await load(`words-${word.slice(0, 2)}`)) || {};
      const begun = word.slice(0, 24);
      const whole = /\.\d+$/.test(begun); // 2.1 is no beginning of 2.10
      const fits = (known) => known.startsWith(begun) && !(whole && /\d/.test(known[begun.length]));
      const found = new Set(Object.keys(shard).filter(fits).flatMap((known) => shard[known]));
      const same = new Set(Object.hasOwn(shard, begun) ? shard[begun] : []);
      const before = hits;
      hits = new Map([...found].filter((each) => !before || before.has(each)).map((each) => [each, (before?.get(each) || 0) + same.has(each)]));
    }
    return [...(hits || [])].sort(([a, whole], [b, other]) => other - whole || a - b).map(([number]) => number);
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
    for (const [kind, name, about, address, answer] of entries) {
      const link = Object.assign(document.createElement("a"), { href: root + address, textContent: name });
      const item = document.createElement("li");
      item.append(Object.assign(document.createElement("b"), { textContent: kind }), " ", link, " ");
      const told = Object.assign(document.createElement("span"), { className: "at" });
      about.split("`").forEach((part, place) => told.append(place % 2 ? Object.assign(document.createElement("code"), { textContent: part }) : part));
      item.append(told);
      if (answer) item.append(Object.assign(document.createElement("span"), { className: "answer", textContent: answer }));
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
