// Answers questions: either the server that sent this page, or Python inside this browser. Each takes a question and a
// format for the answer, and returns a Blob or throws a complaint: { error, hint, field }.

class ServerEngine {
  async answer(question, format) {
    let response;
    try {
      response = await fetch(`api/${question.kind}?${question.query({ format })}`, {
        method: "POST",
        headers: { "Content-Type": "application/octet-stream" },
        body: new Blob(question.parts),
      });
    } catch {
      throw { error: words.unreachable };
    }
    if (!response.ok) throw await complaintOf(response);
    return response.blob();
  }
}

async function complaintOf(response) {
  try {
    return await response.json();
  } catch {
    return { error: `${response.status} ${response.statusText}` };
  }
}

// Python and its packages are loaded once, from where the page comes from; no log leaves the page.
class BrowserEngine {
  constructor({ worker, python }) {
    Object.assign(this, { script: worker, python, asked: new Map(), count: 0 });
    this.start().catch(() => {}); // reported when a question is asked
  }

  // A script created here is under the policy of this page; a fetched one would have none.
  start() {
    return (this.started ??= (async () => {
      const response = await fetch(this.script);
      if (!response.ok) throw { error: words.python_missing };
      const address = URL.createObjectURL(new Blob([await response.text()], { type: "text/javascript" }));
      this.worker = new Worker(address);
      this.worker.onmessage = ({ data }) => this.heard(data);
      this.worker.onerror = () => this.lose({ error: words.python_missing });
      this.worker.postMessage({ python: new URL(this.python, location).href });
    })().catch((problem) => {
      this.started = null;
      throw problem.error ? problem : { error: words.python_missing };
    }));
  }

  async answer(question, format) {
    if (!this.ready) tell(words.loading);
    await this.start();
    const id = ++this.count;
    const query = JSON.stringify([...question.query({ format })]);
    const limit = Number(document.body.dataset.limit);
    return new Promise((resolve, reject) => {
      this.asked.set(id, { resolve, reject });
      this.worker.postMessage({ id, kind: question.kind, query, body: new Blob(question.parts), limit });
    });
  }

  heard({ ready, missing, lost, id, status, body }) {
    if (missing) return this.lose({ error: words.python_missing });
    if (lost) return this.lose({ error: words.lost });
    if (ready) {
      this.ready = true;
      document.body.dataset.ready = "";
      navigator.serviceWorker?.register("offline.js").catch(() => {}); // without it the page works, but not offline
      if (this.asked.size) tell(words.working);
      return;
    }
    const { resolve, reject } = this.asked.get(id);
    this.asked.delete(id);
    if (status === 200) resolve(new Blob([body]));
    else reject(JSON.parse(new TextDecoder().decode(body)));
  }

  // The next question starts a new worker.
  lose(problem) {
    this.worker.terminate();
    this.started = null;
    this.ready = false;
    for (const { reject } of this.asked.values()) reject(problem);
    this.asked.clear();
  }
}

const answerer = document.body.dataset.python ? new BrowserEngine(document.body.dataset) : new ServerEngine();
