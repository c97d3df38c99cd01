// The answer, whether it still matches the input, and what is wrong with the input.

let drawn = {};
let engine = null;

// --- the answer ---------------------------------------------------------------------------------------------------

function show({ html, specs }) {
  const kept = [...byId("report").querySelectorAll("figure")].map(stateOf);
  const open = [...byId("report").querySelectorAll("section > details[open]")].map((part) => part.parentElement.className);
  byId("answer").hidden = false;
  byId("report").innerHTML = html; // escaped by the server; the Content-Security-Policy blocks scripts in it
  for (const part of byId("report").querySelectorAll("section > details")) part.open = open.includes(part.parentElement.className);
  setStale(false);
  title();
  drawn = specs;
  draw().then(() => kept.forEach(restore));
}

// The chart engine is large: it is loaded when the first chart comes into view.
async function draw() {
  const places = [...byId("report").querySelectorAll(".drawing[data-chart]")];
  if (!engine && !places.some((place) => place.closest("figure").checkVisibility())) return;
  try {
    await (engine ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = document.body.dataset.engine;
      script.onload = resolve;
      script.onerror = reject;
      document.head.append(script);
    }));
    await stepwatchCharts.draw(byId("report"), drawn);
  } catch {
    engine = null;
    byId("status").textContent = words.charts_missing;
  }
}

function title(before = "") {
  const about = byId("answer").hidden ? "" : byId("report").querySelector("article")?.dataset.title;
  document.title = [before, about, "stepwatch"].filter(Boolean).join(" – ");
}

// A zoomed chart stays zoomed when the log has grown, and an open table stays open.
const chartOf = (figure) => figure.querySelector("[data-chart]");

function stateOf(figure) {
  const view = figure.querySelector(".tools") && stepwatchCharts.viewOf(chartOf(figure));
  return { name: chartOf(figure).dataset.chart, open: figure.querySelector("details").open, zoom: view?.signal("zoom_i") };
}

function restore({ name, open, zoom }) {
  const place = byId("report").querySelector(`[data-chart="${CSS.escape(name)}"]`);
  if (!place) return;
  place.closest("figure").querySelector("details").open = open;
  if (zoom) stepwatchCharts.viewOf(place)?.signal("zoom_i", zoom).runAsync();
}

// Named after its content, without characters that file systems do not accept.
async function save(format) {
  const about = byId("report").querySelector("article").dataset.title;
  const answer = await answerer.answer(last, format);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(answer);
  link.download = `${about.replaceAll(/[\\/:*?"<>|.\s]+/g, " ").trim() || "stepwatch"}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// --- whether it matches the input ---------------------------------------------------------------------------------

// A stale answer cannot be mistaken for a current one, neither by eye nor by a screen reader.
function setStale(stale) {
  byId("answer").classList.toggle("stale", stale);
  byId("report").inert = stale;
  byId("stale").textContent = stale && !byId("answer").hidden ? words.stale : "";
  for (const button of document.querySelectorAll("[data-format]")) button.disabled = stale;
  if (stale) document.title = "stepwatch";
  else title();
}

function mark() {
  if (!byId("answer").hidden && !watching) setStale(!questionOf(openForm()).same(last));
}

// --- what is wrong ------------------------------------------------------------------------------------------------

function tell(text) {
  byId("status").textContent = text;
  byId("problem").replaceChildren();
}

function forgive() {
  for (const text of document.querySelectorAll(".error")) {
    const field = byId(text.dataset.of);
    field?.removeAttribute("aria-invalid");
    field?.setAttribute("aria-describedby", (field.getAttribute("aria-describedby") ?? "").replace(text.id, "").trim());
    if (!field?.getAttribute("aria-describedby")) field?.removeAttribute("aria-describedby");
    text.remove();
  }
}

function fieldOf(form, name) {
  if (!name) return null;
  if (name.endsWith("settings")) return [...form.querySelectorAll(".rows .key")].findLast((key) => key.value) ?? null;
  return form.elements[name] ?? form.querySelector(name === "log" || name === "config" ? "textarea" : null);
}

// Shows the problem at its field, scrolled into view and focused; else below the form.
function complain(problem, form = openForm()) {
  if (problem instanceof Error) problem = { error: problem.message };
  forgive();
  tell("");
  setStale(true);
  const lines = [problem.error, problem.hint].filter(Boolean).map((text) => {
    const line = document.createElement("p");
    line.textContent = text;
    return line;
  });
  const field = fieldOf(form, problem.field);
  if (!field) {
    byId("problem").replaceChildren(...lines);
    return reveal(byId("problem"));
  }
  unfold(form);
  field.id ||= `${form.id}-${problem.field}`;
  const text = document.createElement("div");
  text.className = "error";
  text.id = `${field.id}-error`;
  text.dataset.of = field.id;
  text.append(...lines);
  (field.closest(".rows") ?? field).after(text);
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", [field.getAttribute("aria-describedby"), text.id].filter(Boolean).join(" "));
  reveal(field);
}

function reveal(place) {
  place.focus({ preventScroll: true });
  place.scrollIntoView({ block: "center" });
}
