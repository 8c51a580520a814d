// A recorded pass: its nodes in columns, who leads to whom, when each became ready, and the tree of modules.

/** The place of the first number in a sorted list that is above `value`. */
export function above(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

const NEVER = Infinity;

export class Pass {
  constructor(recorded) {
    this.recorded = recorded;
    this.count = recorded.nodes.title.length;
    this.names = recorded.names;
    this.duration = recorded.duration;
    this.threads = recorded.threads;
    this.begin = recorded.nodes.begin.map((time) => time ?? NEVER);
    this.end = recorded.nodes.end.map((time) => time ?? NEVER);
    this.readEdges(recorded.edges);
    this.findReady();
    this.buildTree();
    this.times = sortedTimes(this, [...Array(this.count).keys()]);
    this.order = [...Array(this.count).keys()].filter((k) => this.begin[k] < NEVER).sort((a, b) => this.begin[a] - this.begin[b]);
  }

  readEdges(flat) {
    this.edgeCount = flat.length / 3;
    this.from = new Int32Array(this.edgeCount);
    this.to = new Int32Array(this.edgeCount);
    this.out = Array.from({ length: this.count }, () => []);
    this.into = Array.from({ length: this.count }, () => []);
    for (let k = 0; k < this.edgeCount; k++) {
      this.from[k] = flat[3 * k];
      this.to[k] = flat[3 * k + 1];
      this.out[this.from[k]].push(this.to[k]);
      this.into[this.to[k]].push(this.from[k]);
    }
  }

  // a node is ready when the last of those that lead to it has run
  findReady() {
    this.ready = new Float64Array(this.count);
    for (let node = 0; node < this.count; node++) {
      let time = 0;
      for (const before of this.into[node]) time = Math.max(time, this.end[before]);
      this.ready[node] = Math.min(time, this.begin[node]);
    }
  }

  buildTree() {
    this.root = { key: "", name: "", parent: null, children: new Map(), own: [], depth: 0 };
    this.groups = new Map([["", this.root]]);
    this.groupOf = new Array(this.count);
    for (let node = 0; node < this.count; node++) {
      const group = this.groupAt(this.text("path", node));
      group.own.push(node);
      this.groupOf[node] = group;
    }
    const fill = (group) => {
      group.members = [...group.own];
      for (const child of group.children.values()) {
        fill(child);
        for (const node of child.members) group.members.push(node);
      }
      group.times = sortedTimes(this, group.members);
      group.bad = group.members.some((node) => this.isBad(node));
    };
    fill(this.root);
  }

  groupAt(path) {
    const known = this.groups.get(path);
    if (known) return known;
    const cut = path.lastIndexOf(".");
    const parent = this.groupAt(cut < 0 ? "" : path.slice(0, cut));
    const made = { key: path, name: path.slice(cut + 1), parent, children: new Map(), own: [], depth: parent.depth + 1 };
    parent.children.set(made.name, made);
    this.groups.set(path, made);
    return made;
  }

  text(column, node) {
    return this.names[this.recorded.nodes[column][node]];
  }

  value(column, node) {
    return this.recorded.nodes[column][node];
  }

  isLeaf(node) {
    return this.out[node].length === 0;
  }

  isBad(node) {
    return Boolean(this.value("origin", node) || this.value("failed", node));
  }

  /** What a person calls it: a leaf by its name. */
  title(node) {
    return this.text("leaf", node) || this.text("title", node).replace(/Backward\d*$/, "");
  }

  state(node, time) {
    if (this.end[node] <= time) return "done";
    if (this.begin[node] <= time) return "running";
    return this.ready[node] <= time && this.begin[node] < NEVER ? "ready" : "pending";
  }

  /** The nodes whose state is another one at `after` than at `before`, in the order in which it changed. */
  changed(before, after) {
    this.changes ??= sortedChanges(this);
    const { times, nodes } = this.changes;
    return nodes.subarray(above(times, Math.min(before, after)), above(times, Math.max(before, after)));
  }

  counts(time, times = this.times) {
    const done = above(times.end, time);
    const running = above(times.begin, time) - done;
    const ready = Math.max(0, above(times.ready, time) - done - running);
    return { done, running, ready, pending: times.all - done - running - ready };
  }

  timeText(us) {
    if (us >= 1e6) return `${(us / 1e6).toFixed(2)} s`;
    return us >= 1e3 ? `${(us / 1e3).toFixed(2)} ms` : `${us.toFixed(1)} µs`;
  }
}

function sortedTimes(pass, members) {
  const finite = (list) => Float64Array.from(members, (node) => list[node]).filter((time) => time < NEVER).sort();
  const ran = members.filter((node) => pass.begin[node] < NEVER);
  return {
    begin: finite(pass.begin),
    end: finite(pass.end),
    ready: Float64Array.from(ran, (node) => pass.ready[node]).sort(),
    all: members.length,
  };
}

function sortedChanges(pass) {
  const all = [];
  for (const node of pass.order) for (const time of [pass.ready[node], pass.begin[node], pass.end[node]]) all.push([time, node]);
  all.sort((a, b) => a[0] - b[0]);
  return { times: Float64Array.from(all, ([time]) => time), nodes: Int32Array.from(all, ([, node]) => node) };
}
