// What the tabs show: Python, the plan, the gradient, and the language with its diagnostics.

import { escaped, html, python, toml } from "./highlight.mjs";
import { picture } from "./plan.mjs";

const COPY = `<button data-act="copy">Copy</button>`;

export function code(text, lines, actions) {
  const defined = [...text.matchAll(/^(?:def|class) (\w+)/gm)].map((match) => [match[1], text.slice(0, match.index).split("\n").length]);
  const jumps = defined.length > 1
    ? `<select data-act="jump" aria-label="Go to a function"><option value="">${defined.length} functions</option>${defined.map(([name, line]) => `<option value="${line}">${name}</option>`).join("")}</select>`
    : "";
  const width = String(lines.length).length;
  // The line breaks are what copying copies; the numbers are painted.
  const body = lines.map((line) => `<span class="line">${html(line)}</span>`).join("\n");
  return `<div class="tools">${jumps}<span></span>${actions}</div><pre class="code numbered" style="--digits:${width}">${body}\n</pre>`;
}

export const file = (text) => code(text, python(text.replace(/\n$/, "")), COPY);

export function gradient(text) {
  if (!text) return `<p class="empty">There is no <code>[grad]</code>: <code>wrt = ["x"]</code> in it derives the gradient by x.</p>`;
  return code(text, toml(text.replace(/\n$/, "")), `<button data-act="take">Open as the spec</button>${COPY}`);
}

export function plan(data, about, { sizes, device }) {
  const shares = data.plan && about.specs.find((one) => one.name === data.plan.name)?.shares;
  const options = about.devices.map((name) => `<option ${name === device ? "selected" : ""}>${name}</option>`).join("");
  return `<form class="tools" data-act="sizes"><label>Device <select name="device">${options}</select></label>
    <label>Sizes <input name="sizes" value="${escaped(sizes)}" placeholder="N=4096" size="18" spellcheck="false" autocomplete="off"></label></form>
    ${data.error ? `<p class="empty error">${escaped(data.error)}</p>` : picture(data, shares, about)}`;
}

// Paragraphs, and blocks that are indented as code.
export function prose(text) {
  return text.split(/\n\n(?=\S)|\n\n(?=    )/).map((part) => {
    const isCode = part.startsWith("    ");
    if (isCode) return `<pre class="code">${toml(part.replace(/^    /gm, "")).map((line) => html(line)).join("\n")}</pre>`;
    return `<p>${escaped(part).replace(/`([^`]+)`/g, "<code>$1</code>")}</p>`;
  }).join("");
}

export function language({ functions, codes }, wanted) {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (text) => words.every((word) => text.toLowerCase().includes(word));
  const search = `<div class="tools"><input data-act="search" type="search" value="${escaped(wanted)}" placeholder="Search functions and diagnostics" aria-label="Search functions and diagnostics" spellcheck="false" autocomplete="off"></div>`;
  const found = Object.entries(codes).filter(([code, one]) => (/^tg\d+$/i.test(wanted) ? code === wanted.toUpperCase() : has(`${code} ${one.title} ${one.explanation}`)));
  const open = found.length <= 2 ? "open" : "";
  const rows = found.map(([code, one]) => `<details class="explained" ${open}><summary><b>${code}</b> ${escaped(one.title)}</summary>${prose(one.explanation)}</details>`).join("");
  const topics = Object.groupBy(functions.filter((one) => has(Object.values(one).join(" "))), (one) => one.topic);
  const tables = Object.entries(topics).map(([topic, all]) => `<h3>${escaped(topic)}</h3><dl class="functions">${all
    .map((one) => `<dt><code>${escaped(one.form)}</code></dt><dd>${escaped(one.summary)}<small>takes ${escaped(one.takes)}, gives ${escaped(one.gives)}</small></dd>`).join("")}</dl>`).join("");
  return `${search}<div class="reference">${tables}${rows ? `<h3>diagnostics</h3>${rows}` : ""}${tables || rows ? "" : `<p class="empty">Nothing has all of these words.</p>`}</div>`;
}

export const bug = (trace) => `<p class="empty error">This is a bug of tritongen, not of your spec. Please report it with what follows.</p><pre class="code">${escaped(trace)}</pre>`;

const WIDTHS = [38, 52, 24, 0, 30, 61, 44, 55, 36, 0, 48, 63, 57, 41, 28];
export const waiting = `<div class="waiting"><p>Python starts in this page, and keeps what it loads for the next time.</p>${WIDTHS.map((width) => `<i style="width:${width}%"></i>`).join("")}</div>`;
