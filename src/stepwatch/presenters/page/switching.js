"use strict";

// The language of the page, and its charts in that language; the data of the charts are there once for all of them.
(() => {
  const { specs, datasets } = JSON.parse(document.getElementById("charts").textContent);
  const buttons = [...document.querySelectorAll("input[name=language]")];

  function show() {
    const language = buttons.find((button) => button.checked).value;
    const article = document.querySelector(`article[lang=${language}]`);
    document.documentElement.lang = language;
    document.title = article.dataset.title;
    const whole = Object.entries(specs[language]).map(([name, spec]) => [name, { ...spec, datasets: datasets[name] }]);
    stepwatchCharts.draw(article, Object.fromEntries(whole));
  }

  for (const button of buttons) button.addEventListener("change", show);
  show();
})();
