// The page: a spec on the left, what it becomes on the right.

import { Editor } from "./editor.mjs";
import { Gallery } from "./gallery.mjs";
import { Generator } from "./generator.mjs";
import { escaped } from "./highlight.mjs";
import { follow } from "./plan.mjs";
import { fragmentOf, textOf } from "./share.mjs";
import * as views from "./views.mjs";

const $ = (selector) => document.querySelector(selector);
const generator = new Generator(heard); // Which starts while the rest is loaded.
const about = await fetch(new URL("page.json", import.meta.url)).then((answer) => answer.json());

const PAUSE = 150; // milliseconds without a key until the spec is looked at
const FIRST = ["kernels.py", "op.py"], FIXED = { plan: "Plan", gradient: "Gradient", language: "Language" };
const state = {
  tab: "kernels.py", sizes: "", device: about.devices[0], search: "",
  results: {}, // of the newest text that had them, by view: "plan", "gradient" or a file
  names: [], // of files
  asked: 0, // counts texts
  diagnostics: {}, // of the newest text, by view
};

// ---- what is asked, and what is answered

let pause;

function changed(text) {
  $("#file").textContent = `${nameOf(text)}.toml`;
  $("#chosen").textContent = about.specs.find((one) => one.text === text)?.name ?? `${nameOf(text)} (edited)`;
  document.title = `${nameOf(text)} · tritongen`;
  clearTimeout(pause);
  pause = setTimeout(async () => {
    ask(text);
    history.replaceState(undefined, "", await fragmentOf(text, about.specs));
  }, PAUSE);
}

