"use strict";

// Draws the charts of a report with the bundled Vega and its interpreter: no code is made from text, so a page needs
// no `unsafe-eval`. `stepwatchCharts.draw(root, specs)` redraws every visible chart inside `root`.
window.stepwatchCharts = (() => {
  const drawn = new Map();
  const options = {
    mode: "vega-lite", ast: true, actions: false, renderer: "svg", defaultStyle: false,
    tooltip: { theme: "stepwatch", disableDefaultStyle: true },
  };

  // --- zooming: buttons, drag, pinch, and the wheel with a key (alone it moves the page) ---

  const NEAR = 24; // pixels: as far as a finger may miss a mark
  const LEAST_SPAN = 4; // iterations: three ticks and more

  function zoomTo(state, [first, last]) {
    const { view, whole } = state;
    const span = Math.max(last - first, LEAST_SPAN);
    if (span >= whole[1] - whole[0]) return view.signal("zoom_i", null).runAsync();
    const middle = Math.min(Math.max((first + last) / 2, whole[0] + span / 2), whole[1] - span / 2);
    const range = [middle - span / 2, middle + span / 2];
    // A range without marks has no scale: where the log has no data, the chart stays unchanged.
    if (state.numbers.some((number) => range[0] <= number && number <= range[1])) view.signal("zoom_i", range).runAsync();
  }

  function zoomBy(state, factor, at) {
    const [first, last] = state.view.scale("x").domain();
    const fixed = at ?? (first + last) / 2;
    zoomTo(state, [fixed - (fixed - first) * factor, fixed + (last - fixed) * factor]);
  }

  function gestures(place, state) {
    const surface = place.querySelector("svg");
    const fingers = new Map();
    const iterationAt = (x) => state.view.scale("x").invert(x - surface.getBoundingClientRect().left - state.left());
    let held = []; // the iterations under the fingers, which stay there
    let moved = 0;

    const hold = () => { held = [...fingers.values()].map(({ x }) => iterationAt(x)); };
    surface.onpointerdown = (event) => {
      if (event.button) return;
      if (!fingers.size) moved = 0;
      fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      hold();
    };
    surface.onpointermove = (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      moved += Math.abs(event.clientX - before.x) + Math.abs(event.clientY - before.y);
      fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      if (moved > NEAR / 4 && !surface.hasPointerCapture(event.pointerId)) surface.setPointerCapture(event.pointerId);
      const [one, two] = [...fingers.values()].map(({ x }) => x - surface.getBoundingClientRect().left - state.left());
      const [first, last] = state.view.scale("x").domain();
      const width = state.view.width();
      if (two === undefined) {
        const shift = held[0] - state.view.scale("x").invert(one);
        zoomTo(state, [first + shift, last + shift]);
      } else if (Math.abs(two - one) > 1) {
        const each = Math.min(Math.abs((held[1] - held[0]) / (two - one)), (state.whole[1] - state.whole[0]) / width);
        zoomTo(state, [held[0] - one * each, held[0] + (width - one) * each]);
      }
    };
    surface.onpointerup = surface.onpointercancel = (event) => {
      fingers.delete(event.pointerId);
      hold();
    };
    surface.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      zoomBy(state, 1.0015 ** (event.deltaY || event.deltaX), iterationAt(event.clientX));
    }, { passive: false });
    surface.ondblclick = () => zoomTo(state, state.whole);
    surface.onclick = (event) => {
      if (moved > NEAR / 2) return; // it was a drag
      const box = surface.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left - state.left(), event.clientY - box.top - state.top()];
      let nearest = null;
      let least = NEAR;
      for (const mark of state.lines) {
        const far = Math.hypot(state.view.scale("x")(mark.i) - x, state.view.scale("y")(mark.t) - y);
        if (far <= least) [nearest, least] = [mark, far];
      }
      if (nearest) state.choose(nearest);
    };
  }

  // --- the log's own lines around a mark, by a click, a tap or the keyboard ---

  function quoting(figure, state, spec) {
    const drawing = figure.querySelector(".drawing");
    for (const old of figure.querySelectorAll(".lines")) old.remove();
    if (!state.lines.length) return;
    const part = document.createElement("div");
    part.className = "lines";
    const label = document.createElement("label");
    const select = document.createElement("select");
    const text = document.createElement("pre");
    const number = new Intl.NumberFormat(drawing.closest("[lang]")?.lang);
    label.append(spec.usermeta.lines + " ", select);
    select.append(new Option("–", ""));
    for (const [place, mark] of state.lines.entries()) {
      select.append(new Option(`${number.format(mark.i)} · ${spec.usermeta.phases[mark.p] ?? mark.p}`, place));
    }
    text.hidden = true;
    text.tabIndex = 0;
    part.append(label, text);
    (figure.querySelector(".tools") ?? drawing).after(part);
    state.choose = (mark) => {
      select.value = mark ? state.lines.indexOf(mark) : "";
      text.hidden = !mark;
      text.textContent = mark ? mark.lines.join("\n") : "";
      const range = mark && state.view.signal("zoom_i");
      if (range && (mark.i < range[0] || mark.i > range[1])) {
        const half = (range[1] - range[0]) / 2;
        zoomTo(state, [mark.i - half, mark.i + half]);
      }
      state.view.signal("chosen", mark ? mark.i : null).runAsync();
    };
    select.onchange = () => state.choose(state.lines[select.value]);
  }

  function tools(figure, view, spec) {
    const bar = figure.querySelector(".tools");
    if (!bar) return;
    const lines = spec.datasets.lines ?? [];
    const numbers = spec.datasets.times.map((point) => point.i);
    const left = () => view.origin()[0] + view.padding().left;
    const top = () => view.origin()[1] + view.padding().top;
    const state = { view, lines, numbers, left, top, whole: view.scale("x").domain(), choose() {} };
    bar.hidden = false;
    for (const button of bar.querySelectorAll("[data-zoom]")) {
      const how = { in: () => zoomBy(state, 0.5), out: () => zoomBy(state, 2), all: () => zoomTo(state, state.whole) };
      button.onclick = how[button.dataset.zoom];
    }
    quoting(figure, state, spec);
    gestures(figure.querySelector(".drawing"), state);
  }

  function forget(place) {
    const old = drawn.get(place);
    if (old) old.finalize();
    drawn.delete(place);
  }

  async function drawOne(place, spec) {
    forget(place);
    const figure = place.closest("figure");
    if (!figure.classList.contains("drawn")) figure.querySelector("details").open = false; // shown for lack of a drawing
    figure.classList.add("drawn");
    try {
      const result = await vegaEmbed(place, spec, options);
      drawn.set(place, result);
      tools(figure, result.view, spec);
    } catch (error) {
      figure.classList.remove("drawn");
      figure.querySelector("details").open = true;
      console.error(error);
    }
  }

  const seen = (place) => place.closest("figure").checkVisibility();

  function draw(root, specs) {
    for (const place of drawn.keys()) if (!place.isConnected || !place.closest("article")?.checkVisibility()) forget(place);
    const places = [...root.querySelectorAll(".drawing[data-chart]")].filter((place) => specs[place.dataset.chart]);
    const one = (place) => drawOne(place, specs[place.dataset.chart]);
    for (const folded of root.querySelectorAll("details:has(.drawing)")) { // drawn when it is opened
      folded.ontoggle = () => places.filter((place) => folded.contains(place) && seen(place) && !drawn.has(place)).map(one);
    }
    return Promise.all(places.filter(seen).map(one));
  }

  return { draw, viewOf: (place) => drawn.get(place)?.view };
})();
