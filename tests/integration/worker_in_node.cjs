// The worker of the page, run by node: worker.js and the folder of Python as arguments; a question in JSON on each line of
// standard input, its answer on a line of standard output.

const fs = require("node:fs");
const readline = require("node:readline");

const [script, place] = process.argv.slice(2);
const lines = readline.createInterface({ input: process.stdin, terminal: false });

globalThis.importScripts = (path) => Object.assign(globalThis, require(path));
globalThis.fetch = async (path) => ({ ok: true, arrayBuffer: async () => new Uint8Array(fs.readFileSync(path)).buffer });
globalThis.postMessage = ({ ready, missing, lost, id, status, body }) => {
  if (missing || lost) process.exit(1);
  if (ready) {
    console.log("ready");
    lines.on("line", (line) => {
      const question = JSON.parse(line);
      onmessage({ data: { ...question, body: new Blob([fs.readFileSync(question.path)]) } });
    });
    lines.on("close", () => (globalThis.closing = true));
    return;
  }
  console.log(JSON.stringify({ id, status, body: Buffer.from(body).toString("base64") }));
};
(0, eval)(fs.readFileSync(script, "utf8"));
onmessage({ data: { python: place } });