const nameOf = (text) => text.match(/^\s*name\s*=\s*["'](\w+)/m)?.[1] ?? "spec";

function ask(text) {
  Object.assign(state, { diagnostics: {}, asked: state.asked + 1 });
  markStale();
  say("working", "Working");
  const order = ["plan", state.tab, "kernels.py", "gradient"]; // The plan is fast, and finds all mistakes.
  const views = [...new Set(order)].filter((view) => view !== "language");
  generator.ask({ text, views, sizes: state.sizes, device: state.device });
}

function heard(data) {
  if (data.failed) return say("failed", `Python did not start: ${data.failed}`);
  if (data.progress) return say("working", data.progress);
  if (data.ready) return $("#download").removeAttribute("disabled");
  if (data.done) return say(mistakes().length ? "wrong" : "ready", summary());
  const { view, data: found } = data;
  state.diagnostics[view] = found.diagnostics;
  tellDiagnostics();
  if (!(found.bug || found.error) && mistakes().length) return;
  state.results[view] = { ...found, asked: state.asked };
  if (found.names) {
    state.names = found.names;
    tabs();
  }
  if (view === state.tab) show(true);
}

const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

function summary() {
  if (mistakes().length) return counted(mistakes().length, "mistake");
  const kernels = counted(state.results["kernels.py"]?.file?.match(/^@triton\.jit/gm)?.length ?? 0, "kernel");
  return all().length ? `${kernels}, ${counted(all().length, "warning")}` : kernels;
}

function say(kind, text) {
  $("#state").dataset.kind = kind;
  $("#state span").textContent = text;
}

// ---- diagnostics

function all() {
  const seen = new Set();
  const place = (one) => [one.line, one.column, one.code, one.message].join();
  return Object.values(state.diagnostics).flat().filter((one) => !seen.has(place(one)) && seen.add(place(one)));
}

const mistakes = () => all().filter((one) => one.level === "error");

function tellDiagnostics() {
  const found = all(), lines = editor.text.split("\n");
  editor.mark(found);
  document.body.classList.toggle("has-mistakes", mistakes().length > 0);
  $("#diagnostics").innerHTML = found.map((one, place) => {
    const line = lines[one.line - 1] ?? "", number = String(one.line).padStart(3);
    const shown = one.line ? `<pre><i>${number} │ </i>${escaped(line)}\n<i>${" ".repeat(3)} │ </i>${line.slice(0, one.column - 1).replace(/[^\t]/g, " ")}<b>${"^".repeat(one.length)}</b></pre>` : "";
    const instead = one.hint.match(/^did you mean '(.+)'\?$/)?.[1];
    const fix = instead ? `<button data-fix="${place}" data-text="${escaped(instead)}">Use ${escaped(instead)}</button>` : "";
    return `<article class="${one.level}"><h4><button data-go="${place}" title="Go there">${one.line ? `${one.line}:${one.column}` : "file"}</button> ${escaped(one.message)}</h4>${shown}
      <p>${one.hint ? `<span>${escaped(one.hint)}</span>` : ""}${fix}<button data-explain="${one.code}">Explain ${one.code}</button></p></article>`;
  }).join("");
}

$("#diagnostics").addEventListener("click", ({ target }) => {
  const { go, fix, explain, text } = target.closest("button")?.dataset ?? {};
  if (go) editor.go(all()[go].line, all()[go].column, all()[go].length);
  if (fix) editor.replaceAt(all()[fix], text);
  if (explain) {
    state.search = explain;
    choose("language");
  }
});

// ---- tabs and views

const rank = (name) => ["gluon_kernels.py", "configs.py"].indexOf(name) + 3 * name.startsWith("test_") + 4 * name.startsWith("bench_");

function tabs() {
  const files = state.names.filter((name) => !FIRST.includes(name) && name !== "__init__.py");
  const names = [...FIRST, ...Object.keys(FIXED), ...files.sort((one, other) => rank(one) - rank(other))];
  if (!names.includes(state.tab)) {
    state.tab = "kernels.py";
    show(false);
  }
  const tab = (name, label) => `<button role="tab" id="tab-${name}" data-tab="${name}" tabindex="${name === state.tab ? 0 : -1}" aria-selected="${name === state.tab}" aria-controls="view">${label}</button>`;
  $("#tabs").innerHTML = names.map((name) => tab(name, FIXED[name] ?? name)).join("");
  $("#view").setAttribute("aria-labelledby", `tab-${state.tab}`);
}

function choose(name) {
  state.tab = name;
  document.body.dataset.shown = "result";
  tabs();
  $(`[data-tab="${name}"]`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  show(false);
}

// Puts the chosen view on the page; `again` is the same view of other text, which stays where it was scrolled to.
function show(again) {
  const view = $("#view"), found = state.results[state.tab], top = view.scrollTop;
  markStale();
  if (state.tab === "language") view.innerHTML = views.language(about, state.search);
  else if (!found) view.innerHTML = views.waiting;
  else if (found.bug) view.innerHTML = views.bug(found.bug);
  else if (state.tab === "plan") view.innerHTML = views.plan(found, about, state);
  else if (state.tab === "gradient") view.innerHTML = views.gradient(found.gradient);
  else view.innerHTML = views.file(found.file);
  view.scrollTop = again ? top : 0;
  link(editor.line);
}

const markStale = () => $("#result").classList.toggle("stale", state.results[state.tab]?.asked < state.asked);

// Lines of kernels that a line of the spec has become: comments there quote it.
function link(number) {
  const name = editor.text.split("\n")[number - 1]?.match(/^\s*(\w+)\s*=/)?.[1];
  for (const line of document.querySelectorAll("#view .numbered .line")) {
    line.classList.toggle("linked", Boolean(name) && new RegExp(`^\\s*# ${name} = `).test(line.textContent));
  }
}

$("#tabs").addEventListener("click", ({ target }) => target.dataset.tab && choose(target.dataset.tab));
$("#tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const all = [...$("#tabs").children], place = all.indexOf(event.target);
  const next = all[(place + step + all.length) % all.length];
  choose(next.dataset.tab);
  $(`[data-tab="${next.dataset.tab}"]`).focus();
});

const shownText = () => state.results[state.tab].gradient ?? state.results[state.tab].file;

$("#view").addEventListener("click", async ({ target }) => {
  const act = target.closest("button")?.dataset.act;
  if (act === "take") editor.set(shownText());
  if (act === "copy") {
    await navigator.clipboard.writeText(shownText());
    flash(target, "Copied");
  }
});
$("#view").addEventListener("change", ({ target }) => {
  if (target.dataset.act === "jump" && target.value) {
    document.querySelectorAll("#view .line")[target.value - 1].scrollIntoView({ block: "start" });
    target.value = "";
  }
  const form = target.closest("form");
  if (form) {
    Object.assign(state, Object.fromEntries(new FormData(form)));
    ask(editor.text);
  }
});
$("#view").addEventListener("submit", (event) => event.preventDefault());
$("#view").addEventListener("input", ({ target }) => {
  if (target.dataset.act !== "search") return;
  state.search = target.value;
  show(false);
  const input = $("#view [data-act=search]");
  input.focus();
  input.setSelectionRange(input.value.length, input.value.length);
});
follow($("#view"));

// ---- the head of the page

function flash(button, text) {
  const label = button.querySelector("span") ?? button, before = label.textContent;
  label.textContent = text;
  setTimeout(() => (label.textContent = before), 1500);
}

function save(name, bytes) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(new Blob([bytes], { type: "application/zip" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

$("#share").addEventListener("click", async () => {
  history.replaceState(undefined, "", await fragmentOf(editor.text, about.specs));
  await navigator.clipboard.writeText(location.href).then(() => flash($("#share"), "Link copied"), () => flash($("#share"), "See the address"));
});
$("#download").addEventListener("click", async () => {
  const { bytes } = await generator.zip(editor.text);
  if (bytes) save(`${nameOf(editor.text)}.zip`, bytes);
  else flash($("#download"), "Mistakes");
});
$("#theme").addEventListener("click", () => {
  const isDark = (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  document.documentElement.dataset.theme = localStorage.theme = isDark ? "light" : "dark";
});

const gallery = new Gallery($("#gallery"), about, (spec) => {
  editor.set(spec.text);
  document.body.dataset.shown = "spec";
});
$("#open").addEventListener("click", () => gallery.open());
const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
$("#open kbd").textContent = isMac ? "⌘K" : "Ctrl K";
addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(isMac ? event.metaKey : event.ctrlKey)) return;
  event.preventDefault();
  if (!$("#gallery").open) gallery.open();
});

// ---- the splitter, and on phones the switch

const splitter = $("#splitter");
function split(share) {
  splitter.ariaValueNow = Math.round(Math.max(20, Math.min(75, share)));
  $("main").style.setProperty("--share", `${splitter.ariaValueNow}%`);
}
splitter.addEventListener("pointerdown", (event) => {
  splitter.setPointerCapture(event.pointerId);
  splitter.onpointermove = ({ clientX }) => split((clientX / innerWidth) * 100);
  splitter.onpointerup = () => (splitter.onpointermove = undefined);
});
splitter.addEventListener("keydown", ({ key }) => {
  const step = { ArrowLeft: -3, ArrowRight: 3 }[key];
  if (step) split(Number(splitter.ariaValueNow) + step);
});
$("#switch").addEventListener("click", ({ target }) => target.dataset.to && (document.body.dataset.shown = target.dataset.to));

// ---- start

$("#about").textContent = `tritongen ${about.version} in Pyodide ${about.pyodide}: nothing leaves this page`;
const editor = new Editor($("#spec"), about, changed, link);
tabs();
show(false);
addEventListener("hashchange", async () => {
  const text = await textOf(location.hash, about.specs);
  if (text !== undefined && text !== editor.text) editor.set(text);
});
const first = about.specs.find((one) => one.name === "rms_norm") ?? about.specs[0];
editor.set((await textOf(location.hash, about.specs)) ?? first?.text ?? "");
