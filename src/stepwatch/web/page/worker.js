// Python in a separate thread: loads Pyodide and the packages, then answers one question after the other.

let python = null;

async function load(place) {
  importScripts(`${place}pyodide.js`);
  const packages = fetch(`${place}packages.zip`).then((response) => (response.ok ? response.arrayBuffer() : Promise.reject(response.status)));
  const pyodide = await loadPyodide({ indexURL: place });
  // numpy asks for the callers of large operations to save a copy; without an answer it makes the copy.
  pyodide._module.mergeLibSymbols({ backtrace: () => 0 }, "numpy");
  pyodide.unpackArchive(await packages, "zip", { extractDir: pyodide.runPython("import site; site.getsitepackages()[0]") });
  python = pyodide.pyimport("stepwatch.web.in_browser");
  python.warm();
  return pyodide;
}

let loading = null;

async function respond({ id, kind, query, body, limit }) {
  const pyodide = await loading;
  const bytes = pyodide.toPy(new Uint8Array(await body.arrayBuffer()));
  const reply = python.answer(kind, query, bytes, limit);
  const [status, answer] = reply.toJs();
  reply.destroy();
  bytes.destroy();
  postMessage({ id, status, body: answer }, [answer.buffer]);
}

onmessage = ({ data }) => {
  if (data.python) {
    loading = load(data.python);
    loading.then(() => postMessage({ ready: true }), (problem) => fail({ missing: true }, problem));
  } else respond(data).catch((problem) => python && fail({ lost: true }, problem));
};

function fail(message, problem) {
  console.error(problem); // never contains the question
  postMessage(message);
}
