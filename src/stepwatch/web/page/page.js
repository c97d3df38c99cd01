"use strict";
// The page: takes a log or a config, asks the server, shows the answer. Everything is kept here, nothing there.

const byId = (id) => document.getElementById(id);
let words = JSON.parse(document.body.dataset.words);
let last = null; // the question whose answer is shown, so that it can be asked again in another language or form
let turn = 0; // only the latest question may show its answer
let drawn = {};
let watching = null;

// --- what is asked ------------------------------------------------------------------------------------------------

class Question {
  constructor(kind, parameters, body, name) {
    Object.assign(this, { kind, parameters, body, name });
  }

  query(more = {}) {
    const query = new URLSearchParams(this.parameters);
    query.set("lang", byId("language").value);
    for (const [name, value] of Object.entries(more)) query.set(name, value);
    return query;
  }

  address(format) {
    return `api/${this.kind}?${this.query({ format })}`;
  }
}

function parametersOf(form) {
  const parameters = [];
  for (const name of ["gpu", "claim", "model", "gpus", "path"]) {
    const value = form.elements[name]?.value.trim();
    if (value) parameters.push([name, value]);
  }
  for (const row of form.querySelectorAll(".rows li")) {
    const [key, value] = [".key", ".value"].map((part) => row.querySelector(part).value.trim());
    if (key && value) parameters.push(["set", `${key}=${value}`]);
  }
  return parameters;
}

function questionOf(form) {
  const { kind } = form.dataset;
  const parameters = parametersOf(form);
  if (kind === "watch") return new Question("explain", parameters, "", nameOf(form.elements.path.value));
  const file = form.file;
  const body = file ?? form.querySelector("textarea").value;
  if (kind === "explain" && file) parameters.push(["name", file.name]);
  return new Question(kind, parameters, body, file ? nameOf(file.name) : kind);
}

const nameOf = (path) => path.split(/[\\/]/).pop().replace(/(\.(log|txt|gz|py))+$/i, "") || "stepwatch";

// --- asking -------------------------------------------------------------------------------------------------------

async function post(question, format) {
  let response;
  try {
    response = await fetch(question.address(format), {
      method: "POST",
      headers: { "Content-Type": "application/octet-stream" },
      body: question.body,
    });
  } catch {
    throw { error: words.unreachable };
  }
  if (!response.ok) throw await complaintOf(response);
  return response;
}

async function complaintOf(response) {
  try {
    return await response.json();
  } catch {
    return { error: `${response.status} ${response.statusText}` };
  }
}

async function ask(question, { focus = false } = {}) {
  const own = ++turn;
  tell(words.working);
  document.body.setAttribute("aria-busy", "true");
  try {
    if (question.body.size > Number(document.body.dataset.limit)) throw { error: words.too_large };
    if (question.kind === "explain" && !question.body.size && !question.body.length) throw { error: words.empty };
    const found = await (await post(question, "page")).json();
    if (own !== turn) return;
    last = question;
    await show(found);
    tell(words.done);
    if (focus) byId("answer").focus({ preventScroll: true });
    byId("answer").scrollIntoView({ block: "start" });
  } catch (problem) {
    if (own === turn) complain(problem);
  } finally {
    if (own === turn) document.body.removeAttribute("aria-busy");
  }
}

function tell(text) {
  byId("status").textContent = text;
  byId("problem").replaceChildren();
}

function complain(problem) {
  if (problem instanceof Error) problem = { error: problem.message };
  byId("status").textContent = "";
  const lines = [problem.error, problem.hint].filter(Boolean).map((text) => {
    const line = document.createElement("p");
    line.textContent = text;
    return line;
  });
  byId("problem").replaceChildren(...lines);
}

// --- the answer ---------------------------------------------------------------------------------------------------

async function show({ html, specs }) {
  const kept = [...byId("report").querySelectorAll("figure")].map(stateOf);
  byId("answer").hidden = false;
  byId("report").innerHTML = html; // escaped by the server; the Content-Security-Policy lets no script in it run
  drawn = specs;
  await stepwatchCharts.draw(byId("report"), specs);
  for (const state of kept) restore(state);
}

// A chart that was zoomed stays so when the log has grown, and a table that was opened stays open.
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

