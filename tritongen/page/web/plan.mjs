// The steps of a plan as a picture: what each reads, the step with its share of the time, what it writes.

import { escaped, html, math } from "./highlight.mjs";

const UNITS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

function scaled(number, unit) {
  const [size, name] = UNITS.find(([size]) => number >= size) ?? [1, ""];
  const value = number / size;
  return `${value.toFixed(value < 10 && size > 1 ? 1 : 0)} ${name}${unit}`;
}

function time(seconds) {
  const [size, name] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]].find(([size]) => seconds >= size) ?? [1e-6, "µs"];
  return seconds ? `${(seconds / size).toFixed(seconds / size < 10 ? 1 : 0)} ${name}` : "no time";
}

function tensor(one, isRead) {
  const kind = isRead ? (one.source ? "stored" : "argument") : one.saved ? "saved" : one.uses.length ? "stored" : "result";
  const notes = { argument: "an argument", stored: isRead ? `from step ${one.source}` : `read by step ${one.uses.join(", ")}`, saved: "saved for the backward", result: "a result" };
  return `<li class="tensor ${kind}" data-name="${escaped(one.name)}" title="${escaped(one.name)}: ${one.dtype}, ${scaled(one.bytes, "B")}, ${notes[kind]}">
    <b>${escaped(one.name)}</b><span>[${one.axes.map(escaped).join(", ")}]</span><small>${one.dtype} <i>·</i> ${scaled(one.bytes, "B").replace(" ", "&nbsp;")}</small></li>`;
}

function step(one, total) {
  const share = total ? one.seconds / total : 0;
  const work = [`${scaled(one.bytes, "B")} moved`];
  if (one.flops) work.push(`${scaled(one.flops, "FLOP")} of matmuls`);
  if (one.operations) work.push(`${scaled(one.operations, "op")} outside matmuls`);
  const lines = one.math.map((line) => html(math(line))).join("\n");
  const kernels = one.kernels.map(({ name, for: what }) => `<dt>${escaped(name)}</dt><dd>${escaped(what)}</dd>`).join("");
  return `<div class="step">
    <ul class="reads" aria-label="reads">${one.reads.map((each) => tensor(each, true)).join("")}</ul>
    <div class="box"><i>${one.number}</i><b>${escaped(one.family)}</b><span>${time(one.seconds)}</span>
      <div class="share" title="${Math.round(share * 100)} % of total"><u style="width:${Math.max(1, share * 100)}%"></u></div></div>
    <ul class="writes" aria-label="writes">${one.writes.map((each) => tensor(each, false)).join("")}</ul>
    <details><summary><code>${escaped(one.function)}</code><span>${work.join(", ")}</span></summary>
      ${lines ? `<pre class="code math">${lines}</pre>` : ""}
      ${one.recomputes.length ? `<p>Recomputes ${one.recomputes.map(escaped).join(", ")}.</p>` : ""}
      <dl>${kernels}</dl></details>
  </div>`;
}

// Those whose shares were measured, in the order of their colours.
export const providersOf = (specs) => [...new Set(specs.flatMap(({ shares }) => Object.keys(shares ?? {})))];

function bars(shares, { specs, measured }) {
  const most = Math.max(100, ...Object.values(shares)), providers = providersOf(specs);
  const rows = Object.entries(shares).map(([name, share]) => `<b>${escaped(name)}</b><span><i class="s${providers.indexOf(name)}" style="width:${(share / most) * 80}%"></i>${share}%</span>`);
  return `<section><h3>measured</h3><p class="note">The forward, in % of what a plain copy or matmul reaches. ${escaped(measured)}.</p><div class="measured">${rows.join("")}</div></section>`;
}

export function picture({ plan, text }, shares, about) {
  const second = plan.in_forward ? "with gradients" : "backward";
  const sum = (steps) => steps.reduce((total, one) => total + one.seconds, 0);
  const all = plan.in_forward ? undefined : sum([...plan.forward, ...plan.backward]);
  const part = (title, steps) => steps.length && `<section><h3>${title}<span>${steps.length} step${steps.length > 1 ? "s" : ""}, at least ${time(sum(steps))}</span></h3>
    ${steps.map((one) => step(one, all ?? sum(steps))).join("")}</section>`;
  const without = Object.entries(plan.without_kernel).map(([name, line]) => `<p class="note"><code>${escaped(name)} = ${escaped(line)}</code> needs no kernel.</p>`).join("");
  const sizes = Object.entries(plan.sizes).map(([axis, length]) => `<code>${escaped(axis)}=${length}</code>`).join(" ");
  return `<div class="picture">
    <p class="note">${sizes} at the roofline of ${/^[AHM]/.test(plan.device) ? "an" : "a"} ${escaped(plan.device)}</p>
    ${part("forward", plan.forward)}${part(second, plan.backward) || ""}${without}${shares ? bars(shares, about) : ""}
    <details class="terminal"><summary>As <code>tritongen plan</code> prints it</summary><pre class="code">${escaped(text)}</pre></details></div>`;
}

// A tensor under the pointer is shown wherever else it is read or written.
export function follow(root) {
  const mark = (name) => root.querySelectorAll(".tensor").forEach((one) => one.classList.toggle("same", one.dataset.name === name));
  root.addEventListener("pointerover", (event) => mark(event.target.closest?.(".tensor")?.dataset.name));
  root.addEventListener("pointerleave", () => mark(undefined));
}
