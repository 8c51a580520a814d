// The graph: moved and zoomed, with groups that open and close, and items to select.
import { select } from "d3-selection";
import { zoom, zoomIdentity } from "d3-zoom";
import { canvasIn, colours, element, fit } from "./dom.js";
import { Fold } from "./fold.js";
import { layOut } from "./layout.js";
import { FONT, Picture } from "./picture.js";

const REST = 120; // milliseconds after which a movement has ended

export class Graph {
  constructor(place, pass, onSelect) {
    this.place = place;
    this.pass = pass;
    this.onSelect = onSelect;
    this.fold = new Fold(pass);
    this.time = pass.duration;
    this.canvas = canvasIn(place, "The graph of the backward pass; open and close groups by Enter, move by the arrow keys");
    this.picture = new Picture(this.canvas, pass);
    this.buttons(place);
    this.transform = zoomIdentity;
    this.zoom = zoom().scaleExtent([0.005, 4]).on("zoom", (event) => {
      this.transform = event.transform;
      if (event.sourceEvent) this.move();
      this.paint();
    });
    select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("dblclick", (event) => this.doubleClick(event));
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.colours = colours();
    this.resize();
    this.arrange();
  }

  buttons(place) {
    const button = (text, title, action) => element("button", { text, title, type: "button", onclick: action });
    this.note = element("span", { class: "note" });
    this.tools = element("div", { class: "tools" },
      button("fit", "Show everything (f)", () => this.fit()),
      button("open all", "Open all groups (e)", () => this.openAll()),
      button("close all", "Close all groups (c)", () => this.closeAll()),
      this.note);
    place.append(this.tools);
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
    this.scene = { items, boxes, links, itemOf: new Array(this.pass.count) };
    for (const item of items) if (item.node !== undefined) this.scene.itemOf[item.node] = item;
    this.byHeight = [...items].sort((a, b) => a.y - b.y);
    const isPlain = boxes.length > 0 && boxes.every((box) => !box.width);
    this.note.textContent = `${items.length} items${isPlain ? ", in plain layers: close groups for a better picture" : ""}`;
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
    fit(this.canvas, clientWidth, clientHeight);
    this.picture.resize(clientWidth, clientHeight);
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
    const look = { transform: this.transform, colours: this.colours, moving: this.moving };
    this.picture.show(this.scene, look, this.time, this.selected);
  }

  /** A hand moves the graph: until it rests, a picture need not be exact. */
  move() {
    this.moving = true;
    clearTimeout(this.rest);
    this.rest = setTimeout(() => {
      this.moving = false;
      this.paint();
    }, REST);
  }
}

const holds = (item, wanted) => item.group && wanted.node !== undefined && item.group.members.includes(wanted.node);

function within(item, key) {
  for (let box = item.box; box; box = box.box) if (box.group.key === key) return true;
  return false;
}

const countText = (count) => (count === 1 ? "1 node" : `${count} nodes`);
