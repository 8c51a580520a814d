// The picture of the graph: drawn on a canvas, moved and zoomed, with groups that open and close.
import { select } from "d3-selection";
import { zoom, zoomIdentity } from "d3-zoom";
import { canvasIn, colours, element, fit } from "./dom.js";
import { Fold, MOST_FOR_DAGRE } from "./fold.js";
import { layOut } from "./layout.js";

const FONT = "13px system-ui, sans-serif";
const SMALL = "11px system-ui, sans-serif";
const TEXT_FROM = 0.3; // below this zoom letters are only noise

export class Graph {
  constructor(place, pass, onSelect) {
    this.place = place;
    this.pass = pass;
    this.onSelect = onSelect;
    this.fold = new Fold(pass);
    this.time = pass.duration;
    this.canvas = canvasIn(place, "The graph of the backward pass; open and close groups by Enter, move by the arrow keys");
    this.buttons(place);
    this.transform = zoomIdentity;
    this.zoom = zoom().scaleExtent([0.005, 4]).on("zoom", (event) => {
      this.transform = event.transform;
      this.paint();
    });
    select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("dblclick", (event) => this.doubleClick(event));
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.colours = colours();
    this.resize();
    this.arrange();
    this.fit(0.8);
  }

  buttons(place) {
    const button = (text, title, action) => element("button", { text, title, type: "button", onclick: action });
    this.note = element("span", { class: "note" });
    place.append(element("div", { class: "tools" },
      button("fit", "Show everything (f)", () => this.fit()),
      button("open all", "Open all groups (e)", () => this.openAll()),
      button("close all", "Close all groups (c)", () => this.closeAll()),
      this.note));
  }

  // ---- what is there

  arrange() {
    const measure = this.canvas.getContext("2d");
    const { items, boxes, links } = this.fold.items();
    measure.font = FONT;
    for (const item of items) {
      item.title = item.group ? item.group.name || "program" : this.pass.title(item.node);
      item.under = item.group ? countText(item.group.members.length) : this.pass.text("shape", item.node);
      item.width = Math.max(70, Math.min(260, measure.measureText(item.title).width + 24));
      item.height = 40;
    }
    layOut(items, boxes, links);
    Object.assign(this, { items, boxes, links });
    this.byHeight = [...items].sort((a, b) => a.y - b.y);
    this.note.textContent = items.length > MOST_FOR_DAGRE
      ? `${items.length} items, in plain layers: close groups for a better picture` : `${items.length} items`;
    this.selected = this.selected && this.itemOf(this.selected);
    this.paint();
  }

  itemOf(wanted) {
    return this.items.find((item) => item.id === wanted.id) ?? this.items.find((item) => holds(item, wanted)) ?? null;
  }

  toggle(item) {
    if (!item.group) return;
    const key = item.group.key;
    const before = this.screenPlace(item);
    this.fold.toggle(key);
    this.arrange();
    const opened = this.boxes.find((box) => box.group.key === key) ?? this.items.find((each) => each.group?.key === key);
    this.choose(this.items.find((each) => each.group?.key === key) ?? this.items.find((each) => within(each, key)) ?? null);
    if (opened?.x !== undefined && before) this.moveTo(opened, before);
  }

  openAll() {
    this.fold.openAll();
    this.arrange();
    this.fit();
  }

  closeAll() {
    this.fold.closeAll();
    this.arrange();
    this.fit();
  }

  /** Show a node, whatever it is folded into. */
  reveal(node) {
    this.fold.openTo(node);
    this.arrange();
    const item = this.items.find((each) => each.node === node);
    this.choose(item);
    this.centre(item);
  }

  find(text) {
    this.wanted = text.trim().toLowerCase();
    if (!this.wanted) return this.paint();
    const { pass } = this;
    for (let node = 0; node < pass.count; node++) {
      const words = `${pass.text("title", node)} ${pass.text("leaf", node)} ${pass.text("path", node)} ${pass.text("line", node)}`;
      if (words.toLowerCase().includes(this.wanted)) return this.reveal(node);
    }
    return this.paint();
  }

