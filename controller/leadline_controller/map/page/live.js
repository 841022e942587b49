// Requests, and the stream of changes with a reconnect of its own: a browser gives up on a
// controller that restarts, and what was missed meanwhile is loaded again in any case.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15000;
// Three times the pause after which the controller says that it is alive.
const SILENT_MS = 45000;
const LOOK_MS = 5000;

export class HttpError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function getJson(path, signal) {
  const answer = await fetch(path, { signal, headers: { Accept: "application/json" } });
  if (answer.ok) return answer.json();
  const body = await answer.json().catch(() => ({}));
  throw new HttpError(answer.status, body.error ?? `the controller answers ${answer.status}`);
}

export class Live {
  #store;
  #say;
  #source = null;
  #timer = 0;
  #waitMs = FIRST_WAIT_MS;
  #attempt = 0;
  #heard = 0;

  /** say: (state, problem) is told "live" or "waiting". */
  constructor(store, say) {
    this.#store = store;
    this.#say = say;
    addEventListener("online", () => this.start());
    // After a power cut or a laptop's sleep the connection is dead, and nothing tells.
    setInterval(() => {
      if (this.#source && Date.now() - this.#heard > SILENT_MS) {
        this.#again(new Error("The controller is not heard any more."));
      }
    }, LOOK_MS);
  }

  /** Load everything, then follow the changes; also what to do when the connection is lost. */
  async start() {
    const attempt = ++this.#attempt;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    try {
      const signal = AbortSignal.timeout(SILENT_MS);
      // One after the other: what is decided between the two is in the list and in the stream.
      const overview = await getJson("/api/overview", signal);
      const { decisions } = await getJson("/api/decisions?limit=200", signal);
      if (attempt !== this.#attempt) return;
      this.#store.replace(overview, decisions);
      this.#follow(overview.stream_id, attempt);
    } catch (error) {
      if (attempt === this.#attempt) this.#again(error);
    }
  }

  #follow(after, attempt) {
    const source = new EventSource(`/api/stream?after=${encodeURIComponent(after ?? "")}`);
    this.#source = source;
    this.#heard = Date.now();
    const on = (type, act) =>
      source.addEventListener(type, (event) => {
        if (attempt !== this.#attempt) return;
        this.#heard = Date.now();
        act(event.data);
      });
    on("open", () => {
      this.#waitMs = FIRST_WAIT_MS;
      this.#say("live");
    });
    on("overview", (data) => this.#store.apply(JSON.parse(data)));
    on("decision", (data) => this.#store.decide(JSON.parse(data)));
    on("alive", () => {});
    on("reload", () => this.start());
    on("error", () => this.#again());
  }

  #again(error) {
    this.#source?.close();
    this.#source = null;
    let problem = error?.message;
    if (error?.status === 401) problem = "Not logged in any more: load this page again.";
    if (error?.name === "TimeoutError") problem = "The controller does not answer.";
    this.#say("waiting", problem);
    // Not all at once, when a controller comes back.
    this.#timer = setTimeout(() => this.start(), this.#waitMs * (0.5 + Math.random()));
    this.#waitMs = Math.min(this.#waitMs * 2, LONGEST_WAIT_MS);
  }
}
