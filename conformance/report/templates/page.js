"use strict";
// Filters the rows of the full tables; everything on the page can be read without it.
for (const form of document.querySelectorAll(".filter")) {
  const rows = [...document.querySelectorAll(".cases tbody tr")];
  const apply = () => {
    const text = form.elements.text.value.trim().toLowerCase();
    const kind = form.elements.rows.value;
    let shown = 0;
    for (const row of rows) {
      const fits = row.firstElementChild.textContent.toLowerCase().includes(text) && (!kind || row.classList.contains(kind));
      row.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").textContent = text || kind ? `${shown} of ${rows.length} cases` : "";
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
}
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const open = event.target.closest && event.target.closest("td details[open]");
  if (open) {
    open.open = false;
    open.querySelector("summary").focus();
  }
});
