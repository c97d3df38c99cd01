"use strict";

// Draws the charts of a report with the bundled Vega, by its interpreter: no code is made from text, so a page needs
// no `unsafe-eval`. `stepwatchCharts.draw(root, specs)` draws every visible chart inside `root` anew.
window.stepwatchCharts = (() => {
  const drawn = new Map();
  const darkness = window.matchMedia("(prefers-color-scheme: dark)");
  const options = {
    mode: "vega-lite", ast: true, actions: false, renderer: "canvas", defaultStyle: false,
    tooltip: { theme: "stepwatch", disableDefaultStyle: true },
  };

  function coloured(spec) {
    if (!darkness.matches || !spec.usermeta) return spec;
    const { datasets, usermeta, ...rest } = spec;
    let text = JSON.stringify(rest);
    for (const [light, dark] of Object.entries(usermeta.dark)) text = text.replaceAll(light, dark);
    return { ...JSON.parse(text), datasets };
  }

  function zoomed(view, how, whole) {
    const [first, last] = view.scale("x").domain();
    const middle = (first + last) / 2;
    const half = ((last - first) / 2) * (how === "in" ? 0.5 : 2);
    const all = how === "all" || 2 * half >= whole[1] - whole[0];
    view.signal("zoom_i", all ? null : [middle - half, middle + half]).runAsync();
  }

  function tools(figure, view) {
    const bar = figure.querySelector(".tools");
    if (!bar) return;
    const whole = view.scale("x").domain();
    bar.hidden = false;
    for (const button of bar.querySelectorAll("[data-zoom]")) {
      button.onclick = () => zoomed(view, button.dataset.zoom, whole);
    }
    figure.querySelector(".drawing").ondblclick = () => zoomed(view, "all", whole);
  }

  function forget(place) {
    const old = drawn.get(place);
    if (old) old.finalize();
    drawn.delete(place);
  }

  async function drawOne(place, spec) {
    forget(place);
    const figure = place.closest("figure");
    figure.classList.add("drawn");
    try {
      const result = await vegaEmbed(place, coloured(spec), options);
      drawn.set(place, result);
      tools(figure, result.view);
    } catch (error) {
      figure.classList.remove("drawn");
      console.error(error);
    }
  }

  function draw(root, specs) {
    for (const place of drawn.keys()) if (!place.isConnected || !place.closest("article")?.checkVisibility()) forget(place);
    const places = [...root.querySelectorAll(".drawing[data-chart]")];
    const visible = places.filter((place) => specs[place.dataset.chart] && place.closest("figure").checkVisibility());
    return Promise.all(visible.map((place) => drawOne(place, specs[place.dataset.chart])));
  }

  return { draw, darkness, viewOf: (place) => drawn.get(place)?.view };
})();
