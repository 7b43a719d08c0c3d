// The worker that runs the generator, and a fresh one where it is busy for too long with text that is gone.

const PATIENCE = 10_000; // milliseconds that newer text waits

export class Generator {
  #worker; #ready = false; #id = 0; #request; #zips = new Map(); #timer;

  // `told` is called with {progress}, {ready}, {view, data} of the newest text, {done} and {failed}.
  constructor(told) {
    this.told = told;
    this.#start();
  }

  ask(request) {
    const busy = this.#request;
    this.#request = { ...request, id: ++this.#id };
    this.#worker.postMessage(this.#request);
    if (busy && this.#ready) this.#timer ??= setTimeout(() => this.#restart(), PATIENCE);
  }

  zip(text) {
    const zip = ++this.#id;
    return new Promise((resolve) => {
      this.#zips.set(zip, resolve);
      this.#worker.postMessage({ zip, text });
    });
  }

  #start() {
    this.#ready = false;
    this.#worker = new Worker(new URL("worker.mjs", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#heard(data);
    this.#worker.onerror = (event) => this.told({ failed: event.message ?? "the worker did not start" });
  }

  #restart() {
    this.#worker.terminate();
    this.#timer = undefined;
    this.#start();
    if (this.#request) this.#worker.postMessage(this.#request);
  }

  #heard(data) {
    if (data.zip) {
      this.#zips.get(data.zip)?.(data);
      return this.#zips.delete(data.zip);
    }
    if (data.ready) this.#ready = true;
    if (data.id !== undefined) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      if (data.id !== this.#request?.id) return;
      if (data.done) this.#request = undefined;
    }
    this.told(data);
  }
}
