// One lane for each thread: when it ran which node.
import { canvasIn, colours, element, fit } from "./dom.js";
import { above } from "./pass.js";

const LANE = 22;
const LEFT = 110;
const FONT = "11px system-ui, sans-serif";

export class Lanes {
  constructor(place, pass, onSeek, onSelect) {
    this.place = place;
    this.pass = pass;
    this.onSeek = onSeek;
    this.onSelect = onSelect;
    this.time = pass.duration;
    this.lanes = pass.threads.map((name) => ({ name, nodes: [] }));
    for (const node of pass.order) this.lanes[pass.value("thread", node)]?.nodes.push(node);
    for (const lane of this.lanes) lane.begin = Float64Array.from(lane.nodes, (node) => pass.begin[node]);
    this.canvas = canvasIn(place, "When each thread ran which node");
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.colours = colours();
    this.resize();
  }

  resize() {
    this.width = this.place.clientWidth;
    this.height = this.lanes.length * LANE + 4;
    this.context = fit(this.canvas, this.width, this.height).context;
    for (const lane of this.lanes) lane.pieces = this.pieces(lane);
    this.drawLayers();
    this.paint();
  }

  /** The lanes before anything has run and after everything has: a frame shows the one up to its time, then the other. */
  drawLayers() {
    const layer = (state) => {
      const canvas = element("canvas");
      const { context } = fit(canvas, this.width, this.height);
      this.drawLanes(context, (node) => (this.pass.isBad(node) ? "bad" : state));
      return canvas;
    };
    this.after = layer("done");
    this.before = layer("pending");
  }

  /** What of a lane can be seen: pieces narrower than a pixel share one, so that few are drawn in each frame. */
  pieces(lane) {
    const { pass } = this;
    const found = [];
    let drawn = -1; // where the last piece ended
    for (const node of lane.nodes) {
      const left = this.xOf(pass.begin[node]);
      const right = Math.max(left + 1, this.xOf(Math.min(pass.end[node], pass.duration)));
      if (right - drawn < 0.7 && !pass.isBad(node)) continue;
      drawn = right;
      found.push({ node, left, right });
    }
    return found;
  }

  repaint(forPrint) {
    this.colours = colours(forPrint);
    this.drawLayers();
    this.paint();
  }

  at(time) {
    this.time = time;
    this.paint();
  }

  mark(node) {
    this.marked = node;
    this.paint();
  }

  xOf(time) {
    return LEFT + ((this.width - LEFT - 10) * time) / (this.pass.duration || 1);
  }

  click(event) {
    const time = ((event.offsetX - LEFT) / (this.width - LEFT - 10)) * this.pass.duration;
    if (time < 0) return;
    const lane = this.lanes[Math.floor(event.offsetY / LANE)];
    const place = lane ? above(lane.begin, time) - 1 : -1;
    this.onSeek(time);
    if (place >= 0) this.onSelect(lane.nodes[place]);
  }

  paint() {
    this.asked ??= requestAnimationFrame(() => {
      this.asked = undefined;
      this.draw();
    });
  }

  draw() {
    const { context, pass, colours: colour, time } = this;
    const { width, height } = this.canvas;
    const x = this.xOf(time);
    const cut = Math.round((x * width) / Math.max(1, this.width));
    context.drawImage(this.before, 0, 0, this.width, this.height);
    if (cut > 0) context.drawImage(this.after, 0, 0, cut, height, 0, 0, (cut * this.width) / width, this.height);
    this.lanes.forEach((lane, k) => {
      const top = k * LANE + 2;
      for (const piece of lane.pieces) this.drawBetween(piece, top);
      if (this.marked !== undefined && pass.value("thread", this.marked) === k) this.drawMarked(top);
    });
    context.fillStyle = colour.accent;
    context.fillRect(x - 1, 0, 2, this.height);
  }

  /** What has become ready or is running has the colour of neither layer. */
  drawBetween(piece, top) {
    const state = this.pass.state(piece.node, this.time);
    if ((state === "ready" || state === "running") && !this.pass.isBad(piece.node)) this.drawPiece(this.context, piece, top, state);
  }

  drawLanes(context, colourOf) {
    const { colours: colour } = this;
    context.fillStyle = colour.paper;
    context.fillRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = "middle";
    context.textAlign = "left";
    this.lanes.forEach((lane, k) => {
      const top = k * LANE + 2;
      context.fillStyle = colour.faint;
      context.fillText(lane.name, 8, top + LANE / 2, LEFT - 14);
      for (const piece of lane.pieces) this.drawPiece(context, piece, top, colourOf(piece.node));
    });
  }

  drawPiece(context, { node, left, right }, top, name) {
    context.fillStyle = this.colours[name];
    context.fillRect(left, top, right - left, LANE - 4);
    if (right - left <= 40) return;
    context.font = FONT;
    context.textBaseline = "middle";
    const title = this.pass.title(node);
    if (context.measureText(title).width >= right - left - 8) return;
    context.fillStyle = this.colours.ink;
    context.fillText(title, left + 4, top + LANE / 2 - 2);
  }

  drawMarked(top) {
    const { pass } = this;
    const left = this.xOf(pass.begin[this.marked]);
    const right = this.xOf(Math.min(pass.end[this.marked], pass.duration));
    if (!(left <= this.width)) return; // it did not run
    this.context.fillStyle = this.colours.accent;
    this.context.fillRect(left, top, Math.max(2, right - left), LANE - 4);
  }
}
