// What the page knows: the cluster now, the cluster at the time shown, the latest decisions.
// Bounded: boards and links are replaced, and of the decisions only the newest stay.

export const MOST_DECISIONS = 200;
const linkKey = (a, b) => JSON.stringify([a, b]);

function index(overview) {
  const now = performance.now();
  const stamp = (value) => Object.assign(value, { at: now });
  return {
    ...overview,
    nodes: new Map(overview.nodes.map((node) => [node.name, stamp(node)])),
    links: new Map(overview.links.map((link) => [linkKey(link.a, link.b), stamp(link)])),
  };
}

/** An age that was right when its answer came, now; frozen where the past is shown. */
export function ageNow(value, field, live) {
  const then = value[field];
  return typeof then === "number" && live ? then + (performance.now() - value.at) / 1000 : then;
}

export class Store extends EventTarget {
  now = null;
  past = null;
  decisions = new Map();
  pastDecisions = null;

  get shown() {
    return this.past ?? this.now;
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  replace(overview, decisions) {
    this.now = index(overview);
    this.decisions.clear();
    for (const decision of [...decisions].reverse()) this.#keep(decision);
    this.#tell("change");
    this.#tell("decisions");
  }

  apply(delta) {
    const { nodes = [], links = [], gone_nodes = [], gone_links = [], ...rest } = delta;
    const known = this.now;
    const changed = index({ nodes, links });
    Object.assign(known, rest);
    for (const name of gone_nodes) known.nodes.delete(name);
    for (const [a, b] of gone_links) known.links.delete(linkKey(a, b));
    for (const [name, node] of changed.nodes) known.nodes.set(name, node);
    for (const [key, link] of changed.links) known.links.set(key, link);
    if (!this.past) this.#tell("change");
  }

  #keep(decision) {
    // A map remembers the order of insertion: what is new goes to the end.
    this.decisions.delete(decision.id);
    this.decisions.set(decision.id, Object.assign(decision, { at: performance.now() }));
    for (const id of this.decisions.keys()) {
      if (this.decisions.size <= MOST_DECISIONS) break;
      this.decisions.delete(id);
    }
  }

  decide(decision) {
    this.#keep(decision);
    this.#tell("decisions", decision);
  }

  /** The newest first. */
  get newest() {
    return this.pastDecisions ?? [...this.decisions.values()].reverse();
  }

  showPast(overview, decisions) {
    this.past = overview && index(overview);
    this.pastDecisions = decisions;
    this.#tell("time");
    this.#tell("change");
    this.#tell("decisions");
  }
}
