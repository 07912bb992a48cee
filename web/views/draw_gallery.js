// What was drawn: each picture with its seed and settings; again, varied, compared, downloaded.
import {here, patch} from "../base/address.js";
import {request} from "../base/api.js";
import {button, el, make} from "../base/dom.js";
import {emptyBox} from "../parts/failure.js";
import "../parts/picture_compare.js";

// The picture of a finished job; it is fetched once.
const pictures = new Map();
export function pictureAddress(id) {
  if (!pictures.has(id))
    pictures.set(id, request(`/v1/images/${encodeURIComponent(id)}/content`).then(async r => URL.createObjectURL(await r.blob())).catch(error => (pictures.delete(id), Promise.reject(error))));
  return pictures.get(id);
}

export class Gallery {
  constructor(view) {
    this.view = view, this.items = [], this.marked = [], this.chosen = "";
    this.grid = el("div", {class: "gallery", role: "list", "aria-label": "pictures"}), this.compare = el("div", {}), this.count = make("h2", "Pictures");
    this.box = el("div", {}, this.count, this.compare, this.grid);
    this.seen = new IntersectionObserver(entries => entries.forEach(e => e.isIntersecting && this.fetch(e.target)), {rootMargin: "300px"});
  }
  show(jobs) {
    const items = jobs.flatMap(job => (job.images || []).map(image => ({job, image})));
    const key = items.map(i => i.image.id).join();
    if (key === this.key) return;
    this.key = key, this.items = items, this.count.textContent = items.length ? `Pictures (${items.length})` : "Pictures";
    const old = new Map([...this.grid.children].map(c => [c.dataset.id, c]));
    const wanted = here().params.compare?.split(",") || [];
    this.grid.replaceChildren(...(items.length ? items.map(i => old.get(i.image.id) || this.card(i)) : [emptyBox("Nothing was drawn yet.")]));
    for (const id of wanted) if (!this.marked.includes(id) && items.some(i => i.image.id === id)) [...this.grid.children].find(c => c.dataset.id === id).querySelector("input").checked = true, this.mark(id, true);
  }
  card({job, image}) {
    const img = el("img", {alt: job.prompt, width: 160, height: 160}), mark = el("input", {type: "checkbox", "aria-label": "mark for comparison", oninput: e => this.mark(image.id, e.target.checked)});
    const card = el("figure", {class: "drawn", role: "listitem", "data-id": image.id, tabindex: 0, onclick: () => this.choose(image.id), onkeydown: e => e.key === "Enter" && e.target === card && this.choose(image.id)}, img,
      el("figcaption", {}, make("div", job.prompt, "words"), make("div", `seed ${image.seed} · ${image.size} · ${job.steps} steps · guidance ${job.guidance} · ${job.model}${job.device && job.device !== "auto" ? ` on ${job.device}` : ""}`, "dim"),
        el("div", {class: "filters"}, button("Again", () => this.again(job, image.seed)), button("Vary", () => this.again(job)), button("Use", () => this.view.use(job, image.seed)), button("Download", () => this.save(job, image)), el("label", {class: "dim"}, mark, " compare"))));
    this.seen.observe(card);
    return card;
  }
  async fetch(card) {
    this.seen.unobserve(card);
    try { card.querySelector("img").src = await pictureAddress(card.dataset.id); } catch (error) { card.querySelector("img").alt = error.message; }
  }
  settings(job, seed) {
    const body = {};
    for (const name of ["prompt", "negative_prompt", "model", "size", "steps", "guidance", "output_format", "device"]) if (job[name] !== undefined) body[name] = job[name];
    return {...body, ...(job.type ? {type: job.type} : {}), n: 1, ...(seed === undefined ? {} : {seed})};
  }
  again(job, seed) {
    if (job.pictures) return this.view.use(job, seed), this.view.problem.replaceChildren(make("div", "The settings are in the form; its input pictures are to be chosen again.", "card"));
    this.view.submit(this.settings(job, seed));
  }
  act(what) {
    const item = this.items.find(i => i.image.id === this.chosen);
    if (item) this.again(item.job, what === "again" ? item.image.seed : undefined);
  }
  choose(id) {
    this.chosen = id || "";
    for (const card of this.grid.children) card.classList.toggle("chosen", card.dataset.id === id);
    patch({picture: this.chosen});
  }
  move(by) {
    const k = this.items.findIndex(i => i.image.id === this.chosen), to = this.items[Math.max(0, Math.min(this.items.length - 1, k + by))];
    if (to) this.choose(to.image.id), this.grid.querySelector(".chosen")?.scrollIntoView({block: "nearest"});
  }
  mark(id, on) {
    this.marked = this.marked.filter(m => m !== id);
    if (on) this.marked.push(id);
    patch({compare: this.marked.slice(-2).join(",")});
    if (this.marked.length < 2) return this.compare.replaceChildren();
    const [a, b] = this.marked.slice(-2), picture = el("ls-picture", {});
    this.compare.replaceChildren(make("h3", "Compare these two"), picture);
    Promise.all([pictureAddress(a), pictureAddress(b)]).then(async ([x, y]) => picture.show(x, y, await differenceOf(x, y), "left: the one that was marked first"));
  }
  async save(job, image) {
    const link = el("a", {href: await pictureAddress(image.id), download: `${job.prompt.replace(/[^\w-]+/g, "_").slice(0, 60)}-${image.seed}.${image.output_format}`});
    link.click();
  }
}

// The difference of two pictures of one size, four times as strong; null where the sizes differ.
async function differenceOf(a, b) {
  const load = address => new Promise((done, fail) => { const i = new Image(); i.onload = () => done(i), i.onerror = fail, i.src = address; });
  const [x, y] = await Promise.all([load(a), load(b)]), w = x.naturalWidth, h = x.naturalHeight;
  if (w !== y.naturalWidth || h !== y.naturalHeight) return null;
  const canvas = el("canvas", {width: w, height: h}), g = canvas.getContext("2d", {willReadFrequently: true});
  g.drawImage(x, 0, 0);
  const first = g.getImageData(0, 0, w, h);
  g.drawImage(y, 0, 0);
  const second = g.getImageData(0, 0, w, h);
  for (let i = 0; i < first.data.length; ++i) second.data[i] = i % 4 === 3 ? 255 : Math.min(255, 4 * Math.abs(first.data[i] - second.data[i]));
  g.putImageData(second, 0, 0);
  return canvas.toDataURL("image/png");
}
