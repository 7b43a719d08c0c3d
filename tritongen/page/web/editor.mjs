// A text area with colours painted behind it: the browser's own typing, undo, selection and keyboard.

import { complete } from "./complete.mjs";
import { escaped, html, toml } from "./highlight.mjs";

export class Editor {
  constructor(root, language, changed, moved) {
    this.area = root.querySelector("textarea");
    this.paint = root.querySelector(".paint");
    this.gutter = root.querySelector(".gutter");
    this.list = root.querySelector(".offers");
    this.scroller = root.querySelector(".scroll");
    Object.assign(this, { language, changed, moved, diagnostics: [], offers: [], chosen: 0, length: 0 });
    this.area.addEventListener("input", (event) => this.#typed(event));
    this.area.addEventListener("keydown", (event) => this.#pressed(event));
    this.area.addEventListener("blur", () => this.#close());
    document.addEventListener("selectionchange", () => document.activeElement === this.area && this.moved(this.line));
    this.list.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // The text area stays focused.
      const item = event.target.closest("li");
      if (item) this.#accept(Number(item.dataset.place));
    });
  }

  get text() { return this.area.value; }

  get line() { return this.text.slice(0, this.area.selectionStart).split("\n").length; }

  set(text) {
    this.area.value = text;
    this.area.setSelectionRange(0, 0);
    this.mark([]);
    this.changed(text);
  }

  mark(diagnostics) {
    this.diagnostics = diagnostics;
    this.#draw();
  }

  // Puts the caret at a line and column, which count from 1.
  go(line, column, length = 0) {
    const start = this.#offset(line, column);
    this.area.focus();
    this.area.setSelectionRange(start, start + length);
    this.gutter.children[line - 1]?.scrollIntoView({ block: "nearest" });
  }

  // As typing would, so that undo works.
  replace(start, end, text) {
    this.area.focus();
    this.area.setSelectionRange(start, end);
    if (!document.execCommand("insertText", false, text)) {
      this.area.setRangeText(text, start, end, "end");
      this.area.dispatchEvent(new Event("input"));
    }
  }

  replaceAt({ line, column, length }, text) {
    const start = this.#offset(line, column);
    this.replace(start, start + length, text);
  }

  #offset(line, column) {
    return this.text.split("\n").slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + column - 1;
  }

  #draw() {
    const lines = toml(this.text);
    this.paint.innerHTML = lines.map((line, place) => {
      const here = this.diagnostics.filter((one) => one.line === place + 1);
      const marks = here.map((one) => ({ from: one.column - 1, to: one.column - 1 + one.length, class: one.level }));
      return html(line, marks);
    }).join("\n") + "\n";
    this.gutter.innerHTML = lines.map((_, place) => {
      const level = this.diagnostics.find((one) => one.line === place + 1)?.level ?? "";
      return `<span class="${level}">${place + 1}</span>`;
    }).join("");
  }

  #typed(event) {
    // Marks of before are of another text, until this one is checked.
    const line = this.line;
    this.diagnostics = this.diagnostics.filter((one) => one.line < line);
    this.#draw();
    this.changed(this.text);
    if (event.inputType?.startsWith("insert") && event.inputType !== "insertFromPaste") this.#offer(false);
    else this.#close();
  }

  #offer(forced) {
    [this.offers, this.length] = complete(this.text, this.area.selectionStart, this.language, forced);
    this.chosen = 0;
    this.#show();
  }

  #show() {
    this.list.hidden = !this.offers.length;
    this.area.setAttribute("aria-expanded", String(!this.list.hidden));
    if (this.list.hidden) return this.area.removeAttribute("aria-activedescendant");
    this.list.innerHTML = this.offers.map(({ name, kind, detail, more }, place) => `
      <li id="offer-${place}" role="option" data-place="${place}" aria-selected="${place === this.chosen}">
        <i class="kind ${kind}">${kind}</i><b>${escaped(name)}</b><span>${escaped(detail ?? "")}</span>
        ${more && place === this.chosen ? `<p>${escaped(more)}</p>` : ""}</li>`).join("");
    this.area.setAttribute("aria-activedescendant", `offer-${this.chosen}`);
    this.#place();
    const item = this.list.children[this.chosen], end = item.offsetTop + item.offsetHeight;
    this.list.scrollTop = Math.max(end - this.list.clientHeight, Math.min(this.list.scrollTop, item.offsetTop));
  }

  // Puts the list below the word, or above it where there is more room, inside of what is scrolled into view.
  #place() {
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.scroller;
    const lines = this.text.slice(0, this.area.selectionStart).split("\n"), style = getComputedStyle(this.area);
    const height = parseFloat(style.lineHeight), top = parseFloat(style.paddingTop) + (lines.length - 1) * height;
    const below = scrollTop + clientHeight - top - height, fits = below > this.list.offsetHeight || below > top - scrollTop;
    this.list.style.top = `${fits ? top + height + 2 : top - this.list.offsetHeight - 2}px`;
    this.list.style.setProperty("--column", lines.at(-1).length - this.length);
    this.list.style.setProperty("--from", `${scrollLeft}px`);
    this.list.style.setProperty("--to", `${scrollLeft + clientWidth - this.gutter.offsetWidth - 4}px`);
  }

  #close() {
    this.offers = [];
    this.#show();
  }

  #accept(place) {
    const { name, insert } = this.offers[place], caret = this.area.selectionStart;
    const text = insert ?? name;
    this.replace(caret - this.length, caret, this.text[caret] === "(" ? text.replace(/\($/, "") : text);
    this.#close();
  }

  #pressed(event) {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      return this.#offer(true);
    }
    if (!this.offers.length) return;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    if (event.key in steps) {
      this.chosen = Math.max(0, Math.min(this.offers.length - 1, this.chosen + steps[event.key]));
      this.#show();
    } else if (event.key === "Enter" || (event.key === "Tab" && !event.shiftKey)) this.#accept(this.chosen);
    else if (event.key === "Escape") this.#close();
    else {
      if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) this.#close();
      return;
    }
    event.preventDefault();
  }
}
