// Compiles modules in the Python of a browser, run by node: its folder, a folder of modules and one for their bytecode as
// arguments, and in JSON on standard input what each module is to be called in a traceback.

const fs = require("node:fs");

const [python, modules, bytecode] = process.argv.slice(2);

async function main() {
  const { loadPyodide } = require(`${python}/pyodide.js`);
  const pyodide = await loadPyodide({ indexURL: `${python}/`, env: { PYTHONNODEBUGRANGES: "1" } });
  for (const [place, path] of Object.entries({ "/modules": modules, "/bytecode": bytecode })) {
    pyodide.FS.mkdirTree(place);
    pyodide.mountNodeFS(place, path);
  }
  pyodide.globals.set("names", pyodide.toPy(JSON.parse(fs.readFileSync(0, "utf8"))));
  pyodide.runPython(`
from py_compile import PycInvalidationMode, compile
for module, name in names.items():
    mode = PycInvalidationMode.UNCHECKED_HASH  # without a source beside it there is nothing to compare
    compile(f"/modules/{module}", f"/bytecode/{module}", name, doraise=True, invalidation_mode=mode)
`);
}

main().then(
  () => process.exit(0),
  (problem) => {
    console.error(problem.message);
    process.exit(1);
  },
);
