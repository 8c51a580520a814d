// Where the items of a folded graph stand: by dagre while they are few, by plain layers when they are many.
import dagre from "@dagrejs/dagre";
import { MOST_FOR_DAGRE } from "./fold.js";

const GAP = 14;
const BETWEEN = 34;
const TITLE = 60; // that the name of a box may need

const MOST_STEPS = 1500; // of links through layers: dagre gives each a node of its own, and takes seconds for thousands

export function layOut(items, boxes, links) {
  if (items.length > MOST_FOR_DAGRE || steps(items, links) > MOST_STEPS) return byLayers(items, links);
  try {
    return byDagre(items, boxes, links, boxes.length > 0);
  } catch {
    return byLayers(items, links); // nested boxes are more than dagre can take in some graphs
  }
}

function byDagre(items, boxes, links, nested) {
  const graph = new dagre.graphlib.Graph({ compound: nested });
  graph.setGraph({ rankdir: "TB", nodesep: GAP, ranksep: BETWEEN, edgesep: 8, marginx: 20, marginy: 20 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const box of nested ? boxes : []) graph.setNode(box.id, {});
  for (const item of items) graph.setNode(item.id, { width: item.width, height: item.height });
  for (const each of nested ? [...boxes, ...items] : []) if (each.box) graph.setParent(each.id, each.box.id);
  for (const link of links) graph.setEdge(link.from.id, link.to.id, { weight: Math.min(link.count, 5) });
  dagre.layout(graph);
  for (const item of items) Object.assign(item, pick(graph.node(item.id)));
  for (const box of boxes) Object.assign(box, nested ? whole(graph.node(box.id)) : { width: 0 });
  if (nested) tighten(boxes, items);
  for (const link of links) link.points = graph.edge(link.from.id, link.to.id).points;
}

const pick = ({ x, y }) => ({ x, y });
const whole = ({ x, y, width, height }) => ({ x, y, width, height });

/** dagre leaves much room in a box beside what is in it; boxes come after those around them. */
function tighten(boxes, items) {
  const inside = new Map(boxes.map((box) => [box, []]));
  for (const each of [...items, ...boxes]) inside.get(each.box)?.push(each);
  for (const box of [...boxes].reverse()) {
    const edges = inside.get(box).flatMap(({ x, width }) => [x - width / 2, x + width / 2]);
    const left = Math.max(box.x - box.width / 2, Math.min(...edges) - GAP);
    const right = Math.min(box.x + box.width / 2, Math.max(...edges, left + TITLE) + GAP);
    Object.assign(box, { x: (left + right) / 2, width: right - left });
  }
}

function steps(items, links) {
  const layerOf = layersOf(items, links);
  return links.reduce((sum, { from, to }) => sum + Math.abs((layerOf.get(to) ?? 0) - (layerOf.get(from) ?? 0)), 0);
}

/** The number of links on the longest path to each item; nothing for those that a circle of groups keeps back. */
function layersOf(items, links) {
  const out = new Map(items.map((item) => [item, []]));
  const waiting = new Map(items.map((item) => [item, 0]));
  for (const link of links) {
    out.get(link.from).push(link.to);
    waiting.set(link.to, waiting.get(link.to) + 1);
  }
  const layerOf = new Map();
  const ready = items.filter((item) => !waiting.get(item));
  for (const item of ready) layerOf.set(item, 0);
  for (let k = 0; k < ready.length; k++) {
    for (const below of out.get(ready[k])) {
      layerOf.set(below, Math.max(layerOf.get(below) ?? 0, layerOf.get(ready[k]) + 1));
      waiting.set(below, waiting.get(below) - 1);
      if (!waiting.get(below)) ready.push(below);
    }
  }
  return layerOf;
}

/** Within a layer items stand near the middle of those above them; what a circle keeps back is on top. */
function byLayers(items, links) {
  const layerOf = layersOf(items, links);
  const layers = [];
  for (const item of items) (layers[layerOf.get(item) ?? 0] ??= []).push(item);
  const above = new Map(items.map((item) => [item, []]));
  for (const link of links) above.get(link.to).push(link.from);
  layers.forEach((layer, k) => placeLayer(layer, above, k));
  for (const link of links) link.points = straight(link);
}

function placeLayer(layer, above, number) {
  const wish = (item) => {
    const places = above.get(item).filter((other) => other.x !== undefined).map((other) => other.x);
    return places.length ? places.reduce((a, b) => a + b) / places.length : 0;
  };
  const wanted = layer.map((item) => [wish(item), item]).sort((a, b) => a[0] - b[0]);
  let right = -Infinity;
  for (const [x, item] of wanted) {
    item.x = Math.max(x, right + item.width / 2);
    item.y = number * 70;
    right = item.x + item.width / 2 + GAP;
  }
  const shift = wanted.reduce((sum, [x, item]) => sum + (item.x - x), 0) / wanted.length;
  for (const item of layer) item.x -= shift;
}

function straight({ from, to }) {
  return [{ x: from.x, y: from.y + from.height / 2 }, { x: to.x, y: to.y - to.height / 2 }];
}
