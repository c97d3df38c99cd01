// The forms: texts and files, rows of settings, and how a form folds to one line once it is answered.

// --- texts and files ----------------------------------------------------------------------------------------------

const zonesOf = (form) => [...form.querySelectorAll(".drop")].map((place) => ({ place, area: place.querySelector("textarea"), files: place.files ?? [] }));

function take(place, ...files) {
  place.files = files;
  const area = place.querySelector("textarea");
  const chosen = place.querySelector(".chosen");
  chosen.hidden = !files.length;
  chosen.querySelector(".file-name").textContent = namesOf(files);
  area.readOnly = Boolean(files.length);
  mark();
  if (files.length) submitWhole(place.closest("form"));
}

const namesOf = (files) => files.map(({ name }) => name).join(", ");

// A complete text was given: answer at once, unless something else is needed first.
function submitWhole(form) {
  const { kind } = form.dataset;
  if (kind === "explain" || (form.elements.gpu?.value && kind !== "watch")) submit(form);
  else if (kind === "compare" && !questionOf(form).problem()) submit(form);
}

const submit = (form) => (form.dataset.kind === "watch" ? startWatching(form) : ask(questionOf(form)));

// A log pasted into an empty field, or over a log that was answered already, is a new one.
function pasted(event) {
  const text = event.clipboardData.getData("text/plain");
  const form = openForm();
  const zones = zonesOf(form);
  const zone = zones.find(({ area }) => area === event.target) ?? (zones.length === 1 ? zones[0] : null);
  const elsewhere = event.target.matches("input, textarea, select") && event.target !== zone?.area;
  if (!zone || elsewhere || !text.includes("\n")) return;
  const answered = questionOf(form).same(last);
  if (zone.area.value && !zone.files.length && !answered) return;
  event.preventDefault();
  zone.area.value = text;
  take(zone.place);
  submitWhole(form);
}

// Several logs are explained together, or compared; other forms take the first.
function dropped(event) {
  const files = [...event.dataTransfer.files];
  const zones = zonesOf(openForm());
  if (!files.length || !zones.length) return;
  if (zones.length > 1 && files.length > 1) return zones.forEach(({ place }, at) => take(place, files[at]));
  const zone = zones.find(({ place }) => place.contains(event.target)) ?? zones.find((each) => !each.files.length && !each.area.value) ?? zones[0];
  take(zone.place, ...files.slice(0, zone.place.querySelector("input").multiple ? files.length : 1));
}

// --- folding ------------------------------------------------------------------------------------------------------

const foldedOf = (form) => form.parentElement.querySelector(".folded");

async function fold(form) {
  await summarize(form);
  foldedOf(form).hidden = false;
  form.hidden = true;
}

function unfold(form) {
  foldedOf(form).hidden = true;
  form.hidden = false;
}

// “train.log, 120 lines, RTX 4070”
async function summarize(form) {
  const parts = [];
  if (form.elements.path) parts.push(form.elements.path.value.trim());
  for (const { files, area } of zonesOf(form)) {
    if (!files.length && !area.value.trim()) continue;
    const counts = files.length ? await Promise.all(files.map(linesOf)) : [area.value.trimEnd().split("\n").length];
    const count = counts.reduce((one, other) => one + other);
    parts.push([namesOf(files) || words.pasted, count && `${number(count)} ${words.lines}`].filter(Boolean).join(", "));
  }
  for (const name of ["model", "gpu", "before_gpu", "after_gpu", "gpus", "claim", "like"]) {
    const value = form.elements[name]?.value.trim();
    if (value) parts.push(name === "gpus" ? `${value} ×` : value === "this" ? words.own_card : value);
  }
  for (const [name, value] of questionOf(form).parameters) {
    if (name === "set") parts.push(value);
    if (name === "run") parts.push(`${words.run}: ${value}`);
  }
  foldedOf(form).querySelector(".what").textContent = parts.join(", ");
}

// Returns 0 for a compressed file.
async function linesOf(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) return 0;
  let count = 0;
  for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) count++;
  return count;
}

// --- one form -----------------------------------------------------------------------------------------------------

function addRow(form, key = "") {
  if (!form.querySelector(".rows")) return null;
  const row = byId("row").content.firstElementChild.cloneNode(true);
  row.querySelector(".key").value = key;
  row.querySelector(".remove").addEventListener("click", () => {
    row.remove();
    form.querySelector(".add").focus();
    mark();
  });
  form.querySelector(".rows").append(row);
  speak(row);
  return row;
}

// Our own log of a run on a common card.
async function tryExample(form) {
  form.elements.gpu.value = "GeForce RTX 4070";
  if (form.dataset.kind === "estimate") form.elements.model.value = "gpt2";
  else {
    const [{ place }] = zonesOf(form);
    const text = await (await fetch(document.body.dataset.example)).blob();
    place.querySelector("textarea").value = "";
    return take(place, new File([text], "example.log"));
  }
  submit(form);
}

// One of the example logs next to the page, named in the link of a gallery.
async function openExample(parameters) {
  const form = byId("explain-form");
  const name = parameters.get("example");
  if (!("examples" in document.body.dataset) || !/^[\w.-]+$/.test(name ?? "")) return;
  try {
    const response = await fetch(document.body.dataset.examples + name);
    if (!response.ok) throw { error: words.unreachable };
    form.elements.gpu.value = parameters.get("gpu") ?? "";
    take(zonesOf(form)[0].place, new File([await response.blob()], name));
  } catch {
    complain({ error: words.unreachable }, form);
  }
}

function prepare(form) {
  addRow(form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(form);
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("input", mark);
  form.addEventListener("change", mark);
  form.querySelector(".add")?.addEventListener("click", () => addRow(form).querySelector(".key").focus());
  form.querySelector(".example")?.addEventListener("click", () => tryExample(form).catch(() => complain({ error: words.unreachable }, form)));
  foldedOf(form).querySelector(".change").addEventListener("click", () => {
    if (form.dataset.kind === "watch") stopWatching();
    unfold(form);
    form.querySelector("textarea, input").focus();
  });
  for (const place of form.querySelectorAll(".drop")) {
    const input = place.querySelector("input[type=file]");
    place.querySelector(".choose").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      if (input.files.length) take(place, ...input.files);
      input.value = "";
    });
    place.querySelector(".take-away").addEventListener("click", () => {
      take(place);
      place.querySelector("textarea").focus();
    });
  }
  if (!("off" in form.dataset)) for (const button of form.querySelectorAll("button")) button.disabled = false;
}
