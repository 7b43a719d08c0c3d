// The specs to start from, with search, and plots of those that were measured.

import { escaped } from "./highlight.mjs";
import { providersOf } from "./plan.mjs";

function plot(shares, providers) {
  if (!shares) return "";
  const all = Object.entries(shares), most = Math.max(100, ...Object.values(shares));
  const bars = all.map(([name, share]) => `<i class="s${providers.indexOf(name)}" style="width:${(share / most) * 100}%"></i>`).join("");
  return `<span class="plot" role="img" aria-label="${all.map(([name, share]) => `${escaped(name)} ${share} %`).join(", ")}"><span>${bars}</span><b>${all[0][1]}%</b></span>`;
}

const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

export class Gallery {
  constructor(dialog, { specs, measured }, chosen) {
    Object.assign(this, { dialog, specs, chosen, place: 0 });
    this.input = dialog.querySelector("input");
    this.list = dialog.querySelector("#found");
    this.providers = providersOf(specs);
    const legend = this.providers.map((name, place) => `<i class="s${place}"></i>${escaped(name)}`).join(" ");
    dialog.querySelector("#measured").innerHTML = this.providers.length
      ? `<span class="legend">${legend}</span> Forward, in % of what a plain copy or matmul reaches. ${escaped(measured)}. What has no bars was not measured there.`
      : "";
    this.input.addEventListener("input", () => this.#search());
    dialog.addEventListener("keydown", (event) => this.#pressed(event));
    dialog.addEventListener("click", (event) => {
      const row = event.target.closest("[data-name]");
      if (row) this.#choose(row.dataset.name);
      else if (event.target === dialog) dialog.close();
    });
  }

  open() {
    this.input.value = "";
    this.#search();
    this.dialog.showModal();
    this.input.focus();
  }

  #search() {
    const wanted = words(this.input.value);
    const fits = [(one, word) => one.name === word, (one, word) => one.name.startsWith(word), (one, word) => one.name.includes(word), (one, word) => one.summary.toLowerCase().includes(word)];
    const score = (one) => [...fits, () => true].findIndex((fit) => wanted.some((word) => fit(one, word)));
    const found = this.specs.filter((one) => {
      const text = `${one.name} ${one.name.replaceAll("_", " ")} ${one.summary} ${one.text}`.toLowerCase();
      return wanted.every((word) => text.includes(word));
    });
    if (wanted.length) found.sort((one, other) => score(one) - score(other));
    let folder;
    this.list.innerHTML = found.map((one, place) => {
      const title = !wanted.length && one.folder !== folder ? `<h3>${escaped((folder = one.folder) || "specs")} · ${found.filter((each) => each.folder === folder).length}</h3>` : "";
      return `${title}<button data-name="${one.name}" data-place="${place}" tabindex="-1"><b>${one.name}</b><span>${escaped(one.summary).replace(/`([^`]+)`/g, "<code>$1</code>")}</span>${plot(one.shares, this.providers)}</button>`;
    }).join("") || `<p class="none">Nothing has all of these words.</p>`;
    this.#move(0);
  }

  #move(place) {
    const rows = this.list.querySelectorAll("button");
    this.place = Math.max(0, Math.min(rows.length - 1, place));
    rows.forEach((row, at) => row.classList.toggle("chosen", at === this.place));
    if (place) rows[this.place]?.scrollIntoView({ block: "nearest" });
    else this.list.scrollTop = 0;
  }

  #pressed(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.key in steps) this.#move(this.place + steps[event.key]);
    else if (event.key === "Escape") this.dialog.close(); // At once, where a search field would be emptied first.
    else if (event.key === "Enter" && !event.target.matches(".close")) this.list.querySelectorAll("button")[this.place]?.click();
    else return;
    event.preventDefault();
  }

  #choose(name) {
    this.dialog.close();
    this.chosen(this.specs.find((one) => one.name === name));
  }
}
