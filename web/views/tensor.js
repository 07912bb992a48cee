// A tensor of a run: heat map with slice pickers, histogram, statistics of each channel, its way over the steps, export.
import {here, patch, windowOf, windowText} from "../base/address.js";
import {floatsOf, read, readBytes} from "../base/api.js";
import {afterPaint, button, el, facts, make, options} from "../base/dom.js";
import {num, sampleWords, short} from "../base/numbers.js";
import {barsFigure} from "../parts/bars.js";
import {paintCells} from "../parts/canvas.js";
import {copyText, failureCard, saveAs} from "../parts/failure.js";
import {lineChart} from "../parts/lines.js";
import {DTYPE, KEPT, MAX, MEAN, MIN, NAME, ODD, PASS, ROLE, SEQ, SHAPE, STD, STEP} from "../parts/run_rows.js";
import "../parts/heat.js";

const TYPES = {f32: "<f4", f64: "<f8", f16: "<f2", i8: "|i1", u8: "|u1", i16: "<i2", u16: "<u2", i32: "<i4", u32: "<u4", i64: "<i8", u64: "<u8", bool: "|b1"};

// A .npy file of values that lie packed.
export function npyParts(dtype, shape, bytes) {
  let head = `{'descr': '${TYPES[dtype]}', 'fortran_order': False, 'shape': (${shape.join(", ")}${shape.length === 1 ? "," : ""}), }`;
  head = head.padEnd(Math.ceil((head.length + 11) / 64) * 64 - 11) + "\n";
  const start = new Uint8Array(10 + head.length);
  start.set([0x93, 78, 85, 77, 80, 89, 1, 0, head.length & 255, head.length >> 8]), start.set(new TextEncoder().encode(head), 10);
  return [start, bytes];
}

