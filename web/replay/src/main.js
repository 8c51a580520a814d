// The page: reads the recording, makes the parts and lets them speak with each other.
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { Pass } from "./pass.js";
import { Graph } from "./graph.js";
import { Replay } from "./replay.js";
import { Lanes } from "./lanes.js";
import { Memory } from "./memory.js";
import { Details } from "./details.js";
import { listenToKeys } from "./keys.js";
import { element } from "./dom.js";

const recording = JSON.parse(document.getElementById("recording").textContent);

class Page {
  constructor(recording) {
    this.recording = recording;
    this.build();
    this.show(0);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    addEventListener("resize", () => this.resize());
    addEventListener("beforeprint", () => this.repaint(true));
    addEventListener("afterprint", () => this.repaint());
    listenToKeys(this);
  }

  build() {
    const { recording } = this;
    this.title = element("h1", { text: recording.title });
    this.passes = element("select", { label: "Backward pass" });
    recording.passes.forEach((each, k) =>
      this.passes.append(element("option", { value: k, text: `pass ${k + 1}: ${each.nodes.title.length} nodes` })));
    this.passes.hidden = recording.passes.length < 2;
    this.passes.onchange = () => this.show(+this.passes.value);
    this.search = element("input", { type: "search", label: "Find a node", placeholder: "find (press /)" });
    this.search.oninput = () => this.graph.find(this.search.value);
    this.controls = element("div", { class: "controls" });
    this.status = element("output", { class: "status", live: "polite" });
    this.header = element("header", {}, this.title, this.passes, this.controls, this.status);
    this.graphPlace = element("div", { class: "graph" });
    this.detailsPlace = element("aside", { class: "details", label: "What is selected" });
    this.lanesPlace = element("div", { class: "lanes" });
    this.memoryPlace = element("div", { class: "memory" });
    const middle = element("main", {}, this.graphPlace, this.detailsPlace);
    document.body.append(this.header, middle, this.lanesPlace, this.memoryPlace);
  }

  show(number) {
    if (!this.recording.passes.length) {
      this.graphPlace.append(element("p", { class: "empty", text: "No backward pass was run while this was watched." }));
      return;
    }
    this.replay?.stop();
    for (const place of [this.graphPlace, this.detailsPlace, this.lanesPlace, this.memoryPlace, this.controls]) {
      place.replaceChildren();
    }
    const pass = (this.pass = new Pass(this.recording.passes[number]));
    this.details = new Details(this.detailsPlace, pass, (id) => this.select(id));
    this.graph = new Graph(this.graphPlace, pass, (item) => this.selected(item));
    this.graph.tools.append(this.search);
    this.lanes = new Lanes(this.lanesPlace, pass, (time) => this.replay.seek(time), (id) => this.select(id));
    this.memory = new Memory(this.memoryPlace, pass, (time) => this.replay.seek(time));
    this.replay = new Replay(this.controls, pass, (time) => this.at(time));
    this.replay.seek(pass.duration);
    this.details.overview();
    this.graph.resize(); // to what the others have left
    this.graph.fit(0.8);
  }

  at(time) {
    this.graph.at(time);
    this.lanes.at(time);
    this.memory.at(time);
    this.say(time);
  }

  /** In words; while it plays no more often than one can read. */
  say(time) {
    const now = performance.now();
    if (this.replay.playing && now - this.said < 100 && time < this.pass.duration) return;
    this.said = now;
    const counts = this.pass.counts(time);
    this.status.textContent =
      `${this.pass.timeText(time)}: ${counts.done} done, ${counts.running} running, ${counts.ready} ready, ` +
      `${counts.pending} pending`;
  }

  select(id) {
    this.graph.reveal(id);
  }

  selected(item) {
    this.lanes.mark(item && item.node);
    if (!item) this.details.overview();
    else if (item.group) this.details.group(item.group);
    else this.details.node(item.node);
  }

  resize() {
    this.graph?.resize();
    this.lanes?.resize();
    this.memory?.resize();
  }

  repaint(forPrint = false) {
    this.graph?.repaint(forPrint);
    this.lanes?.repaint(forPrint);
    this.memory?.repaint(forPrint);
  }
}

window.page = new Page(recording);
