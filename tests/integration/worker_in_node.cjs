// The worker of the page, run by node: worker.js and the folder of Python as arguments; a question in JSON on each line of
// standard input, its answer on a line of standard output.

const fs = require("node:fs");

const [script, place] = process.argv.slice(2);

globalThis.importScripts = (path) => Object.assign(globalThis, require(path));
globalThis.fetch = async (path) => ({ ok: true, arrayBuffer: async () => new Uint8Array(fs.readFileSync(path)).buffer });
globalThis.postMessage = ({ ready, missing, lost, id, status, body }) => {
  if (missing || lost) process.exit(1);
  if (!ready) return console.log(JSON.stringify({ id, status, body: Buffer.from(body).toString("base64") }));
  for (const line of fs.readFileSync(0, "utf8").split("\n")) {
    const { path, ...question } = JSON.parse(line);
    onmessage({ data: { ...question, body: new Blob([fs.readFileSync(path)]) } });
  }
};
(0, eval)(fs.readFileSync(script, "utf8"));
onmessage({ data: { python: place } });
