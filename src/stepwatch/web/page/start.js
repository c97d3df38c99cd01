// The views, and what runs when the page starts.

const VIEWS = [...document.querySelectorAll(".view")].map((view) => view.id);

function openView() {
  const [asked, query] = location.hash.slice(1).split("?");
  const name = VIEWS.includes(asked) ? asked : VIEWS[0];
  if (name === "watch" && watching) {
    history.replaceState(null, "", `#watch?${new URLSearchParams(watching.question.parameters)}`);
    return;
  }
  stopWatching();
  for (const view of document.querySelectorAll(".view")) view.hidden = view.id !== name;
  for (const link of document.querySelectorAll(".views a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const form of document.querySelectorAll("form.ask")) unfold(form);
  byId("answer").hidden = true;
  turn++;
  document.body.removeAttribute("aria-busy");
  forgive();
  tell("");
  title();
  if (name === "watch" && query) resume(new URLSearchParams(query));
  if (name === "gpus") submit(byId("gpus-form")); // the catalogue needs no input
  if (name === "explain" && query) openExample(new URLSearchParams(query));
}

for (const form of document.querySelectorAll("form.ask")) prepare(form);
for (const button of document.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => save(button.dataset.format).catch((problem) => complain(problem)));
}
byId("language").addEventListener("change", (event) => switchLanguage(event.target.value));
addEventListener("hashchange", openView);
addEventListener("paste", pasted);
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
  dropped(event);
});
byId("report").addEventListener("toggle", () => engine || draw(), true); // the first chart may be in a folded section
remember(null);
openView();
if (document.body.dataset.python) {
  // Nobody has chosen the language of a page that is served as a file.
  const asked = [new URLSearchParams(location.search).get("lang"), ...navigator.languages.map((name) => name.slice(0, 2))];
  const spoken = asked.find((code) => [...byId("language").options].some(({ value }) => value === code));
  if (spoken && spoken !== language()) switchLanguage(spoken);
}
