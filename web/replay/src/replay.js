// The slider, and the clock behind it.
import { element } from "./dom.js";

const SECONDS = 8; // that a whole pass takes at speed 1

export class Replay {
  constructor(place, pass, onTime) {
    this.pass = pass;
    this.onTime = onTime;
    this.time = pass.duration;
    this.playing = false;
    this.button = element("button", { type: "button", text: "▶", title: "Play (space)", label: "Play", onclick: () => this.toggle() });
    this.back = element("button", { type: "button", text: "‹", title: "One node back (,)", label: "One node back", onclick: () => this.stepNode(-1) });
    this.forth = element("button", { type: "button", text: "›", title: "One node on (.)", label: "One node on", onclick: () => this.stepNode(1) });
    this.slider = element("input", { type: "range", min: 0, max: 1000000, step: 1, label: "Time in the pass" });
    this.slider.oninput = () => this.seek((this.slider.value / 1e6) * pass.duration);
    this.speed = element("select", { label: "Speed" });
    for (const speed of [0.25, 0.5, 1, 2, 4]) {
      this.speed.append(element("option", { value: speed, text: `${speed}×`, ...(speed === 1 ? { selected: "" } : {}) }));
    }
    place.append(this.back, this.button, this.forth, this.slider, this.speed);
  }

  seek(time) {
    this.time = Math.min(Math.max(time, 0), this.pass.duration);
    this.slider.value = this.pass.duration ? Math.round((this.time / this.pass.duration) * 1e6) : 0;
    if (!this.playing) this.say();
    this.onTime(this.time);
  }

  say() {
    this.slider.setAttribute("aria-valuetext", this.pass.timeText(this.time));
  }

  toggle() {
    if (this.playing) this.stop();
    else this.play();
  }

  play() {
    if (this.time >= this.pass.duration) this.seek(0);
    this.playing = true;
    this.button.textContent = "⏸";
    this.button.setAttribute("aria-label", "Pause");
    let before = performance.now();
    const frame = (now) => {
      if (!this.playing) return;
      const step = ((now - before) / 1000 / SECONDS) * this.pass.duration * this.speed.value;
      before = now;
      this.seek(this.time + Math.max(0, step));
      if (this.time >= this.pass.duration) this.stop();
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  stop() {
    this.playing = false;
    this.say();
    this.button.textContent = "▶";
    this.button.setAttribute("aria-label", "Play");
  }

  /** To where the next node, or the one before, begins. */
  stepNode(direction) {
    this.stop();
    const { order, begin } = this.pass;
    let low = 0;
    let high = order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (direction > 0 ? begin[order[middle]] <= this.time : begin[order[middle]] < this.time) low = middle + 1;
      else high = middle;
    }
    const place = direction > 0 ? low : low - 1;
    this.seek(place < 0 ? 0 : place >= order.length ? this.pass.duration : begin[order[place]]);
  }
}
