// Python's bytecode in place of its source, which Pyodide compiles itself: node compile.mjs FOLDER
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide/pyodide.mjs`));
const python = await loadPyodide();
python.runPython(`
import importlib.util, marshal, zipfile

def compiled(packed):
    before, after = zipfile.ZipFile(packed), zipfile.ZipFile("/after.zip", "w", zipfile.ZIP_DEFLATED)
    for name in before.namelist():
        content = before.read(name)
        if name.endswith(".py") and "/_templates/" not in name:
            # No source is there to compare with, which the flag 1 says.
            head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(content)
            name, content = name + "c", head + marshal.dumps(compile(content, name, "exec", dont_inherit=True))
        after.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    after.close()
`);
for (const path of [`${folder}/python.zip`, `${folder}/pyodide/python_stdlib.zip`]) {
  python.FS.writeFile("/before.zip", new Uint8Array(readFileSync(path)));
  python.runPython("compiled('/before.zip')");
  writeFileSync(path, python.FS.readFile("/after.zip"));
}
