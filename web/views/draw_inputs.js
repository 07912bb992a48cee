// Input pictures and a mask that is painted on the first of them. They are kept in the browser, so a reload loses none.
import {button, el, make} from "../base/dom.js";

const MOST = 16;

function store(mode, run) {
  return new Promise((done, fail) => {
    const opened = indexedDB.open("lockstep-draw", 1);
    opened.onupgradeneeded = () => opened.result.createObjectStore("kept");
    opened.onerror = () => fail(opened.error);
    opened.onsuccess = () => {
      const asked = run(opened.result.transaction("kept", mode).objectStore("kept"));
      asked.onsuccess = () => done(asked.result), asked.onerror = () => fail(asked.error);
    };
  });
}

export class InputPictures {
  constructor(changed) {
    this.list = [], this.mask = null, this.changed = changed;
    this.file = el("input", {type: "file", accept: "image/png,image/jpeg,image/webp", multiple: true, hidden: true, onchange: e => this.add(e.target.files)});
    this.thumbs = el("div", {class: "inputs"}), this.painter = el("div", {});
    this.box = el("div", {class: "draw-inputs"}, el("div", {class: "filters"}, button("Add input pictures", () => this.file.click()), make("span", "or drop them here", "dim")), this.file, this.thumbs, this.painter);
    this.box.addEventListener("dragover", e => e.preventDefault());
    this.box.addEventListener("drop", e => (e.preventDefault(), this.add(e.dataTransfer.files)));
    store("readonly", s => s.get("inputs")).then(kept => kept && (this.list = kept.list, this.mask = kept.mask, this.draw()), () => {});
  }
  async add(files) {
    for (const file of [...files].filter(f => f.type.startsWith("image/")).slice(0, MOST - this.list.length))
      this.list.push(await new Promise(done => { const r = new FileReader(); r.onload = () => done(r.result), r.readAsDataURL(file); }));
    this.keep();
  }
  keep() { store("readwrite", s => s.put({list: this.list, mask: this.mask}, "inputs")).catch(() => {}), this.draw(), this.changed(); }
  values() {
    if (!this.list.length) return {};
    return {images: this.list, ...(this.mask ? {mask: this.mask} : {})};
  }
  draw() {
    this.thumbs.replaceChildren(...this.list.map((address, k) => el("span", {class: "input"}, el("img", {src: address, alt: `input picture ${k + 1}`}), button("×", () => (this.list.splice(k, 1), k || (this.mask = null), this.keep()), {"aria-label": `remove picture ${k + 1}`, class: "quiet"}))));
    if (!this.list.length) return this.painter.replaceChildren();
    if (!this.painter.firstChild || this.painted !== this.list[0]) this.paint();
  }
  // White is what may change.
  async paint() {
    this.painted = this.list[0];
    const image = new Image();
    image.src = this.painted;
    try { await image.decode(); } catch { return this.painter.replaceChildren(make("div", "This file is no picture that the browser can read.", "bad")); }
    const mask = el("canvas", {class: "mask", width: image.naturalWidth, height: image.naturalHeight, "aria-label": "mask: paint what may change"}), g = mask.getContext("2d");
    const size = el("input", {type: "range", min: 1, max: 100, value: 20, "aria-label": "brush size"}), erase = el("input", {type: "checkbox"});
    if (this.mask) { const old = new Image(); old.src = this.mask, old.decode().then(() => this.drawMask(g, old), () => {}); }
    let last = null;
    const at = e => { const b = mask.getBoundingClientRect(); return [(e.clientX - b.left) / b.width * mask.width, (e.clientY - b.top) / b.height * mask.height]; };
    const stroke = e => {
      if (!last) return;
      const now = at(e);
      g.globalCompositeOperation = erase.checked ? "destination-out" : "source-over", g.strokeStyle = "#fff", g.lineCap = "round", g.lineWidth = size.value / 100 * Math.max(mask.width, mask.height) * .5;
      g.beginPath(), g.moveTo(...last), g.lineTo(...now), g.stroke(), last = now;
    };
    mask.addEventListener("pointerdown", e => (mask.setPointerCapture(e.pointerId), last = at(e), stroke(e)));
    mask.addEventListener("pointermove", stroke);
    mask.addEventListener("pointerup", () => (last = null, this.mask = this.maskOf(mask), this.keep()));
    this.painter.replaceChildren(el("details", {open: !!this.mask}, make("summary", "Mask: paint what may change"), el("div", {class: "paint"}, el("img", {src: this.painted, alt: ""}), mask),
      el("div", {class: "filters"}, el("label", {class: "dim"}, "brush ", size), el("label", {class: "dim"}, erase, " erase"), button("Clear the mask", () => (this.mask = null, this.painted = "", this.keep())))));
  }
  drawMask(g, old) {
    g.drawImage(old, 0, 0);
    const data = g.getImageData(0, 0, g.canvas.width, g.canvas.height);
    for (let i = 0; i < data.data.length; i += 4) data.data[i + 3] = data.data[i];
    g.putImageData(data, 0, 0);
  }
  maskOf(painted) {
    const canvas = el("canvas", {width: painted.width, height: painted.height}), g = canvas.getContext("2d");
    g.fillStyle = "#000", g.fillRect(0, 0, canvas.width, canvas.height), g.drawImage(painted, 0, 0);
    return canvas.toDataURL("image/png");
  }
}
