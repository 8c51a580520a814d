// The drawing of the graph. All of it is drawn once, on a layer that is not shown. While only the time moves, a frame
// draws there the nodes whose state changed, shows the layer, and puts on top what lasts no longer than the frame.
import { element } from "./dom.js";

export const FONT = "13px system-ui, sans-serif";
const SMALL = "11px system-ui, sans-serif";
const TEXT_FROM = 0.4; // below this zoom letters are only noise
const LABELS_FROM = 0.55;
const MOST_WHILE_MOVING = 1500; // items and links that are drawn anew in each frame of a movement

export class Picture {
  constructor(canvas, pass) {
    this.pass = pass;
    this.canvas = canvas;
    this.shown = canvas.getContext("2d");
    this.layer = element("canvas");
    this.context = this.layer.getContext("2d");
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
    this.ratio = this.canvas.width / Math.max(1, width);
    this.layer.width = this.canvas.width;
    this.layer.height = this.canvas.height;
    this.drawn = null;
  }

  /** `scene` is items, boxes and links with their places; `look` says how one looks: transform, colours, moving. */
  show(scene, look, time, selected) {
    const { drawn } = this;
    const isSame = drawn && drawn.scene === scene && drawn.look.colours === look.colours;
    if (isSame && drawn.look.transform === look.transform) this.advance(time);
    else if (isSame && look.moving && drawn.count > MOST_WHILE_MOVING) {
      this.showMoved(look.transform);
      return;
    } else this.drawAll(scene, look, time);
    this.shown.setTransform(1, 0, 0, 1, 0, 0);
    this.shown.drawImage(this.layer, 0, 0);
    this.drawWaiting(time);
    if (selected && seen(selected, this.view)) this.drawSelected(selected);
  }

  /** The last picture, moved and scaled: what many maps do until the hand rests. */
  showMoved(transform) {
    const { shown, drawn } = this;
    const scale = transform.k / drawn.look.transform.k;
    shown.setTransform(1, 0, 0, 1, 0, 0);
    shown.fillStyle = drawn.look.colours.paper;
    shown.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const x = this.ratio * (transform.x - scale * drawn.look.transform.x);
    const y = this.ratio * (transform.y - scale * drawn.look.transform.y);
    shown.imageSmoothingEnabled = false;
    shown.drawImage(this.layer, x, y, scale * this.canvas.width, scale * this.canvas.height);
  }

  drawAll(scene, look, time) {
    const { context } = this;
    const { k, x, y } = look.transform;
    this.view = { left: -x / k, right: (this.width - x) / k, top: -y / k, bottom: (this.height - y) / k };
    this.look = look;
    this.plain(context);
    context.fillStyle = look.colours.paper;
    context.fillRect(0, 0, this.layer.width, this.layer.height);
    this.inGraph(context);
    for (const box of scene.boxes) if (box.width && seen(box, this.view)) this.drawBox(box);
    const links = scene.links.filter((link) => crosses(link.points, this.view));
    this.drawLinks(links);
    const items = scene.items.filter((item) => seen(item, this.view));
    if (k > LABELS_FROM && scene.links.length < 900) this.drawLabels(links, items);
    this.drawItems(items, time);
    const groups = items.filter((item) => item.group);
    this.drawn = { scene, look, time, links, items, groups, count: links.length + items.length };
  }

  /** From the time of the drawing to another one. */
  advance(time) {
    const { drawn, pass } = this;
    if (drawn.time === time) return;
    const { itemOf } = drawn.scene;
    const items = new Set(drawn.groups);
    for (const node of pass.changed(drawn.time, time)) {
      const item = itemOf[node];
      if (item && seen(item, this.view)) items.add(item);
    }
    this.drawItems([...items], time);
    drawn.time = time;
  }

  // ---- where a drawing goes: in pixels, or where the graph has its items

  plain(context) {
    context.setTransform(1, 0, 0, 1, 0, 0);
  }

  inGraph(context) {
    const { ratio } = this;
    const { k, x, y } = this.look.transform;
    context.setTransform(ratio * k, 0, 0, ratio * k, ratio * x, ratio * y);
  }

