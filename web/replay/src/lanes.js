// One lane for each thread: when it ran which node.
import { canvasIn, colours, fit } from "./dom.js";
import { above } from "./pass.js";

const LANE = 22;
const LEFT = 110;

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
    this.paint();
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
    const { context, pass, colours: colour } = this;
    context.fillStyle = colour.paper;
    context.fillRect(0, 0, this.width, this.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.lanes.forEach((lane, k) => {
      const top = k * LANE + 2;
      context.fillStyle = colour.faint;
      context.textAlign = "left";
      context.fillText(lane.name, 8, top + LANE / 2, LEFT - 14);
      for (const piece of lane.pieces) this.drawPiece(piece, top);
      if (this.marked !== undefined && pass.value("thread", this.marked) === k) this.drawMarked(top);
    });
    context.fillStyle = colour.accent;
    context.fillRect(this.xOf(this.time) - 1, 0, 2, this.height);
  }

  drawPiece({ node, left, right }, top) {
    const { context, pass, colours: colour } = this;
    context.fillStyle = pass.isBad(node) ? colour.bad : colour[pass.state(node, this.time)];
    context.fillRect(left, top, right - left, LANE - 4);
    if (right - left > 40 && context.measureText(pass.title(node)).width < right - left - 8) {
      context.fillStyle = colour.ink;
      context.fillText(pass.title(node), left + 4, top + LANE / 2 - 2);
    }
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
