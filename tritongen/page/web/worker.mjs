// Runs the generator: Python in a worker of its own, so that typing never waits for it.
//
// In:  {id, text, views, sizes, device}, of which only the newest is worked on, and {zip, text}. A view is "plan",
//      "gradient" or a file; the files that are not asked for come last.
// Out: {progress}, {ready}, {id, view, data}, {id, done}, {zip, bytes}
//      or {zip, error}, {failed}.

import { loadPyodide } from "./pyodide/pyodide.mjs";

let python, newest, working = false;

const yielded = () => new Promise((resume) => setTimeout(resume));

async function start() {
  postMessage({ progress: "Loading Python" });
  const [loaded, library] = await Promise.all([
    loadPyodide({ indexURL: new URL("./pyodide/", import.meta.url).href }),
    fetch(new URL("./python.zip", import.meta.url)).then((answer) => answer.arrayBuffer()),
  ]);
  postMessage({ progress: "Loading tritongen" });
  loaded.unpackArchive(library, "zip", { extractDir: "/library" });
  loaded.runPython("import sys; sys.path.insert(0, '/library')");
  const browser = loaded.pyimport("tritongen.page.browser");
  browser.start("/project");
  python = browser;
  postMessage({ ready: true });
  work();
}

async function work() {
  if (!python || working) return;
  working = true;
  while (newest) {
    const { id, text, views, sizes, device } = newest;
    const isNewest = () => newest?.id === id;
    const left = [...views];
    for (const view of left) {
      await yielded(); // Newer text may have come.
      if (!isNewest()) break;
      const data = JSON.parse(python.answer(view, text, sizes, device));
      postMessage({ id, view, data });
      left.push(...(data.names ?? []).filter((name) => !left.includes(name)));
    }
    if (isNewest()) {
      newest = undefined;
      postMessage({ id, done: true });
    }
  }
  working = false;
}

function zipped({ zip, text }) {
  try {
    const packed = python.archive(text), bytes = packed.toJs();
    packed.destroy();
    postMessage({ zip, bytes });
  } catch (error) {
    postMessage({ zip, error: String(error) });
  }
}

onmessage = ({ data }) => {
  if (data.zip) {
    zipped(data);
  } else {
    newest = data;
    work();
  }
};

start().catch((error) => postMessage({ failed: String(error) }));
