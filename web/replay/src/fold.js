// What is to be seen of a graph in which some groups are open: an item for each closed group and each node that stands in
// open groups only, and the edges between them.

export const MOST_FOR_DAGRE = 400;

export class Fold {
  constructor(pass) {
    this.pass = pass;
    this.open = new Set([""]);
    this.openToFit();
  }

  /** Open groups, the outermost first, as long as there is little to see. */
  openToFit(most = 40) {
    let level = [this.pass.root];
    while (level.length) {
      const following = level.flatMap((group) => [...group.children.values()]);
      for (const group of following.sort((a, b) => a.members.length - b.members.length)) {
        const more = group.own.length + group.children.size - 1;
        if (this.size() + more <= most) this.open.add(group.key);
      }
      level = following.filter((group) => this.open.has(group.key));
    }
  }

  /** How many items would be seen now. */
  size() {
    let count = 0;
    const walk = (group) => {
      count += group.own.length;
      for (const child of group.children.values()) {
        if (this.open.has(child.key)) walk(child);
        else count += 1;
      }
    };
    walk(this.pass.root);
    return count;
  }

  toggle(key) {
    if (this.open.has(key)) this.open.delete(key);
    else this.open.add(key);
  }

  openAll() {
    for (const key of this.pass.groups.keys()) this.open.add(key);
  }

  closeAll() {
    this.open = new Set([""]);
  }

  /** Open whatever a node is hidden in. */
  openTo(node) {
    for (let group = this.pass.groupOf[node]; group; group = group.parent) this.open.add(group.key);
  }

  items() {
    const items = [];
    const boxes = [];
    const place = new Array(this.pass.count);
    const walk = (group, box) => {
      for (const node of group.own) {
        place[node] = items.length;
        items.push({ id: `n${node}`, node, box });
      }
      for (const child of group.children.values()) {
        if (this.open.has(child.key)) {
          const inner = { id: `b${child.key}`, group: child, box };
          boxes.push(inner);
          walk(child, inner);
        } else {
          for (const node of child.members) place[node] = items.length;
          items.push({ id: `g${child.key}`, group: child, box });
        }
      }
    };
    walk(this.pass.root, null);
    return { items, boxes, links: this.links(items, place) };
  }

  links(items, place) {
    const found = new Map();
    const { from, to, edgeCount } = this.pass;
    for (let k = 0; k < edgeCount; k++) {
      const a = place[from[k]];
      const b = place[to[k]];
      if (a === b) continue;
      const key = a * items.length + b;
      const link = found.get(key);
      if (link) link.count += 1;
      else found.set(key, { from: items[a], to: items[b], count: 1, target: to[k], source: from[k] });
    }
    return [...found.values()];
  }
}
