// Server: what runs here: models, queue, memory and metrics as small charts, versions, what the machine offers.
import {linkTo} from "../base/address.js";
import {read, request} from "../base/api.js";
import {onEvent} from "../base/events.js";
import {button, el, facts, make} from "../base/dom.js";
import {viewKeys} from "../base/keys.js";
import {bytesText, secsText} from "../base/numbers.js";
import {failureCard} from "../parts/failure.js";
import {lineChart} from "../parts/lines.js";
import {plainTable} from "../parts/table.js";

const KEPT = 120, EVERY_MS = 2000;

// Prometheus text as a map of name and labels to numbers.
export function parseMetrics(text) {
  const out = new Map();
  for (const line of text.split("\n")) {
    const found = line.match(/^([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)/);
    if (found && !line.startsWith("#")) out.set(found[1] + (found[2] || ""), found[3] === "+Inf" ? Infinity : Number(found[3]));
  }
  return out;
}

const unitOf = name => /bytes/.test(name) ? bytesText : /seconds|secs/.test(name) ? secsText : v => Number.isInteger(v) ? String(v) : v.toPrecision(4);
const wordsOf = name => name.replace(/^lockstep_/, "").replace(/_total\b/, "").replace(/_/g, " ").replace(/\{(.*)\}/, (_, l) => ` (${l.replace(/\w+="([^"]*)"/g, "$1")})`);

export function open(box) {
  const view = new ServerView(box);
  return {address() {}, close: () => view.close(), again: () => view.load()};
}

class ServerView {
  constructor(box) {
    this.history = new Map(), this.charts = new Map();
    this.health = el("div", {class: "chips"}), this.chartBox = el("div", {class: "charts"}), this.models = el("div", {}), this.queue = el("div", {}), this.doctor = el("div", {}), this.problem = el("div", {});
    box.append(el("div", {class: "pad"}, make("h1", "Server", "title"), this.health, this.problem, this.chartBox, this.models, this.queue, make("h2", "Machine"), this.doctor));
    viewKeys([]);
    this.load(), this.timer = setInterval(() => document.hidden || this.measure(), EVERY_MS), this.stop = onEvent(e => e.name.startsWith("job.") && this.loadQueue());
  }
  close() { clearInterval(this.timer), this.stop(); }
  async load() {
    this.measure(), this.loadModels(), this.loadQueue();
    try {
      const d = await read("doctor"), has = Object.entries(d.cpu.features).filter(([, there]) => there).map(([name]) => name);
      this.doctor.replaceChildren(el("div", {class: "card"}, facts([["lockstep", d.version], ["compiler", d.compiler], ["CPU", `${d.cpu.model}, ${d.cpu.cores} cores`], ["features", has.join(" ")],
        ["memory", `${bytesText(d.memory.total_bytes)}, ${bytesText(d.memory.available_bytes)} available`], ["CUDA", d.cuda.usable ? d.cuda.devices.map(v => v.name).join(", ") : `not usable: ${d.cuda.why}`],
        ["python", d.python ? `${d.python.version} (${d.python.path})` : "not found"], ...Object.entries(d.libraries)], "mono")));
    } catch (error) { this.doctor.replaceChildren(failureCard(error)); }
  }
  async measure() {
    try {
      const h = await read("health");
      this.health.replaceChildren(...[`version ${h.version}`, `home ${h.home}`, `${h.live_sessions} live sessions`, `${h.long_calls} long calls`].map(w => make("span", w, "chip")));
      this.point("live sessions", h.live_sessions), this.point("long calls", h.long_calls);
      this.problem.replaceChildren();
    } catch (error) { return this.problem.replaceChildren(failureCard(error, () => this.load())); }
    try {
      const metrics = parseMetrics(await (await request("/metrics")).text());
      for (const [name, value] of metrics) if (!/_bucket|_created/.test(name) && isFinite(value)) this.point(name, value);
    } catch { /* a service that does not draw has none */ }
  }
  point(name, value) {
    if (!this.history.has(name)) {
      if (this.history.size >= 40) return;
      this.history.set(name, []);
      const shown = make("div", "", "value"), chart = lineChart([], [], {axis: false, words: wordsOf(name)});
      this.charts.set(name, {shown, chart}), this.chartBox.append(el("div", {class: "card"}, make("div", wordsOf(name), "dim"), shown, chart.canvas));
    }
    const past = this.history.get(name), {shown, chart} = this.charts.get(name);
    past.push(value);
    if (past.length > KEPT) past.shift();
    shown.textContent = unitOf(name)(value), chart.set(past.map((_, k) => `${(k - past.length + 1) * EVERY_MS / 1000} s`), [{name: wordsOf(name), values: past}]);
  }
  async loadModels() {
    try {
      const list = (await read("models")).data;
      this.models.replaceChildren(make("h2", "Models"), plainTable(["model", "class", "does", "size", "#steps", "#guidance"], list.map(m => ({cells: [m.id, m.class || "", m.type || "", m.size || "", String(m.steps ?? ""), String(m.guidance ?? "")]}))));
    } catch { this.models.replaceChildren(); }
  }
  async loadQueue() {
    try {
      const jobs = (await read("jobs")).data || [];
      this.queue.replaceChildren(make("h2", "Queue"), jobs.length ? plainTable(["job", "state", "model", "prompt"], jobs.slice(0, 50).map(j => ({cells: [el("a", {href: linkTo("draw", "", {job: j.id})}, j.id), j.status || j.state, j.model || "", j.prompt || ""]}))) : make("div", "nothing waits", "dim"));
    } catch { this.queue.replaceChildren(); }
  }
}
export const reload = run => button("Reload", run);