  // ---- selecting

  choose(item) {
    this.selected = item;
    this.onSelect(item);
    this.paint();
  }

  /** The next item in a direction, for the arrow keys. */
  step(dx, dy) {
    if (!this.items.length) return;
    if (!this.selected) return this.choose(this.byHeight[0]);
    const { x, y } = this.selected;
    let best = null;
    let least = Infinity;
    for (const item of this.items) {
      const along = (item.x - x) * dx + (item.y - y) * dy;
      const aside = Math.abs((item.x - x) * dy) + Math.abs((item.y - y) * dx);
      const cost = along + 2 * aside;
      if (item !== this.selected && along > 1 && cost < least) [best, least] = [item, cost];
    }
    if (best) {
      this.choose(best);
      this.centre(best);
    }
  }

  at(time) {
    this.time = time;
    this.paint();
  }

  itemAt(event) {
    const [x, y] = this.transform.invert([event.offsetX, event.offsetY]);
    const inside = (each) => each.width && Math.abs(x - each.x) <= each.width / 2 && Math.abs(y - each.y) <= each.height / 2;
    return this.items.find(inside) ?? null;
  }

  boxAt(event) {
    const [x, y] = this.transform.invert([event.offsetX, event.offsetY]);
    const onTitle = (box) => box.width && Math.abs(x - box.x) <= box.width / 2 && y >= box.y - box.height / 2 && y <= box.y - box.height / 2 + 24;
    return this.boxes.findLast?.(onTitle) ?? [...this.boxes].reverse().find(onTitle) ?? null;
  }

  click(event) {
    const item = this.itemAt(event);
    if (item?.group && item === this.selected) return this.toggle(item);
    if (!item) {
      const box = this.boxAt(event);
      if (box) return this.toggle(box);
    }
    return this.choose(item);
  }

  doubleClick(event) {
    const item = this.itemAt(event);
    if (item?.group) this.toggle(item);
  }

  hover(event) {
    const item = this.itemAt(event);
    this.canvas.style.cursor = item || this.boxAt(event) ? "pointer" : "grab";
    this.canvas.title = item ? `${item.title} ${item.under}` : "";
  }

  // ---- where one looks

  resize() {
    const { clientWidth, clientHeight } = this.place;
    this.width = clientWidth;
    this.height = clientHeight;
    this.context = fit(this.canvas, clientWidth, clientHeight).context;
    this.ratio = this.canvas.width / Math.max(1, clientWidth);
    if (this.items) this.paint();
  }

