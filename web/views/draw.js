// Draw: what is wanted, what is being drawn, and what was drawn. Jobs live in the service, so a reload loses nothing.
import {patch} from "../base/address.js";
import {read, write} from "../base/api.js";
import {afterPaint, button, el, make, options} from "../base/dom.js";
import {onEvent} from "../base/events.js";
import {viewKeys} from "../base/keys.js";
import {secsText} from "../base/numbers.js";
import {failureCard} from "../parts/failure.js";
import {Gallery, pictureAddress} from "./draw_gallery.js";
import {InputPictures} from "./draw_inputs.js";

const DRAFT = "lockstep-draw";

export function open(box, address) {
  const view = new DrawView(box, address);
  return {address: now => view.address(now), close: () => view.close(), again: () => view.load()};
}

class DrawView {
  constructor(box, address) {
    this.jobs = new Map(), this.models = [], this.problem = el("div", {}), this.draft = JSON.parse(sessionStorage.getItem(DRAFT) || "{}");
    this.wanted = address.params.job;
    const draft = this.draft;
    const field = (name, words, input) => (this.fields[name] = input, input.name = name, el("label", {class: "field"}, words, input));
    this.fields = {};
    const number = (value, more) => el("input", {type: "number", value: value ?? "", ...more});
    const form = el("form", {class: "draw-form", onsubmit: e => (e.preventDefault(), this.submit())}, make("h1", "Draw", "title"),
      field("prompt", "Prompt", el("textarea", {rows: 3, required: true, maxlength: 32000, placeholder: "three green stars", value: draft.prompt || ""})),
      field("negative_prompt", "Negative prompt", el("textarea", {rows: 1, maxlength: 32000, value: draft.negative_prompt || ""})),
      el("div", {class: "draw-grid"}, field("model", "Model", el("select", {})), field("size", "Size", el("input", {list: "sizes", value: draft.size || "auto", pattern: "auto|\\d+x\\d+", title: "auto, or WIDTHxHEIGHT"})), field("steps", "Steps", number(draft.steps, {min: 1, max: 1000, placeholder: "model's"})),
        field("guidance", "Guidance", number(draft.guidance, {min: 0, max: 100, step: "any", placeholder: "model's"})), field("seed", "Seed", number(draft.seed, {min: 0, placeholder: "random"})), field("n", "Pictures", number(draft.n || 1, {min: 1, max: 10})),
        field("output_format", "Format", options(el("select", {}), null, ["png", "jpeg", "webp"])), field("device", "Device", el("select", {}))),
      el("datalist", {id: "sizes"}, ...["auto", "128x128", "192x128", "256x256", "512x512", "1024x1024", "1328x1328"].map(v => el("option", {value: v}))));
    this.inputs = new InputPictures(() => (this.fitModel(), this.keep()));
    this.fields.model.addEventListener("change", () => this.showDefaults());
    this.go = el("button", {class: "primary", type: "submit"}, "Draw ", make("kbd", "Ctrl Enter"));
    form.append(this.inputs.box, el("div", {class: "filters"}, this.go), this.problem);
    form.addEventListener("input", () => this.keep());
    form.addEventListener("keydown", e => e.key === "Enter" && (e.ctrlKey || e.metaKey) && (e.preventDefault(), form.requestSubmit()));
    this.live = el("div", {class: "live"}), this.queue = el("div", {}), this.gallery = new Gallery(this);
    box.append(el("div", {class: "columns draw"}, el("div", {class: "left"}, form), el("div", {class: "right"}, this.live, this.queue, this.gallery.box)));
    viewKeys([{keys: "p", words: "prompt", run: () => this.fields.prompt.focus()}, {keys: "j", words: "next picture", run: () => this.gallery.move(1)}, {keys: "k", words: "previous picture", run: () => this.gallery.move(-1)}, {keys: "a", words: "draw it again", run: () => this.gallery.act("again")}, {keys: "v", words: "vary it", run: () => this.gallery.act("vary")}]);
    this.offerDevices();
    afterPaint(() => read("doctor").then(d => this.offerDevices(d.devices), () => {}));
    this.stop = onEvent(e => this.event(e)), this.load();
  }
  close() { this.stop(); }
  // What the server has chosen, and every device that it can use. Until it has told, what was chosen before stays.
  offerDevices(usable) {
    const chosen = this.fields.device.value || this.draft.device || "auto", names = {auto: "the server's own"};
    for (const {name, words} of usable || [{name: "cpu", words: "CPU"}, ...(chosen in {auto: 1, cpu: 1} ? [] : [{name: chosen, words: chosen}])]) names[name] = words;
    options(this.fields.device, null, Object.keys(names), name => names[name]), this.fields.device.value = chosen in names ? chosen : "auto";
  }
  address(now) { this.gallery.choose(now.params.picture), this.showLive(now.params.job); }
  keep() {
    const draft = Object.fromEntries(Object.entries(this.fields).map(([name, input]) => [name, input.value]));
    sessionStorage.setItem(DRAFT, JSON.stringify(draft));
  }
  async load() {
    try {
      const [models, jobs] = await Promise.all([read("models"), read("jobs", {limit: 200})]);
      this.models = models.data, options(this.fields.model, null, this.models.map(m => m.id));
      if (this.draft.model && this.models.some(m => m.id === this.draft.model)) this.fields.model.value = this.draft.model;
      this.showDefaults();
      this.jobs = new Map((jobs.data || jobs.jobs || []).map(j => [j.id, j]));
      this.problem.replaceChildren(), this.drawAll();
      this.showLive(this.wanted || [...this.jobs.values()].find(j => j.status === "running")?.id);
    } catch (error) {
      this.problem.replaceChildren(error.status === 404 ? el("div", {class: "card"}, "This service does not draw.") : failureCard(error, () => this.load()));
    }
  }
  drawAll() {
    const all = [...this.jobs.values()], open = all.filter(j => j.status === "queued" || j.status === "running");
    this.queue.replaceChildren(...(open.length ? [make("h2", "Queue")] : []), ...open.map(j => el("div", {class: "queued", "data-job": j.id}, el("span", {class: `dot ${j.status === "running" ? "" : "wait"}`}), make("span", j.status === "running" ? "drawing" : j.position ? `place ${j.position}` : "waits", "dim"),
      button(j.prompt || j.id, () => this.showLive(j.id), {class: "quiet words"}), make("span", j.eta_s === undefined ? "" : secsText(j.eta_s), "dim"), button("Cancel", () => this.cancel(j.id)))));
    this.gallery.show(all);
  }
  values() {
    const body = {prompt: this.fields.prompt.value};
    for (const name of ["negative_prompt", "model", "size", "output_format", "device"]) if (this.fields[name].value.trim()) body[name] = this.fields[name].value.trim();
    for (const name of ["steps", "guidance", "seed", "n"]) if (this.fields[name].value !== "") body[name] = Number(this.fields[name].value);
    const type = this.model?.type;
    return {...body, ...(type ? {type} : {}), ...this.inputs.values()};
  }
  get model() { return this.models.find(m => m.id === this.fields.model.value); }
  // Pictures want a model that edits; without them it is one that draws.
  fitModel() {
    const wanted = this.inputs.list.length ? "edit" : "generate", fitting = this.models.find(m => m.type === wanted);
    if (this.model?.type !== wanted && fitting) this.fields.model.value = fitting.id, this.showDefaults();
  }
  showDefaults() {
    const m = this.model || {};
    this.fields.steps.placeholder = m.steps ?? "model's", this.fields.guidance.placeholder = m.guidance ?? "model's", this.fields.size.placeholder = m.size || "auto";
  }
  async submit(body = this.values()) {
    this.go.disabled = true, this.problem.replaceChildren();
    try {
      const job = await write("jobs", body);
      this.update(job), this.showLive(job.id);
    } catch (error) {
      this.problem.replaceChildren(failureCard(error));
      this.fields[error.param]?.focus();
    }
    this.go.disabled = false;
  }
  async cancel(id) {
    try { this.update(await write(`jobs/${id}/cancel`)); } catch (error) { this.problem.replaceChildren(failureCard(error)); }
  }
  // The newest is in front.
  update(job) {
    if (this.jobs.has(job.id)) this.jobs.set(job.id, {...this.jobs.get(job.id), ...job});
    else this.jobs = new Map([[job.id, job], ...this.jobs]);
    this.drawAll();
    if (job.id === this.shown) this.showLive(job.id);
  }
  // Sets the form to what a picture was drawn with.
  use(job, seed) {
    for (const name of ["prompt", "negative_prompt", "model", "size", "steps", "guidance", "output_format", "device"]) if (job[name] !== undefined) this.fields[name].value = job[name];
    this.fields.seed.value = seed ?? "", this.fields.n.value = 1, this.keep();
  }
  showLive(id) {
    const job = this.jobs.get(id);
    this.shown = job ? id : undefined, patch({job: job ? id : ""});
    if (!job) return this.live.replaceChildren();
    if (this.liveJob !== id) {
      this.liveJob = id, this.picture = el("img", {class: "preview", alt: `preview of ${job.prompt}`, hidden: true}), this.meter = el("progress", {max: 1, value: 0, "aria-label": "progress"}), this.words = make("div", "", "dim"), this.note = el("div", {});
      this.live.replaceChildren(el("div", {class: "card live-card"}, this.picture, el("div", {class: "live-words"}, make("div", job.prompt), this.meter, this.words, el("div", {class: "filters"}, this.stopper = button("Cancel", () => this.cancel(id)), button("Close", () => this.showLive())), this.note)));
    }
    this.progress(job);
    if (job.status === "completed" && job.images?.length) pictureAddress(job.images[0].id).then(address => this.liveJob === id && (this.picture.src = address, this.picture.hidden = false), () => {});
  }
  progress(job) {
    const p = job.progress || {}, done = job.status === "completed", ended = done || job.status === "failed" || job.status === "cancelled";
    this.meter.value = done ? 1 : p.steps ? p.step / p.steps : 0, this.meter.hidden = ended && !done, this.stopper.hidden = ended;
    this.words.textContent = done ? `drawn in ${secsText(job.timings?.total_s ?? NaN)}` : job.status === "queued" ? `waits${job.position ? ` at place ${job.position}` : ""}` : ended ? job.status : `${p.stage || "begins"}${p.steps ? `, step ${p.step} of ${p.steps}` : ""}${job.eta_s !== undefined ? `, ${secsText(job.eta_s)} left` : ""}`;
    this.note.replaceChildren(...(job.error ? [make("div", job.error.message, "bad")] : []));
  }
  event({name, body}) {
    if (!name.startsWith("job.")) return;
    const job = this.jobs.get(body.id);
    if (!job && name !== "job.queued") return this.fetchJob(body.id);
    if (name === "job.preview") {
      if (body.id !== this.shown) return;
      this.picture.src = `data:image/${body.output_format};base64,${body.b64_json}`, this.picture.hidden = false, this.picture.dataset.step = body.step;
    } else if (name === "job.progress") {
      Object.assign(job, {status: "running", progress: {stage: body.stage, step: body.step, steps: body.steps}, eta_s: body.eta_s});
      if (body.id === this.shown) this.progress(job);
    } else this.fetchJob(body.id);
  }
  async fetchJob(id) {
    try { this.update(await read(`jobs/${id}`)); } catch { this.jobs.delete(id), this.drawAll(); }
  }
}
