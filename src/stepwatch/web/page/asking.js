// Questions. All state is kept here, none where questions are answered.

let last = null; // the question whose answer is shown
let turn = 0; // only the latest question may show its answer

class Question {
  // `parts` are texts or files, in order.
  constructor(kind, parameters, parts, name) {
    Object.assign(this, { kind, parameters, parts, name });
  }

  query(more = {}) {
    const query = new URLSearchParams(this.parameters);
    query.set("lang", language());
    if (this.kind === "compare") query.set("before_bytes", new Blob([this.parts[0]]).size);
    for (const [name, value] of Object.entries(more)) query.set(name, value);
    return query;
  }

  // The same input: an answer to one is also an answer to the other.
  same(other) {
    return (
      other?.kind === this.kind &&
      JSON.stringify(other.parameters) === JSON.stringify(this.parameters) &&
      this.parts.length === other.parts.length &&
      this.parts.every((part, place) => part === other.parts[place])
    );
  }

  // Reports missing input without sending the question.
  problem() {
    const size = (part) => part.size ?? part.length;
    const asked = zonesOf(formOf(this.kind)).map((zone) => zone.area.name);
    const total = this.parts.reduce((sum, part) => sum + size(part), 0);
    if (total > Number(document.body.dataset.limit)) return { error: words.too_large, field: asked[0] };
    const needed = this.kind === "explain" || this.kind === "compare";
    const empty = this.parts.findIndex((part) => !size(part));
    if (needed && empty >= 0) return { error: words.empty, field: asked[empty] };
    const card = this.parameters.some(([name]) => name === "gpu");
    if (this.kind === "estimate" && !card && !byId("cards").querySelector("[value=this]")) return { error: words.no_card, field: "gpu" };
    return null;
  }
}

const formOf = (kind) => byId(`${kind}-form`);
const openForm = () => document.querySelector(".view:not([hidden]) form");

function questionOf(form) {
  const { kind } = form.dataset;
  const parameters = [];
  for (const name of ["gpu", "claim", "model", "gpus", "path", "like", "run", "before_gpu", "after_gpu"]) {
    const value = form.elements[name]?.value.trim();
    if (value) parameters.push([name, value]);
  }
  for (const row of form.querySelectorAll(".rows li")) {
    const [key, value] = [".key", ".value"].map((part) => row.querySelector(part).value.trim());
    if (key || value) parameters.push(["set", `${key}=${value}`]);
  }
  const zones = zonesOf(form);
  for (const { area, files } of zones) {
    const name = kind === "compare" ? `${area.name}_name` : "name";
    const called = files[0]?.name ?? (kind === "compare" ? words[area.name] : null);
    if (files.length > 1) for (const file of files) parameters.push(["file", `${file.size}:${file.name}`]);
    else if (called && kind !== "estimate") parameters.push([name, called]);
  }
  const name = form.elements.path?.value.split(/[\\/]/).pop() ?? namesOf(zones.flatMap(({ files }) => files));
  return new Question(kind, parameters, zones.flatMap(({ files, area }) => (files.length ? files : [area.value])), name);
}

async function ask(question) {
  const own = ++turn;
  const form = formOf(question.kind);
  tell(words.working);
  forgive();
  setStale(true);
  document.body.setAttribute("aria-busy", "true");
  try {
    const missing = question.problem();
    if (missing) throw missing;
    const found = JSON.parse(await (await answerer.answer(question, "page")).text());
    if (own !== turn) return;
    last = question;
    show(found);
    await fold(form);
    if (own !== turn) return;
    tell([words.done, ...found.notices].join(" "));
    mark();
    byId("answer").focus({ preventScroll: true });
    scrollTo(0, 0);
  } catch (problem) {
    if (own === turn) complain(problem, form);
  } finally {
    if (own === turn) document.body.removeAttribute("aria-busy");
  }
}
