// Requests, and the stream of changes with a reconnect of its own: a browser gives up on a
// controller that restarts, and what was missed meanwhile is loaded again in any case.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15000;

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

  /** say: (state, problem) is told "live", "loading" or "waiting". */
  constructor(store, say) {
    this.#store = store;
    this.#say = say;
    addEventListener("online", () => this.start());
    // A laptop that slept has a dead connection, and nothing tells.
    let hiddenAt = 0;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) hiddenAt = performance.now();
      else if (performance.now() - hiddenAt > 60000) this.start();
    });
  }

  /** Load everything, then follow the changes; also what to do when the connection is lost. */
  async start() {
    const attempt = ++this.#attempt;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    try {
      const [overview, { decisions }] = await Promise.all([
        getJson("/api/overview"),
        getJson("/api/decisions?limit=200"),
      ]);
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
    const on = (type, act) =>
      source.addEventListener(type, (event) => {
        if (attempt === this.#attempt) act(event.data);
      });
    on("open", () => {
      this.#waitMs = FIRST_WAIT_MS;
      this.#say("live");
    });
    on("overview", (data) => this.#store.apply(JSON.parse(data)));
    on("decision", (data) => this.#store.decide(JSON.parse(data)));
    on("reload", () => this.start());
    on("error", () => this.#again());
  }

  #again(error) {
    this.#source?.close();
    this.#source = null;
    const login = error?.status === 401 || error?.status === 403;
    this.#say("waiting", login ? "Not logged in any more: load this page again." : error?.message);
    // Not all at once, when a controller comes back.
    this.#timer = setTimeout(() => this.start(), this.#waitMs * (0.5 + Math.random()));
    this.#waitMs = Math.min(this.#waitMs * 2, LONGEST_WAIT_MS);
  }
}