  /** An item in whole pixels, so that drawing it again covers exactly what was there. */
  pixels(item) {
    const { k, x, y } = this.look.transform;
    const { ratio } = this;
    const left = Math.round(ratio * (x + k * (item.x - item.width / 2)));
    const top = Math.round(ratio * (y + k * (item.y - item.height / 2)));
    const width = Math.max(1, Math.round(ratio * k * item.width));
    const height = Math.max(1, Math.round(ratio * k * item.height));
    return { left, top, width, height };
  }

  // ---- items

  drawItems(items, time) {
    const isText = this.look.transform.k > TEXT_FROM;
    this.plain(this.context);
    this.drawRectangles(items, time, isText);
    if (!isText) return;
    this.inGraph(this.context);
    this.drawTexts(items);
  }

  // Changes of colour cost more than rectangles, so those of a colour come together.
  drawRectangles(items, time, isText) {
    const { context, pass } = this;
    const { colours } = this.look;
    const inside = { done: [], running: [], ready: [], pending: [] };
    const borders = { line: [], leaf: [], bad: [] };
    for (const item of items) {
      const place = this.pixels(item);
      const kind = this.kind(item);
      if (isText || kind === "bad" || item.group) borders[kind].push(place);
      const border = this.border(kind, isText || kind === "bad");
      const inner = { left: place.left + border, top: place.top + border, width: place.width - 2 * border, height: place.height - 2 * border };
      if (item.group) this.share(item, inner, time, inside);
      else inside[pass.state(item.node, time)].push(inner);
    }
    fill(context, colours, borders);
    fill(context, colours, inside);
  }

  kind(item) {
    const { pass } = this;
    if (item.group ? item.group.bad : pass.isBad(item.node)) return "bad";
    return item.node !== undefined && pass.isLeaf(item.node) ? "leaf" : "line";
  }

  border(kind, isDrawn) {
    return isDrawn ? Math.max(1, Math.round(this.ratio * { bad: 3, leaf: 2, line: 1 }[kind])) : 0;
  }

  /** A group is a bar: so much of it is done, running, ready. */
  share(item, { left, top, width, height }, time, inside) {
    const counts = this.pass.counts(time, item.group.times);
    let before = 0;
    for (const state of ["done", "running", "ready", "pending"]) {
      const begin = Math.round((width * before) / item.group.times.all);
      before += counts[state];
      const end = Math.round((width * before) / item.group.times.all);
      if (end > begin) inside[state].push({ left: left + begin, top, width: end - begin, height });
    }
  }

  drawTexts(items) {
    const { context } = this;
    const { colours } = this.look;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = colours.ink;
    context.font = FONT;
    for (const item of items) {
      const title = `${item.group ? "+ " : ""}${item.title}${this.kind(item) === "bad" ? " ⚠" : ""}`;
      context.fillText(title, item.x, item.y - 7, item.width - 8);
    }
    context.fillStyle = colours.faint;
    context.font = SMALL;
    for (const item of items) context.fillText(item.under, item.x, item.y + 10, item.width - 8);
  }

  drawSelected(item) {
    const { shown } = this;
    const { left, top, width, height } = this.pixels(item);
    this.plain(shown);
    shown.strokeStyle = this.look.colours.accent;
    shown.lineWidth = Math.round(3 * this.ratio);
    shown.strokeRect(left, top, width, height);
  }

  // ---- boxes and links

  drawBox(box) {
    const { context } = this;
    const { colours, transform } = this.look;
    const left = box.x - box.width / 2;
    const top = box.y - box.height / 2;
    context.globalAlpha = 0.35;
    context.fillStyle = colours.group;
    context.fillRect(left, top, box.width, box.height);
    context.globalAlpha = 1;
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.strokeRect(left, top, box.width, box.height);
    if (transform.k > TEXT_FROM) {
      context.fillStyle = colours.faint;
      context.font = SMALL;
      context.textAlign = "left";
      context.textBaseline = "top";
      context.fillText(`− ${box.group.key}`, left + 6, top + 5, box.width - 12);
    }
  }

