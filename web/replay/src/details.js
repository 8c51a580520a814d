// The panel beside the graph: what there is to say of the node or group that is selected.
import { element } from "./dom.js";
import { sizeText } from "./memory.js";

export class Details {
  constructor(place, pass, onNode) {
    this.place = place;
    this.pass = pass;
    this.onNode = onNode;
  }

  show(title, ...parts) {
    this.place.replaceChildren(element("h2", { text: title }), ...parts.filter(Boolean));
  }

  overview() {
    const { pass } = this;
    const bad = [...Array(pass.count).keys()].filter((node) => pass.isBad(node));
    const longest = [...pass.order].sort((a, b) => this.lasted(b) - this.lasted(a)).slice(0, 8);
    this.show(
      "The pass",
      table([
        ["nodes", pass.count],
        ["edges", pass.edgeCount],
        ["threads", pass.threads.length],
        ["took", pass.timeText(pass.duration)],
        ["most memory", sizeText(pass.recorded.memory.reduce((most, point) => Math.max(most, point[1]), 0))],
      ]),
      pass.recorded.error && element("p", { class: "bad", text: pass.recorded.error }),
      bad.length > 0 && this.links("nan begins, or the pass fails, at", bad.slice(0, 8)),
      this.links("took longest", longest),
      element("p", { class: "help", text: "Click a node, or a group twice to open it. Space plays, . and , go node by node, arrows move, Enter opens and closes, / finds, f fits." }),
    );
  }

  lasted(node) {
    return this.pass.end[node] - this.pass.begin[node];
  }

  group(group) {
    const { pass } = this;
    const saved = group.members.reduce((sum, node) => sum + savedBytes(pass, node), 0);
    const time = group.members.reduce((sum, node) => sum + (pass.end[node] < Infinity ? this.lasted(node) : 0), 0);
    const leaves = group.members.filter((node) => pass.isLeaf(node) && pass.text("leaf", node));
    this.show(
      group.key || "program",
      table([["nodes", group.members.length], ["time", pass.timeText(time)], ["saved", sizeText(saved)], ["parameters", leaves.length]]),
      leaves.length > 0 && this.links("parameters", leaves.slice(0, 20)),
      this.links("nodes", group.members.filter((node) => !pass.isLeaf(node)).slice(0, 40)),
    );
  }

  node(node) {
    const { pass } = this;
    const gradient = pass.value("gradient", node);
    this.show(
      pass.title(node),
      table([
        ["node", pass.text("title", node)],
        ["module", pass.text("path", node)],
        ["line", pass.text("line", node)],
        ["gradient", `${pass.text("shape", node)} ${pass.text("dtype", node)}`],
        ["device", pass.text("device", node)],
        ["thread", pass.threads[pass.value("thread", node)]],
        ["ran", pass.begin[node] < Infinity ? `${pass.timeText(pass.begin[node])}, for ${pass.timeText(this.lasted(node))}` : "not in this pass"],
      ]),
      pass.text("source", node) && element("pre", { class: "source", text: pass.text("source", node) }),
      pass.value("origin", node) ? element("p", { class: "bad", text: "The first nan of the pass is here: this node returned it, and was given none." }) : null,
      pass.value("failed", node) ? element("p", { class: "bad", text: pass.recorded.error }) : null,
      pass.text("formula", node) && section("rules (g is the gradient)", element("pre", { text: pass.text("formula", node) })),
      this.saved(node),
      pass.value("hooks", node).length > 0 && section("hooks", list(pass.value("hooks", node))),
      gradient && section("the gradient that reached it", statistics(gradient), histogram(gradient)),
      this.links("gradients come from", pass.into[node]),
      this.links("gradients go to", pass.out[node]),
    );
  }

  saved(node) {
    const rows = this.pass.value("saved", node);
    if (!rows.length) return null;
    return section("saved", table(rows.map(([name, shape, dtype, bytes, version]) =>
      [name, `${shape} ${dtype}${bytes === null ? "" : `, ${sizeText(bytes)}`}${version === null ? "" : `, version ${version}`}`])));
  }

  links(title, nodes) {
    if (!nodes.length) return null;
    const items = nodes.map((node) => element("li", {},
      element("button", { type: "button", class: "link", text: this.pass.title(node), onclick: () => this.onNode(node) }),
      ` ${this.pass.text("shape", node)}`));
    return section(title, element("ul", {}, ...items));
  }
}

function savedBytes(pass, node) {
  return pass.value("saved", node).reduce((sum, row) => sum + (row[3] ?? 0), 0);
}

function section(title, ...parts) {
  return element("section", {}, element("h3", { text: title }), ...parts);
}

function table(rows) {
  const shown = rows.filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return element("table", {}, ...shown.map(([name, value]) =>
    element("tr", {}, element("th", { text: name, scope: "row" }), element("td", { text: value }))));
}

function list(texts) {
  return element("ul", {}, ...texts.map((text) => element("li", { text })));
}

const number = (value) => (value === null ? "-" : Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5 ? value.toPrecision(4) : value.toExponential(2));

function statistics([norm, low, high, nans, infinite]) {
  return table([["norm", number(norm)], ["from", number(low)], ["to", number(high)], ["nan", nans || ""], ["inf", infinite || ""]]);
}

function histogram([, , , , , counts]) {
  if (!counts.length) return null;
  const most = Math.max(...counts);
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", `0 0 ${counts.length} 10`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "histogram");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Histogram of the gradient");
  counts.forEach((count, k) => {
    const bar = document.createElementNS(space, "rect");
    const height = (10 * count) / most;
    for (const [key, value] of Object.entries({ x: k + 0.05, y: 10 - height, width: 0.9, height })) bar.setAttribute(key, value);
    svg.append(bar);
  });
  return svg;
}