export class TensorView {
  constructor(box, run) {
    this.box = box, this.run = run, this.picked = [];
    this.title = make("h2", "", "mono title"), this.chips = el("div", {class: "chips"}), this.pickers = el("div", {class: "filters", role: "group", "aria-label": "slice"});
    this.heat = el("ls-heat", {}), this.side = el("div", {}), this.over = el("div", {}), this.problem = el("div", {});
    box.append(this.title, this.chips, this.problem, this.pickers, this.heat, this.side, this.over);
    this.heat.addEventListener("moved", e => patch({window: windowText(e.detail)}));
    this.number = 0;
  }
  get row() { return this.run.rows[this.i]; }
  get question() { return {run: this.run.id, seq: this.row[SEQ], slice: this.slice}; }
  get slice() { return this.picked.every(p => p === "") ? "" : `[${this.picked.map(p => p === "" ? ":" : p).join(", ")}]`; }
  address(now) {
    const wanted = (now.params.slice || "").replace(/[[\]\s]/g, "").split(",").map(p => p === ":" ? "" : p);
    if (JSON.stringify(wanted.filter(p => p)) !== JSON.stringify(this.picked.filter(p => p))) this.setSlice(wanted);
  }
  setSlice(wanted) {
    this.picked = this.row[SHAPE].slice(0, -2).map((_, k) => wanted[k] ?? "");
    [...this.pickers.querySelectorAll("input")].forEach((input, k) => input.value = this.picked[k]);
    this.look();
  }
  show(i) {
    this.i = i;
    this.seen = this.seen || new Promise(afterPaint);  // the tensors are on the screen before the values of one are asked for
    const r = this.row, shape = r[SHAPE];
    this.title.textContent = (r[ROLE] === "input" ? "→ " : "") + r[NAME];
    const words = [r[ROLE], r[STEP] < 0 ? "" : `step ${r[STEP]}`, r[PASS], `${r[DTYPE]} ${shape.join(" × ") || "scalar"}`];
    this.chips.replaceChildren(...words.filter(w => w).map(w => make("span", w, "chip")), ...[["mean", MEAN], ["std", STD], ["min", MIN], ["max", MAX]].map(([name, column]) => el("span", {class: "chip"}, `${name} `, make("b", short(r[column])))),
      r[ODD] ? el("span", {class: "chip bad"}, `${r[ODD]} not finite`) : "");
    const now = here().params, wanted = (now.slice || "").replace(/[[\]\s]/g, "").split(",").map(p => p === ":" ? "" : p);
    this.picked = shape.slice(0, -2).map((_, k) => wanted[k] ?? "");
    // Of a picture's channels or a batch's items one is shown at first.
    this.pickers.replaceChildren(...shape.slice(0, -2).map((size, k) => el("label", {class: "dim"}, `axis ${k} `, el("input", {type: "number", min: 0, max: size - 1, placeholder: `all ${size}`, value: this.picked[k], "aria-label": `index along axis ${k}, of ${size}`, class: "pick",
      oninput: e => (this.picked[k] = e.target.value === "" ? "" : String(Math.max(0, Math.min(size - 1, Math.round(Number(e.target.value))))), this.look())}))));
    this.heat.hidden = this.pickers.hidden = !r[KEPT];
    this.problem.replaceChildren(...(r[KEPT] ? [] : [el("div", {class: "card"}, "Only the statistics of this tensor were kept. To see its values: ", make("code", `lockstep record --full '${r[NAME]}' -- …`))]));
    this.side.replaceChildren(), this.over.replaceChildren();
    if (r[KEPT]) this.look(windowOf(now.window));
    this.timeLine();
  }
  async look(window = {}) {
    const number = ++this.number, question = this.question;
    patch({slice: this.slice});
    await this.seen;
    if (number !== this.number) return;
    const heat = this.heat.show(async (part, cells, signal) => {
      const map = await readBytes("tensors/heat", {...question, ...part, height: cells, width: cells}, {signal});
      return {...map, cells: floatsOf(map, map.height * map.width)};
    }, window);
    try {
      const [, histogram] = await Promise.all([heat, read("tensors/histogram", question)]);
      if (number !== this.number) return;
      this.details(histogram);
    } catch (error) { if (number === this.number) this.problem.replaceChildren(failureCard(error, () => this.show(this.i))); }
  }
  details(histogram) {
    const shape = histogram.shape, axis = el("select", {"aria-label": "axis of the channels"}), chart = el("div", {});
    const channels = async () => {
      chart.classList.add("busy");
      try {
        const c = await read("tensors/channels", {...this.question, axis: axis.value}), bad = c.bad.reduce((a, b) => a + b, 0);
        const drawn = lineChart(c.indices, [{name: "mean", values: c.mean}, {name: "std", values: c.std, colour: "--cand"}], {band: [c.min, c.max], words: `mean and standard deviation of ${c.indices.length} channels`});
        chart.replaceChildren(drawn.canvas, el("figcaption", {}, make("b", "mean", "ref"), " and ", make("b", "standard deviation", "cand"), ` of each; shaded: smallest to largest${sampleWords(c)}${bad ? `; ${bad} not finite` : ""}`));
      } catch (error) { chart.replaceChildren(failureCard(error)); }
      chart.classList.remove("busy");
    };
    options(axis, null, shape.map((_, k) => k), k => `axis ${k}, ${shape[k]} channels`);
    axis.value = shape.length > 1 ? (shape.length === 4 ? 1 : shape.length - 1) : 0, axis.addEventListener("change", channels);
    const command = `lockstep tensors show ${this.run.answer?.path || this.run.id} '${this.row[NAME]}'${this.slice ? ` '${this.slice}'` : ""}`;
    const save = button("Download .npy", async () => {
      try {
        const exact = TYPES[this.row[DTYPE]] !== undefined, a = await readBytes("tensors/slice", {...this.question, as: exact ? "stored" : "f32"});
        saveAs(`${this.row[NAME].replace(/[^\w.-]+/g, "_").slice(0, 80)}.npy`, npyParts(a.dtype, a.shape, new Uint8Array(a.buffer, a.at)));
      } catch (error) { this.problem.replaceChildren(failureCard(error)); }
    });
    const copy = button("Copy as command", () => copyText(command, copy));
    this.side.replaceChildren(el("div", {class: "filters"}, save, copy), el("div", {class: "row"},
      histogram.counts.length ? barsFigure({...histogram, reference: histogram.counts}, "") : make("div", "no finite value", "dim"),
      shape.length ? el("figure", {class: "wide"}, el("div", {class: "filters"}, make("span", "Channels", "dim"), axis), chart) : ""));
    if (shape.length) channels();
  }
  // More of the run is there than when the tensor was shown.
  grew() {
    if (this.run.overSteps(this.i).length !== this.steps) this.timeLine();
  }
  // The same tensor at every step: its statistics as lines, and each of it small.
  timeLine() {
    const same = this.run.overSteps(this.i);
    this.steps = same.length;
    if (same.length < 2) return;
    const rows = same.map(k => this.run.rows[k]), steps = rows.map(r => r[STEP]);
    const chart = lineChart(steps, [{name: "mean", values: rows.map(r => num(r[MEAN]))}, {name: "std", values: rows.map(r => num(r[STD])), colour: "--cand"}],
      {band: [rows.map(r => num(r[MIN])), rows.map(r => num(r[MAX]))], chosen: same.indexOf(this.i), words: "statistics over the steps", onpick: k => this.run.choose(same[k], true)});
    const small = el("div", {class: "multiples"});
    this.over.replaceChildren(make("h2", "Over the steps"), chart.canvas, facts([]), small);
    const many = same.filter(k => this.run.rows[k][KEPT]), every = Math.max(1, Math.ceil(many.length / 48));
    many.filter((_, k) => k % every === 0).forEach(k => {
      const canvas = el("canvas", {}), r = this.run.rows[k], choose = button("", () => this.run.choose(k, true), {"aria-label": `step ${r[STEP]}`, "aria-pressed": String(k === this.i)});
      choose.append(canvas, make("span", `step ${r[STEP]}`, "dim")), small.append(choose);
      const number = this.number, question = this.question;
      this.seen.then(() => readBytes("tensors/heat", {...question, seq: r[SEQ], height: 48, width: 48})).then(m => number === this.number && paintCells(canvas, floatsOf(m, m.height * m.width), m.width, m.height, num(m.limit)), () => {});
    });
  }
}
