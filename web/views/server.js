// Server: what runs here: queue, metrics as small charts, models and what they hold of memory, what the machine offers.
import {linkTo} from "../base/address.js";
import {read, request} from "../base/api.js";
import {onEvent} from "../base/events.js";
import {afterPaint, el, facts, make} from "../base/dom.js";
import {viewKeys} from "../base/keys.js";
import {parseMetrics} from "../base/metrics.js";
import {bytesText, secsText} from "../base/numbers.js";
import {failureCard} from "../parts/failure.js";
import {lineChart} from "../parts/lines.js";
import {plainTable} from "../parts/table.js";

const KEPT = 120, EVERY_MS = 2000;

const countText = v => Number.isInteger(v) ? String(v) : v.toPrecision(4);
const unitOf = name => /_bytes(_|$)/.test(name) ? bytesText : /_seconds(_|$)/.test(name) ? secsText : countText;
const wordsOf = m => [m.name.replace(/^lockstep_/, "").replace(/_(total|seconds)\b/g, "").replace(/(_\w+)_bytes$/, "$1").replace(/_/g, " "), ...m.labels].join(": ");

export function open(box) {
  const view = new ServerView(box);
  return {address() {}, close: () => view.close(), again: () => view.load()};
}

class ServerView {
  constructor(box) {
    this.charts = new Map();
    const part = (title, ...children) => el("section", {"aria-label": title}, make("h2", title), ...children);
    this.health = el("div", {class: "chips"}), this.problem = el("div", {}), this.now = el("div", {class: "charts"}), this.times = el("div", {class: "charts"}), this.counted = el("div", {class: "chips"}), this.parts = el("div", {}), this.models = el("div", {}), this.queue = el("div", {}), this.doctor = el("div", {}, make("div", "looking …", "dim"));
    this.drawing = [part("Queue", this.queue), part("Models", this.models, this.parts), part("Times", this.times), part("Since the start", this.counted)];
    box.append(el("div", {class: "pad", tabindex: 0}, make("h1", "Server", "title"), this.health, this.problem, part("Now", this.now), ...this.drawing, part("Machine", this.doctor)));
    this.drawing.forEach(s => s.hidden = true);
    viewKeys([]);
    this.load(), this.timer = setInterval(() => document.hidden || this.measure(), EVERY_MS), this.stop = onEvent(e => e.name.startsWith("job.") && this.loadQueue());
  }
  close() { clearInterval(this.timer), this.stop(); }
  async load() {
    this.measure(), this.loadModels(), this.loadQueue();
    await new Promise(afterPaint);
    try {
      const d = await read("doctor"), has = Object.entries(d.cpu.features).filter(([, there]) => there).map(([name]) => name);
      this.doctor.replaceChildren(el("div", {class: "card"}, facts([["lockstep", d.version], ["compiler", d.compiler], ["CPU", `${d.cpu.model}, ${d.cpu.cores} cores`], ["features", has.join(" ")],
        ["memory", `${bytesText(d.memory.total_bytes)}, ${bytesText(d.memory.available_bytes)} available`], ["CUDA", d.cuda.usable ? d.cuda.devices.map(v => v.name).join(", ") : `not usable: ${d.cuda.why}`], ["MLX", d.mlx.usable ? `${d.mlx.version}${d.mlx.gpu ? ` on ${d.mlx.device}` : ", its CPU form"}` : `not usable: ${d.mlx.why}`],
        ["python", d.python ? `${d.python.version} (${d.python.path})` : "not found"], ...Object.entries(d.libraries)], "mono")));
    } catch (error) { this.doctor.replaceChildren(failureCard(error)); }
  }
  async measure() {
    try {
      const h = await read("health");
      this.health.replaceChildren(...[`version ${h.version}`, `home ${h.home}`].map(w => make("span", w, "chip")));
      this.point(this.now, "live sessions", h.live_sessions, countText, "Programs in the debugger."), this.point(this.now, "long calls", h.long_calls, countText, "Operations under way that take their time.");
      this.problem.replaceChildren();
    } catch (error) { return this.problem.replaceChildren(failureCard(error, () => this.load())); }
    try { this.showMetrics(parseMetrics(await (await request("/metrics")).text())); } catch { /* a service that does not draw has none */ }
  }
  showMetrics(metrics) {
    const counted = [], parts = [];
    for (const m of metrics) {
      if (m.kind === "histogram") m.count && this.point(this.times, wordsOf(m), m.sum / m.count, unitOf(m.name), m.help, `mean of ${m.count}`);
      else if (m.kind === "counter") counted.push(el("span", {class: "chip", title: m.help}, `${wordsOf(m)} `, make("b", unitOf(m.name)(m.value))));
      else if (m.name === "lockstep_model_part_bytes") parts.push({cells: [m.labels.join(" "), bytesText(m.value)]});
      else this.point(this.now, wordsOf(m), m.value, unitOf(m.name), m.help);
    }
    this.counted.replaceChildren(...counted);
    this.parts.replaceChildren(...(parts.length ? [make("h3", "In memory"), plainTable(["part", "#size"], parts, "fits")] : [make("div", "Nothing is loaded; a model is when it is first asked for.", "dim")]));
    this.drawing.forEach(s => s.hidden = false);
  }
  point(box, name, value, unit, help, note) {
    if (!this.charts.has(name)) {
      const shown = make("span", "", "value"), beside = make("span", "", "dim"), chart = lineChart([], [], {axis: false, words: `${name} over the last minutes`});
      this.charts.set(name, {shown, beside, chart, past: []}), box.append(el("div", {class: "card", title: help}, make("div", name, "dim"), el("div", {class: "values"}, shown, beside), chart.canvas));
    }
    const {shown, beside, chart, past} = this.charts.get(name);
    past.push(value);
    if (past.length > KEPT) past.shift();
    shown.textContent = unit(value), beside.textContent = note || "";
    chart.set(past.map((_, k) => `${(k - past.length + 1) * EVERY_MS / 1000} s`), [{name, values: past}]);
  }
  async loadModels() {
    try {
      const list = (await read("models")).data;
      this.models.replaceChildren(list.length ? plainTable(["model", "class", "does", "size", "#steps", "#guidance"], list.map(m => ({cells: [m.id, m.class || "", m.type || "", m.size || "", String(m.steps ?? ""), String(m.guidance ?? "")]}))) : make("div", "none", "dim"));
    } catch { this.models.replaceChildren(); }
  }
  async loadQueue() {
    try {
      const jobs = ((await read("jobs")).data || []).filter(j => j.status === "queued" || j.status === "running");
      this.queue.replaceChildren(jobs.length ? plainTable(["job", "state", "model", "device", "prompt"], jobs.slice(0, 50).map(j => ({cells: [el("a", {href: linkTo("draw", "", {job: j.id})}, j.id), j.status, j.model || "", j.device || "", j.prompt || ""]}))) : make("div", "nothing waits", "dim"));
    } catch { this.queue.replaceChildren(); }
  }
}