  bounds() {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const each of [...this.items, ...this.boxes.filter((box) => box.width)]) {
      left = Math.min(left, each.x - each.width / 2);
      right = Math.max(right, each.x + each.width / 2);
      top = Math.min(top, each.y - each.height / 2);
      bottom = Math.max(bottom, each.y + each.height / 2);
    }
    return { left, top, right, bottom };
  }

  /** Show everything; or, where that would be smaller than `least`, what is at the top. */
  fit(least = 0) {
    if (!this.items.length) return;
    const { left, top, right, bottom } = this.bounds();
    const whole = Math.min(1.4, (this.width - 30) / (right - left), (this.height - 60) / (bottom - top));
    const scale = Math.max(whole, least);
    const first = this.byHeight[0];
    const middle = scale > whole ? first.x : (left + right) / 2;
    const x = this.width / 2 - scale * middle;
    const y = scale > whole ? 60 - scale * top : this.height / 2 + 12 - (scale * (top + bottom)) / 2;
    select(this.canvas).call(this.zoom.transform, zoomIdentity.translate(x, y).scale(scale));
  }

  centre(item) {
    const scale = Math.max(this.transform.k, 0.6);
    const view = zoomIdentity.translate(this.width / 2 - item.x * scale, this.height / 2 - item.y * scale).scale(scale);
    select(this.canvas).call(this.zoom.transform, view);
  }

  screenPlace(item) {
    return item.x === undefined ? null : this.transform.apply([item.x, item.y]);
  }

  moveTo(item, [x, y]) {
    const { k } = this.transform;
    select(this.canvas).call(this.zoom.transform, zoomIdentity.translate(x - item.x * k, y - item.y * k).scale(k));
  }

  zoomBy(factor) {
    select(this.canvas).call(this.zoom.scaleBy, factor);
  }

  // ---- drawing

  repaint(forPrint) {
    this.colours = colours(forPrint);
    this.paint();
  }

  /** At the next frame: many causes in one frame are one picture. */
  paint() {
    this.asked ??= requestAnimationFrame(() => {
      this.asked = undefined;
      const begin = performance.now();
      this.draw();
      this.lastFrame = performance.now() - begin;
    });
  }

  draw() {
    const { context, colours: colour, transform } = this;
    const { k, x, y } = transform;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = colour.paper;
    context.fillRect(0, 0, this.width, this.height);
    context.setTransform(this.ratio * k, 0, 0, this.ratio * k, this.ratio * x, this.ratio * y);
    const view = { left: -x / k, right: (this.width - x) / k, top: -y / k, bottom: (this.height - y) / k };
    for (const box of this.boxes) if (box.width && seen(box, view)) this.drawBox(box);
    this.drawLinks(view);
    context.textBaseline = "middle";
    const small = k <= TEXT_FROM ? { done: [], running: [], ready: [], pending: [] } : null;
    for (const item of this.byHeight) {
      if (item.y + item.height < view.top) continue;
      if (item.y - item.height > view.bottom) break;
      if (!seen(item, view)) continue;
      if (small && this.isPlain(item)) small[this.pass.state(item.node, this.time)].push(item);
      else this.drawItem(item);
    }
    if (small) this.drawSmall(small);
  }

  isPlain(item) {
    return !item.group && item !== this.selected && !this.pass.isBad(item.node);
  }

  /** Nodes too small for letters and borders: thousands may be seen at once, and each change of colour costs. */
  drawSmall(items) {
    const { context, colours: colour } = this;
    for (const [state, list] of Object.entries(items)) {
      context.fillStyle = colour[state];
      for (const { x, y, width, height } of list) context.fillRect(x - width / 2, y - height / 2, width, height);
    }
  }

  drawBox(box) {
    const { context, colours: colour } = this;
    const left = box.x - box.width / 2;
    const top = box.y - box.height / 2;
    context.globalAlpha = 0.35;
    context.fillStyle = colour.group;
    context.fillRect(left, top, box.width, box.height);
    context.globalAlpha = 1;
    context.strokeStyle = colour.line;
    context.lineWidth = 1;
    context.strokeRect(left, top, box.width, box.height);
    if (this.transform.k > TEXT_FROM) {
      context.fillStyle = colour.faint;
      context.font = SMALL;
      context.textAlign = "left";
      context.textBaseline = "top";
      context.fillText(`− ${box.group.key}`, left + 6, top + 5, box.width - 12);
    }
  }

  drawLinks(view) {
    const { context, colours: colour, pass, time } = this;
    const flowed = [];
    context.strokeStyle = colour.line;
    context.lineWidth = Math.max(1, 0.6 / this.transform.k);
    context.beginPath();
    for (const link of this.links) {
      const { points } = link;
      const last = points[points.length - 1];
      if (Math.max(points[0].y, last.y) < view.top || Math.min(points[0].y, last.y) > view.bottom) continue;
      if (Math.max(points[0].x, last.x) < view.left - 200 || Math.min(points[0].x, last.x) > view.right + 200) continue;
      if (time < pass.duration && pass.end[link.source] <= time && pass.begin[link.target] > time) flowed.push(link);
      else trace(context, points);
    }
    context.stroke();
    if (flowed.length) { // a gradient waits on this edge
      context.strokeStyle = colour.ready;
      context.lineWidth = Math.max(2, 1.2 / this.transform.k);
      context.beginPath();
      for (const link of flowed) trace(context, link.points);
      context.stroke();
    }
    if (this.transform.k > 0.55 && this.links.length < 900) this.drawLabels(view);
  }

  drawLabels(view) {
    const { context, colours: colour } = this;
    context.font = SMALL;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = colour.faint;
    context.strokeStyle = colour.paper;
    context.lineWidth = 4;
    for (const link of this.links) {
      const middle = link.points[link.points.length >> 1];
      const start = link.points[(link.points.length >> 1) - 1] ?? middle;
      const place = { x: (middle.x + start.x) / 2, y: (middle.y + start.y) / 2, width: 80, height: 12 };
      if (seen(place, view)) {
        const text = link.count > 1 ? `${link.count} edges` : this.pass.text("shape", link.target);
        context.strokeText(text, place.x, place.y); // keeps the letters free of the line
        context.fillText(text, place.x, place.y);
      }
    }
  }

  drawItem(item) {
    const { context, colours: colour, pass, time } = this;
    const left = item.x - item.width / 2;
    const top = item.y - item.height / 2;
    const isLeaf = item.node !== undefined && pass.isLeaf(item.node);
    context.fillStyle = colour.pending;
    context.fillRect(left, top, item.width, item.height);
    if (item.group) this.drawProgress(item, left, top);
    else {
      context.fillStyle = colour[pass.state(item.node, time)];
      context.fillRect(left, top, item.width, item.height);
    }
    const isBad = item.group ? item.group.bad : pass.isBad(item.node);
    context.strokeStyle = isBad ? colour.bad : item === this.selected ? colour.accent : isLeaf ? colour.leaf : colour.line;
    context.lineWidth = (isBad || item === this.selected ? 3 : isLeaf ? 2 : 1) / Math.min(1, this.transform.k * 2);
    context.strokeRect(left, top, item.width, item.height);
    if (item.group) context.strokeRect(left + 3, top - 3, item.width - 6, 0.01);
    if (this.transform.k > TEXT_FROM) this.drawText(item, isBad);
  }

  drawProgress(item, left, top) {
    const { context, colours: colour } = this;
    const counts = this.pass.counts(this.time, item.group.times);
    let x = left;
    for (const state of ["done", "running", "ready"]) {
      const width = (item.width * counts[state]) / item.group.times.all;
      context.fillStyle = colour[state];
      context.fillRect(x, top, width, item.height);
      x += width;
    }
  }

  drawText(item, isBad) {
    const { context, colours: colour } = this;
    context.fillStyle = colour.ink;
    context.textAlign = "center";
    context.font = FONT;
    const title = `${item.group ? "+ " : ""}${item.title}${isBad ? " ⚠" : ""}`;
    context.fillText(title, item.x, item.y - 7, item.width - 8);
    context.font = SMALL;
    context.fillStyle = colour.faint;
    context.fillText(item.under, item.x, item.y + 10, item.width - 8);
  }
}

const holds = (item, wanted) => item.group && wanted.node !== undefined && item.group.members.includes(wanted.node);

function within(item, key) {
  for (let box = item.box; box; box = box.box) if (box.group.key === key) return true;
  return false;
}

function seen(each, view) {
  return each.x + each.width / 2 >= view.left && each.x - each.width / 2 <= view.right &&
    each.y + each.height / 2 >= view.top && each.y - each.height / 2 <= view.bottom;
}

function trace(context, points) {
  context.moveTo(points[0].x, points[0].y);
  for (let k = 1; k < points.length; k++) context.lineTo(points[k].x, points[k].y);
}

const countText = (count) => (count === 1 ? "1 node" : `${count} nodes`);