async function save(format) {
  const response = await post(last, format);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = `${last.name}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// --- watching -----------------------------------------------------------------------------------------------------

class Watch {
  constructor(question) {
    this.question = question;
    this.stopping = new AbortController();
  }

  async run() {
    for (let pause = 1; !this.stopping.signal.aborted; pause = Math.min(pause * 2, 10)) {
      try {
        const response = await fetch(`live?${this.question.query()}`, { signal: this.stopping.signal });
        if (!response.ok) return this.fail(await complaintOf(response));
        pause = 1;
        for await (const [name, data] of eventsOf(response.body)) await this.take(name, JSON.parse(data));
      } catch {
        if (this.stopping.signal.aborted) return;
      }
      tell(words.again);
      await new Promise((resolve) => setTimeout(resolve, pause * 1000));
    }
  }

  async take(name, data) {
    if (this.stopping.signal.aborted) return;
    if (name === "problem") return complain(data);
    last = this.question;
    const place = scrollY;
    await show(data);
    scrollTo(0, place);
    const language = byId("language").value;
    const region = navigator.languages.find((name) => name.startsWith(language)) ?? language; // 24 hours, or twice 12
    tell(`${words.watching} ${new Date().toLocaleTimeString(region)}`);
  }

  fail(problem) {
    stopWatching();
    complain(problem);
  }
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let { value, done } = await reader.read(); !done; { value, done } = await reader.read()) {
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const fields = Object.fromEntries(part.split("\n").map((line) => [line.split(": ", 1)[0], line.slice(line.indexOf(": ") + 2)]));
      if (fields.event) yield [fields.event, fields.data];
    }
  }
}

function startWatching(form) {
  stopWatching();
  watching = new Watch(questionOf(form));
  form.querySelector(".stop").hidden = false;
  tell(words.working);
  watching.run();
}

function stopWatching() {
  if (!watching) return;
  watching.stopping.abort();
  watching = null;
  document.querySelector(".stop").hidden = true;
  tell(words.stopped);
}

// --- forms --------------------------------------------------------------------------------------------------------

function submit(form, options) {
  if (form.dataset.kind === "watch") startWatching(form);
  else ask(questionOf(form), options);
}

function take(form, file) {
  form.file = file ?? null;
  const chosen = form.querySelector(".chosen");
  chosen.hidden = !file;
  chosen.querySelector(".file-name").textContent = file ? file.name : "";
  form.querySelector("textarea").disabled = Boolean(file);
  if (file && isWhole(form)) submit(form);
}

// An estimate needs a card as well: it waits for the button.
const isWhole = (form) => form.dataset.kind === "explain" || Boolean(form.elements.gpu.value);

function addRow(form, key = "") {
  const row = byId("row").content.firstElementChild.cloneNode(true);
  row.querySelector(".key").value = key;
  row.querySelector(".remove").addEventListener("click", () => {
    row.remove();
    form.querySelector(".add").focus();
  });
  form.querySelector(".rows").append(row);
  speak(row);
  return row;
}

function prepare(form) {
  addRow(form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(form, { focus: true });
  });
  form.querySelector(".add").addEventListener("click", () => addRow(form).querySelector(".key").focus());
  form.elements.gpu.addEventListener("change", () => {
    if (last && !byId("answer").hidden && form.dataset.kind !== "watch") submit(form);
  });
  form.querySelector(".stop")?.addEventListener("click", stopWatching);
  const area = form.querySelector("textarea");
  if (!area) return;
  area.addEventListener("paste", () => {
    if (!area.value && isWhole(form)) setTimeout(() => submit(form)); // a whole log was pasted: answer at once
  });
  const input = form.querySelector("input[type=file]");
  form.querySelector(".choose").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    if (input.files.length) take(form, input.files[0]);
    input.value = "";
  });
  form.querySelector(".take-away").addEventListener("click", () => {
    take(form, null);
    area.focus();
  });
}

const openForm = () => document.querySelector(".view:not([hidden]) form");

function openView() {
  const name = ["explain", "estimate", "watch"].find((view) => `#${view}` === location.hash) ?? "explain";
  if (name !== "watch") stopWatching();
  for (const view of document.querySelectorAll(".view")) view.hidden = view.id !== name;
  for (const link of document.querySelectorAll(".views a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("answer").hidden = true;
  turn++;
  tell("");
}

// --- language -----------------------------------------------------------------------------------------------------

function speak(part) {
  for (const node of part.querySelectorAll("[data-say]")) node.textContent = words[node.dataset.say];
  for (const node of part.querySelectorAll("[data-say-label]")) node.setAttribute("aria-label", words[node.dataset.sayLabel]);
}

async function switchLanguage(language) {
  remember(language);
  words = await (await fetch(`page/words/${language}.json`)).json();
  document.documentElement.lang = language;
  speak(document);
  tell("");
  if (watching) startWatching(byId("watch").querySelector("form"));
  else if (last && !byId("answer").hidden) ask(last);
}

function remember(language) {
  const address = new URL(location);
  if (language) address.searchParams.set("lang", language);
  address.searchParams.delete("token"); // the cookie has taken its place
  history.replaceState(null, "", address);
}

// --- start --------------------------------------------------------------------------------------------------------

for (const form of document.querySelectorAll("form.ask")) prepare(form);
for (const button of document.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => save(button.dataset.format).catch(complain));
}
byId("language").addEventListener("change", (event) => switchLanguage(event.target.value));
addEventListener("hashchange", openView);
for (const kind of ["dragenter", "dragover"]) {
  addEventListener(kind, (event) => {
    event.preventDefault();
    document.body.classList.add("dropping");
  });
}
addEventListener("dragleave", (event) => event.relatedTarget ?? document.body.classList.remove("dropping"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  const file = event.dataTransfer.files[0];
  const form = openForm();
  if (file && form.querySelector("textarea")) take(form, file);
});
stepwatchCharts.darkness.addEventListener("change", () => stepwatchCharts.draw(byId("report"), drawn));
remember(null);
openView();
