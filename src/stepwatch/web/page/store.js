"use strict";

// The table of all runs: hides rows that do not contain the typed words.
document.getElementById("filter")?.addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of document.querySelectorAll(".overview tbody tr")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
});
