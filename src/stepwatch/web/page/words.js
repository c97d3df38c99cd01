// The words of the page in the chosen language, and its format of numbers and times of day.

const byId = (id) => document.getElementById(id);
let words = JSON.parse(document.body.dataset.words);

const language = () => byId("language").value;
const number = (value) => new Intl.NumberFormat(language()).format(value);

// 12 or 24 hours, as in the browser's region; includes the day unless it is today.
function clock(seconds, fine = false) {
  const region = navigator.languages.find((name) => name.startsWith(language())) ?? language();
  const moment = new Date(seconds * 1000);
  const day = moment.toDateString() === new Date().toDateString() ? {} : { weekday: "short", day: "numeric", month: "short" };
  return moment.toLocaleString(region, { ...day, hour: "numeric", minute: "2-digit", ...(fine ? { second: "2-digit" } : {}) });
}

function speak(part) {
  for (const node of part.querySelectorAll("[data-say]")) node.textContent = words[node.dataset.say];
  for (const node of part.querySelectorAll("[data-say-label]")) node.setAttribute("aria-label", words[node.dataset.sayLabel]);
}

async function switchLanguage(code) {
  remember(code);
  byId("language").value = code;
  try {
    words = await (await fetch(`page/words/${code}.json`)).json();
  } catch {
    return complain({ error: words.unreachable });
  }
  document.documentElement.lang = code;
  speak(document);
  for (const form of document.querySelectorAll("form.ask")) summarize(form);
  if (watching) startWatching(byId("watch-form"));
  else if (last && !byId("answer").hidden) ask(last);
  else tell("");
}

function remember(code) {
  const address = new URL(location);
  if (code) address.searchParams.set("lang", code);
  address.searchParams.delete("token"); // replaced by the cookie
  history.replaceState(null, "", address);
}
