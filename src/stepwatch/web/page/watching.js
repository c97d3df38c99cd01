// A run in progress: its state, every second, and its report when the log has grown.

const ALARM_S = 120; // how long an alarm stays visible after its cause has passed
let watching = null;

class Watch {
  constructor(question) {
    this.question = question;
    this.stopping = new AbortController();
    this.alarmed = null;
  }

  async run() {
    for (let pause = 1; !this.stopping.signal.aborted; pause = Math.min(pause * 2, 10)) {
      try {
        const response = await fetch(`live?${this.question.query()}`, { signal: this.stopping.signal });
        if (!response.ok) return this.fail(await complaintOf(response));
        pause = 1;
        for await (const [name, data] of eventsOf(response.body)) this.take(name, JSON.parse(data));
      } catch {
        if (this.stopping.signal.aborted) return;
      }
      if (this.stopping.signal.aborted) return;
      byId("monitor").classList.add("stale");
      setStale(true);
      tell(words.again);
      await new Promise((resolve) => setTimeout(resolve, pause * 1000));
    }
  }

  take(name, data) {
    if (this.stopping.signal.aborted) return;
    if (name === "problem") return data.field && data.field !== "path" ? this.fail(data) : this.warn(data);
    if (byId("status").textContent) tell("");
    if (name === "look") return this.look(data);
    last = new Question("explain", this.question.parameters, [""], this.question.name);
    const place = scrollY;
    show(data);
    scrollTo(0, place);
    title(this.heading);
  }

  // Does not move the focus: the problem may pass by itself.
  warn(problem) {
    byId("problem").textContent = [problem.error, problem.hint].filter(Boolean).join(" – ");
  }

  look(data) {
    const monitor = byId("monitor");
    const part = (name) => monitor.querySelector(name);
    byId("problem").replaceChildren();
    monitor.hidden = false;
    monitor.classList.remove("stale");
    if (!byId("answer").hidden) setStale(false);
    monitor.dataset.state = data.state;
    part(".badge").textContent = data.badge;
    part(".verdict .text").textContent = data.verdict ?? data.name;
    part(".remedy").textContent = data.remedy ?? "";
    part(".where").textContent = data.where;
    part("progress").hidden = data.share === null;
    if (data.share !== null) part("progress").value = data.share;
    const [low, mid, high] = data.ends_s?.map((end) => clock(end)) ?? [];
    const between = low === high ? "" : ` (${words.between} ${low} – ${high})`;
    part(".left").textContent = [data.left, mid && `${words.ends} ${mid}${between}.`].filter(Boolean).join(" ");
    part(".figures").replaceChildren(...data.figures.map(figureOf));
    part(".happened").hidden = !data.events.length;
    part(".events").replaceChildren(...data.events.toReversed().map(eventOf));
    part(".looked").textContent = `${words.updated} ${clock(Date.now() / 1000, true)}`;
    this.alarm(data);
  }

  // Announced once when it starts, also in the title of the tab.
  alarm(data) {
    const event = data.events.findLast((each) => each.alarm);
    const grave = ["crashed", "diverged", "stopped", "silent", "slow"].includes(data.state);
    const due = event && (grave || Date.now() / 1000 - event.at_s < ALARM_S);
    const text = data.verdict ?? (due ? `${clock(event.at_s, true)} ${event.text}` : grave ? data.badge : "");
    byId("alarm").classList.toggle("said", Boolean(data.verdict)); // the line below says it
    if (text !== this.alarmed) byId("alarm").textContent = text;
    this.alarmed = text;
    const share = data.share === null ? data.badge : `${Math.floor(100 * data.share)} %`;
    this.heading = text ? `⚠ ${data.badge}` : data.state === "done" ? `✓ ${data.badge}` : share;
    if (byId("answer").hidden) this.heading += ` ${data.name}`;
    title(this.heading);
  }

  fail(problem) {
    stopWatching();
    complain(problem, byId("watch-form"));
  }
}

function figureOf({ label, text, warning }) {
  const figure = document.createElement("div");
  const [name, value] = [document.createElement("dt"), document.createElement("dd")];
  name.textContent = label;
  value.textContent = text;
  figure.classList.toggle("warned", warning);
  figure.append(name, value);
  return figure;
}

function eventOf({ at_s, text, alarm }) {
  const line = document.createElement("li");
  line.textContent = `${alarm ? "⚠ " : ""}${clock(at_s, true)} ${text}`;
  line.classList.toggle("warned", alarm);
  return line;
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

// The address contains what is watched, so a reload resumes it.
function startWatching(form) {
  const question = questionOf(form);
  stopWatching();
  forgive();
  if (!form.elements.path.value.trim()) return complain({ error: words.no_path, field: "path" }, form);
  watching = new Watch(question);
  history.replaceState(null, "", `#watch?${new URLSearchParams(question.parameters)}`);
  byId("answer").hidden = true;
  fold(form);
  relabel("stop");
  tell(words.working);
  byId("monitor").focus({ preventScroll: true });
  watching.run();
}

function stopWatching() {
  if (!watching) return;
  watching.stopping.abort();
  watching = null;
  byId("monitor").hidden = true;
  byId("answer").hidden = true;
  byId("alarm").textContent = "";
  relabel("change");
  unfold(byId("watch-form"));
  if (location.hash.startsWith("#watch")) history.replaceState(null, "", "#watch");
  tell(words.stopped);
  title();
}

function relabel(name) {
  const button = byId("watch").querySelector(".change");
  button.firstElementChild.dataset.say = name;
  speak(button);
}

function resume(parameters) {
  const form = byId("watch-form");
  for (const [name, value] of parameters) {
    if (name === "set") {
      const row = [...form.querySelectorAll(".rows li")].find((each) => !each.querySelector(".key").value) ?? addRow(form);
      row.querySelector(".key").value = value.split("=", 1)[0];
      row.querySelector(".value").value = value.slice(value.indexOf("=") + 1);
    } else if (form.elements[name]) form.elements[name].value = value;
  }
  if (!("off" in form.dataset)) startWatching(form);
}
