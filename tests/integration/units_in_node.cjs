// pytest in the Python of a browser, run by node: the folder of Python, the repository, the packages of the Python that runs
// the tests and a folder for bytecode as arguments, then pytest's own.

const fs = require("node:fs");

const [python, repository, packages, bytecode, ...asked] = process.argv.slice(2);

async function main() {
  const { loadPyodide } = require(`${python}/pyodide.js`);
  const pyodide = await loadPyodide({ indexURL: `${python}/` });
  pyodide._module.mergeLibSymbols({ backtrace: () => 0 }, "numpy");
  const site = pyodide.runPython("import site; site.getsitepackages()[0]");
  pyodide.unpackArchive(new Uint8Array(fs.readFileSync(`${python}/packages.zip`)).buffer, "zip", { extractDir: site });
  for (const [place, path] of Object.entries({ "/repository": repository, "/packages": packages, "/bytecode": bytecode })) {
    pyodide.FS.mkdirTree(place);
    pyodide.mountNodeFS(place, path);
  }
  pyodide.globals.set("asked", pyodide.toPy(asked));
  return pyodide.runPython(`
import os, sys
sys.path += ["/repository", "/packages"]  # behind its own: what is compiled there is for another machine
sys.pycache_prefix, sys.dont_write_bytecode = "/bytecode", False
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
os.chdir("/repository")
import pytest
int(pytest.main(["-p", "no:cacheprovider", "--capture=sys", "--assert=plain", *asked]))  # rewriting takes longer than the tests
`);
}

main().then(
  (code) => process.exit(code),
  (problem) => {
    console.error(problem.message);
    process.exit(3);
  },
);