  drawLinks(links) {
    this.context.strokeStyle = this.look.colours.line;
    this.context.lineWidth = Math.max(1, 0.6 / this.look.transform.k);
    stroke(this.context, links);
  }

  /** The edges on which a gradient waits. */
  drawWaiting(time) {
    const { shown, pass, drawn } = this;
    if (time >= pass.duration) return;
    const waiting = drawn.links.filter((link) => pass.end[link.source] <= time && pass.begin[link.target] > time);
    if (!waiting.length) return;
    this.inGraph(shown);
    shown.strokeStyle = this.look.colours.ready;
    shown.lineWidth = Math.max(2, 1.2 / this.look.transform.k);
    stroke(shown, waiting);
    if (this.look.transform.k > TEXT_FROM) this.keepReadable(waiting);
  }

  /** Items that a line crosses, once more: letters are not struck through. */
  keepReadable(links) {
    const { shown, layer } = this;
    const around = links.map(({ points }) => frame(points));
    this.plain(shown);
    for (const item of this.drawn.items) {
      if (!around.some((box) => overlap(box, item))) continue;
      const { left, top, width, height } = this.pixels(item);
      shown.drawImage(layer, left, top, width, height, left, top, width, height);
    }
  }

  drawLabels(links, items) {
    const { context } = this;
    const { colours } = this.look;
    context.font = SMALL;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = colours.faint;
    context.strokeStyle = colours.paper;
    context.lineWidth = 4;
    const taken = [...items];
    for (const link of links) {
      const text = link.count > 1 ? `${link.count} edges` : this.pass.text("shape", link.target);
      const place = freePlace(link.points, context.measureText(text).width, taken);
      if (!place || !seen(place, this.view)) continue;
      taken.push(place);
      context.strokeText(text, place.x, place.y); // keeps the letters free of the line
      context.fillText(text, place.x, place.y);
    }
  }
}

/** Where on a line a text covers none of those that are there already. */
function freePlace(points, width, taken) {
  for (const share of [0.5, 0.75, 0.3, 0.88]) {
    const along = share * (points.length - 1);
    const k = Math.min(Math.floor(along), points.length - 2);
    const [from, to, rest] = [points[k], points[k + 1], along - k];
    const place = { x: from.x + rest * (to.x - from.x), y: from.y + rest * (to.y - from.y), width: width + 6, height: 14 };
    if (!taken.some((other) => overlap(place, other))) return place;
  }
  return null;
}

const overlap = (a, b) => Math.abs(a.x - b.x) < (a.width + b.width) / 2 && Math.abs(a.y - b.y) < (a.height + b.height) / 2;

function fill(context, colours, lists) {
  for (const [name, list] of Object.entries(lists)) {
    if (list.length) context.fillStyle = colours[name];
    for (const { left, top, width, height } of list) context.fillRect(left, top, width, height);
  }
}

function stroke(context, links) {
  context.beginPath();
  for (const { points } of links) {
    context.moveTo(points[0].x, points[0].y);
    for (let k = 1; k < points.length; k++) context.lineTo(points[k].x, points[k].y);
  }
  context.stroke();
}

function frame(points) {
  const xs = points.map((point) => point.x);
  const ys = points.map((point) => point.y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  return { x: (left + right) / 2, y: (top + bottom) / 2, width: right - left, height: bottom - top };
}

function seen(each, view) {
  return each.x + each.width / 2 >= view.left && each.x - each.width / 2 <= view.right &&
    each.y + each.height / 2 >= view.top && each.y - each.height / 2 <= view.bottom;
}

/** Whether a line may be seen; it bends by no more than an item is wide. */
function crosses(points, view) {
  const first = points[0];
  const last = points[points.length - 1];
  return Math.max(first.y, last.y) >= view.top && Math.min(first.y, last.y) <= view.bottom &&
    Math.max(first.x, last.x) >= view.left - 260 && Math.min(first.x, last.x) <= view.right + 260;
}
