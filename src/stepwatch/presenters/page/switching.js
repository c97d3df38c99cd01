"use strict";

// Switches the language of the page and of its charts; all languages share one copy of the chart data.
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
