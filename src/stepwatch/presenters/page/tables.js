"use strict";

// Tables of runs: a click on a head sorts, a second click reverses the order; a link opens the run that it leads to.
(() => {
  function sort(head) {
    const table = head.closest("table");
    const descending = head.ariaSort === "ascending";
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const order = new Intl.Collator(table.closest("[lang]").lang, { numeric: true });
    const key = (row) => {
      const cell = row.cells[head.cellIndex];
      return cell.dataset.key === undefined ? cell.textContent : Number(cell.dataset.key);
    };
    const compare = (one, other) => {
      const [left, right] = [key(one), key(other)];
      // Rows without a figure stay last.
      if (typeof left !== typeof right) return typeof left === "number" ? -1 : 1;
      const found = typeof left === "number" ? left - right : order.compare(left, right);
      return descending ? -found : found;
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(compare));
  }

  document.addEventListener("click", (event) => {
    const head = event.target.closest("th:has(> .sort)");
    if (head) sort(head);
    const section = document.getElementById(event.target.closest("a.to")?.hash.slice(1) ?? "");
    if (!section) return;
    event.preventDefault(); // in a page with views the address says which view is open
    for (const folded of section.querySelectorAll(":scope > details")) folded.open = true;
    for (let outer = section.closest("details"); outer; outer = outer.parentElement.closest("details")) outer.open = true;
    section.scrollIntoView();
    section.focus({ preventScroll: true });
  });
})();
