// Tables can be sorted by a click on a column's title, and long ones filtered; all is there to read without it.
"use strict";
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  if (rows.length < 3) continue;
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const next = { ascending: "descending", descending: "none" }[head.ariaSort] || "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      if (next !== "none") head.ariaSort = next;
      body.append(...sorted(rows, column, next));
    });
  });
  if (rows.length >= 12) addFilter(table, rows);
}

// "1,234.5" and "[1.2, 3.4]" by their first number, all else by its letters; what says nothing comes last.
function sorted(rows, column, direction) {
  if (direction === "none") return rows;
  const sign = direction === "ascending" ? 1 : -1;
  const keys = new Map(rows.map((row) => [row, key(row.cells[column])]));
  return [...rows].sort((a, b) => compare(keys.get(a), keys.get(b), sign));
}

function key(cell) {
  const text = cell && cell.colSpan === 1 ? cell.textContent.trim() : "–";
  const number = /^[[(]?[-−+]?[\d,]*\.?\d/.test(text) ? parseFloat(text.replace(/[[(,]/g, "").replace("−", "-")) : NaN;
  return { text, number };
}

function compare(a, b, sign) {
  const empty = (a.text === "–") - (b.text === "–");
  if (empty) return empty;
  if (!isNaN(a.number) && !isNaN(b.number)) return sign * (a.number - b.number);
  return sign * a.text.localeCompare(b.text, "en", { numeric: true });
}

function addFilter(table, rows) {
  const label = document.createElement("label");
  label.className = "filter";
  label.textContent = "Show rows with ";
  const input = document.createElement("input");
  input.type = "search";
  label.append(input);
  table.parentElement.before(label);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  });
}
