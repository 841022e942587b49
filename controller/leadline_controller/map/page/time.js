// The time slider: one step a minute over the kept history; its right end is now.

import { byId, setText } from "./dom.js";
import { clock } from "./format.js";
import { getJson } from "./live.js";

const SETTLE_MS = 150;
const MINUTE_S = 60;

export class TimeSlider {
  #store;
  #slider = byId("slider");
  #timer = 0;
  #request = null;
  #say;

  /** say: is told what went wrong, or "". */
  constructor(store, say) {
    this.#store = store;
    this.#say = say;
    this.#slider.addEventListener("input", () => {
      this.#label();
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#go(), SETTLE_MS);
    });
    byId("live").addEventListener("click", () => {
      this.#slider.value = this.#slider.max;
      this.#slider.focus();
      this.#go();
    });
  }

  /** Take over the range of the history; the thumb stays on its time, or at the end. */
  update() {
    const { history, now_unix_s: loaded, at_unix_s: at } = this.#store.now;
    byId("time").hidden = !history;
    if (!history) return;
    const end = Math.floor(Math.max(history.to_unix_s, at ?? 0, loaded ?? 0) / MINUTE_S) + 1;
    const live = !this.#store.past && this.#slider.value === this.#slider.max;
    const moving = this.#timer !== 0;
    this.#slider.min = Math.ceil(history.from_unix_s / MINUTE_S);
    this.#slider.max = end;
    if (live && !moving) this.#slider.value = end;
    this.#label();
  }

  get #atEnd() {
    return this.#slider.value === this.#slider.max;
  }

  #label() {
    const recorded = this.#store.now?.recorded;
    const end = recorded ? `${clock(recorded.to_unix_s)}, the end` : "now, live";
    const text = this.#atEnd ? end : clock(this.#slider.value * MINUTE_S);
    setText(byId("live"), recorded ? "To the end" : "Back to live");
    setText(byId("shown"), text);
    this.#slider.setAttribute("aria-valuetext", text);
    byId("live").hidden = this.#atEnd;
    document.body.classList.toggle("past", !this.#atEnd);
  }

  async #go() {
    this.#timer = 0;
    this.#label();
    this.#request?.abort();
    const request = (this.#request = new AbortController());
    if (this.#atEnd) {
      this.#say("");
      this.#store.showPast(null, null);
      return;
    }
    const time = this.#slider.value * MINUTE_S;
    try {
      const [overview, { decisions }] = await Promise.all([
        getJson(`/api/overview?unix_s=${time}`, request.signal),
        getJson(`/api/decisions?limit=200&before=${time}`, request.signal),
      ]);
      if (request.signal.aborted) return;
      this.#store.showPast(overview, decisions);
      this.#say(
        [
          overview.pods_exact === false &&
            `Pods before ${this.#store.now.recorded ? "that many changes" : "the controller's last start"} follow from the kept decisions, and may be incomplete.`,
          overview.states_known === false &&
            "It is not known which boards had a warning then, or took no pods.",
        ]
          .filter(Boolean)
          .join(" "),
      );
    } catch (error) {
      if (request.signal.aborted) return;
      this.#say(`${clock(time)} is not shown: ${error.message}`);
      // Back to what is shown.
      const { past } = this.#store;
      this.#slider.value = past ? past.at_unix_s / MINUTE_S : this.#slider.max;
      this.#label();
    }
  }
}
