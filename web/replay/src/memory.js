// The curve of memory: saved tensors, which the pass gives back, and gradients.
import uPlot from "uplot";
import { colours, element } from "./dom.js";

const HEIGHT = 110;
const MOST = 4000; // points that are drawn

export class Memory {
  constructor(place, pass, onSeek) {
    this.place = place;
    this.pass = pass;
    this.onSeek = onSeek;
    this.data = curve(pass);
    this.time = pass.duration;
    this.line = element("div", { class: "time" });
    this.make();
  }

  make(forPrint = false) {
    this.plot?.destroy();
    const colour = colours(forPrint);
    const axis = { stroke: colour.faint, grid: { stroke: colour.line, width: 0.5 }, ticks: { stroke: colour.line } };
    this.plot = new uPlot({
      width: Math.max(120, this.place.clientWidth),
      height: HEIGHT,
      scales: { x: { time: false, range: () => [0, this.pass.duration || 1] }, y: { range: (_, low, high) => [0, high > 0 ? 1.08 * high : 1] } },
      padding: [8, 10, 0, 0], // so that times are where the lanes have them
      legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      axes: [
        { ...axis, size: 26, space: 80, values: (_, ticks) => ticks.map((tick) => this.textAt(tick)) },
        { ...axis, size: 110, values: (_, ticks) => ticks.map(sizeText) },
      ],
      series: [{}, { label: "memory", stroke: colour.accent, fill: colour.group, width: 1.5, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) }],
      hooks: { draw: [() => this.at(this.time)] }, // before it is drawn, no time has a place
    }, this.data, this.place);
    this.plot.over.addEventListener("click", () => this.onSeek(this.plot.posToVal(this.plot.cursor.left, "x")));
    this.plot.over.append(this.line);
  }

  /** An element is moved, so that the curve need not be drawn again. */
  at(time) {
    this.time = time;
    this.line.style.transform = `translateX(${this.plot.valToPos(time, "x")}px)`;
  }

  /** What stands below a time: nothing where it would be cut off at the right. */
  textAt(time) {
    const left = (1 - time / (this.pass.duration || 1)) * (this.place.clientWidth - 120);
    return left < 20 ? "" : this.pass.timeText(time);
  }

  resize() {
    this.plot.setSize({ width: Math.max(120, this.place.clientWidth), height: HEIGHT });
  }

  repaint(forPrint) {
    this.make(forPrint);
  }
}

function curve(pass) {
  const points = pass.recorded.memory;
  const step = Math.ceil(points.length / MOST) || 1;
  const times = [];
  const sizes = [];
  for (let k = 0; k < points.length; k += step) {
    let most = points[k][1];
    for (let i = k; i < Math.min(k + step, points.length); i++) most = Math.max(most, points[i][1]);
    const time = Math.max(0, points[k][0]);
    if (times.length && times[times.length - 1] === time) sizes[sizes.length - 1] = most;
    else {
      times.push(time);
      sizes.push(most);
    }
  }
  if (times.length && times[times.length - 1] < pass.duration) {
    times.push(pass.duration);
    sizes.push(points[points.length - 1][1]);
  }
  return [times, sizes];
}

export function sizeText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit < 4) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
}
